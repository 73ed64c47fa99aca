//! A policy as data: one TOML record, read strictly.
//!
//! A record says how the target is chosen ([`Entry`]) and which [`Step`]s then look for a CPU, in order. Everything a reader of
//! a record may write wrongly is refused with the file, the step's number, the key and what would be right.

use std::fmt;

use huddle_domains::Kernel;
use include_dir::{Dir, include_dir};
use serde::Serialize;
use toml::{Table, Value};

static SHIPPED: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../policies");

/// A placement policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Its name (`linux-6.7`).
    pub name: String,
    /// One sentence.
    pub title: String,
    /// Other names under which it loads.
    pub aliases: Vec<String>,
    /// Name of the kernel record whose domains, balancing and queue it was published with.
    pub kernel: String,
    /// How the target is chosen.
    pub entry: Entry,
    /// What then looks for a CPU, in order.
    pub steps: Vec<Step>,
    /// What looks for the CPU of a forked task and on exec, from the CPU that forks as prev and target; `None` leaves both to the
    /// kernel's slow path.
    pub fork: Option<Vec<Step>>,
}

/// How a wake-up's target is chosen (`select_task_rq_fair`, `wake_affine`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What a wake-up that is not wide goes by.
    pub anchor: EntryAnchor,
    /// Wide wakers and wakees (`wake_wide`) keep their previous CPU as target.
    pub wide: bool,
    /// An idle previous CPU becomes the target before loads are compared (5.11 on).
    pub affine_idle_prev: bool,
    /// A sync wake-up does not count tasks whose dequeue is delayed (6.12 on).
    pub sync_minus_delayed: bool,
    /// An affine wake-up notes this CPU as the waker's recent one (up to 5.14).
    pub set_waker_recent: bool,
    /// A wake-up that asks for the current CPU gets it (6.6 on).
    pub prefer_current_hint: bool,
}

/// Declares an enumeration whose values are words of a record.
macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        impl Word for $name {
            const WORDS: &'static [(&'static str, $name)] = &[$(($word, $name::$variant)),*];
        }
    )*};
}

/// A value written as a word.
trait Word: Copy + PartialEq + 'static {
    /// Every value with its word.
    const WORDS: &'static [(&'static str, Self)];
}

