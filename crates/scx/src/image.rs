//! A compiled plan as data: the twins of the structs in `bpf/plan.h`, byte for byte.
//!
//! Plans of several policies for one machine share an [`Image`], what they look up; a [`PlanImage`] is a list of steps.

use bytemuck::{Pod, Zeroable};
use huddle_machine::{CpuId, Distance};
use huddle_policy::{
    AffineSpan, Anchor, ClusterCondition, ClusterSrc, Clusters, Cost, EntryAnchor, Kept, Mask, Method, Plan, PlanCpu,
    Pred, Share, SmtCondition, Start, Step, Update, Within,
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

/// `struct cpu_facts`: what decisions look up of one CPU; the fields are those of [`PlanCpu`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)] // said in plan.h and of PlanCpu
pub struct FactsImage {
    pub llc: MaskImage,
    pub smt: MaskImage,
    pub node: MaskImage,
    /// By `SOURCE_…`.
    pub scan_cluster: [MaskImage; 3],
    pub reach: [MaskImage; REACHES],
    /// By `WITHIN_…`.
    pub claim: [MaskImage; 5],
    pub llc_size: u32,
    pub llc_id: u32,
    pub share_id: u32,
    pub llc_index: u32,
    pub affine_from: u32,
    pub affine_len: u32,
    pub cluster: u32,
    pub llc_from: u32,
    pub llc_len: u32,
    pub node_from: u32,
    pub node_len: u32,
    pub nr_clusters: u32,
}

/// `struct step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)] // said in plan.h and of Step::describe
pub struct StepImage {
    pub kind: u8,
    pub pred: u8,
    pub source: u8,
    pub method: u8,
    pub cost: u8,
    pub within: u8,
    unused: [u8; 2],
    pub flags: u32,
    pub div: u32,
    pub floor: u32,
    pub spare: u32,
}

/// `struct plan`: a list of steps and the entry rule before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PlanImage {
    /// `ENTRY_…` bits; none for new tasks, whose target is the CPU that forks.
    pub entry: u32,
    /// `PLAN_…` bits.
    pub flags: u32,
    /// `1 << KIND_…` of every step.
    pub kinds: u32,
    /// Number of steps. A decision's step is below it, or equal for the core's own rules.
    pub nr_steps: u32,
    /// Index of the first step behind the last scan.
    pub after_scans: u32,
    /// Number of words of a set of all CPU ids.
    pub nr_words: u32,
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
    KIND_ASYM_SCAN, KIND_TARGET_IDLE, KIND_PREV_IDLE, KIND_KTHREAD_STACK, KIND_RECENT_IDLE, KIND_NEED_LLC,
    KIND_IDLE_CORE, KIND_READ_HIC, KIND_IDLE_SMT, KIND_BUDGET, KIND_SCAN_CLUSTER, KIND_SCAN_LLC, KIND_TAKE_KEPT,
    KIND_RETURN_TARGET, KIND_RETURN_PREV, KIND_SYNC_STACK, KIND_CLAIM_PREV, KIND_CLAIM_ANY, KIND_CLAIM_IDLEST,
);
counted!(u8: PRED_IDLE, PRED_AVAIL, PRED_OK59, PRED_OK72);
counted!(u8: SOURCE_RAW_TOPOLOGY, SOURCE_CLUSTER_DOMAIN, SOURCE_LLC_FIRST_GROUP);
counted!(u8: METHOD_NONE, METHOD_UTIL, METHOD_PROP, METHOD_PROP_AGED);
counted!(u8: COST_NONE, COST_AVG_SCAN_COST, COST_AGED);
counted!(u8: WITHIN_CLUSTER, WITHIN_PREV_CLUSTER, WITHIN_LLC, WITHIN_NODE, WITHIN_ALL);
counted!(u32:
    STEP_LOWEST, STEP_KEEP, STEP_UPDATE_ALWAYS, STEP_ANCHOR_PREV, STEP_INCL_ANCHOR, STEP_NO_HIC, STEP_IN_LLC,
    STEP_FAIL_IF_EMPTY, STEP_CHARGE, STEP_REMOVE, STEP_CORES, STEP_NO_SMT, STEP_AFTER_TARGET,
    STEP_NO_BUSIER, STEP_TAKE_PREV, STEP_TAKE_RECENT, STEP_RECENT_FIRST,
);
counted!(u32:
    ENTRY_WIDE, ENTRY_AFFINE_IDLE_PREV, ENTRY_SYNC_MINUS_DELAYED, ENTRY_SET_WAKER_RECENT, ENTRY_PREFER_CURRENT_HINT,
    ENTRY_ANCHOR_LOAD, ENTRY_ANCHOR_WAKER,
);
counted!(u32: PLAN_SMT_ACTIVE, PLAN_CLUSTER_ACTIVE);

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
        Image {
            facts: (0..plan.nr_cpus())
                .filter_map(|cpu| plan.facts(CpuId::from(cpu)).map(|cpu| FactsImage::of(cpu, plan)))
                .collect(),
            pool: plan.pool().to_vec(),
            clusters: plan.clusters().iter().map(MaskImage::of).collect(),
            affine: plan.affine_spans().iter().map(AffineImage::of).collect(),
        }
    }
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
    fn of(cpu: &PlanCpu, plan: &Plan) -> FactsImage {
        let claim = &cpu.claim;
        let Clusters { from: llc_from, len: llc_len } = claim.llc_clusters;
        let Clusters { from: node_from, len: node_len } = claim.node_clusters;
        let claims = [claim.cluster, claim.cluster, claim.llc, claim.node, plan.online()];
        FactsImage {
            llc: MaskImage::of_option(cpu.llc),
            smt: MaskImage::of(&cpu.smt),
            node: MaskImage::of(&cpu.node),
            scan_cluster: [Some(cpu.cluster_raw), cpu.cluster_domain, cpu.llc_first_group].map(MaskImage::of_option),
            reach: cpu.reach.map(|mask| MaskImage::of(&mask)),
            claim: claims.map(|mask| MaskImage::of(&mask)),
            llc_size: cpu.llc_size,
            llc_id: cpu.llc_id,
            share_id: cpu.share_id,
            llc_index: cpu.llc_index,
            affine_from: cpu.affine_from,
            affine_len: cpu.affine_len,
            cluster: claim.index,
            llc_from,
            llc_len,
            node_from,
            node_len,
            nr_clusters: plan.online_clusters().len,
        }
    }
}

