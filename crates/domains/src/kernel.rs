//! A kernel generation as data: domain levels and numbers, wake-up transport, balancing profile, queue profile.
//!
//! Read from `kernels/*.toml`. Each field is a difference between releases that the specification names; none is read
//! nowhere.

use serde::{Deserialize, Deserializer, de};

/// A name out of a fixed list.
pub type Name = &'static str;

/// The fair queue.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueProfile {
    /// Which algorithm.
    pub kind: QueueKind,
    /// `sched_latency`, ns before the CPU-count factor (CFS).
    pub latency_ns: u64,
    /// `sched_min_granularity` (CFS) or base slice (EEVDF), ns before the factor.
    pub min_granularity_ns: u64,
    /// `sched_wakeup_granularity`, ns before the factor (CFS).
    pub wakeup_granularity_ns: u64,
    /// `sched_nr_latency` (CFS).
    pub nr_latency: u32,
    /// `sched_migration_cost`, ns, not scaled.
    pub migration_cost_ns: u64,
    /// A task that goes to sleep while it is not eligible stays queued until it is (DELAY_DEQUEUE, EEVDF of 6.12 on).
    pub delay_dequeue: bool,
    /// A task that stays queued so is owed no less later than when it fell asleep (7.2, `update_entity_lag`).
    pub delayed_lag_kept: bool,
    /// Among equal deadlines the running task goes on (EEVDF of 6.6 and 6.7); from 6.8 on it gives way.
    pub running_wins_ties: bool,
    /// Whose slices count, and how long a picked task is protected (EEVDF).
    pub slices: SliceRules,
    /// How much lag a task takes along (EEVDF).
    pub lag_limit: LagLimit,
    /// A new task may preempt the running one as soon as it is queued (up to 7.1).
    pub fork_preempts: bool,
    /// A kernel that is not preemptible asks a running fair task to go without an interrupt: it goes at its next return to user
    /// mode, the tick being the latest (PREEMPT_LAZY in place of PREEMPT_NONE and PREEMPT_VOLUNTARY, 7.2).
    pub lazy_preempt: bool,
}

/// Slices of EEVDF (`update_deadline`, `place_entity`, `set_protect_slice`, `check_preempt_wakeup_fair`, `kernel/sched/fair.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceRules {
    /// 6.6 … 6.11: all are the base slice. A deadline is forgotten when a task changes its queue, a new task has a whole slice, a
    /// picked one is protected until its deadline.
    Base,
    /// 6.12 … 6.16: tasks may have slices of their own, and an eligible one with a shorter slice ends the running one's protection
    /// (PREEMPT_SHORT). A deadline is kept, relative to the virtual runtime, when a task changes its queue (PLACE_REL_DEADLINE), and
    /// a new task has half a slice (PLACE_DEADLINE_INITIAL).
    Own,
    /// 6.17 on: as `Own`, but a picked task is protected for no longer than the shortest slice queued, loses the CPU when that is
    /// over, and protection does not count against a shorter slice.
    Shortest,
}

/// The most lag that a task takes along when it leaves its queue (`entity_lag`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LagLimit {
    /// Twice its slice, a tick at least.
    TwoSlices,
    /// The longest slice queued and a tick (7.2).
    LongestSliceAndTick,
}

/// The fair queue's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// v4.17 … v6.5.
    Cfs,
    /// v6.6 on.
    Eevdf,
    /// Huddle's own scheduler under sched_ext: a queue by virtual time for each cluster, one by arrival for each CPU. Its
    /// numbers are the scheduler's own, not a release's, and no fair task is left to balance.
    ClusterDsq,
}

/// When a wake-up goes to the wakee's CPU by interrupt instead of through its remote lock (spec 3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeQueue {
    /// Before v5.8: a placed wake-up to a CPU in another LLC; for a wakee still on its CPU the waker waits, wherever that is.
    OtherLlc,
    /// v5.8 … v5.19: CPU in another LLC; a wakee still on its CPU also when that CPU runs at most one task.
    OtherLlcOrOnCpuBehindOne,
    /// 5.10.y: as above with an empty queue.
    OtherLlcOrOnCpuEmpty,
    /// v6.0 on: CPU in another LLC, or another CPU whose queue is empty.
    OtherLlcOrEmpty,
}

