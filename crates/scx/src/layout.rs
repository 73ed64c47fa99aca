//! A compiled plan as data. The build script makes `plan.h` of this file, for the interpreter in C (`bpf/place.h`).
//!
//! A step of a record is lowered to a kind that looks for a CPU in a set; what never takes part on the machine is [`KIND_NONE`].

use bytemuck::{Pod, Zeroable};

/// The most steps that a list may have.
pub const MAX_STEPS: usize = 32;
/// Distances that a set of CPUs bounds: SMT, cluster, LLC, node, package.
pub const REACHES: usize = 5;
/// Beside them: the CPU itself, and beyond the package.
pub const DISTANCES: usize = 7;
/// Domains of a CPU that may pull wake-ups, by their tolerance of imbalance: SMT's, the cache's, the rest's.
pub const AFFINES: usize = 3;

/// Does nothing.
pub const KIND_NONE: u8 = 0;
/// Looks for a CPU.
pub const KIND_LOOK: u8 = 1;
/// Hints idle cores if it finds a CPU.
pub const KIND_HINT: u8 = 2;
/// Sets what scans may walk over.
pub const KIND_BUDGET: u8 = 3;
/// The target, if it has no LLC domain.
pub const KIND_NEED_LLC: u8 = 4;
/// What was kept.
pub const KIND_TAKE_KEPT: u8 = 5;
/// This CPU, behind a waker that gives way.
pub const KIND_SYNC_STACK: u8 = 6;
/// Prev, behind a kernel thread that is bound to it.
pub const KIND_KTHREAD_STACK: u8 = 7;

/// The CPU from which a step looks.
pub const OF_TARGET: u8 = 0;
/// Prev.
pub const OF_PREV: u8 = 1;
/// The wakee's recent CPU.
pub const OF_RECENT: u8 = 2;

/// CPUs that are online.
pub const SET_ALL: u8 = 0;
/// Those that claims count to one node, one LLC and one cluster.
pub const SET_NODE: u8 = 1;
/// The LLC's.
pub const SET_LLC: u8 = 2;
/// The cluster's.
pub const SET_CLUSTER: u8 = 3;
/// CPUs with its `sd_llc_id`
pub const SET_SHARE_LLC: u8 = 4;
/// and its `sd_share_id`.
pub const SET_SHARE: u8 = 5;
/// Itself.
pub const SET_ONE: u8 = 6;
/// Its core's threads within `sd_llc`.
pub const SET_CORE: u8 = 7;
/// The others of them.
pub const SET_OTHERS: u8 = 8;
/// `sd_llc`.
pub const SET_SD_LLC: u8 = 9;
/// The firmware's cluster.
pub const SET_RAW_CLUSTER: u8 = 10;
/// The cluster domain
pub const SET_CLUSTER_DOMAIN: u8 = 11;
/// and the rest of `sd_llc`.
pub const SET_CLUSTER_REST: u8 = 12;
/// The first group of `sd_llc`
pub const SET_LLC_GROUP: u8 = 13;
/// and the rest.
pub const SET_GROUP_REST: u8 = 14;
/// The whole node's.
pub const SET_WHOLE_NODE: u8 = 15;
/// All CPU ids.
pub const SET_EVERY: u8 = 16;
/// Domains that may pull wake-ups, narrowest first, one of each tolerance.
pub const SET_AFFINE: u8 = 17;
/// Sets of a CPU.
pub const NR_SETS: usize = 20;
/// No set.
pub const SET_NONE: u8 = 255;

/// Claims the CPU that it finds.
pub const STEP_CLAIM: u32 = 1 << 0;
/// On cores that are idle as a whole.
pub const STEP_CORES: u32 = 1 << 1;
/// The same if idle cores are hinted, and not charged.
pub const STEP_CORES_HINTED: u32 = 1 << 2;
/// A CPU with `SCHED_IDLE` tasks will do
pub const STEP_SCHED_IDLE: u32 = 1 << 3;
/// for others than those.
pub const STEP_NO_KIN: u32 = 1 << 4;
/// Whatever state the CPU is in.
pub const STEP_ANY: u32 = 1 << 5;
/// Outside the affinity as well.
pub const STEP_ANYWHERE: u32 = 1 << 6;
/// Not the target, nor a recent CPU that is prev.
pub const STEP_OTHER: u32 = 1 << 7;
/// Only if no idle core is hinted.
pub const STEP_NO_HIC: u32 = 1 << 8;
/// Only if no cluster of the LLC is less busy than prev's.
pub const STEP_NO_BUSIER: u32 = 1 << 9;
/// In the idlest cluster of the set.
pub const STEP_IDLEST: u32 = 1 << 10;
/// Starts behind the CPU from which it looks,
pub const STEP_AFTER: u32 = 1 << 11;
/// or from the first one.
pub const STEP_FROM_ZERO: u32 = 1 << 12;
/// Charged to the budget.
pub const STEP_CHARGE: u32 = 1 << 13;
/// Takes the CPU that a search for cores noted.
pub const STEP_LAST: u32 = 1 << 14;
/// A CPU outside `SET_SHARE` is kept
pub const STEP_KEEP: u32 = 1 << 15;
/// whatever was kept before.
pub const STEP_FIRST: u32 = 1 << 16;
/// The recent CPU is renewed even if it is not taken.
pub const STEP_ALWAYS: u32 = 1 << 17;
/// Counts as busy the CPUs whose tasks run without end.
pub const STEP_HOGS: u32 = 1 << 18;

