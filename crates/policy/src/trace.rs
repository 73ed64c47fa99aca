//! A decision told step by step.

use huddle_machine::CpuId;

/// Hears what a decision does. [`NoTrace`] compiles to nothing.
pub trait Tracer {
    /// Something happened.
    fn event(&mut self, event: Event);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Tracer for NoTrace {
    #[inline(always)]
    fn event(&mut self, _: Event) {}
}

impl<F: FnMut(Event)> Tracer for F {
    fn event(&mut self, event: Event) {
        self(event);
    }
}

/// What a decision does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `wake_wide` was asked.
    Wide {
        /// Switches of partner of the waker.
        waker_flips: u32,
        /// Switches of partner of the wakee.
        wakee_flips: u32,
        /// CPUs of this CPU's LLC.
        factor: u32,
        /// Its answer.
        wide: bool,
    },
    /// The entry rule chose the target.
    Target {
        /// The rule that chose.
        rule: AffineRule,
        /// The target.
        target: CpuId,
    },
    /// A step begins.
    Step(usize),
    /// The step does not apply.
    Skipped(&'static str),
    /// A single CPU was tested.
    Tested {
        /// The CPU.
        cpu: CpuId,
        /// Whether it would do.
        good: bool,
    },
    /// Idle cores are hinted or not.
    Hint(bool),
    /// CPUs that scans may now examine; `None` is no limit.
    Budget(Option<u32>),
    /// A scan examined the CPUs of these bits, ascending.
    Examined {
        /// The word: CPU `64 * word + bit`.
        word: usize,
        /// The CPUs.
        bits: u64,
    },
    /// What a scan left of the budget.
    Left(u32),
    /// The CPU is kept as a second chance.
    Kept(CpuId),
    /// A cluster was looked into: the least busy one, or one that is less busy than prev's.
    Cluster {
        /// Its first CPU.
        first: CpuId,
        /// Its CPUs that are not idle.
        busy: u32,
        /// Its CPUs.
        size: u32,
    },
    /// An idle CPU was claimed.
    Claimed {
        /// The CPU.
        cpu: CpuId,
        /// Nobody else was faster.
        won: bool,
    },
    /// No idle core was found: the hint is cleared.
    HintCleared,
    /// The budget ran out: the scans that remain are left out.
    Exhausted,
    /// The step decided.
    Decided(CpuId),
    /// The core overruled the steps: the CPU is outside the wakee's affinity, or there is only one.
    Overruled(CpuId),
}

/// What chose the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffineRule {
    /// The wake-up asks for this CPU.
    CurrentCpu,
    /// The wake-up is wide: the previous CPU.
    Wide,
    /// This CPU is outside the wakee's affinity: the previous CPU.
    ThisNotAllowed,
    /// No domain of this CPU that pulls wake-ups has the previous CPU.
    NoDomain,
    /// This CPU is the previous one.
    SameCpu,
    /// Both are idle under one LLC: the previous CPU.
    BothIdle,
    /// This CPU is idle and shares the previous one's LLC.
    ThisIdle,
    /// This CPU shares the previous one's LLC; whether it is idle does not count.
    ThisNear,
    /// The previous CPU is in another LLC and the waker does not give way.
    PrevFar,
    /// The rule knows no other target than the previous CPU.
    AlwaysPrev,
    /// A sync wake-up by the only task here.
    SyncAlone,
    /// The previous CPU is idle.
    PrevIdle,
    /// A sync waker whose load is all there is here.
    SyncLoad,
    /// The loads, scaled by capacity and margin, were compared.
    Weight {
        /// This CPU's side.
        this: i64,
        /// The previous CPU's side.
        prev: i64,
    },
}