/// Which read of a pipe wakes a writer (`fs/pipe.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipeWriterWake {
    /// Before v5.5: readers and writers sleep on one queue, and all of them are woken, the latest first, by every write and by a
    /// read that empties a slot.
    SharedQueue,
    /// v5.6 … v6.13: every read that found the ring full.
    EveryFullRead,
    /// v6.14 on: a read that empties a slot of a full ring.
    FreedSlot,
}

/// Load balancing (spec 5): the differences between releases.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceProfile {
    /// Busy interval less one jiffy (5.10 on).
    pub busy_minus_jiffy: bool,
    /// `load >> nr_balance_failed > imbalance` skips a task (5.10 on); before: `load / 2 > imbalance` while failures are few.
    pub load_shift_by_failed: bool,
    /// `util >> nr_balance_failed` (after 5.10); before unshifted.
    pub util_shift_by_failed: bool,
    /// A fixed gate on avg_idle before new-idle balancing (up to 5.15): `sched_migration_cost`; else the first domain's cost.
    pub newidle_fixed_gate: bool,
    /// New-idle balancing leaves when a wake-up is pending (6.0 on).
    pub newidle_bails_on_pending: bool,
    /// Active balance marks the environment and leaves the failure counter (5.13 on); before: counter set to `cache_nice_tries + 1`, interval doubles.
    pub active_flag: bool,
    /// Sibling imbalance by cores, decided from the busiest *group's* flag (6.6 on); before: the child domain's flag and plain counts.
    pub sibling_by_cores: bool,
    /// `smt_balance` group type and idle-core-aware election (6.6 on).
    pub smt_balance: bool,
    /// Queues without fair tasks are skipped as source (6.1 on).
    pub skip_idle_source: bool,
    /// Active balance by failures only for task migration (6.1 on).
    pub active_only_for_task: bool,
    /// Fork placement over NUMA groups and the adjustment of imbalance.
    pub numa: NumaImbalance,
    /// Groups are compared by load alone, averaged over ticks, by balancing and fork (`cpu_load`, up to 5.2; groups without
    /// types, up to 5.4); a CPU's load is that of its runnable tasks.
    pub by_load: bool,
    /// The cost of new-idle balancing decays a second after it was last raised, and whether any level decayed is forgotten at the
    /// next (`update_newidle_cost`, 5.16 on); before: once a second, and any level counts.
    pub newidle_cost_waits: bool,
    /// How often a new-idle attempt at a level is left out.
    pub newidle_dice: NewidleDice,
    /// A task that is not eligible is not pulled to a CPU that has tasks, unless attempts have failed
    /// (`task_is_ineligible_on_dst_cpu`, 6.18 on).
    pub spares_ineligible: bool,
    /// A task whose dequeue is delayed is moved for its load only (6.14 on).
    pub delayed_by_load_only: bool,
    /// The mean idle time is sampled whenever a CPU leaves idle (7.2); before: by the wake-up that finds the stamp.
    pub idle_sampled_at_exit: bool,
    /// Threads of a process are drawn to one LLC (SCHED_CACHE, 7.2).
    pub cache_aware: bool,
}

/// Whether a new-idle attempt at a level is left to chance (`sched_balance_newidle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewidleDice {
    /// Every attempt is made.
    Never,
    /// In proportion to the share of attempts that pulled (NI_RANDOM: 6.19, and 6.12.y by a back-port).
    BySuccess,
    /// The more, too, the rarer attempts are (NI_RATE, 7.x).
    BySuccessAndRate,
}

/// How much imbalance NUMA groups may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumaImbalance {
    /// v5.5 … v5.11: fork stays with any idle CPU; two tasks may stay.
    AnyIdle,
    /// v5.12 … v5.17: while running tasks are below 25 % of the node.
    Quarter,
    /// v5.18 on: `imb_numa_nr`.
    ImbNumaNr,
}

