//! Records in plain words.

use crate::{
    Anchor, ClusterCondition, ClusterSrc, Cost, Entry, EntryAnchor, Kept, Method, OnExhaust, Pred, Ranks, Share,
    SmtCondition, Start, Step, Takes, Update, Within,
};

impl Entry {
    /// The rule that chooses the target, in sentences.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.prefer_current_hint {
            lines.push("A wake-up that asks for the CPU it runs on gets it, if the wakee may run there.".to_owned());
        }
        if self.anchor == EntryAnchor::Prev {
            lines.push("The target is prev.".to_owned());
            return lines;
        }
        if self.wide {
            lines.push(
                "A wide wake-up (both tasks switch partners more often than the LLC has CPUs) targets prev.".to_owned(),
            );
        }
        match self.anchor {
            EntryAnchor::Waker => self.describe_waker(&mut lines),
            EntryAnchor::Load | EntryAnchor::Prev => self.describe_load(&mut lines),
        }
        lines.push("In all other cases the target is prev.".to_owned());
        if self.set_waker_recent {
            lines.push("When this CPU competes for the target it becomes the waker's recent CPU.".to_owned());
        }
        lines
    }

    fn describe_load(&self, lines: &mut Vec<String>) {
        lines.push(
            "If the wakee may run on this CPU and one of its domains that pull wake-ups has prev, this CPU competes with prev:"
                .to_owned(),
        );
        lines.push("- this CPU is idle and shares prev's LLC: prev if that is idle too, else this CPU;".to_owned());
        let delayed = if self.sync_minus_delayed { ", tasks with delayed dequeue not counted" } else { "" };
        lines.push(format!("- a sync wake-up and the waker is alone on this CPU{delayed}: this CPU;"));
        if self.affine_idle_prev {
            lines.push("- prev is idle: prev;".to_owned());
        }
        lines.push(
            "- else this CPU if its load, by capacity, is below prev's plus half the domain's margin.".to_owned(),
        );
    }

    fn describe_waker(&self, lines: &mut Vec<String>) {
        lines.push("If the wakee may run on this CPU, this CPU competes with prev:".to_owned());
        lines.push("- this CPU shares prev's LLC: this CPU;".to_owned());
        lines.push("- a sync wake-up and the waker is alone on this CPU: this CPU.".to_owned());
    }

    /// What the rule reads of the world, beside the idle state.
    pub fn inputs(&self) -> Vec<&'static str> {
        let mut inputs = match self.anchor {
            EntryAnchor::Load => vec!["nr_running", "cpu_load", "capacity", "waker_load", "wakee_load"],
            EntryAnchor::Waker => vec!["nr_running"],
            EntryAnchor::Prev => Vec::new(),
        };
        if self.wide && self.anchor != EntryAnchor::Prev {
            inputs.extend(["waker_flips", "wakee_flips"]);
        }
        if self.sync_minus_delayed {
            inputs.push("nr_delayed");
        }
        if self.prefer_current_hint {
            inputs.push("prefers_current_cpu");
        }
        inputs
    }
}