words! {
    /// What the target of a wake-up goes by.
    EntryAnchor {
        /// Idle state, then load of this CPU and the previous one (`wake_affine`).
        Load = "load",
        /// This CPU where it shares the previous one's LLC or the waker gives way, else the previous one.
        Waker = "waker",
        /// The previous CPU, always; no wake-up is wide.
        Prev = "prev",
    }

    /// When a CPU will do.
    Pred {
        /// Idle (`idle_cpu`, 4.17).
        Idle = "idle",
        /// Idle and not preempted by a hypervisor (`available_idle_cpu`).
        Avail = "avail",
        /// Available, or running only SCHED_IDLE tasks (5.4 … 6.x).
        Ok59 = "ok59",
        /// As `ok59`, but a SCHED_IDLE wakee takes no CPU from its like (7.2).
        Ok72 = "ok72",
    }

    /// What a candidate must share with the target.
    Share {
        /// The last-level cache (`cpus_share_cache`).
        Llc = "llc",
        /// The lowest shared cache that has a domain (`cpus_share_resources`).
        Lowest = "lowest",
    }

    /// When the wakee's recent CPU is overwritten with its previous one.
    Update {
        /// When the recent CPU is taken (up to 5.14).
        OnHit = "on_hit",
        /// On every pass, before the old value is tested (5.15 on).
        Always = "always",
    }

    /// Which order the capacity scan puts on CPUs that do not fit.
    Ranks {
        /// Larger capacity first.
        V59 = "v5_9",
        /// A CPU that misses only the utilisation clamp first, then larger capacity.
        V61 = "v6_1",
        /// Budgeted; whole idle cores first while the hint says there are any.
        V72 = "v7_2",
    }

    /// Where a scan starts.
    Start {
        /// At the target.
        Target = "target",
        /// Behind the target, which comes last.
        AfterTarget = "target+1",
        /// Where the last scan for this target stopped, else at the target (2018).
        NextCpu = "next_cpu",
        /// For a target in another LLC than the previous CPU: at the CPU with the previous CPU's position in its own LLC (2018).
        Transposed = "transposed",
    }

    /// Whose core's threads are tested.
    Anchor {
        /// The target's.
        Target = "target",
        /// The previous CPU's.
        Prev = "prev",
    }

    /// When a core's threads are tested.
    SmtCondition {
        /// Whenever there is SMT.
        Always = "always",
        /// When no idle core is hinted and the previous CPU shares the target's LLC.
        NoHicAndShareLlc = "no_hic_and_share_llc",
    }

    /// How the scan budget comes about.
    Method {
        /// In proportion to average idle time over average scan cost (`SIS_PROP`).
        Prop = "prop",
        /// The same with an upper limit (2018).
        PropLimit = "prop_limit",
        /// The same from the aged idle time, and only when no idle core is hinted (5.14 … 6.6).
        PropAged = "prop_aged",
        /// From the LLC's utilisation (`SIS_UTIL`).
        Util = "util",
        /// No limit.
        None = "none",
    }

    /// Where the cluster's CPUs come from.
    ClusterSrc {
        /// The firmware's mask, past the domains (RFC v2).
        RawTopology = "raw_topology",
        /// The lowest domain that is a cluster (v7 posting).
        ClusterDomain = "cluster_domain",
        /// The first group of the LLC domain, if that group is a cluster (6.7 on).
        LlcFirstGroup = "llc_first_group",
    }

    /// When the cluster is scanned.
    ClusterCondition {
        /// Without SMT.
        NoSmt = "no_smt",
        /// When cluster domains exist (`sched_cluster_active`).
        ClusterKey = "cluster_key",
    }

    /// What a completed scan's time is booked to.
    Cost {
        /// Nothing.
        None = "none",
        /// The average scan cost of this CPU's LLC domain.
        AvgScanCost = "avg_scan_cost",
        /// The average scan cost, and off the aged idle time.
        Aged = "aged",
    }

    /// Which CPU of the core with the fewest busy threads a merged scan takes.
    Takes {
        /// Its first idle one.
        FirstIdle = "first_idle",
        /// The one at which the scan met the core, busy or not.
        Met = "met",
    }

    /// What a merged scan does at the end of its budget.
    OnExhaust {
        /// Returns the best CPU seen.
        ReturnBest = "return_best",
        /// Finds nothing.
        None = "none",
    }

    /// Where a claim looks for a CPU.
    Within {
        /// The target's cluster.
        Cluster = "cluster",
        /// The previous CPU's cluster.
        PrevCluster = "prev_cluster",
        /// The LLC: the target's, of [`Step::ClaimIdlest`] the previous CPU's.
        Llc = "llc",
        /// The node, likewise.
        Node = "node",
        /// The partition.
        All = "all",
    }

    /// A CPU kept for later.
    Kept {
        /// The previous CPU.
        Prev = "prev",
        /// The recent CPU.
        Recent = "recent",
    }
}

/// One step: it finds a CPU, ends the search with a value, or continues. Meanings: [`Step::describe`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind")]
#[allow(missing_docs)] // the parameters are described once, in the sentences of `describe`
pub enum Step {
    TargetIdle {
        pred: Pred,
        fits: bool,
    },
    PrevIdle {
        share: Share,
        keep: bool,
        pred: Pred,
        fits: bool,
    },
    KthreadStack {
        fits: bool,
    },
    RecentIdle {
        share: Share,
        keep: bool,
        update: Update,
        pred: Pred,
        fits: bool,
    },
    AsymScan {
        ranks: Ranks,
    },
    NeedLlc,
    IdleCore {
        start: Start,
        pred: Pred,
    },
    ReadHic,
    IdleSmt {
        anchor: Anchor,
        incl_anchor: bool,
        cond: SmtCondition,
        in_llc: bool,
        pred: Pred,
    },
    Budget {
        method: Method,
        div: u32,
        floor: u32,
        floor_threads: bool,
        cap_floors: u32,
        fail_if_empty: bool,
    },
    ScanCluster {
        src: ClusterSrc,
        start: Start,
        pred: Pred,
        charge: bool,
        remove: bool,
        cores: bool,
        only_if: ClusterCondition,
    },
    ScanLlc {
        start: Start,
        pred: Pred,
        cores: bool,
        charge: bool,
        charge_disallowed: bool,
        cost: Cost,
    },
    ScanMerged {
        start: Start,
        pred: Pred,
        takes: Takes,
        on_exhaust: OnExhaust,
        cost: Cost,
    },
    TakeKept {
        order: Vec<Kept>,
    },
    ClaimPrev {
        within: Within,
        core: bool,
        no_busier: bool,
        disallowed: bool,
    },
    ClaimAny {
        within: Within,
        core: bool,
        charge: bool,
        rotate: bool,
    },
    ClaimIdlest {
        within: Within,
        core: bool,
    },
    ClaimSmt,
    SyncStack,
    SyncClaimPrev,
    SyncWaker,
    ReturnTarget,
    ReturnPrev,
}