impl PlanImage {
    /// The plan's entry rule and steps for wake-ups.
    ///
    /// # Errors
    /// More than [`MAX_STEPS`] steps, and what the interpreter in C does not have: the proposals of 2018 (merged scans,
    /// their start points and budgets), 4.17's charge for CPUs outside the affinity, and on a machine of different
    /// capacities every step that reads them.
    pub fn new(plan: &Plan) -> Result<PlanImage, ImageError> {
        let entry = plan.entry();
        let entry = bits([
            (ENTRY_WIDE, entry.wide && entry.anchor != EntryAnchor::Prev),
            (ENTRY_AFFINE_IDLE_PREV, entry.affine_idle_prev),
            (ENTRY_SYNC_MINUS_DELAYED, entry.sync_minus_delayed),
            (ENTRY_SET_WAKER_RECENT, entry.set_waker_recent && entry.anchor != EntryAnchor::Prev),
            (ENTRY_PREFER_CURRENT_HINT, entry.prefer_current_hint),
            (ENTRY_ANCHOR_LOAD, entry.anchor == EntryAnchor::Load),
            (ENTRY_ANCHOR_WAKER, entry.anchor == EntryAnchor::Waker),
        ]);
        let image = PlanImage { entry, after_scans: plan.after_scans() as u32, ..PlanImage::default() };
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
            *slot = StepImage::of(step).map_err(refuse)?;
            self.kinds |= 1 << slot.kind;
        }
        self.flags = bits([(PLAN_SMT_ACTIVE, plan.smt_active()), (PLAN_CLUSTER_ACTIVE, plan.cluster_active())]);
        self.nr_steps = steps.len() as u32;
        self.nr_words = plan.nr_words() as u32;
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

impl StepImage {
    /// The step; the error says what the interpreter lacks.
    fn of(step: &Step) -> Result<StepImage, &'static str> {
        let kind = |kind| StepImage { kind, ..StepImage::default() };
        Ok(match *step {
            Step::AsymScan { ranks: _ } => kind(KIND_ASYM_SCAN),
            Step::TargetIdle { pred, fits: _ } => kind(KIND_TARGET_IDLE).pred(pred),
            Step::PrevIdle { share, keep, pred, fits: _ } => {
                let flags = [(STEP_LOWEST, share == Share::Lowest), (STEP_KEEP, keep)];
                kind(KIND_PREV_IDLE).pred(pred).flags(flags)
            }
            Step::KthreadStack { fits: _ } => kind(KIND_KTHREAD_STACK),
            Step::RecentIdle { share, keep, update, pred, fits: _ } => kind(KIND_RECENT_IDLE).pred(pred).flags([
                (STEP_LOWEST, share == Share::Lowest),
                (STEP_KEEP, keep),
                (STEP_UPDATE_ALWAYS, update == Update::Always),
            ]),
            Step::NeedLlc => kind(KIND_NEED_LLC),
            Step::IdleCore { start, pred } => kind(KIND_IDLE_CORE).pred(pred).flags([after_target(start)?]),
            Step::ReadHic => kind(KIND_READ_HIC),
            Step::IdleSmt { anchor, incl_anchor, cond, in_llc, pred } => kind(KIND_IDLE_SMT).pred(pred).flags([
                (STEP_ANCHOR_PREV, anchor == Anchor::Prev),
                (STEP_INCL_ANCHOR, incl_anchor),
                (STEP_NO_HIC, cond == SmtCondition::NoHicAndShareLlc),
                (STEP_IN_LLC, in_llc),
            ]),
            Step::Budget { floor_threads: true, .. } => return Err("the live interpreter has no `floor_threads`"),
            Step::Budget { div: 0, .. } => return Err("`div` must be 1 or more"),
            Step::Budget { method, div, floor, fail_if_empty, .. } => {
                let budget = kind(KIND_BUDGET).flags([(STEP_FAIL_IF_EMPTY, fail_if_empty)]);
                StepImage { method: method_byte(method)?, div, floor, ..budget }
            }
            Step::ScanCluster { src, start, pred, charge, remove, cores, only_if } => {
                let flags = [
                    after_target(start)?,
                    (STEP_CHARGE, charge),
                    (STEP_REMOVE, remove),
                    (STEP_CORES, cores),
                    (STEP_NO_SMT, only_if == ClusterCondition::NoSmt),
                ];
                StepImage { source: source_byte(src), ..kind(KIND_SCAN_CLUSTER).pred(pred).flags(flags) }
            }
            Step::ScanLlc { charge_disallowed: true, .. } => {
                return Err("the live interpreter has no `charge_disallowed`");
            }
            Step::ScanLlc { start, pred, cores, charge, cost, .. } => {
                let flags = [after_target(start)?, (STEP_CORES, cores), (STEP_CHARGE, charge)];
                StepImage { cost: cost_byte(cost), ..kind(KIND_SCAN_LLC).pred(pred).flags(flags) }
            }
            Step::ScanMerged { .. } => return Err("the live interpreter has no merged scan"),
            Step::TakeKept { ref order } => kind(KIND_TAKE_KEPT).flags([
                (STEP_TAKE_PREV, order.contains(&Kept::Prev)),
                (STEP_TAKE_RECENT, order.contains(&Kept::Recent)),
                (STEP_RECENT_FIRST, order.first() == Some(&Kept::Recent)),
            ]),
            Step::ReturnTarget => kind(KIND_RETURN_TARGET),
            Step::ReturnPrev => kind(KIND_RETURN_PREV),
            Step::SyncStack { spare } => StepImage { spare, ..kind(KIND_SYNC_STACK) },
            Step::ClaimPrev { within, core, no_busier } => {
                kind(KIND_CLAIM_PREV).within(within).flags([(STEP_CORES, core), (STEP_NO_BUSIER, no_busier)])
            }
            Step::ClaimAny { within, core, charge } => {
                kind(KIND_CLAIM_ANY).within(within).flags([(STEP_CORES, core), (STEP_CHARGE, charge)])
            }
            Step::ClaimIdlest { within: Within::Cluster | Within::PrevCluster, .. } => {
                return Err("looks among the clusters of `llc`, `node` or `all`");
            }
            Step::ClaimIdlest { within, core } => kind(KIND_CLAIM_IDLEST).within(within).flags([(STEP_CORES, core)]),
        })
    }

