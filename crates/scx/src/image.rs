//! A compiled plan as data: the twins of the structs in `bpf/plan.h`, byte for byte.
//!
//! Plans of several policies for one machine share an [`Image`], what they look up; a [`PlanImage`] is a list of steps.

use std::collections::BTreeMap;

use bytemuck::{Pod, Zeroable};
use huddle_machine::{CpuId, CpuSet, Distance};
use huddle_policy::{
    AffineSpan, Anchor, ClusterCondition, ClusterSrc, Cost, EntryAnchor, Kept, Mask, Method, Plan, PlanCpu, Pred,
    Share, SmtCondition, Start, Step, Update, Within,
};

/// The most steps that a list may have.
pub const MAX_STEPS: usize = 32;
/// Distances that a set of CPUs bounds: SMT, cluster, LLC, node, package.
pub const REACHES: usize = Distance::COUNT - 2;

/// `struct mask`: words `first..first + len` of a CPU set, in the pool from `at` on. A set that does not exist has no
/// words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskImage {
    /// Index of its first word in the pool.
    pub at: u32,
    /// That word's index in the set.
    pub first: u32,
    /// Number of words.
    pub len: u32,
    /// Number of CPUs.
    pub weight: u32,
}

/// `struct affine_span`: a domain that may pull wake-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AffineImage {
    /// Its CPUs.
    pub span: MaskImage,
    /// Its imbalance threshold in percent.
    pub imbalance_pct: u32,
}

/// Sets of CPUs that a decision looks up of one CPU.
pub const NR_SETS: usize = 14;

/// `struct cpu_facts`: what decisions look up of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)] // said in plan.h and of PlanCpu
pub struct FactsImage {
    /// By `SET_…`.
    pub sets: [MaskImage; NR_SETS],
    /// The first CPU no farther than SMT, cluster, LLC, node, package.
    pub ids: [u32; REACHES],
    pub llc_index: u32,
    pub affine_from: u32,
    pub affine_len: u32,
    pub cluster: u32,
    pub llc_from: u32,
    pub llc_len: u32,
    pub node_from: u32,
    pub node_len: u32,
}

/// `struct step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)] // said in plan.h
pub struct StepImage {
    pub kind: u8,
    pub of: u8,
    pub set: u8,
    unused: u8,
    pub flags: u32,
    pub spare: u32,
}

/// `struct plan`: a list of steps and the entry rule before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PlanImage {
    /// `ENTRY_…` bits; none for new tasks, whose target is the CPU that forks.
    pub entry: u32,
    /// `1 << KIND_…` of every step, and `USED_…` bits.
    pub used: u32,
    /// Number of steps. A decision's step is below it, or equal for the core's own rules.
    pub nr_steps: u32,
    /// Index of the first step behind the last scan.
    pub after_scans: u32,
    /// Number of words of a set of all CPU ids.
    pub nr_words: u32,
    /// Clusters with CPUs of the partition.
    pub nr_clusters: u32,
    /// The steps, zeros behind the last.
    pub steps: [StepImage; MAX_STEPS],
}

/// What the plans for one machine look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// By CPU id.
    pub facts: Vec<FactsImage>,
    /// The words of all masks.
    pub pool: Vec<u64>,
    /// The machine's clusters, then each CPU outside the partition as one.
    pub clusters: Vec<MaskImage>,
    /// Every CPU's domains that may pull wake-ups.
    pub affine: Vec<AffineImage>,
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
    /// A step, or a value of one of its keys, is not in `plan.h`.
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
    /// The plans look up different things.
    #[error("policy {policy}: compiled for another machine or kernel than {first}; compile all for the same domains")]
    DifferentMachines {
        /// The policy.
        policy: String,
        /// The policy whose machine counts.
        first: String,
    },
}

/// Declares constants that count up from 0, as an `enum` of C does.
macro_rules! counted {
    ($type:ty: $($name:ident),* $(,)?) => { counted!(@ $type, 0, $($name,)*); };
    (@ $type:ty, $value:expr, $name:ident, $($rest:ident,)*) => {
        const $name: $type = $value;
        counted!(@ $type, $value + 1, $($rest,)*);
    };
    (@ $type:ty, $value:expr,) => {};
}