/// The kinds of step, as records name them.
const KINDS: &[&str] = &[
    "TargetIdle",
    "PrevIdle",
    "KthreadStack",
    "RecentIdle",
    "AsymScan",
    "NeedLlc",
    "IdleCore",
    "ReadHic",
    "IdleSmt",
    "Budget",
    "ScanCluster",
    "ScanLlc",
    "ScanMerged",
    "TakeKept",
    "ClaimPrev",
    "ClaimAny",
    "ClaimIdlest",
    "ClaimSmt",
    "SyncStack",
    "SyncClaimPrev",
    "SyncWaker",
    "ReturnTarget",
    "ReturnPrev",
];

/// The kinds of step that a fork may have.
const FORK_KINDS: &[&str] = &["ClaimPrev", "ClaimAny", "ClaimIdlest", "ClaimSmt", "ReturnPrev"];

/// The most steps a record may have: [`crate::Placement::step`] is a byte.
const MAX_STEPS: usize = 200;

/// Why a policy cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No record has that name.
    #[error("unknown policy `{name}`; known are {known}, or give the path of a .toml file")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("{file}: cannot be read: {message}")]
    Read {
        /// The file.
        file: String,
        /// The system's word.
        message: String,
    },
    /// The record is wrong outside its steps.
    #[error("{file}: {message}")]
    Record {
        /// The file.
        file: String,
        /// Which key, and what would be right.
        message: String,
    },
    /// A step is wrong.
    #[error("{file}: {list} {step}: {message}")]
    Step {
        /// The file.
        file: String,
        /// Which steps: `step`, `fork step`.
        list: &'static str,
        /// The step, counted from 1.
        step: usize,
        /// Which key, and what would be right.
        message: String,
    },
}

impl PolicyError {
    /// The name was wrong, not a file.
    pub fn is_usage(&self) -> bool {
        matches!(self, PolicyError::Unknown { .. })
    }
}

/// The names of the records that come with the program, ascending by release.
pub fn policy_names() -> Vec<String> {
    let mut names: Vec<String> = shipped().map(|(name, _)| name.to_owned()).collect();
    names.sort_by(|one, other| by_release(one).cmp(by_release(other)));
    names
}

/// A name's runs of digits and of other characters, so that numbers sort by size: `linux-5.9` before `linux-5.10`.
fn by_release(name: &str) -> impl Iterator<Item = (usize, &[u8])> {
    let is_digit = u8::is_ascii_digit;
    name.as_bytes()
        .chunk_by(move |one, next| is_digit(one) == is_digit(next))
        .map(move |run| (if run.iter().all(is_digit) { run.len() } else { 0 }, run))
}

/// The embedded records: file stem and text.
fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED
        .files()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|file| Some((file.path().file_stem()?.to_str()?, file.contents_utf8()?)))
}

impl Policy {
    /// Loads a shipped record by its name or an alias, or the file at a path (anything with a `/` or ending in `.toml`).
    ///
    /// # Errors
    /// Unknown names, files that cannot be read, and everything [`Policy::parse`] refuses.
    pub fn load(name_or_path: &str) -> Result<Policy, PolicyError> {
        if name_or_path.contains('/') || name_or_path.ends_with(".toml") {
            let text = std::fs::read_to_string(name_or_path)
                .map_err(|error| PolicyError::Read { file: name_or_path.to_owned(), message: error.to_string() })?;
            return Policy::parse(name_or_path, &text);
        }
        for (name, text) in shipped() {
            let policy = Policy::parse(&format!("policies/{name}.toml"), text)?;
            if policy.name == name_or_path || policy.aliases.iter().any(|alias| alias == name_or_path) {
                return Ok(policy);
            }
        }
        Err(PolicyError::Unknown { name: name_or_path.to_owned(), known: policy_names().join(", ") })
    }