impl Step {
    /// What the step does, in a sentence or two.
    pub fn describe(&self) -> String {
        match *self {
            Step::TargetIdle { pred, fits } => format!("Take the target if it is {}{}.", good(pred), fitting(fits)),
            Step::PrevIdle { share, keep, pred, fits } => {
                format!(
                    "Take prev if it {} and is {}{}.{}",
                    near(share),
                    good(pred),
                    fitting(fits),
                    second_chance(keep)
                )
            }
            Step::KthreadStack { fits } => format!(
                "If a per-CPU kernel thread wakes a task whose prev is this CPU, and at most one task runs here, take prev{}.",
                fitting(fits)
            ),
            Step::RecentIdle { share, keep, update, pred, fits } => {
                let write = match update {
                    Update::OnHit => "When it is taken, prev becomes the recent CPU.",
                    Update::Always => "In any case prev becomes the recent CPU.",
                };
                format!(
                    "Take the wakee's recent CPU if it differs from prev and target, {}, is allowed and is {}{}.{} {write}",
                    near(share),
                    good(pred),
                    fitting(fits),
                    second_chance(keep),
                )
            }
            Step::AsymScan { ranks } => {
                let rest = match ranks {
                    Ranks::V59 => "the one of largest capacity",
                    Ranks::V61 => {
                        "the one that misses only the wakee's minimum clamp, then the one of largest capacity"
                    }
                    Ranks::V72 => {
                        "the best by idle core, fit, minimum clamp and capacity; the LLC's scan limit holds while no idle core is hinted"
                    }
                };
                format!(
                    "Where the target's domains have CPUs of different capacity, end here: the first idle CPU from the target up \
                     that fits the wakee, else {rest}, else the target."
                )
            }
            Step::NeedLlc => "End with the target if it has no LLC domain.".to_owned(),
            Step::IdleCore { start, pred } => format!(
                "With SMT and while an idle core is hinted, take the first CPU of the LLC {} whose core is {} as a whole; if there \
                 is none, clear the hint.",
                from(start),
                good(pred)
            ),
            Step::ReadHic => "With SMT, read the hint whether the LLC has an idle core.".to_owned(),
            Step::IdleSmt { anchor, incl_anchor, cond, in_llc, pred } => {
                let whose = match anchor {
                    Anchor::Target => "the target",
                    Anchor::Prev => "prev",
                };
                let also = if incl_anchor { "that CPU included" } else { "that CPU excepted" };
                let within = if in_llc { " within the target's LLC" } else { "" };
                let when = match cond {
                    SmtCondition::Always => "With SMT",
                    SmtCondition::NoHicAndShareLlc => {
                        "With SMT, if no idle core is hinted and prev shares the target's LLC"
                    }
                };
                format!("{when}, take the first thread of {whose}'s core ({also}){within} that is {}.", good(pred))
            }
            Step::Budget { method, div, floor, floor_threads, cap_floors, fail_if_empty } => {
                let threads = if floor_threads { " or the threads of a core, if more" } else { "" };
                let empty = if fail_if_empty { " No scan if no CPU of the LLC is allowed." } else { "" };
                let what = match method {
                    Method::Prop => format!(
                        "LLC size × this CPU's average idle time / {div} / the average cost of a scan, at least {floor}{threads}; less one"
                    ),
                    Method::PropLimit => format!(
                        "LLC size × this CPU's average idle time / {div} / the average cost of a scan, at least {floor}{threads} and \
                         at most {cap_floors} times that; less one"
                    ),
                    Method::PropAged => format!(
                        "while no idle core is hinted, LLC size × this CPU's aged idle time / {div} / the average cost of a scan, at \
                         least {floor}{threads}; less one"
                    ),
                    Method::Util => "the LLC's nr_idle_scan, which falls with its utilisation; none at 0".to_owned(),
                    Method::None => "no limit".to_owned(),
                };
                format!("CPUs that the charged scans below may examine together: {what}.{empty}")
            }
            Step::ScanCluster { src, start, pred, charge, remove, cores, only_if } => {
                let when = match only_if {
                    ClusterCondition::NoSmt => "Without SMT",
                    ClusterCondition::ClusterKey => "Where cluster domains exist",
                };
                let whose = match src {
                    ClusterSrc::RawTopology => "the target's cluster as firmware states it",
                    ClusterSrc::ClusterDomain => "the target's lowest cluster domain",
                    ClusterSrc::LlcFirstGroup => "the target's group of the LLC domain, if that is a cluster",
                };
                let cores = if cores { " While an idle core is hinted, look for a whole one instead." } else { "" };
                let charge = if charge { " Charged to the budget." } else { " Not charged to a budget." };
                let remove = if remove { " The scan below leaves these CPUs out." } else { "" };
                format!(
                    "{when}, take the first CPU of {whose}, {}, that is {}.{cores}{charge}{remove}",
                    from(start),
                    good(pred)
                )
            }
            Step::ScanLlc { start, pred, cores, charge, charge_disallowed, cost } => {
                let cores = match cores {
                    true => {
                        " While an idle core is hinted, look for a whole one instead; if there is none, clear the hint and take the \
                         first CPU that would have done."
                    }
                    false => "",
                };
                let charge = match (charge, charge_disallowed) {
                    (true, true) => " Charged to the budget, CPUs outside the affinity too.",
                    (true, false) => " Charged to the budget.",
                    (false, _) => " Not charged to a budget.",
                };
                format!(
                    "Take the first CPU of the LLC, {}, that is {}.{cores}{charge}{}",
                    from(start),
                    good(pred),
                    booked(cost)
                )
            }
            Step::ScanMerged { start, pred, takes, on_exhaust, cost } => {
                let which = match takes {
                    Takes::FirstIdle => format!("the first {} thread of the core", good(pred)),
                    Takes::Met => {
                        format!("the CPU, whatever it runs, at which the search met the core with a thread that is {},", good(pred))
                    }
                };
                let end = match on_exhaust {
                    OnExhaust::ReturnBest => "When the budget ends, take the best so far.",
                    OnExhaust::None => "When the budget ends, find nothing.",
                };
                format!(
                    "Core by core through the LLC, {}: take the first core with no busy thread, else {which} with the fewest busy \
                     ones. Each core is charged to the budget. {end}{}",
                    from(start),
                    booked(cost)
                )
            }
            Step::TakeKept { ref order } => {
                let order: Vec<&str> = order
                    .iter()
                    .map(|kept| match kept {
                        Kept::Prev => "prev",
                        Kept::Recent => "the recent CPU",
                    })
                    .collect();
                format!("Take {}, if it was kept above, without a new look.", order.join(", else "))
            }
            Step::ClaimPrev { within, core, no_busier, disallowed } => {
                let near = match within {
                    Within::Cluster => " is in the target's cluster,",
                    Within::Llc => " shares the target's LLC,",
                    Within::Node => " is in the target's node,",
                    Within::PrevCluster | Within::All => "",
                };
                let such = if core { "with a whole idle core" } else { "with an idle CPU" };
                let unless = match no_busier {
                    true => format!(", unless another cluster of its LLC {such} has a smaller part of its CPUs busy"),
                    false => String::new(),
                };
                let allowed = if disallowed { "is (allowed or not) " } else { "is allowed and " };
                format!("{} prev if it{near} {allowed}{}{unless}.", claim(core), idle(core))
            }
            Step::ClaimAny { within, core, charge: _, rotate: true } => {
                let whose = match within {
                    Within::Llc => "prev's LLC, if there are several LLCs,",
                    Within::Node => "prev's node, if there are several nodes and they are not the LLCs,",
                    _ => "all CPUs",
                };
                format!(
                    "{} the first allowed CPU of {whose} that is {}, from behind the one that this CPU's last such choice fell on, up \
                     with wrap.",
                    claim(core),
                    idle(core)
                )
            }
            Step::ClaimAny { within, core, charge, rotate: false } => {
                let (whose, behind) = match within {
                    Within::Cluster => ("the target's cluster", "the target"),
                    Within::PrevCluster => ("prev's cluster", "prev"),
                    Within::Llc => ("the target's LLC", "the target"),
                    Within::Node => ("the target's node", "the target"),
                    Within::All => ("all CPUs", "the target"),
                };
                let charge = if charge { " Charged to the budget." } else { " Not charged to a budget." };
                format!(
                    "{} the first allowed CPU of {whose}, from behind {behind} up with wrap, that is {}.{charge}",
                    claim(core),
                    idle(core)
                )
            }
            Step::ClaimIdlest { within, core } => {
                let whose = match within {
                    Within::Cluster | Within::PrevCluster => "prev's cluster",
                    Within::Llc => "the clusters of prev's LLC",
                    Within::Node => "the clusters of prev's node",
                    Within::All => "all clusters",
                };
                let of = if core { "With SMT, of" } else { "Of" };
                format!(
                    "{of} {whose} that have an allowed CPU that is {}, choose the one with the smallest part of its CPUs busy (of \
                     equals prev's, then the next behind it), and claim such a CPU there, from prev up with wrap.",
                    idle(core)
                )
            }
            Step::SyncStack => "If this CPU is the target of a sync wake-up, is allowed, and runs only the waker, which lately slept sooner after \
                 such wake-ups than an idle CPU takes to come, take it."
                .to_owned(),
            Step::ClaimSmt => "With SMT, claim the first thread of prev's core, prev excepted, that is allowed and idle.".to_owned(),
            Step::SyncClaimPrev => {
                "In a sync wake-up, if this CPU shares prev's LLC, claim prev if it is allowed and idle.".to_owned()
            }
            Step::SyncWaker => "In a sync wake-up, if any CPU is idle, and this CPU is allowed and no task waits in its own queue, take \
                                this CPU."
                .to_owned(),
            Step::ReturnTarget => "Take the target, busy as it is.".to_owned(),
            Step::ReturnPrev => "Take prev, busy as it is.".to_owned(),
        }
    }

