//! Decisions replayed through a policy.

use std::collections::BTreeSet;

use huddle_domains::DomainTree;
use huddle_machine::CpuId;
use huddle_policy::{AffineRule, Event, Frozen, Method, Placement, Plan, Scratch, Step, Wakeup};

use crate::{Decision, Kind, Read};

/// How a policy and a kernel agree about the decisions that end in one step, or in one entry rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The step's kind, the rule's name.
    pub name: &'static str,
    /// Decisions.
    pub decisions: u32,
    /// Those in which the kernel's choice is one that the policy allows.
    pub agreed: u32,
    /// Of these, the ones in which the policy also looks at the same CPUs in the same order. Not counted for entry rules.
    pub same_reads: u32,
    /// Of the agreed, those in which what the trace does not show allows more than one choice.
    pub bracketed: u32,
    /// Decisions in which it allows every CPU of the wakee; they are no evidence and not among the others.
    pub undecidable: u32,
}

impl Row {
    /// The share that agrees; `None` without a decision.
    pub fn share(&self) -> Option<f64> {
        (self.decisions > 0).then(|| f64::from(self.agreed) / f64::from(self.decisions))
    }
}

/// A decision that the policy would have taken otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The decision.
    pub decision: Decision,
    /// The target that the policy works with.
    pub target: CpuId,
    /// The policy's choice with scans that no budget ends.
    pub policy: CpuId,
    /// Its deciding step.
    pub step: &'static str,
}

/// The outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// By deciding step, in the policy's order; steps that decided nothing too.
    pub steps: Vec<Row>,
    /// By entry rule, in the order of their names.
    pub entry: Vec<Row>,
    /// The first disagreements about steps, at most [`Judge::KEPT`].
    pub disagreements: Vec<Disagreement>,
}

impl Agreement {
    /// All steps together but the one that takes the idle target.
    pub fn non_trivial(&self) -> Row {
        let mut sum = Row { name: "all but TargetIdle", ..Row::default() };
        for row in self.steps.iter().filter(|row| row.name != TRIVIAL) {
            sum.decisions += row.decisions;
            sum.agreed += row.agreed;
            sum.same_reads += row.same_reads;
            sum.bracketed += row.bracketed;
            sum.undecidable += row.undecidable;
        }
        sum
    }
}

const TRIVIAL: &str = "TargetIdle";
/// The core's own rules around the steps.
const BY_CORE: &str = "core";
/// A load that decides any comparison.
const HEAVY: u64 = 1 << 30;

/// A policy on a machine, and what was found of it.
pub struct Judge<'a> {
    plan: &'a Plan,
    blank: Frozen,
    scratch: Scratch,
    agreement: Agreement,
    /// What the plan looked at in the last placement.
    looked: Vec<CpuId>,
}

/// One way in which the entry rule may have gone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Start {
    rule: &'static str,
    target: CpuId,
    /// Reads of the entry rule.
    reads: usize,
}

/// One way in which the steps may have gone.
struct Way {
    placement: Placement,
    target: CpuId,
    same_reads: bool,
}

impl<'a> Judge<'a> {
    /// Most disagreements that are kept.
    pub const KEPT: usize = 1000;

