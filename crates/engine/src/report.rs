//! What a simulation tells: time by mechanism, placements by step and distance, migrations, conservation.

use huddle_machine::Distance;

/// What a CPU's time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mechanism {
    /// Nothing to run.
    Idle,
    /// The program's own computing, memory stalls included.
    Compute,
    /// System calls and copying, transfers excluded.
    Kernel,
    /// Lines pulled from other CPUs.
    SharedData,
    /// Spinning on a lock or on a task that is still leaving its CPU.
    LockSpin,
    /// The waker's work, search excluded.
    WakeUp,
    /// Looking for an idle CPU.
    Search,
    /// Interrupts received, idle exit.
    Interrupt,
    /// Context switches.
    Switch,
    /// The timer tick.
    Tick,
    /// Load balancing.
    Balance,
    /// Refilling caches after a migration.
    Refill,
}

impl Mechanism {
    /// Number of mechanisms.
    pub const COUNT: usize = 12;

    /// All of them, in order.
    pub const ALL: [Mechanism; Mechanism::COUNT] = [
        Mechanism::Idle,
        Mechanism::Compute,
        Mechanism::Kernel,
        Mechanism::SharedData,
        Mechanism::LockSpin,
        Mechanism::WakeUp,
        Mechanism::Search,
        Mechanism::Interrupt,
        Mechanism::Switch,
        Mechanism::Tick,
        Mechanism::Balance,
        Mechanism::Refill,
    ];

    /// The word used in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Idle => "idle",
            Mechanism::Compute => "compute",
            Mechanism::Kernel => "kernel",
            Mechanism::SharedData => "shared-data",
            Mechanism::LockSpin => "lock-spin",
            Mechanism::WakeUp => "wake-up",
            Mechanism::Search => "search",
            Mechanism::Interrupt => "interrupt",
            Mechanism::Switch => "switch",
            Mechanism::Tick => "tick",
            Mechanism::Balance => "balance",
            Mechanism::Refill => "refill",
        }
    }
}

/// Why a task changed its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Placed there when woken.
    WakeUp,
    /// Placed there by fork.
    Fork,
    /// Placed there by exec.
    Exec,
    /// Pulled by a CPU about to idle.
    NewIdle,
    /// Pulled by periodic or nohz balancing.
    Periodic,
    /// Pushed while running, or moved on at the end of a slice.
    Active,
    /// Taken from the queue of a cluster, its own or another, by a CPU with nothing to run (sched_ext).
    Queue,
}

impl Cause {
    /// Number of causes.
    pub const COUNT: usize = 7;

    /// All of them, in order.
    pub const ALL: [Cause; Cause::COUNT] =
        [Cause::WakeUp, Cause::Fork, Cause::Exec, Cause::NewIdle, Cause::Periodic, Cause::Active, Cause::Queue];

    /// The word used in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::WakeUp => "wake-up",
            Cause::Fork => "fork",
            Cause::Exec => "exec",
            Cause::NewIdle => "new-idle",
            Cause::Periodic => "periodic",
            Cause::Active => "active",
            Cause::Queue => "queue",
        }
    }
}

/// Counts by [`Distance`].
pub type ByDistance = [u64; Distance::COUNT];

/// Wake-ups of the measured stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeCounts {
    /// Placed by the policy: by step of the record (the last entry is the core's own rule: a task bound to one CPU), then by
    /// distance from the wakee's previous CPU.
    pub placed: Vec<ByDistance>,
    /// Queued on the CPU that the wakee was still leaving, without placement.
    pub unplaced: u64,
    /// Made runnable on the queue that the wakee had not left, its dequeue being delayed (6.12 on), without placement.
    pub requeued: u64,
    /// Wake-ups by distance between waker and the chosen CPU.
    pub waker_to_chosen: ByDistance,
    /// Wide wake-ups (affine choice refused).
    pub wide: u64,
    /// Chosen CPU had something running or queued when the task arrived.
    pub stacked: u64,
    /// Of those: the CPU was idle when it was chosen, another waker was faster.
    pub collided: u64,
    /// Scans that ran out of budget.
    pub exhausted: u64,
    /// CPUs examined in scans.
    pub examined: u64,
}