    /// Reads a record; `file` is named in errors.
    ///
    /// # Errors
    /// Bad TOML, unknown, missing or wrong keys, a kernel that cannot be had, and steps whose order makes no sense.
    pub fn parse(file: &str, text: &str) -> Result<Policy, PolicyError> {
        let refuse = |message: String| PolicyError::Record { file: file.to_owned(), message };
        let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            refuse(format!("line {line}: {}", error.message().replace('\n', " ")))
        })?;
        let steps = match table.remove("steps") {
            None => return Err(refuse("`steps` is missing: a list of tables, each with a `kind`".to_owned())),
            Some(value) => step_tables("steps", value).map_err(refuse)?,
        };
        let fork = table.remove("fork").map(|value| step_tables("fork", value)).transpose().map_err(refuse)?;
        let mut keys = Keys::new(table);
        let head = (|| {
            let mut entry = Keys::new(keys.table("entry")?);
            let head = Policy {
                name: keys.text("name")?,
                title: keys.text("title")?,
                aliases: keys.texts("aliases")?,
                kernel: keys.kernel("kernel")?,
                entry: parse_entry(&mut entry)?,
                steps: Vec::new(),
                fork: None,
            };
            entry.done("`entry`")?;
            keys.done("a policy, beside `steps` and `fork`,")?;
            Ok(head)
        })()
        .map_err(refuse)?;
        let steps = parse_steps(file, "step", steps)?;
        let fork = fork.map(|fork| parse_steps(file, "fork step", fork)).transpose()?;
        if let Some((index, step)) =
            fork.iter().flatten().enumerate().find(|(_, step)| !FORK_KINDS.contains(&step.kind()))
        {
            let message = format!("{} is no step of a fork; those are {}", step.kind(), FORK_KINDS.join(", "));
            return Err(PolicyError::Step { file: file.to_owned(), list: "fork step", step: index + 1, message });
        }
        Ok(Policy { steps, fork, ..head })
    }
}

/// The tables of a list of steps.
fn step_tables(key: &str, value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(steps) if !steps.is_empty() => Ok(steps),
        _ => Err(format!("`{key}` must be a list of one or more tables, each with a `kind`")),
    }
}

/// A list of steps in an order that makes sense; `list` is what errors call its members.
fn parse_steps(file: &str, list: &'static str, steps: Vec<Value>) -> Result<Vec<Step>, PolicyError> {
    let refuse = |index: usize, message| PolicyError::Step { file: file.to_owned(), list, step: index + 1, message };
    let steps = steps
        .into_iter()
        .enumerate()
        .map(|(index, value)| parse_step(value).map_err(|message| refuse(index, message)))
        .collect::<Result<Vec<Step>, _>>()?;
    check_order(&steps).map_err(|(index, message)| refuse(index, message))?;
    Ok(steps)
}

/// How the target is chosen: keys that the anchor does not read must not be set.
fn parse_entry(keys: &mut Keys) -> Result<Entry, String> {
    let anchor = keys.word_or("anchor", EntryAnchor::Load)?;
    let entry = Entry {
        anchor,
        wide: keys.flag_or("wide", anchor != EntryAnchor::Prev)?,
        affine_idle_prev: keys.flag("affine_idle_prev")?,
        sync_minus_delayed: keys.flag("sync_minus_delayed")?,
        set_waker_recent: keys.flag("set_waker_recent")?,
        prefer_current_hint: keys.flag("prefer_current_hint")?,
    };
    let (load, prev) = (anchor == EntryAnchor::Load, anchor == EntryAnchor::Prev);
    let unread = [
        ("wide", entry.wide && prev),
        ("affine_idle_prev", entry.affine_idle_prev && !load),
        ("sync_minus_delayed", entry.sync_minus_delayed && !load),
        ("set_waker_recent", entry.set_waker_recent && prev),
    ];
    match unread.into_iter().find(|&(_, set)| set) {
        Some((key, _)) => Err(format!("`{key}` is true but `anchor = \"{}\"` does not read it", spell(anchor))),
        None => Ok(entry),
    }
}