    /// Judges a plan compiled for this tree.
    pub fn new(plan: &'a Plan, tree: &DomainTree) -> Judge<'a> {
        let rows = plan.steps().iter().map(|step| Row { name: step.kind(), ..Row::default() });
        let rows = rows.chain([Row { name: BY_CORE, ..Row::default() }]).collect();
        Judge {
            plan,
            blank: Frozen::new(tree),
            scratch: plan.scratch(),
            agreement: Agreement { steps: rows, ..Agreement::default() },
            looked: Vec::new(),
        }
    }

    /// What was found.
    pub fn finish(self) -> Agreement {
        self.agreement
    }

    /// Replays a wake-up; other placements are passed over.
    pub fn judge(&mut self, decision: &Decision) {
        if decision.kind != Kind::Wakeup {
            return;
        }
        let starts = self.starts(decision);
        let seen: Vec<Start> = starts.iter().copied().filter(|start| fits(start, decision)).collect();
        self.count_entry(decision, &starts, !seen.is_empty());
        // The steps are judged by themselves: from the target that was seen, whether or not the entry rule explains it.
        let ways: Vec<Way> = match (seen.is_empty(), decision.reads.first()) {
            (false, _) => seen.iter().flat_map(|start| self.ways(decision, start.target, start.reads)).collect(),
            (true, Some(read)) if decision.steps_alone => self.ways(decision, read.cpu, 0),
            (true, _) => starts.iter().flat_map(|start| self.ways(decision, start.target, start.reads)).collect(),
        };
        self.count_steps(decision, &ways);
    }

    /// The ways that the entry rule may have gone, with what the trace does not show taken either way: whether the wake-up is wide
    /// where the wakee's switches of partner allow it, and which CPU has the less load.
    fn starts(&mut self, decision: &Decision) -> Vec<Start> {
        let mut starts: Vec<Start> = Vec::new();
        let factor = self.plan.facts(decision.this).map_or(1, |facts| facts.llc_size);
        // `wake_wide` needs as many switches of both as the LLC has CPUs.
        let may_be_wide = decision.flips.is_none_or(|flips| flips >= factor);
        let most = if decision.steps_alone { 0 } else { decision.reads.len().min(2) };
        let unsure: Vec<CpuId> =
            [decision.this, decision.prev].into_iter().filter(|&cpu| decision.unsure.contains(cpu)).collect();
        for reads in 0..=most {
            for world in 0..(4 << unsure.len()) {
                let (wide, prev_heavy) = (world & 1 != 0, world & 2 != 0);
                if wide && !may_be_wide {
                    continue;
                }
                let mut state = self.state(decision);
                for (index, &cpu) in unsure.iter().enumerate() {
                    set(&mut state, Read { cpu, idle: world >> (2 + index) & 1 != 0 });
                }
                decision.reads[..reads].iter().for_each(|&read| set(&mut state, read));
                state.load[if prev_heavy { decision.prev } else { decision.this }.index()] = HEAVY;
                let flips = decision.flips.unwrap_or(factor).max(factor);
                state.wakee_flips = Some(if wide { flips } else { 0 });
                state.waker_flips = Some(if wide { flips.saturating_mul(factor) } else { 0 });
                let Some(start) = self.start(decision, state) else { continue };
                let by_probe = decision.steps_alone || decision.reads.is_empty() || start.reads == reads;
                if by_probe && !starts.contains(&start) {
                    starts.push(start);
                }
            }
        }
        starts
    }

    /// The entry rule's way in one state.
    fn start(&mut self, decision: &Decision, mut state: Frozen) -> Option<Start> {
        let mut chosen = None;
        let mut hear = |event| {
            if let Event::Target { rule, target } = event {
                chosen = Some((rule, target));
            }
        };
        // Only the target counts here; an error would come from a step behind it.
        let _ = self.plan.place_traced(&mut state, &wakeup(decision), &mut self.scratch, &mut hear);
        let (rule, target) = chosen?;
        let (rule, reads) = named(rule, self.plan.entry().affine_idle_prev);
        Some(Start { rule, target, reads: if decision.steps_alone { 0 } else { reads } })
    }

    /// The ways that the steps may have gone from a target: with every limit of scans.
    fn ways(&mut self, decision: &Decision, target: CpuId, skipped: usize) -> Vec<Way> {
        let reads = decision.reads.get(skipped..).unwrap_or(&[]);
        let llc_size = self.plan.facts(target).map_or(1, |facts| facts.llc_size);
        let mut ways = Vec::new();
        for state in self.states(decision, reads) {
            for limit in std::iter::once(None).chain((0..=llc_size).map(Some)) {
                let mut state = state.clone();
                if let Some(limit) = limit {
                    set_limit(&mut state, self.plan, limit, llc_size);
                }
                let Some((placement, scanned)) = self.select(decision, target, &mut state) else { continue };
                let same_reads = self.same_reads(decision, reads, &placement);
                ways.push(Way { placement, target, same_reads });
                if !scanned {
                    break;
                }
            }
        }
        ways
    }

    /// What the steps may have found: idle is what the events say; and where that may have changed, unless a read tells, the kernel's choice
    /// was idle and no other CPU was.
    fn states(&self, decision: &Decision, reads: &[Read]) -> Vec<Frozen> {
        let mut plain = self.state(decision);
        let mut favourable = plain.clone();
        for cpu in decision.unsure.iter() {
            set(&mut favourable, Read { cpu, idle: cpu == decision.cpu });
        }
        for state in [&mut plain, &mut favourable] {
            reads.iter().for_each(|&read| set(state, read));
        }
        if plain.idle == favourable.idle { vec![plain] } else { vec![plain, favourable] }
    }

    /// Whether the plan looked at the CPUs that were read, in their order. `select_idle_cpu` of 7.2 asks `choose_idle_cpu` within the
    /// cluster and has a copy of its own for the rest of the LLC, where no probe sees it.
    fn same_reads(&self, decision: &Decision, reads: &[Read], placement: &Placement) -> bool {
        let step = self.plan.steps().get(usize::from(placement.step));
        let unseen = decision.steps_alone && matches!(step, Some(Step::ScanLlc { .. }));
        let mut looked = self.looked.iter().copied();
        reads.iter().all(|read| looked.next() == Some(read.cpu)) && (unseen || looked.next().is_none())
    }

    /// The steps' choice in one state, and whether they came to a limit of scans.
    fn select(&mut self, decision: &Decision, target: CpuId, state: &mut Frozen) -> Option<(Placement, bool)> {
        let Judge { plan, scratch, looked, .. } = self;
        looked.clear();
        let (mut scanned, mut reads) = (false, true);
        let mut hear = |event| match event {
            // That step asks how many tasks run, not whether the CPU is idle.
            Event::Step(index) => reads = !matches!(plan.steps()[index], Step::KthreadStack { .. }),
            Event::Tested { cpu, .. } if reads => looked.push(cpu),
            Event::Examined { word, bits } => {
                looked.extend((0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| CpuId::from(64 * word + bit)));
            }
            Event::Budget(_) => scanned = true,
            _ => {}
        };
        let placed = plan.place_on_target_traced(state, &wakeup(decision), target, scratch, &mut hear);
        placed.ok().map(|placement| (placement, scanned))
    }

    /// The machine as the decision found it; what it looked at is for the caller to add.
    fn state(&self, decision: &Decision) -> Frozen {
        let mut state = self.blank.clone();
        state.idle = decision.idle.clone();
        state.nr_running.clone_from(&decision.nr_running);
        state.waker_is_per_cpu_kthread = decision.by_per_cpu_kthread;
        state.prefers_current_cpu = decision.current_cpu;
        state.recent = decision.recent;
        state
    }

    fn count_entry(&mut self, decision: &Decision, starts: &[Start], agreed: bool) {
        let seen = starts.iter().find(|start| fits(start, decision)).or(starts.first());
        let Some(start) = seen else { return };
        let targets: BTreeSet<CpuId> = starts.iter().map(|start| start.target).collect();
        let rows = &mut self.agreement.entry;
        let at = rows.binary_search_by(|row| row.name.cmp(start.rule)).unwrap_or_else(|at| {
            rows.insert(at, Row { name: start.rule, ..Row::default() });
            at
        });
        let row = &mut rows[at];
        row.decisions += 1;
        row.agreed += u32::from(agreed);
        row.bracketed += u32::from(agreed && targets.len() > 1);
    }

    fn count_steps(&mut self, decision: &Decision, ways: &[Way]) {
        let right = |way: &&Way| way.placement.cpu == decision.cpu;
        let best = ways.iter().filter(|way| way.same_reads).find(right).or_else(|| ways.iter().find(right));
        let Some(way) = best.or(ways.first()) else { return };
        let Some(row) = self.agreement.steps.get_mut(usize::from(way.placement.step)) else { return };
        let choices: BTreeSet<CpuId> = ways.iter().map(|way| way.placement.cpu).collect();
        if choices.len() >= self.plan.nr_cpus() && choices.len() > 1 {
            row.undecidable += 1;
            return;
        }
        row.decisions += 1;
        if best.is_some() {
            row.agreed += 1;
            row.same_reads += u32::from(way.same_reads);
            row.bracketed += u32::from(choices.len() > 1);
        } else if self.agreement.disagreements.len() < Judge::KEPT {
            let (target, policy, step) = (way.target, way.placement.cpu, row.name);
            self.agreement.disagreements.push(Disagreement { decision: decision.clone(), target, policy, step });
        }
    }
}

/// Whether a way of the entry rule is the one that was seen: the read behind its own is that of the target.
fn fits(start: &Start, decision: &Decision) -> bool {
    decision.reads.is_empty() || decision.reads.get(start.reads).is_some_and(|read| read.cpu == start.target)
}

fn set(state: &mut Frozen, read: Read) {
    if read.idle { state.idle.insert(read.cpu) } else { state.idle.remove(read.cpu) }
}

fn wakeup(decision: &Decision) -> Wakeup {
    Wakeup { this: decision.this, prev: decision.prev, sync: decision.sync }
}

/// Lets charged scans examine so many CPUs; a proportional budget is no less than its floor.
fn set_limit(state: &mut Frozen, plan: &Plan, limit: u32, llc_size: u32) {
    state.nr_idle_scan.fill(Some(limit));
    let div = plan.steps().iter().find_map(|step| match *step {
        Step::Budget { method: Method::Prop | Method::PropLimit | Method::PropAged, div, .. } => Some(div),
        _ => None,
    });
    // LLC size × (idle time / div) / (cost + 1) is one more than the scan examines.
    let idle_time = u64::from(limit + 1) * u64::from(div.unwrap_or(1));
    state.avg_idle.fill(idle_time);
    state.aged_idle.fill(idle_time);
    state.avg_scan_cost.fill(u64::from(llc_size.max(1)) - 1);
}

/// A rule's name, and how many CPUs it looked at (`wake_affine_idle`: this CPU; prev, if this one is idle or else where the version
/// asks).
fn named(rule: AffineRule, asks_prev: bool) -> (&'static str, usize) {
    match rule {
        AffineRule::CurrentCpu => ("this CPU is asked for", 0),
        AffineRule::Wide => ("wide", 0),
        AffineRule::ThisNotAllowed => ("this CPU is not allowed", 0),
        AffineRule::NoDomain => ("no domain", 0),
        AffineRule::SameCpu => ("same CPU", 0),
        AffineRule::AlwaysPrev => ("always prev", 0),
        AffineRule::ThisNear => ("this CPU is near", 0),
        AffineRule::PrevFar => ("prev is far", 0),
        AffineRule::BothIdle => ("both idle", 2),
        AffineRule::ThisIdle => ("this CPU idle", 2),
        AffineRule::SyncAlone => ("sync, waker alone", 1),
        AffineRule::PrevIdle => ("prev idle", 2),
        AffineRule::SyncLoad | AffineRule::Weight { .. } => ("loads", 1 + usize::from(asks_prev)),
    }
}
