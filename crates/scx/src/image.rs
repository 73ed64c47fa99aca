//! A compiled plan as data.
//!
//! Plans of several policies for one machine share an [`Image`], what they look up; a [`PlanImage`] is a list of steps.

use std::collections::BTreeMap;

use huddle_machine::{CpuId, CpuSet, Distance};
use huddle_policy::{
    Anchor, ClusterCondition, ClusterSrc, Cost, EntryAnchor, Kept, Mask, Method, Plan, PlanCpu, Pred, Share,
    SmtCondition, Start, Step, Update, Within,
};

pub use crate::layout::*;

const _: () = assert!(REACHES + 2 == DISTANCES && DISTANCES == Distance::COUNT);

/// What the plans for one machine look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// By CPU id.
    pub facts: Vec<FactsImage>,
    /// The words of all masks.
    pub pool: Vec<u64>,
    /// The machine's clusters, then each CPU outside the partition as one.
    pub clusters: Vec<MaskImage>,
}

/// What the interpreter in C cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The lists of steps are arrays of one size.
    #[error("policy {policy}: {steps} steps, the live interpreter takes {MAX_STEPS} at most")]
    TooManySteps {
        /// The policy.
        policy: String,
        /// How many it has.
        steps: usize,
    },
    /// A step, or a value of one of its keys, is not in the interpreter.
    #[error("policy {policy}: {list} {step}, {kind}: {why}")]
    Step {
        /// The policy.
        policy: String,
        /// Which steps: `step`, `fork step`.
        list: &'static str,
        /// The step, counted from 1.
        step: usize,
        /// Its kind.
        kind: &'static str,
        /// What the interpreter lacks.
        why: &'static str,
    },
    /// Domains that may pull wake-ups tolerate imbalance in too many ways.
    #[error(
        "policy {policy}: more than {AFFINES} values of imbalance_pct on this machine, which the live interpreter lacks"
    )]
    Tolerances {
        /// The policy.
        policy: String,
    },
    /// The plans look up different things.
    #[error("policy {policy}: compiled for another machine or kernel than {first}; compile all for the same domains")]
    DifferentMachines {
        /// The policy.
        policy: String,
        /// The policy whose machine counts.
        first: String,
    },
}

impl Image {
    /// What a plan looks up, and `others` for the same machine.
    ///
    /// # Errors
    /// When one of the others was compiled for other domains.
    pub fn new(plan: &Plan, others: &[&Plan]) -> Result<Image, ImageError> {
        let image = Image::of(plan);
        match others.iter().find(|other| Image::of(other) != image) {
            None => Ok(image),
            Some(other) => Err(ImageError::DifferentMachines {
                policy: other.policy().to_owned(),
                first: plan.policy().to_owned(),
            }),
        }
    }

    fn of(plan: &Plan) -> Image {
        let mut pool = Pool::new(plan);
        let facts = (0..plan.nr_cpus()).filter_map(|cpu| FactsImage::of(CpuId::from(cpu), plan, &mut pool)).collect();
        Image { facts, pool: pool.words, clusters: plan.clusters().iter().map(MaskImage::of).collect() }
    }
}

/// The plan's words and, behind them, those of sets that the image adds.
struct Pool {
    words: Vec<u64>,
    /// Index of the first of 64 words of one CPU each.
    ones: u32,
    /// CPUs by sd_llc_id and by sd_share_id.
    sharing_llc: BTreeMap<u32, MaskImage>,
    sharing: BTreeMap<u32, MaskImage>,
    /// All CPU ids.
    every: MaskImage,
    added: BTreeMap<(u32, Vec<u64>), MaskImage>,
}

impl Pool {
    fn new(plan: &Plan) -> Pool {
        let ones = plan.pool().len() as u32;
        let words = plan.pool().iter().copied().chain((0..64).map(|bit| 1 << bit)).collect();
        let (sharing_llc, sharing, every, added) = Default::default();
        let mut pool = Pool { words, ones, sharing_llc, sharing, every, added };
        pool.every = pool.add(&CpuSet::full(plan.nr_cpus()));
        pool.sharing_llc = pool.group(plan, |cpu| cpu.llc_id);
        pool.sharing = pool.group(plan, |cpu| cpu.share_id);
        pool
    }