counted!(u8:
    KIND_NONE, KIND_TEST, KIND_SEARCH, KIND_IDLEST, KIND_BUDGET, KIND_READ_HIC, KIND_NEED_LLC, KIND_TAKE_KEPT,
    KIND_SYNC_STACK, KIND_KTHREAD_STACK, KIND_RETURN,
);
counted!(u8: OF_TARGET, OF_PREV, OF_RECENT);
counted!(u8:
    SET_ALL, SET_NODE, SET_LLC, SET_CLUSTER, SET_SHARE_LLC, SET_SHARE, SET_ONE, SET_SMT, SET_OTHERS, SET_LLC_DOMAIN,
    SET_RAW_CLUSTER, SET_CLUSTER_DOMAIN, SET_LLC_GROUP, SET_WHOLE_NODE,
);
counted!(u32:
    STEP_CLAIM, STEP_CORES, STEP_SCHED_IDLE, STEP_NO_KIN, STEP_OTHER, STEP_KEEP, STEP_ALWAYS, STEP_NO_BUSIER, STEP_SCAN,
    STEP_AFTER, STEP_FROM_ZERO, STEP_CHARGE, STEP_REMOVE, STEP_FAIL_IF_EMPTY, STEP_NO_HIC, STEP_LAST, STEP_TAKE_PREV,
    STEP_TAKE_RECENT, STEP_RECENT_FIRST,
);
counted!(u32:
    ENTRY_LOAD, ENTRY_WAKER, ENTRY_AFFINE_IDLE_PREV, ENTRY_SET_WAKER_RECENT, ENTRY_CURRENT_HINT,
);
const USED_SCAN: u32 = 1 << 16;
const USED_CORES: u32 = 1 << 17;
const USED_LOAD: u32 = 1 << 18;
/// Place in [`FactsImage::sets`] of sd_llc's CPUs.
pub const SET_SD_LLC: usize = SET_LLC_DOMAIN as usize;
/// No limit to spare CPUs.
const NO_LIMIT: u32 = u32::MAX;

/// The bits that are set.
fn bits<const N: usize>(bits: [(u32, bool); N]) -> u32 {
    bits.into_iter().filter(|&(_, set)| set).fold(0, |all, (bit, _)| all | 1 << bit)
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
        Image {
            facts,
            pool: pool.words,
            clusters: plan.clusters().iter().map(MaskImage::of).collect(),
            affine: plan.affine_spans().iter().map(AffineImage::of).collect(),
        }
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
    added: BTreeMap<(u32, Vec<u64>), MaskImage>,
}