impl WakeCounts {
    /// All wake-ups.
    pub fn total(&self) -> u64 {
        self.unplaced + self.requeued + self.placed.iter().flatten().sum::<u64>()
    }
}

/// The result of one simulation. Counts and times are of the measured stretch unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Length of the measured stretch, ns.
    pub measured_ns: u64,
    /// Length of the whole simulation, ns.
    pub simulated_ns: u64,
    /// Number of CPUs that the program might use.
    pub cpus: u32,
    /// Time of these CPUs by mechanism, ns; sums to `cpus * measured_ns`.
    pub cpu_ns: [u64; Mechanism::COUNT],
    /// Messages sent in the whole simulation.
    pub messages: u64,
    /// Wake-ups.
    pub wakes: WakeCounts,
    /// Migrations by cause, then distance.
    pub migrations: [ByDistance; Cause::COUNT],
    /// Context switches between tasks, or to and from idle.
    pub switches: u64,
    /// When the sched domains were rebuilt, ns after the measured stretch began; `None` when they were not.
    pub rebuilt_ns: Option<u64>,
    /// Mean share of a group's unfinished tasks that sit on the node where most of them are, sampled at every tick;
    /// `None` when the program has no groups or ends within a tick.
    pub purity: Option<f64>,
    /// Mean number of clusters on which a task of the program runs, sampled at every tick; `None` when the program ends within
    /// a tick.
    pub clusters_used: Option<f64>,
    /// When each task exited, ns after the start of the measured stretch (0 for one that exited before).
    pub finished_ns: Vec<u64>,
    /// Events processed in the whole simulation.
    pub events: u64,
}

impl Report {
    /// Share of the CPUs' time that was not idle, 0..=1.
    pub fn utilisation(&self) -> f64 {
        let all = u64::from(self.cpus) * self.measured_ns;
        if all == 0 { 0.0 } else { 1.0 - self.cpu_ns[Mechanism::Idle as usize] as f64 / all as f64 }
    }
}

/// A simulation that could not be made or did not keep its promises.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The program makes no sense.
    #[error("the program is not runnable: {0}")]
    Program(#[from] huddle_program::ProgramError),
    /// The program may use no CPU that is online.
    #[error("none of the CPUs {cpus} that the program may use is online")]
    NoCpu {
        /// The list asked for.
        cpus: String,
    },
    /// A task is bound to a CPU that it may not use, or does not exist.
    #[error("task {task} cannot be bound to CPU {cpu}: the program's CPUs are {cpus}, or it has no such task")]
    BadPin {
        /// The task.
        task: u32,
        /// The CPU.
        cpu: u32,
        /// CPUs of the program.
        cpus: String,
    },
    /// The kernel generation asks for something that the engine has not.
    #[error("kernel {kernel}: {what} is not simulated")]
    NotSimulated {
        /// The kernel.
        kernel: String,
        /// What is missing.
        what: &'static str,
    },
    /// Simulated time ran out.
    #[error("{waiting} of {tasks} tasks had not finished after {limit_ms} ms of simulated time")]
    TimeLimit {
        /// Tasks that had not exited.
        waiting: usize,
        /// All tasks.
        tasks: usize,
        /// The limit.
        limit_ms: u64,
    },
    /// Nothing can happen any more and tasks are left.
    #[error("deadlock: {waiting} tasks wait for ever after {at_ms} ms of simulated time")]
    Deadlock {
        /// Tasks that had not exited.
        waiting: usize,
        /// Simulated time.
        at_ms: u64,
    },
    /// A conservation law is broken: a defect of the engine.
    #[error("engine defect: {0}")]
    Conservation(String),
}