    /// The CPUs with one id, by id.
    fn group(&mut self, plan: &Plan, id_of: fn(&PlanCpu) -> u32) -> BTreeMap<u32, MaskImage> {
        let mut sets: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for cpu in (0..plan.nr_cpus()).map(CpuId::from) {
            if let Some(facts) = plan.facts(cpu) {
                sets.entry(id_of(facts)).or_insert_with(|| CpuSet::new(plan.nr_cpus())).insert(cpu);
            }
        }
        sets.into_iter().map(|(id, set)| (id, self.add(&set))).collect()
    }

    fn add(&mut self, set: &CpuSet) -> MaskImage {
        let (Some(first), Some(last)) = (set.iter().next(), set.iter().last()) else { return MaskImage::default() };
        let (first, end) = (first.index() / 64, last.index() / 64 + 1);
        let words = set.words()[first..end].to_vec();
        let at = self.words.len() as u32;
        let image = MaskImage { at, first: first as u32, len: words.len() as u32, weight: set.len() as u32 };
        *self.added.entry((image.first, words)).or_insert_with_key(|(_, words)| {
            self.words.extend(words);
            image
        })
    }

    /// The CPU alone.
    fn one(&self, CpuId(cpu): CpuId) -> MaskImage {
        MaskImage { at: self.ones + cpu % 64, first: cpu / 64, len: 1, weight: 1 }
    }
}

/// The CPUs of a mask.
fn cpus(mask: &Mask, plan: &Plan) -> CpuSet {
    let mut set = CpuSet::new(plan.nr_cpus());
    let (at, first, len) = (mask.at as usize, mask.first as usize, mask.len as usize);
    set.words_mut()[first..first + len].copy_from_slice(&plan.pool()[at..at + len]);
    set
}

fn minus(set: &CpuSet, gone: &CpuSet) -> CpuSet {
    let mut rest = set.clone();
    rest.subtract(gone);
    rest
}

impl MaskImage {
    fn of(&Mask { at, first, len, weight }: &Mask) -> MaskImage {
        MaskImage { at, first, len, weight }
    }
}

impl FactsImage {
    fn of(cpu: CpuId, plan: &Plan, pool: &mut Pool) -> Option<FactsImage> {
        let facts = plan.facts(cpu)?;
        let claim = &facts.claim;
        let mut image = FactsImage {
            ids: facts.reach.map(|reach| cpus(&reach, plan).iter().next().unwrap_or(cpu).0),
            llc_index: facts.llc_index,
            cluster: claim.index,
            llc_from: claim.llc_clusters.from,
            llc_len: claim.llc_clusters.len,
            node_from: claim.node_clusters.from,
            node_len: claim.node_clusters.len,
            ..FactsImage::default()
        };
        let llc = cpus(&facts.llc.unwrap_or_default(), plan);
        let core = cpus(&facts.smt, plan).intersection(&llc);
        let others = minus(&core, &CpuSet::from_cpus(plan.nr_cpus(), [cpu.index()]));
        let in_llc = |mask: Option<Mask>| cpus(&mask.unwrap_or_default(), plan).intersection(&llc);
        let (cluster, group) = (in_llc(facts.cluster_domain), in_llc(facts.llc_first_group));
        let sets = [
            (SET_ALL, MaskImage::of(&plan.online())),
            (SET_NODE, MaskImage::of(&claim.node)),
            (SET_LLC, MaskImage::of(&claim.llc)),
            (SET_CLUSTER, MaskImage::of(&claim.cluster)),
            (SET_SHARE_LLC, pool.sharing_llc.get(&facts.llc_id).copied().unwrap_or_default()),
            (SET_SHARE, pool.sharing.get(&facts.share_id).copied().unwrap_or_default()),
            (SET_ONE, pool.one(cpu)),
            (SET_CORE, pool.add(&core)),
            (SET_OTHERS, pool.add(&others)),
            (SET_SD_LLC, facts.llc.as_ref().map(MaskImage::of).unwrap_or_default()),
            (SET_RAW_CLUSTER, MaskImage::of(&facts.cluster_raw)),
            (SET_CLUSTER_DOMAIN, pool.add(&cluster)),
            (SET_CLUSTER_REST, pool.add(&minus(&llc, &cluster))),
            (SET_LLC_GROUP, pool.add(&group)),
            (SET_GROUP_REST, pool.add(&minus(&llc, &group))),
            (SET_WHOLE_NODE, MaskImage::of(&facts.node)),
            (SET_EVERY, pool.every),
        ];
        for (set, mask) in sets {
            image.sets[usize::from(set)] = mask;
        }
        image.set_affine(facts, plan);
        Some(image)
    }