    /// What the step reads of the world beside idle state and affinity: names of [`crate::View`]'s methods.
    pub fn inputs(&self) -> Vec<&'static str> {
        let mut inputs = Vec::new();
        let mut pred_inputs = |pred: Pred| match pred {
            Pred::Idle | Pred::Avail => {}
            Pred::Ok59 => inputs.push("sched_idle_word"),
            Pred::Ok72 => inputs.extend(["sched_idle_word", "wakee_is_sched_idle"]),
        };
        match *self {
            Step::TargetIdle { pred, .. }
            | Step::PrevIdle { pred, .. }
            | Step::RecentIdle { pred, .. }
            | Step::IdleCore { pred, .. }
            | Step::IdleSmt { pred, .. }
            | Step::ScanCluster { pred, .. }
            | Step::ScanLlc { pred, .. }
            | Step::ScanMerged { pred, .. } => pred_inputs(pred),
            Step::AsymScan { ranks: Ranks::V72 } => pred_inputs(Pred::Ok72),
            Step::AsymScan { .. } => pred_inputs(Pred::Ok59),
            _ => {}
        }
        match *self {
            Step::TargetIdle { fits, .. } | Step::PrevIdle { fits, .. } if fits => inputs.push("fits"),
            Step::KthreadStack { fits } => {
                inputs.extend(["waker_is_per_cpu_kthread", "nr_running"]);
                inputs.extend(fits.then_some("fits"));
            }
            Step::RecentIdle { fits, .. } => {
                inputs.push("recent");
                inputs.extend(fits.then_some("fits"));
            }
            Step::AsymScan { ranks } => {
                inputs.extend(["fits", "capacity"]);
                inputs.extend((ranks != Ranks::V59).then_some("misses_only_clamp"));
                if ranks == Ranks::V72 {
                    inputs.extend(["has_idle_cores", "nr_idle_scan"]);
                }
            }
            Step::ClaimPrev { core, .. } | Step::ClaimAny { core, .. } | Step::ClaimIdlest { core, .. } => {
                inputs.extend(core.then_some("idle_core_word"));
                inputs.extend(matches!(self, Step::ClaimAny { rotate: true, .. }).then_some("last_rotated"));
                inputs.push("claim");
            }
            Step::ClaimSmt | Step::SyncClaimPrev => inputs.push("claim"),
            Step::SyncWaker => inputs.push("nr_local"),
            Step::SyncStack => inputs.extend(["nr_running", "waker_keeps_sync"]),
            Step::IdleCore { .. } | Step::ReadHic => inputs.push("has_idle_cores"),
            Step::Budget { method, .. } => match method {
                Method::Prop | Method::PropLimit => inputs.extend(["avg_idle", "avg_scan_cost"]),
                Method::PropAged => inputs.extend(["aged_idle", "avg_scan_cost"]),
                Method::Util => inputs.push("nr_idle_scan"),
                Method::None => {}
            },
            Step::ScanLlc { start, cost, .. } | Step::ScanMerged { start, cost, .. } => {
                inputs.extend((start == Start::NextCpu).then_some("next_cpu"));
                if cost != Cost::None {
                    inputs.extend(["scan_time", "avg_scan_cost"]);
                }
            }
            _ => {}
        }
        inputs
    }
}