/// One step from its table; the error says which key and what would be right.
fn parse_step(value: Value) -> Result<Step, String> {
    let Value::Table(table) = value else {
        return Err("must be a table like { kind = \"ReturnTarget\" }".to_owned());
    };
    let mut keys = Keys::new(table);
    let kind = keys.text("kind")?;
    let around_target = &[Start::Target, Start::AfterTarget];
    let step = (|| {
        Ok(match kind.as_str() {
            "TargetIdle" => Step::TargetIdle { pred: keys.word("pred")?, fits: keys.flag("fits")? },
            "PrevIdle" => Step::PrevIdle {
                share: keys.word("share")?,
                keep: keys.flag("keep")?,
                pred: keys.word("pred")?,
                fits: keys.flag("fits")?,
            },
            "KthreadStack" => Step::KthreadStack { fits: keys.flag("fits")? },
            "RecentIdle" => Step::RecentIdle {
                share: keys.word("share")?,
                keep: keys.flag("keep")?,
                update: keys.word("update")?,
                pred: keys.word("pred")?,
                fits: keys.flag("fits")?,
            },
            "AsymScan" => Step::AsymScan { ranks: keys.word("ranks")? },
            "NeedLlc" => Step::NeedLlc,
            "IdleCore" => Step::IdleCore { start: keys.word_of("start", around_target)?, pred: keys.word("pred")? },
            "ReadHic" => Step::ReadHic,
            "IdleSmt" => Step::IdleSmt {
                anchor: keys.word("anchor")?,
                incl_anchor: keys.flag("incl_anchor")?,
                cond: keys.word("cond")?,
                in_llc: keys.flag("in_llc")?,
                pred: keys.word("pred")?,
            },
            "Budget" => parse_budget(&mut keys)?,
            "ScanCluster" => Step::ScanCluster {
                src: keys.word("src")?,
                start: keys.word_of("start", around_target)?,
                pred: keys.word("pred")?,
                charge: keys.flag("charge")?,
                remove: keys.flag("remove")?,
                cores: keys.flag("cores")?,
                only_if: keys.word("only_if")?,
            },
            "ScanLlc" => Step::ScanLlc {
                start: keys.word("start")?,
                pred: keys.word("pred")?,
                cores: keys.flag("cores")?,
                charge: keys.flag("charge")?,
                charge_disallowed: keys.flag("charge_disallowed")?,
                cost: keys.word("cost")?,
            },
            "ScanMerged" => Step::ScanMerged {
                start: keys.word("start")?,
                pred: keys.word("pred")?,
                takes: keys.word_or("takes", Takes::FirstIdle)?,
                on_exhaust: keys.word("on_exhaust")?,
                cost: keys.word("cost")?,
            },
            "TakeKept" => Step::TakeKept { order: keys.words("order")? },
            "ClaimPrev" => Step::ClaimPrev {
                within: keys.word_of("within", &[Within::Cluster, Within::Llc, Within::All])?,
                core: keys.flag("core")?,
                no_busier: keys.flag("no_busier")?,
                disallowed: keys.flag("disallowed")?,
            },
            "ClaimAny" => parse_claim_any(&mut keys)?,
            "ClaimIdlest" => Step::ClaimIdlest {
                within: keys.word_of("within", &[Within::Llc, Within::Node, Within::All])?,
                core: keys.flag("core")?,
            },
            "ClaimSmt" => Step::ClaimSmt,
            "SyncClaimPrev" => Step::SyncClaimPrev,
            "SyncWaker" => Step::SyncWaker,
            "SyncStack" => Step::SyncStack,
            "ReturnTarget" => Step::ReturnTarget,
            "ReturnPrev" => Step::ReturnPrev,
            _ => return Err(format!("unknown step; the kinds are {}", KINDS.join(", "))),
        })
    })()
    .and_then(|step| keys.done("this step").map(|()| step));
    step.map_err(|message| format!("{kind}: {message}"))
}

/// A claim in a set: sched_ext's own, which rotates, knows LLC, node and all CPUs, and no budget.
fn parse_claim_any(keys: &mut Keys) -> Result<Step, String> {
    let (core, charge, rotate) = (keys.flag("core")?, keys.flag("charge")?, keys.flag("rotate")?);
    let within = match rotate {
        true => keys.word_of("within", &[Within::Llc, Within::Node, Within::All])?,
        false => keys.word("within")?,
    };
    if rotate && charge {
        return Err("`rotate` and `charge` exclude each other: a rotating choice has no budget".to_owned());
    }
    Ok(Step::ClaimAny { within, core, charge, rotate })
}

/// A budget: each method has its own numbers.
fn parse_budget(keys: &mut Keys) -> Result<Step, String> {
    let method = keys.word("method")?;
    let proportional = matches!(method, Method::Prop | Method::PropLimit | Method::PropAged);
    let (div, floor) = match proportional {
        true => (keys.number("div")?, keys.number("floor")?),
        false => (1, 1),
    };
    Ok(Step::Budget {
        method,
        div,
        floor,
        floor_threads: if proportional { keys.flag("floor_threads")? } else { false },
        cap_floors: if method == Method::PropLimit { keys.number("cap_floors")? } else { 0 },
        fail_if_empty: keys.flag("fail_if_empty")?,
    })
}