    /// Of the domains that may pull wake-ups the widest of each tolerance; they are nested. [`PlanImage::new`] refuses plans for machines with
    /// more tolerances.
    fn set_affine(&mut self, facts: &PlanCpu, plan: &Plan) {
        for (slot, (mask, margin)) in affine_domains(facts, plan).into_iter().take(AFFINES).enumerate() {
            self.sets[usize::from(SET_AFFINE) + slot] = mask;
            self.margins[slot] = margin;
        }
    }
}

/// A CPU's domains that may pull wake-ups, narrowest first, each with the margin of `wake_affine_weight` in percent; of neighbours with one
/// margin the widest.
fn affine_domains(facts: &PlanCpu, plan: &Plan) -> Vec<(MaskImage, u32)> {
    let mut domains: Vec<(MaskImage, u32)> = Vec::new();
    for affine in &plan.affine_spans()[facts.affine_from as usize..][..facts.affine_len as usize] {
        let margin = (100 + (affine.imbalance_pct as i32 - 100) / 2) as u32;
        match domains.last_mut() {
            Some(last) if last.1 == margin => last.0 = MaskImage::of(&affine.span),
            _ => domains.push((MaskImage::of(&affine.span), margin)),
        }
    }
    domains
}

impl PlanImage {
    /// The plan's entry rule and steps for wake-ups.
    ///
    /// # Errors
    /// More than [`MAX_STEPS`] steps, and what the interpreter in C does not have: searches for idle cores and budgets of kernels before
    /// 6.0, the proposals of 2018, sched_ext's own choice, and on a machine of different capacities every step that reads them.
    pub fn new(plan: &Plan) -> Result<PlanImage, ImageError> {
        let entry = plan.entry();
        let load = entry.anchor == EntryAnchor::Load;
        let mut cpus = (0..plan.nr_cpus()).filter_map(|cpu| plan.facts(CpuId::from(cpu)));
        if load && cpus.any(|facts| affine_domains(facts, plan).len() > AFFINES) {
            return Err(ImageError::Tolerances { policy: plan.policy().to_owned() });
        }
        let bits = bits([
            (ENTRY_LOAD, load),
            (ENTRY_WAKER, entry.anchor == EntryAnchor::Waker),
            (ENTRY_AFFINE_IDLE_PREV, entry.affine_idle_prev),
            (ENTRY_SET_WAKER_RECENT, entry.set_waker_recent && entry.anchor != EntryAnchor::Prev),
            (ENTRY_CURRENT_HINT, entry.prefer_current_hint),
        ]);
        let used = if load { USED_LOAD } else { 0 };
        let image = PlanImage { entry: bits, used, after_scans: plan.after_scans() as u32, ..PlanImage::default() };
        image.with_steps(plan, "step", plan.steps())
    }