/// The target is prev where neither this nor the next is set.
pub const ENTRY_LOAD: u32 = 1 << 0;
/// The waker's CPU if it is near.
pub const ENTRY_WAKER: u32 = 1 << 1;
/// An idle prev wins.
pub const ENTRY_AFFINE_IDLE_PREV: u32 = 1 << 2;
/// The waker's recent CPU becomes this one.
pub const ENTRY_SET_WAKER_RECENT: u32 = 1 << 3;
/// The hint for this CPU is followed.
pub const ENTRY_CURRENT_HINT: u32 = 1 << 4;

/// Above `1 << KIND_…` in [`PlanImage::used`]: a step has `STEP_CORES_HINTED`,
pub const USED_CORES: u32 = 1 << 16;
/// the entry has `ENTRY_LOAD`.
pub const USED_LOAD: u32 = 1 << 17;

/// The plan for wake-ups while gathering,
pub const PLAN_GATHER: usize = 0;
/// while spreading,
pub const PLAN_SPREAD: usize = 1;
/// for new tasks.
pub const PLAN_FORK: usize = 2;
/// Plans of a running scheduler.
pub const NR_PLANS: usize = 3;
/// Places of a CPU's `placed` by plan: by deciding step, and the last one for the core's own rules.
pub const NR_PLACED: usize = MAX_STEPS + 1;
/// Rows of a CPU's `taken`: own CPU's queue,
pub const TAKEN_OWN_CPU: usize = 0;
/// own cluster's,
pub const TAKEN_CLUSTER: usize = 1;
/// the LLC's other clusters',
pub const TAKEN_LLC: usize = 2;
/// the node's,
pub const TAKEN_NODE: usize = 3;
/// farther.
pub const TAKEN_FARTHER: usize = 4;
/// Number of these rows.
pub const NR_TAKEN: usize = 5;
/// Where virtual times begin, which tells them from what `parked()` makes.
pub const CLOCK_ORIGIN: u64 = 0x4000_0000_0000_0000;

/// Words `first..first + len` of a CPU set, in the pool from `at` on. A set that does not exist has no words.
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

/// What decisions look up of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FactsImage {
    /// By `SET_…`.
    pub sets: [MaskImage; NR_SETS],
    /// Of each affine domain, what the previous CPU's load is multiplied by, in percent; 0: no domain.
    pub margins: [u32; AFFINES],
    /// The first CPU no farther than SMT, cluster, LLC, node, package.
    pub ids: [u32; REACHES],
    /// Its LLC's number.
    pub llc_index: u32,
    /// Its cluster's place in the list of clusters,
    pub cluster: u32,
    /// the run of its LLC's
    pub llc_from: u32,
    /// clusters
    pub llc_len: u32,
    /// and of its node's.
    pub node_from: u32,
    /// Number of the node's clusters.
    pub node_len: u32,
}

/// A step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StepImage {
    /// `KIND_…`
    pub kind: u8,
    /// `OF_…`
    pub of: u8,
    /// `SET_…` of the CPU from which it looks.
    pub set: u8,
    /// That CPU lies in this set of the target's; `SET_NONE`: anywhere.
    pub near: u8,
    /// `STEP_…`; of a budget `STEP_ANY`, if it fails without any CPU.
    pub flags: u32,
}

/// A list of steps and the entry rule before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PlanImage {
    /// `ENTRY_…`; none for new tasks, whose target is the CPU that forks.
    pub entry: u32,
    /// `1 << KIND_…` of every step, and `USED_…`.
    pub used: u32,
    /// Number of steps. A decision's step is below it, or equal for the core's own rules.
    pub nr_steps: u32,
    /// Index of the first step behind the last scan.
    pub after_scans: u32,
    /// Clusters with CPUs of the partition.
    pub nr_clusters: u32,
    /// The steps, zeros behind the last.
    pub steps: [StepImage; MAX_STEPS],
}