fn good(pred: Pred) -> &'static str {
    match pred {
        Pred::Idle => "idle",
        Pred::Avail => "available (idle, its virtual CPU not preempted)",
        Pred::Ok59 => "available or runs only SCHED_IDLE tasks",
        Pred::Ok72 => "available, or runs only SCHED_IDLE tasks and the wakee is none",
    }
}

fn claim(core: bool) -> &'static str {
    if core { "With SMT, claim" } else { "Claim" }
}

fn idle(core: bool) -> &'static str {
    if core { "idle on a core that is idle as a whole" } else { "idle" }
}

fn fitting(fits: bool) -> &'static str {
    if fits { " (where capacities differ: and fits the wakee)" } else { "" }
}

fn near(share: Share) -> &'static str {
    match share {
        Share::Llc => "shares the target's LLC",
        Share::Lowest => "shares the target's cluster (without cluster domains: its LLC)",
    }
}

fn second_chance(keep: bool) -> &'static str {
    if keep { " If it shares only the LLC, keep it as a second chance." } else { "" }
}

fn from(start: Start) -> &'static str {
    match start {
        Start::Target => "from the target up with wrap",
        Start::AfterTarget => "from behind the target up with wrap",
        Start::NextCpu => "from where the last scan for this target stopped",
        Start::Transposed => "from the CPU with prev's position in its own LLC",
    }
}

fn booked(cost: Cost) -> &'static str {
    match cost {
        Cost::None => "",
        Cost::AvgScanCost => " A scan that was not cut short goes into the average cost.",
        Cost::Aged => " A scan that was not cut short goes into the average cost and off the aged idle time.",
    }
}