/// Refuses steps whose order makes no sense: the index of the step at fault and what would be right.
fn check_order(steps: &[Step]) -> Result<(), (usize, String)> {
    let last = steps.len() - 1;
    if steps.len() > MAX_STEPS {
        return Err((last, format!("a policy has at most {MAX_STEPS} steps")));
    }
    let mut seen = Seen::default();
    for (index, step) in steps.iter().enumerate() {
        let later = &steps[index + 1..];
        seen.check(step, later).map_err(|message| (index, format!("{}: {message}", step.kind())))?;
    }
    match steps[last] {
        Step::ReturnTarget | Step::ReturnPrev => Ok(()),
        _ => Err((
            last,
            format!(
                "{} cannot be the last step; end with {{ kind = \"ReturnTarget\" }} or {{ kind = \"ReturnPrev\" }}",
                steps[last].kind()
            ),
        )),
    }
}

/// What the steps before gave.
#[derive(Default)]
struct Seen {
    need_llc: bool,
    hic: bool,
    budget: Option<Method>,
    kept_prev: bool,
    kept_recent: bool,
}

impl Seen {
    fn check(&mut self, step: &Step, later: &[Step]) -> Result<(), String> {
        let needs = |have: bool, what: &str| if have { Ok(()) } else { Err(format!("needs {what} before it")) };
        let takes = |kept: Kept| {
            let taken = later.iter().any(|step| matches!(step, Step::TakeKept { order } if order.contains(&kept)));
            if taken { Ok(()) } else { Err("`keep` is true but no TakeKept takes it later".to_owned()) }
        };
        match *step {
            Step::PrevIdle { share, keep: true, .. } => {
                keep_needs_lowest(share)?;
                takes(Kept::Prev)?;
                self.kept_prev = true;
            }
            Step::RecentIdle { share, keep: true, .. } => {
                keep_needs_lowest(share)?;
                takes(Kept::Recent)?;
                self.kept_recent = true;
            }
            Step::NeedLlc => self.need_llc = true,
            Step::IdleCore { .. } => needs(self.need_llc, "NeedLlc")?,
            Step::ReadHic => {
                needs(self.need_llc, "NeedLlc")?;
                self.hic = true;
            }
            Step::IdleSmt { cond, in_llc, .. } => {
                needs(self.need_llc || !in_llc, "NeedLlc")?;
                needs(self.hic || cond == SmtCondition::Always, "ReadHic")?;
            }
            Step::Budget { method, div, floor, .. } => {
                // Without an LLC domain `util` and `none` leave the claims behind them without a limit.
                needs(self.need_llc || matches!(method, Method::Util | Method::None), "NeedLlc")?;
                if self.budget.is_some() {
                    return Err("a second budget; one serves all scans".to_owned());
                }
                if !later.iter().any(Step::is_charged_scan) {
                    return Err("no charged scan follows it; set `charge` on one or drop the budget".to_owned());
                }
                if div == 0 || floor == 0 {
                    return Err("`div` and `floor` must be 1 or more".to_owned());
                }
                if matches!(*step, Step::Budget { method: Method::PropLimit, cap_floors: 0, .. }) {
                    return Err("`cap_floors` must be 1 or more".to_owned());
                }
                self.budget = Some(method);
            }
            Step::ScanCluster { cores, charge, .. } => {
                needs(self.need_llc, "NeedLlc")?;
                needs(self.budget.is_some() || !charge, "a Budget, since it is charged,")?;
                needs(self.hic || !cores, "ReadHic, since `cores` is true,")?;
                if cores && !later.iter().any(|step| matches!(step, Step::ScanLlc { cores: true, .. })) {
                    return Err(
                        "`cores` is true but no ScanLlc with `cores` follows to return its candidate".to_owned()
                    );
                }
            }
            Step::ScanLlc { cores, charge, charge_disallowed, cost, .. } => {
                needs(self.need_llc, "NeedLlc")?;
                needs(self.budget.is_some() || !charge, "a Budget, since it is charged,")?;
                needs(self.hic || !cores, "ReadHic, since `cores` is true,")?;
                if charge_disallowed && (cores || !charge) {
                    return Err("`charge_disallowed` goes with `charge = true` and `cores = false`".to_owned());
                }
                self.check_cost(cost)?;
            }
            Step::ScanMerged { cost, .. } => {
                needs(self.need_llc, "NeedLlc")?;
                needs(self.budget.is_some(), "a Budget, since it is charged,")?;
                self.check_cost(cost)?;
            }
            Step::TakeKept { ref order } => {
                for kept in order {
                    match kept {
                        Kept::Prev => needs(self.kept_prev, "a PrevIdle with `keep`")?,
                        Kept::Recent => needs(self.kept_recent, "a RecentIdle with `keep`")?,
                    }
                }
            }
            Step::ClaimAny { charge: true, .. } => {
                needs(self.budget.is_some(), "a Budget, since it is charged,")?;
                if !matches!(self.budget, Some(Method::Util | Method::None)) {
                    return Err(
                        "books no time, which a proportional budget needs; charge it to `util` or `none`".to_owned()
                    );
                }
            }
            Step::ReturnTarget | Step::ReturnPrev if !later.is_empty() => {
                return Err("ends the search; the steps after it never run".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// The cost goes where the budget reads it.
    fn check_cost(&self, cost: Cost) -> Result<(), String> {
        let right = match self.budget {
            Some(Method::Prop | Method::PropLimit) => Cost::AvgScanCost,
            Some(Method::PropAged) => Cost::Aged,
            Some(Method::Util | Method::None) | None => Cost::None,
        };
        if cost == right { Ok(()) } else { Err(format!("`cost` must be `{}` to fit the budget", spell(right))) }
    }
}

fn keep_needs_lowest(share: Share) -> Result<(), String> {
    match share {
        Share::Lowest => Ok(()),
        Share::Llc => Err("`keep` needs `share = \"lowest\"`: there is nothing to keep at LLC level".to_owned()),
    }
}

impl Step {
    /// The kind, as records name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Step::TargetIdle { .. } => "TargetIdle",
            Step::PrevIdle { .. } => "PrevIdle",
            Step::KthreadStack { .. } => "KthreadStack",
            Step::RecentIdle { .. } => "RecentIdle",
            Step::AsymScan { .. } => "AsymScan",
            Step::NeedLlc => "NeedLlc",
            Step::IdleCore { .. } => "IdleCore",
            Step::ReadHic => "ReadHic",
            Step::IdleSmt { .. } => "IdleSmt",
            Step::Budget { .. } => "Budget",
            Step::ScanCluster { .. } => "ScanCluster",
            Step::ScanLlc { .. } => "ScanLlc",
            Step::ScanMerged { .. } => "ScanMerged",
            Step::TakeKept { .. } => "TakeKept",
            Step::ClaimPrev { .. } => "ClaimPrev",
            Step::ClaimAny { .. } => "ClaimAny",
            Step::ClaimIdlest { .. } => "ClaimIdlest",
            Step::ClaimSmt => "ClaimSmt",
            Step::SyncClaimPrev => "SyncClaimPrev",
            Step::SyncWaker => "SyncWaker",
            Step::SyncStack => "SyncStack",
            Step::ReturnTarget => "ReturnTarget",
            Step::ReturnPrev => "ReturnPrev",
        }
    }

    /// The CPU that the step decides for is claimed: out of everybody's sight.
    pub fn claims(&self) -> bool {
        matches!(
            self,
            Step::ClaimPrev { .. }
                | Step::ClaimAny { .. }
                | Step::ClaimIdlest { .. }
                | Step::ClaimSmt
                | Step::SyncClaimPrev
        )
    }

    /// Part of the scan phase that an exhausted budget leaves.
    pub(crate) fn is_scan(&self) -> bool {
        match self {
            Step::ScanCluster { .. } | Step::ScanLlc { .. } | Step::ScanMerged { .. } => true,
            Step::ClaimAny { charge, .. } => *charge,
            _ => false,
        }
    }

    fn is_charged_scan(&self) -> bool {
        match self {
            Step::ScanCluster { charge, .. } | Step::ScanLlc { charge, .. } | Step::ClaimAny { charge, .. } => *charge,
            Step::ScanMerged { .. } => true,
            _ => false,
        }
    }
}

/// The word of a value.
fn spell<W: Word>(value: W) -> &'static str {
    W::WORDS.iter().find(|&&(_, other)| other == value).map_or("", |&(word, _)| word)
}

/// A table whose keys are taken one by one; what is left at the end is unknown.
struct Keys {
    table: Table,
    asked: Vec<&'static str>,
}

impl Keys {
    fn new(table: Table) -> Keys {
        Keys { table, asked: Vec::new() }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.asked.push(key);
        self.table.remove(key)
    }

