//! A policy's only window on the world, and the only way to write what a wake-up writes.
//!
//! Idle state is shown as bitmap words (CPU `64 * w + b` in bit `b` of word `w`) so that scans are word operations. The engine,
//! trace replay and tests implement it. What a world cannot know is `None` and makes a decision
//! [`Undecidable`] if a step needs it.

use huddle_machine::{CpuId, Distance};

/// What a placement reads and writes. All reads speak of the moment of the decision.
pub trait View {
    /// CPUs that are idle, with nothing queued and no wake-up pending (`available_idle_cpu`).
    fn idle_word(&self, word: usize) -> u64;
    /// CPUs whose core is idle as a whole: all its online threads are.
    fn idle_core_word(&self, _word: usize) -> Option<u64> {
        None
    }
    /// Takes an idle CPU out of everybody's sight, so that nobody else places a task there; `false`: somebody was faster. Won or
    /// lost, [`View::idle_word`] no longer shows the CPU, nor [`View::idle_core_word`] any thread of its core.
    fn claim(&mut self, _cpu: CpuId) -> Option<bool> {
        None
    }
    /// CPUs that run only SCHED_IDLE tasks (`sched_idle_cpu`).
    fn sched_idle_word(&self, word: usize) -> u64;
    /// CPUs that the wakee may use: affinity ∩ active.
    fn allowed_word(&self, word: usize) -> u64;
    /// Queued and running tasks of a CPU.
    fn nr_running(&self, cpu: CpuId) -> Option<u32>;
    /// Tasks on a CPU's queue that sleep but whose dequeue is delayed (6.12 on).
    fn nr_delayed(&self, _cpu: CpuId) -> Option<u32> {
        Some(0)
    }
    /// `cpu_load`: the fair queue's load_avg.
    fn cpu_load(&self, cpu: CpuId) -> Option<u64>;
    /// `capacity_of`: 1024 for a CPU whole at the fair class's disposal.
    fn capacity(&self, cpu: CpuId) -> Option<u64>;
    /// Hierarchical load of the waker.
    fn waker_load(&self) -> Option<u64>;
    /// Hierarchical load of the wakee.
    fn wakee_load(&self) -> Option<u64>;
    /// `wakee_flips` of the waker, this wake-up recorded.
    fn waker_flips(&self) -> Option<u32>;
    /// `wakee_flips` of the wakee.
    fn wakee_flips(&self) -> Option<u32>;
    /// The waker is a per-CPU kernel thread in task context.
    fn waker_is_per_cpu_kthread(&self) -> bool;
    /// The wake-up asks for the CPU that executes it (`WF_CURRENT_CPU`, 6.6 on).
    fn prefers_current_cpu(&self) -> bool {
        false
    }
    /// The waker has lately slept soon after its sync wake-ups, before it woke anybody else.
    fn waker_keeps_sync(&self) -> Option<bool> {
        None
    }
    /// The wakee has policy SCHED_IDLE.
    fn wakee_is_sched_idle(&self) -> bool;
    /// Whether a CPU's capacity fits the wakee's utilisation (asymmetric machines only).
    fn fits(&self, cpu: CpuId) -> Option<bool>;
    /// Whether a CPU that does not fit misses only the wakee's minimum utilisation clamp.
    fn misses_only_clamp(&self, _cpu: CpuId) -> Option<bool> {
        Some(false)
    }
    /// The wakee's recently used CPU.
    fn recent(&self) -> Option<CpuId>;
    /// Tasks that wait in a CPU's own queue of a sched_ext scheduler, its local DSQ.
    fn nr_local(&self, _cpu: CpuId) -> Option<u32> {
        None
    }
    /// The CPU that the last rotating choice on a CPU fell on, CPU 0 before the first (`distribute_cpu_mask_prev`, `lib/cpumask.c`).
    fn last_rotated(&self, _this: CpuId) -> Option<CpuId> {
        None
    }
    /// Remembers what a rotating choice on a CPU fell on.
    fn set_last_rotated(&mut self, _this: CpuId, _cpu: CpuId) {}
    /// Writes the wakee's recently used CPU.
    fn set_recent(&mut self, cpu: CpuId);
    /// Writes the waker's recently used CPU.
    fn set_waker_recent(&mut self, cpu: CpuId);
    /// The hint word of an LLC (`DomainTree::cached[..].llc_index`).
    fn has_idle_cores(&self, llc: u32) -> Option<bool>;
    /// Writes the hint word.
    fn set_has_idle_cores(&mut self, llc: u32, value: bool);
    /// `rq.avg_idle` of a CPU, ns.
    fn avg_idle(&self, cpu: CpuId) -> Option<u64>;
    /// `avg_scan_cost` of the CPU's own sd_llc, ns.
    fn avg_scan_cost(&self, cpu: CpuId) -> Option<u64>;
    /// Writes `avg_scan_cost` of the CPU's own sd_llc.
    fn set_avg_scan_cost(&mut self, cpu: CpuId, ns: u64);
    /// The aged idle time of the 5.14 … 6.6 budget after this read's ageing (`wake_avg_idle`), ns.
    fn aged_idle(&mut self, cpu: CpuId) -> Option<u64>;
    /// Subtracts a scan's time from the aged idle time, not below 0.
    fn charge_aged_idle(&mut self, cpu: CpuId, ns: u64);
    /// Time that a scan with these examined CPUs takes, by distance from the waking CPU, ns.
    fn scan_time(&self, examined: &[u32; Distance::COUNT]) -> u64;
    /// `nr_idle_scan` of an LLC.
    fn nr_idle_scan(&self, llc: u32) -> Option<u32>;
    /// Where the last scan for this target stopped (2018 variants).
    fn next_cpu(&self, target: CpuId) -> Option<CpuId>;
    /// Remembers where a scan for this target stopped.
    fn set_next_cpu(&mut self, target: CpuId, cpu: CpuId);
}

/// One wake-up to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The CPU that executes the wake-up.
    pub this: CpuId,
    /// The wakee's CPU.
    pub prev: CpuId,
    /// The sync hint holds and the waker is not exiting.
    pub sync: bool,
}

/// A decision that needs something the world does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("undecidable: `{0}` is not known")]
pub struct Undecidable(pub &'static str);

/// Where a wake-up goes and how that came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The CPU.
    pub cpu: CpuId,
    /// The target that the entry rule chose.
    pub target: CpuId,
    /// Index of the deciding step in the record's steps, of a fork in its fork steps. The number of steps
    /// ([`crate::Plan::nr_steps`], the length of [`crate::Plan::fork_steps`]) stands for the core's own rules around them: a wake-up
    /// that asks for this CPU, a task with one CPU, a choice outside the affinity.
    pub step: u8,
    /// The wake-up was wide (`wake_wide`): affine choice refused.
    pub wide: bool,
    /// A scan ran out of its budget.
    pub exhausted: bool,
    /// CPUs examined in scans, by distance from the waking CPU.
    pub examined: [u32; Distance::COUNT],
}
