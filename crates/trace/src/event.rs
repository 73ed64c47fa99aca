//! The event model: what a trace says, whatever wrote it.

use huddle_machine::CpuId;

/// One load's events, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The kernel's release, where the trace says it.
    pub kernel: String,
    /// The load's name, where the trace says it.
    pub load: String,
    /// What was lost, a line each: events of full buffers, probes that did not fire.
    pub lost: Vec<String>,
    /// The events.
    pub records: Vec<Record>,
}

/// What a CPU was doing when the event was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The task's own work.
    Task,
    /// A soft interrupt.
    Softirq,
    /// A hard interrupt, or one that cannot be masked.
    Hardirq,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Microseconds of the tracer's clock.
    pub time_us: u64,
    /// Where it happened.
    pub cpu: CpuId,
    /// The running task, 0 for the idle one.
    pub pid: u32,
    /// Its name.
    pub comm: Box<str>,
    /// The context.
    pub context: Context,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `sched_switch`.
    Switch {
        /// The task that leaves.
        prev: u32,
        /// It stays runnable.
        runnable: bool,
        /// The task that comes.
        next: u32,
    },
    /// `sched_waking`: a wake-up begins.
    Waking {
        /// The wakee.
        pid: u32,
        /// Its name.
        comm: Box<str>,
    },
    /// `sched_wakeup` or `sched_wakeup_new`: the task is queued.
    Queued {
        /// The task.
        pid: u32,
        /// Its name.
        comm: Box<str>,
        /// Where.
        cpu: CpuId,
        /// It was forked just before.
        new: bool,
    },
    /// `sched_migrate_task`.
    Migrate {
        /// The task.
        pid: u32,
        /// Its name.
        comm: Box<str>,
        /// To this CPU.
        to: CpuId,
    },
    /// `sched_process_exit`.
    Exit {
        /// The task.
        pid: u32,
    },
    /// `select_task_rq_fair` is entered.
    Select {
        /// The previous CPU.
        prev: CpuId,
        /// Kind of the placement.
        kind: crate::Kind,
        /// The sync flag.
        sync: bool,
        /// The flag that asks for the waking CPU.
        current_cpu: bool,
        /// The wakee, where the probe reads it.
        pid: Option<u32>,
        /// The wakee's recent CPU, where the probe reads it.
        recent: Option<CpuId>,
        /// The wakee's switches of partner, where the probe reads them.
        flips: Option<u32>,
    },
    /// `available_idle_cpu` is entered, by the entry rule or the steps.
    Look {
        /// The CPU it looks at.
        cpu: CpuId,
    },
    /// `choose_idle_cpu` (7.2) is entered, by the steps.
    Choose {
        /// The CPU it looks at.
        cpu: CpuId,
    },
    /// One of the two returns.
    Idle(bool),
    /// `select_task_rq_fair` returns.
    Selected {
        /// Its choice.
        cpu: CpuId,
    },
}