    fn table(&mut self, key: &'static str) -> Result<Table, String> {
        match self.take(key) {
            Some(Value::Table(table)) => Ok(table),
            found => Err(wrong(key, found, "a table")),
        }
    }

    fn text(&mut self, key: &'static str) -> Result<String, String> {
        match self.take(key) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text),
            found => Err(wrong(key, found, "a text")),
        }
    }

    /// The name or path of a kernel record that loads.
    fn kernel(&mut self, key: &'static str) -> Result<String, String> {
        let name = self.text(key)?;
        match Kernel::load(&name) {
            Ok(_) => Ok(name),
            Err(error) => Err(format!("`{key}`: {error}").replace('\n', " ")),
        }
    }

    /// A list of texts, empty when absent.
    fn texts(&mut self, key: &'static str) -> Result<Vec<String>, String> {
        let list = match self.take(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            found => return Err(wrong(key, found, "a list of texts")),
        };
        list.into_iter()
            .map(|value| match value {
                Value::String(text) => Ok(text),
                other => Err(wrong(key, Some(other), "a list of texts")),
            })
            .collect()
    }

    /// A flag, false when absent.
    fn flag(&mut self, key: &'static str) -> Result<bool, String> {
        self.flag_or(key, false)
    }

    fn flag_or(&mut self, key: &'static str, absent: bool) -> Result<bool, String> {
        match self.take(key) {
            None => Ok(absent),
            Some(Value::Boolean(flag)) => Ok(flag),
            found => Err(wrong(key, found, "true or false")),
        }
    }

    fn number(&mut self, key: &'static str) -> Result<u32, String> {
        match self.take(key) {
            Some(Value::Integer(number)) if number > 0 && number <= i64::from(u32::MAX) => Ok(number as u32),
            found => Err(wrong(key, found, "a whole number, 1 or more")),
        }
    }

    fn word_or<W: Word>(&mut self, key: &'static str, absent: W) -> Result<W, String> {
        match self.take(key) {
            None => Ok(absent),
            found => parse_word(key, found),
        }
    }

    fn word<W: Word>(&mut self, key: &'static str) -> Result<W, String> {
        let found = self.take(key);
        parse_word(key, found)
    }

    /// A word of which only some values make sense here.
    fn word_of<W: Word>(&mut self, key: &'static str, allowed: &[W]) -> Result<W, String> {
        let word = self.word(key)?;
        if allowed.contains(&word) {
            return Ok(word);
        }
        let allowed: Vec<String> = allowed.iter().map(|&word| format!("\"{}\"", spell(word))).collect();
        Err(format!("`{key}` is \"{}\", must be {}", spell(word), allowed.join(" or ")))
    }

    fn words<W: Word>(&mut self, key: &'static str) -> Result<Vec<W>, String> {
        match self.take(key) {
            Some(Value::Array(list)) if !list.is_empty() => {
                list.into_iter().map(|value| parse_word(key, Some(value))).collect()
            }
            found => Err(wrong(key, found, format!("a list of one or more of {}", choice::<W>(", ")))),
        }
    }

    /// Refuses keys nobody asked for.
    fn done(&self, of: &str) -> Result<(), String> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(key) => {
                let known: Vec<&str> = self.asked.iter().copied().filter(|&asked| asked != "kind").collect();
                let known = if known.is_empty() { "no keys".to_owned() } else { known.join(", ") };
                Err(format!("unknown key `{key}`; {of} takes {known}"))
            }
        }
    }
}

fn parse_word<W: Word>(key: &str, found: Option<Value>) -> Result<W, String> {
    if let Some(Value::String(text)) = &found
        && let Some(&(_, word)) = W::WORDS.iter().find(|(word, _)| word == text)
    {
        return Ok(word);
    }
    Err(wrong(key, found, choice::<W>(" or ")))
}

/// Every word that a value may be.
fn choice<W: Word>(separator: &str) -> String {
    let words: Vec<String> = W::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    words.join(separator)
}

fn wrong(key: &str, found: Option<Value>, right: impl fmt::Display) -> String {
    match found {
        None => format!("`{key}` is missing, must be {right}"),
        Some(found) => format!("`{key}` is {}, must be {right}", found.to_string().replace('\n', " ")),
    }
}