/// How sched domains are made (spec 2).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainProfile {
    /// The cluster level, if any.
    pub cluster: Option<ClusterLevel>,
    /// Name of the top non-NUMA level.
    #[serde(deserialize_with = "package_name")]
    pub package_name: Name,
    /// x86 has the level SMT only where cores have several threads (6.17 on); before, and elsewhere, always.
    pub x86_smt_if_threaded: bool,
    /// Factor on the interval of a busy CPU.
    pub busy_factor: u32,
    /// imbalance_pct of levels that share no cache.
    pub default_imbalance_pct: u32,
    /// PREFER_SIBLING on every level but NUMA (4.20 on); before: SMT and the package level.
    pub prefer_sibling_everywhere: bool,
    /// Overlapping groups descend to a sibling inside the span (5.13 on).
    pub numa_descend: bool,
    /// `imb_numa_nr` exists (5.18 on).
    pub imb_numa_nr: bool,
    /// The flag OVERLAP exists (up to 6.16).
    pub overlap_flag: bool,
    /// ASYM_CPUCAPACITY_FULL exists (5.14 on).
    pub asym_full: bool,
    /// Hybrid x86 CPUs without threads differ in capacity (6.12 on, `drivers/cpufreq/intel_pstate.c`); before, and with threads, all are
    /// equal.
    pub x86_capacity: bool,
    /// Intervals follow the span's weight (7.1 on); before: the level mask's weight before the partition cuts it.
    pub interval_from_span: bool,
    /// debugfs prints groups_flags (6.6 on).
    pub shows_groups_flags: bool,
    /// When the domain between a group and the domain whose flags it shows degenerates, the first group takes the
    /// flags of the domain that stays (6.6 on); before: it keeps those of the removed one.
    pub group_flags_follow: bool,
    /// debugfs prints the level index (6.10 on).
    pub shows_level: bool,
    /// Name of the flag SHARE_LLC as printed.
    #[serde(deserialize_with = "share_llc_name")]
    pub share_llc_name: Name,
}

/// A cluster level.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterLevel {
    /// `CL` or `CLS`.
    #[serde(deserialize_with = "cluster_name")]
    pub name: Name,
    /// The domain carries SD_CLUSTER.
    pub flag: bool,
    /// Present on hybrid machines.
    pub hybrid: bool,
    /// Limits of cluster and LLC masks against each other on arm64 (spec 1.3).
    pub limits: ClusterLimits,
    /// Level exists on x86 (the RFC: arm64 only).
    pub x86: bool,
}

/// The generic normalisation of cluster and core masks by release (spec 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterLimits {
    /// v5.16, v5.17 and the RFC: masks as they are.
    None,
    /// v5.18: the core mask includes the cluster.
    WidenCore,
    /// v6.0: and a cluster no narrower than the core mask is cut to the CPU.
    CutToSelf,
    /// v6.1 on: and is cut to the SMT threads.
    CutToSmt,
}

/// A kernel generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// `5.9`, `5.9+rfc2` …
    pub name: String,
    /// One sentence.
    pub title: String,
    /// Sched domains.
    pub domains: DomainProfile,
    /// Balancing.
    pub balance: BalanceProfile,
    /// The fair queue.
    pub queue: QueueProfile,
    /// Wake-ups by interrupt.
    pub wake_queue: WakeQueue,
    /// The pipe's writer wake-up.
    pub pipe_writer_wake: PipeWriterWake,
}

fn package_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    one_of(deserializer, &["DIE", "PKG"])
}

fn cluster_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    one_of(deserializer, &["CL", "CLS"])
}

fn share_llc_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    one_of(deserializer, &["SHARE_PKG_RESOURCES", "SHARE_LLC"])
}

fn one_of<'de, D: Deserializer<'de>>(deserializer: D, allowed: &'static [Name]) -> Result<Name, D::Error> {
    let name = String::deserialize(deserializer)?;
    allowed.iter().copied().find(|&known| known == name).ok_or_else(|| de::Error::unknown_variant(&name, allowed))
}