    /// The plan's steps for new tasks; `None` when the record leaves them to the kernel.
    ///
    /// # Errors
    /// As [`PlanImage::new`].
    pub fn fork(plan: &Plan) -> Option<Result<PlanImage, ImageError>> {
        plan.fork_steps().map(|steps| PlanImage::default().with_steps(plan, "fork step", steps))
    }

    fn with_steps(mut self, plan: &Plan, list: &'static str, steps: &[Step]) -> Result<PlanImage, ImageError> {
        let policy = || plan.policy().to_owned();
        if steps.len() > MAX_STEPS {
            return Err(ImageError::TooManySteps { policy: policy(), steps: steps.len() });
        }
        let mut lowering = Lowering::new(plan, steps);
        for (index, (slot, step)) in self.steps.iter_mut().zip(steps).enumerate() {
            let refuse = |why| ImageError::Step { policy: policy(), list, step: index + 1, kind: step.kind(), why };
            if plan.asym_active() && reads_capacities(step) {
                return Err(refuse("reads capacities, which differ on this machine; the live interpreter does not"));
            }
            *slot = lowering.step(step).map_err(refuse)?;
            let cores = slot.flags & STEP_CORES_HINTED != 0;
            self.used |= 1 << slot.kind | if cores { USED_CORES } else { 0 };
        }
        self.nr_steps = steps.len() as u32;
        self.nr_clusters = plan.online_clusters().len;
        Ok(self)
    }
}

/// The step asks for more of a CPU than that it is idle, where capacities differ.
fn reads_capacities(step: &Step) -> bool {
    match *step {
        Step::AsymScan { .. } => true,
        Step::TargetIdle { fits, .. }
        | Step::PrevIdle { fits, .. }
        | Step::KthreadStack { fits }
        | Step::RecentIdle { fits, .. } => fits,
        _ => false,
    }
}

/// False where the machine's topology alone keeps a step from ever deciding.
fn takes_part(step: &Step, plan: &Plan) -> bool {
    match *step {
        Step::AsymScan { .. } => false,
        Step::ReadHic | Step::IdleSmt { .. } => plan.smt_active(),
        Step::ClaimPrev { core: true, .. }
        | Step::ClaimAny { core: true, .. }
        | Step::ClaimIdlest { core: true, .. } => plan.smt_active(),
        Step::ScanCluster { only_if: ClusterCondition::NoSmt, .. } => !plan.smt_active(),
        Step::ScanCluster { only_if: ClusterCondition::ClusterKey, .. } => plan.cluster_active(),
        _ => true,
    }
}

/// Lowers steps in their order.
struct Lowering<'a> {
    plan: &'a Plan,
    /// Which of the CPUs that were kept the record takes, the first one first.
    order: &'a [Kept],
    /// Orders differ from one TakeKept to another.
    orders: bool,
    /// The clusters that a scan has searched and removed.
    removed: Option<ClusterSrc>,
    /// The scan that leaves no candidates to others was met.
    scanned: bool,
}