impl Pool {
    fn new(plan: &Plan) -> Pool {
        let ones = plan.pool().len() as u32;
        let words = plan.pool().iter().copied().chain((0..64).map(|bit| 1 << bit)).collect();
        let (sharing_llc, sharing, added) = Default::default();
        let mut pool = Pool { words, ones, sharing_llc, sharing, added };
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

impl MaskImage {
    fn of(&Mask { at, first, len, weight }: &Mask) -> MaskImage {
        MaskImage { at, first, len, weight }
    }

    fn of_option(mask: Option<Mask>) -> MaskImage {
        mask.as_ref().map(MaskImage::of).unwrap_or_default()
    }
}

impl AffineImage {
    fn of(affine: &AffineSpan) -> AffineImage {
        AffineImage { span: MaskImage::of(&affine.span), imbalance_pct: affine.imbalance_pct }
    }
}

impl FactsImage {
    fn of(cpu: CpuId, plan: &Plan, pool: &mut Pool) -> Option<FactsImage> {
        let facts = plan.facts(cpu)?;
        let claim = &facts.claim;
        let mut others = cpus(&facts.smt, plan).intersection(&cpus(&facts.llc.unwrap_or_default(), plan));
        others.remove(cpu);
        let mut image = FactsImage {
            ids: facts.reach.map(|reach| cpus(&reach, plan).iter().next().unwrap_or(cpu).0),
            llc_index: facts.llc_index,
            affine_from: facts.affine_from,
            affine_len: facts.affine_len,
            cluster: claim.index,
            llc_from: claim.llc_clusters.from,
            llc_len: claim.llc_clusters.len,
            node_from: claim.node_clusters.from,
            node_len: claim.node_clusters.len,
            ..FactsImage::default()
        };
        let sets = [
            (SET_ALL, MaskImage::of(&plan.online())),
            (SET_NODE, MaskImage::of(&claim.node)),
            (SET_LLC, MaskImage::of(&claim.llc)),
            (SET_CLUSTER, MaskImage::of(&claim.cluster)),
            (SET_SHARE_LLC, pool.sharing_llc.get(&facts.llc_id).copied().unwrap_or_default()),
            (SET_SHARE, pool.sharing.get(&facts.share_id).copied().unwrap_or_default()),
            (SET_ONE, pool.one(cpu)),
            (SET_SMT, MaskImage::of(&facts.smt)),
            (SET_OTHERS, pool.add(&others)),
            (SET_LLC_DOMAIN, MaskImage::of_option(facts.llc)),
            (SET_RAW_CLUSTER, MaskImage::of(&facts.cluster_raw)),
            (SET_CLUSTER_DOMAIN, MaskImage::of_option(facts.cluster_domain)),
            (SET_LLC_GROUP, MaskImage::of_option(facts.llc_first_group)),
            (SET_WHOLE_NODE, MaskImage::of(&facts.node)),
        ];
        for (set, mask) in sets {
            image.sets[usize::from(set)] = mask;
        }
        Some(image)
    }
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
        for (index, (slot, step)) in self.steps.iter_mut().zip(steps).enumerate() {
            let refuse = |why| ImageError::Step { policy: policy(), list, step: index + 1, kind: step.kind(), why };
            if plan.asym_active() && reads_capacities(step) {
                return Err(refuse("reads capacities, which differ on this machine; the live interpreter does not"));
            }
            let lowered = StepImage::of(step, plan).map_err(refuse)?;
            if takes_part(step, plan) {
                *slot = lowered;
            }
            let scans = slot.flags & (1 << STEP_SCAN) != 0 || slot.kind == KIND_BUDGET;
            let cores = scans && slot.flags & (1 << STEP_CORES) != 0;
            self.used |= 1 << slot.kind | if scans { USED_SCAN } else { 0 } | if cores { USED_CORES } else { 0 };
        }
        self.nr_steps = steps.len() as u32;
        self.nr_words = plan.nr_words() as u32;
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

impl StepImage {
    /// The step; the error says what the interpreter lacks.
    fn of(step: &Step, plan: &Plan) -> Result<StepImage, &'static str> {
        const OLD: &str = "the live interpreter has no searches and budgets of kernels before 6.0";
        let kind = |kind| StepImage { kind, ..StepImage::default() };
        let test = |of, set, flags| StepImage { of, set, flags, ..kind(KIND_TEST) };
        let search = |of, set, flags| StepImage { of, set, flags, ..kind(KIND_SEARCH) };
        let claim = |core| bits([(STEP_CLAIM, true), (STEP_CORES, core)]);
        Ok(match *step {
            Step::AsymScan { ranks: _ } => kind(KIND_NONE),
            Step::TargetIdle { pred, fits: _ } => test(OF_TARGET, SET_ONE, pred_bits(pred)),
            Step::PrevIdle { share, keep, pred, fits: _ } => {
                let flags = bits([(STEP_OTHER, true), (STEP_KEEP, keep)]);
                test(OF_PREV, near_set(share, keep), flags | pred_bits(pred))
            }
            Step::KthreadStack { fits: _ } => kind(KIND_KTHREAD_STACK),
            Step::RecentIdle { share, keep, update, pred, fits: _ } => {
                let flags = bits([(STEP_OTHER, true), (STEP_KEEP, keep), (STEP_ALWAYS, update == Update::Always)]);
                test(OF_RECENT, near_set(share, keep), flags | pred_bits(pred))
            }
            Step::NeedLlc => kind(KIND_NEED_LLC),
            Step::ReadHic => kind(KIND_READ_HIC),
            Step::IdleSmt {
                anchor: Anchor::Prev,
                incl_anchor: false,
                cond: SmtCondition::NoHicAndShareLlc,
                in_llc: true,
                pred,
            } => search(OF_PREV, SET_OTHERS, bits([(STEP_FROM_ZERO, true), (STEP_NO_HIC, true)]) | pred_bits(pred)),
            Step::Budget { method: Method::Util | Method::None, fail_if_empty, .. } => StepImage {
                flags: bits([(STEP_FAIL_IF_EMPTY, fail_if_empty)]),
                spare: u32::from(matches!(*step, Step::Budget { method: Method::Util, .. })),
                ..kind(KIND_BUDGET)
            },
            Step::ScanCluster { src: ClusterSrc::RawTopology, cores: true, .. } => {
                return Err("the live interpreter has no `cores` for \"raw_topology\"");
            }
            Step::ScanCluster { src, start, pred, charge, remove, cores, only_if: _ } => {
                let flags = [(STEP_CHARGE, charge), (STEP_REMOVE, remove), (STEP_CORES, cores && plan.smt_active())];
                search(OF_TARGET, cluster_set(src), scan_bits(start, pred)? | bits(flags) | scan_of(src))
            }
            Step::ScanLlc { start, pred, cores, charge, charge_disallowed: false, cost: Cost::None } => {
                let flags = [
                    (STEP_SCAN, true),
                    (STEP_LAST, true),
                    (STEP_CHARGE, charge),
                    (STEP_CORES, cores && plan.smt_active()),
                ];
                search(OF_TARGET, SET_LLC_DOMAIN, scan_bits(start, pred)? | bits(flags))
            }
            Step::IdleCore { .. }
            | Step::IdleSmt { .. }
            | Step::Budget { .. }
            | Step::ScanLlc { .. }
            | Step::ScanMerged { .. } => return Err(OLD),
            Step::TakeKept { ref order } => StepImage {
                flags: bits([
                    (STEP_TAKE_PREV, order.contains(&Kept::Prev)),
                    (STEP_TAKE_RECENT, order.contains(&Kept::Recent)),
                    (STEP_RECENT_FIRST, order.first() == Some(&Kept::Recent)),
                ]),
                ..kind(KIND_TAKE_KEPT)
            },
            Step::ReturnTarget => kind(KIND_RETURN),
            Step::ReturnPrev => StepImage { of: OF_PREV, ..kind(KIND_RETURN) },
            Step::SyncStack { spare } => StepImage {
                flags: bits([(STEP_CLAIM, true)]),
                spare: spare.unwrap_or(NO_LIMIT),
                ..kind(KIND_SYNC_STACK)
            },
            Step::ClaimPrev { disallowed: true, .. }
            | Step::ClaimAny { rotate: true, .. }
            | Step::ClaimSmt
            | Step::SyncClaimPrev
            | Step::SyncWaker => return Err("the live interpreter has no steps of sched_ext's own choice"),
            Step::ClaimPrev { within, core, no_busier, disallowed: false } => {
                test(OF_PREV, within_set(within), claim(core) | bits([(STEP_NO_BUSIER, no_busier)]))
            }
            Step::ClaimAny { within, core, charge, rotate: false } => {
                let of = if within == Within::PrevCluster { OF_PREV } else { OF_TARGET };
                search(of, within_set(within), claim(core) | bits([(STEP_AFTER, true), (STEP_CHARGE, charge)]))
            }
            Step::ClaimIdlest { within: Within::Cluster | Within::PrevCluster, .. } => {
                return Err("looks among the clusters of `llc`, `node` or `all`");
            }
            Step::ClaimIdlest { within, core } => {
                StepImage { set: within_set(within), flags: claim(core), ..kind(KIND_IDLEST) }
            }
        })
    }
}

fn pred_bits(pred: Pred) -> u32 {
    match pred {
        Pred::Idle | Pred::Avail => 0,
        Pred::Ok59 => 1 << STEP_SCHED_IDLE,
        Pred::Ok72 => 1 << STEP_SCHED_IDLE | 1 << STEP_NO_KIN,
    }
}

/// Where a scan starts, and what will do.
fn scan_bits(start: Start, pred: Pred) -> Result<u32, &'static str> {
    match start {
        Start::Target => Ok(pred_bits(pred)),
        Start::AfterTarget => Ok(pred_bits(pred) | 1 << STEP_AFTER),
        Start::NextCpu | Start::Transposed => {
            Err("`start` must be \"target\" or \"target+1\" for the live interpreter")
        }
    }
}

/// The firmware's cluster is searched beside the candidates.
fn scan_of(src: ClusterSrc) -> u32 {
    if src == ClusterSrc::RawTopology { 0 } else { 1 << STEP_SCAN }
}

fn near_set(share: Share, keep: bool) -> u8 {
    if share == Share::Lowest && !keep { SET_SHARE } else { SET_SHARE_LLC }
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