    fn pred(self, pred: Pred) -> StepImage {
        let pred = match pred {
            Pred::Idle => PRED_IDLE,
            Pred::Avail => PRED_AVAIL,
            Pred::Ok59 => PRED_OK59,
            Pred::Ok72 => PRED_OK72,
        };
        StepImage { pred, ..self }
    }

    fn within(self, within: Within) -> StepImage {
        let within = match within {
            Within::Cluster => WITHIN_CLUSTER,
            Within::PrevCluster => WITHIN_PREV_CLUSTER,
            Within::Llc => WITHIN_LLC,
            Within::Node => WITHIN_NODE,
            Within::All => WITHIN_ALL,
        };
        StepImage { within, ..self }
    }

    fn flags<const N: usize>(self, flags: [(u32, bool); N]) -> StepImage {
        StepImage { flags: bits(flags), ..self }
    }
}

fn after_target(start: Start) -> Result<(u32, bool), &'static str> {
    match start {
        Start::Target => Ok((STEP_AFTER_TARGET, false)),
        Start::AfterTarget => Ok((STEP_AFTER_TARGET, true)),
        Start::NextCpu | Start::Transposed => {
            Err("`start` must be \"target\" or \"target+1\" for the live interpreter")
        }
    }
}

fn method_byte(method: Method) -> Result<u8, &'static str> {
    match method {
        Method::None => Ok(METHOD_NONE),
        Method::Util => Ok(METHOD_UTIL),
        Method::Prop => Ok(METHOD_PROP),
        Method::PropAged => Ok(METHOD_PROP_AGED),
        Method::PropLimit => Err("the live interpreter has no method \"prop_limit\""),
    }
}

fn source_byte(src: ClusterSrc) -> u8 {
    match src {
        ClusterSrc::RawTopology => SOURCE_RAW_TOPOLOGY,
        ClusterSrc::ClusterDomain => SOURCE_CLUSTER_DOMAIN,
        ClusterSrc::LlcFirstGroup => SOURCE_LLC_FIRST_GROUP,
    }
}

fn cost_byte(cost: Cost) -> u8 {
    match cost {
        Cost::None => COST_NONE,
        Cost::AvgScanCost => COST_AVG_SCAN_COST,
        Cost::Aged => COST_AGED,
    }
}