impl<'a> Lowering<'a> {
    fn new(plan: &'a Plan, steps: &'a [Step]) -> Lowering<'a> {
        let mut orders = steps.iter().filter_map(|step| match step {
            Step::TakeKept { order } => Some(order.as_slice()),
            _ => None,
        });
        let order = orders.next().unwrap_or_default();
        Lowering { plan, order, orders: orders.any(|other| other != order), removed: None, scanned: false }
    }

    /// The step; the error says what the interpreter lacks.
    fn step(&mut self, step: &Step) -> Result<StepImage, &'static str> {
        const OLD: &str = "the live interpreter has no searches and budgets of kernels before 6.0";
        let kind = |kind| StepImage { kind, near: SET_NONE, ..StepImage::default() };
        let look = |of, set, flags| StepImage { of, set, flags, ..kind(KIND_LOOK) };
        let claim = |core| STEP_CLAIM | if core { STEP_CORES } else { 0 };
        let lowered = match *step {
            Step::AsymScan { ranks: _ } => kind(KIND_NONE),
            Step::TargetIdle { pred, fits: _ } => look(OF_TARGET, SET_ONE, STEP_ANYWHERE | pred_bits(pred)),
            Step::PrevIdle { share, keep, pred, fits: _ } => {
                let flags = STEP_OTHER | STEP_ANYWHERE | pred_bits(pred);
                self.near(look(OF_PREV, SET_ONE, flags), share, keep, Kept::Prev)?
            }
            Step::KthreadStack { fits: _ } => kind(KIND_KTHREAD_STACK),
            Step::RecentIdle { share, keep, update, pred, fits: _ } => {
                let flags = STEP_OTHER | bits([(STEP_ALWAYS, update == Update::Always)]) | pred_bits(pred);
                self.near(look(OF_RECENT, SET_ONE, flags), share, keep, Kept::Recent)?
            }
            Step::NeedLlc => kind(KIND_NEED_LLC),
            Step::ReadHic => StepImage { kind: KIND_HINT, ..look(OF_TARGET, SET_SD_LLC, STEP_CORES | STEP_ANYWHERE) },
            Step::IdleSmt {
                anchor: Anchor::Prev,
                incl_anchor: false,
                cond: SmtCondition::NoHicAndShareLlc,
                in_llc: true,
                pred,
            } => {
                let flags = STEP_FROM_ZERO | STEP_NO_HIC | pred_bits(pred);
                StepImage { near: SET_SHARE_LLC, ..look(OF_PREV, SET_OTHERS, flags) }
            }
            Step::Budget { method: Method::Util, fail_if_empty: true, .. } if self.removed.is_some() => {
                return Err("the live interpreter has no `fail_if_empty` behind a scan that removes CPUs");
            }
            Step::Budget { method: Method::Util, fail_if_empty, .. } => {
                StepImage { flags: bits([(STEP_ANY, fail_if_empty)]), ..kind(KIND_BUDGET) }
            }
            Step::Budget { method: Method::None, fail_if_empty: false, .. } => kind(KIND_NONE),
            Step::ScanCluster { src, start, pred, charge, remove, cores, only_if: _ } => {
                let flags = scan_bits(start, pred)? | bits([(STEP_CHARGE, charge)]);
                let cores = cores && self.plan.smt_active();
                if takes_part(step, self.plan) {
                    self.pass(src, remove, cores)?;
                }
                look(OF_TARGET, cluster_set(src), flags | bits([(STEP_CORES_HINTED, cores)]))
            }
            Step::ScanLlc { start, pred, cores, charge, charge_disallowed: false, cost: Cost::None } => {
                let cores = cores && self.plan.smt_active();
                let flags = [(STEP_LAST, true), (STEP_CHARGE, charge), (STEP_CORES_HINTED, cores)];
                let set = match self.removed {
                    _ if self.scanned => {
                        return Err("the live interpreter has one scan of the LLC with `cores`, the last");
                    }
                    None => SET_SD_LLC,
                    Some(ClusterSrc::ClusterDomain) => SET_CLUSTER_REST,
                    Some(_) => SET_GROUP_REST,
                };
                self.scanned = cores;
                look(OF_TARGET, set, scan_bits(start, pred)? | bits(flags))
            }
            Step::IdleCore { .. }
            | Step::IdleSmt { .. }
            | Step::Budget { .. }
            | Step::ScanLlc { .. }
            | Step::ScanMerged { .. } => return Err(OLD),
            Step::TakeKept { .. } => kind(KIND_TAKE_KEPT),
            Step::ReturnTarget => look(OF_TARGET, SET_ONE, STEP_ANY | STEP_ANYWHERE),
            Step::ReturnPrev => look(OF_PREV, SET_ONE, STEP_ANY | STEP_ANYWHERE),
            Step::SyncStack => kind(KIND_SYNC_STACK),
            Step::ClaimPrev { disallowed: true, .. }
            | Step::ClaimAny { rotate: true, .. }
            | Step::ClaimSmt
            | Step::SyncClaimPrev
            | Step::SyncWaker => return Err("the live interpreter has no steps of sched_ext's own choice"),
            Step::ClaimPrev { within, core, no_busier, disallowed: false } => {
                let near = if within == Within::All { SET_NONE } else { within_set(within) };
                let flags = claim(core) | bits([(STEP_NO_BUSIER, no_busier)]);
                StepImage { near, ..look(OF_PREV, SET_ONE, flags) }
            }
            Step::ClaimAny { within, core, charge, rotate: false } => {
                let of = if within == Within::PrevCluster { OF_PREV } else { OF_TARGET };
                look(of, within_set(within), claim(core) | STEP_AFTER | bits([(STEP_CHARGE, charge)]))
            }
            Step::ClaimIdlest { within: Within::Cluster | Within::PrevCluster, .. } => {
                return Err("looks among the clusters of `llc`, `node` or `all`");
            }
            Step::ClaimIdlest { within, core } => look(OF_PREV, within_set(within), claim(core) | STEP_IDLEST),
        };
        Ok(if takes_part(step, self.plan) { lowered } else { StepImage::default() })
    }

    /// A test of one CPU, which lies near enough to the target to be taken, or to be kept where the record takes what was.
    fn near(&self, step: StepImage, share: Share, keep: bool, kept: Kept) -> Result<StepImage, &'static str> {
        if share == Share::Llc {
            return Ok(StepImage { near: SET_SHARE_LLC, ..step });
        }
        if !keep || !self.order.contains(&kept) {
            return Ok(StepImage { near: SET_SHARE, ..step });
        }
        if self.orders {
            return Err("the live interpreter has one `order` of what was kept");
        }
        let flags = STEP_KEEP | bits([(STEP_FIRST, self.order.first() == Some(&kept))]);
        Ok(StepImage { near: SET_SHARE_LLC, flags: step.flags | flags, ..step })
    }

    /// A scan of a cluster: what it removes is not in the sets of the scans behind it.
    fn pass(&mut self, src: ClusterSrc, remove: bool, cores: bool) -> Result<(), &'static str> {
        if self.scanned || self.removed.is_some() {
            return Err("the live interpreter has no scan of a cluster behind one that removes CPUs");
        }
        if (src == ClusterSrc::RawTopology && remove) || (cores && !remove) {
            return Err("the live interpreter has no `remove` for \"raw_topology\", and no `cores` without `remove`");
        }
        self.removed = remove.then_some(src);
        Ok(())
    }
}

/// The bits that are set.
fn bits<const N: usize>(bits: [(u32, bool); N]) -> u32 {
    bits.into_iter().filter(|&(_, set)| set).fold(0, |all, (bit, _)| all | bit)
}

fn pred_bits(pred: Pred) -> u32 {
    match pred {
        Pred::Idle | Pred::Avail => 0,
        Pred::Ok59 => STEP_SCHED_IDLE,
        Pred::Ok72 => STEP_SCHED_IDLE | STEP_NO_KIN,
    }
}

/// Where a scan starts, and what will do.
fn scan_bits(start: Start, pred: Pred) -> Result<u32, &'static str> {
    match start {
        Start::Target => Ok(pred_bits(pred)),
        Start::AfterTarget => Ok(pred_bits(pred) | STEP_AFTER),
        Start::NextCpu | Start::Transposed => {
            Err("`start` must be \"target\" or \"target+1\" for the live interpreter")
        }
    }
}

fn cluster_set(src: ClusterSrc) -> u8 {
    match src {
        ClusterSrc::RawTopology => SET_RAW_CLUSTER,
        ClusterSrc::ClusterDomain => SET_CLUSTER_DOMAIN,
        ClusterSrc::LlcFirstGroup => SET_LLC_GROUP,
    }
}

fn within_set(within: Within) -> u8 {
    match within {
        Within::Cluster | Within::PrevCluster => SET_CLUSTER,
        Within::Llc => SET_LLC,
        Within::Node => SET_NODE,
        Within::All => SET_ALL,
    }
}
