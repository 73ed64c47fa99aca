//! Cost figures of a machine: each with a name, a unit, a source and a confidence mark.
//!
//! The registry [`COST_KEYS`] is the only place where a figure is declared; machine files, error messages, the engine and
//! documentation follow it.

use crate::Distance;

/// How sure a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Measured on that machine.
    A,
    /// Computed from measurements of that machine.
    B,
    /// Read in a secondary text or measured on a near relative.
    C,
    /// Assumed.
    D,
}

/// Whether a figure is one number or one per distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One number.
    Scalar,
    /// One number for each distance that the machine has, `same-cpu` excepted.
    ByDistance,
}

/// Declares the registry.
macro_rules! cost_keys {
    ($($key:ident, $name:literal, $unit:literal, $shape:ident, $doc:literal;)*) => {
        /// A cost figure's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum CostKey { $(#[doc = $doc] $key,)* }

        /// Every figure of a machine; it must state those without a [`CostKeyInfo::default_value`].
        pub const COST_KEYS: &[CostKeyInfo] = &[
            $(CostKeyInfo { key: CostKey::$key, name: $name, unit: $unit, shape: Shape::$shape, doc: $doc },)*
        ];
    };
}

/// What the registry knows of a figure.
#[derive(Clone, Copy, Debug)]
pub struct CostKeyInfo {
    /// The key.
    pub key: CostKey,
    /// Its name in machine files.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// One number, or one per distance.
    pub shape: Shape,
    /// What it means.
    pub doc: &'static str,
}

/// Source of a figure that a machine file does not state and need not.
const NOT_STATED: &str = "not stated: the default, assumed";

impl CostKeyInfo {
    /// What a machine that does not state the figure is taken to have, with mark D; `None` where it must.
    pub fn default_value(&self) -> Option<f64> {
        match self.key {
            // Distances 16 and 32 of a Kunpeng then cost 30 and 110 ns more, 21 of a Xeon 55: the middle and the upper end of what is
            // recalled of them.
            CostKey::RemoteMemory => Some(5.0),
            // Two threads together do a quarter more than one.
            CostKey::SmtShare => Some(0.625),
            CostKey::AllCoreClock => Some(1.0),
            _ => None,
        }
    }

    fn default_figure(&self) -> Option<Figure> {
        let value = Value::Scalar(self.default_value()?);
        Some(Figure { value, source: NOT_STATED.to_owned(), confidence: Confidence::D })
    }

    /// The most that a figure of its unit can be: a second, a million of anything else. Beyond it simulated time and
    /// sums of costs lose their meaning.
    pub fn most(&self) -> f64 {
        match self.unit {
            "fraction" | "0 or 1" => 1.0,
            "ns" => 1e9,
            _ => 1e6,
        }
    }
}

cost_keys! {
    Line, "line", "ns", ByDistance, "Stall for one cache line that a CPU at that distance wrote last, in kernel paths.";
    PipeLines, "pipe_lines", "lines", Scalar, "Lines that a pipe operation pulls from the CPU that used the pipe last.";
    WakeLines, "wake_lines", "lines", Scalar, "Lines that a wake-up pulls from the wakee's CPU (task, queue and lock), and that the wakee pulls back.";
    PipeWrite, "pipe_write", "ns", Scalar, "CPU time of one pipe write of 100 bytes, user loop and system call included, transfers excluded.";
    PipeRead, "pipe_read", "ns", Scalar, "CPU time of one pipe read of 100 bytes, user loop and system call included, transfers excluded.";
    PipeLocked, "pipe_locked", "fraction", Scalar, "Share of a pipe operation spent under the pipe's mutex.";
    SocketWrite, "socket_write", "ns", Scalar, "CPU time of one write of 100 bytes to a Unix stream socket, user loop and system call included, transfers excluded.";
    SocketRead, "socket_read", "ns", Scalar, "CPU time of one read of 100 bytes from a Unix stream socket, user loop and system call included, transfers excluded.";
    SocketLocked, "socket_locked", "fraction", Scalar, "Share of a socket operation spent under the queue's spinlock.";
    SocketLockLines, "socket_lock_lines", "lines", Scalar, "Lines that a socket operation pulls under the queue's spinlock from the CPU that used the socket last.";
    SocketLines, "socket_lines", "lines", Scalar, "Lines that a socket operation pulls outside that lock: a read from the CPU that wrote the message, a write from the CPU that used the socket last.";
    CopyByte, "copy_byte", "ns", Scalar, "Copying each byte of a message beyond 100 into the kernel, or out of it.";
    PayloadOverlap, "payload_overlap", "fraction", Scalar, "Share of a line's stall that each line of a message beyond 128 bytes costs, fetched ahead as they are.";
    Syscall, "syscall", "ns", Scalar, "Any other system call (poll, futex), transfers excluded.";
    WakeUp, "wake_up", "ns", Scalar, "The waker's fixed cost of a wake-up: state, entry rule, first tests; search, enqueue and transfers excluded.";
    Scan, "scan", "ns", ByDistance, "Time per CPU examined in an idle search.";
    Enqueue, "enqueue", "ns", Scalar, "Putting a task on a queue under its lock, paid by whoever does it.";
    IpiSend, "ipi_send", "ns", Scalar, "The sender's cost of an inter-processor interrupt.";
    IpiLatency, "ipi_latency", "ns", ByDistance, "From sending an interrupt to its handler's start on a CPU that is not idle.";
    Irq, "irq", "ns", Scalar, "The receiver's cost of an inter-processor interrupt.";
    IdleExit, "idle_exit", "ns", Scalar, "From the interrupt to the scheduler on a CPU in its shallow idle state.";
    IdlePolling, "idle_polling", "0 or 1", Scalar, "1 when an idle CPU watches its need-resched flag, so that a wake-up needs no interrupt.";
    SwitchOut, "switch_out", "ns", Scalar, "Taking the running task off: dequeue or put back, statistics. Not paid when the idle task leaves.";
    Switch, "switch", "ns", Scalar, "Putting the next task on: pick, address space and registers.";
    Tick, "tick", "ns", Scalar, "The timer tick's handler.";
    BalancePass, "balance_pass", "ns", Scalar, "Fixed cost of one balance attempt on one domain.";
    BalanceCpu, "balance_cpu", "ns", Scalar, "Cost per CPU looked at in a balance attempt.";
    Migrate, "migrate", "ns", Scalar, "Moving one task between queues in balancing.";
    Refill, "refill", "ns", ByDistance, "Stall of a task's first run after a migration over that distance, private caches empty.";
    Fork, "fork", "ns", Scalar, "Creating a thread, or an exec, paid by who does it.";
    Exit, "exit", "ns", Scalar, "A thread's exit.";
    ProcessFork, "process_fork", "ns", Scalar, "Creating a process, paid by the parent.";
    ProcessExit, "process_exit", "ns", Scalar, "A process's exit.";
    MmSwitch, "mm_switch", "ns", Scalar, "Changing the address space in a context switch, on top of switch.";
    L2Latency, "l2_latency", "ns", Scalar, "Load-to-use latency of the level-2 cache.";
    L3Latency, "l3_latency", "ns", Scalar, "Load-to-use latency of the last-level cache.";
    DramLatency, "dram_latency", "ns", Scalar, "Load-to-use latency of local memory, unloaded.";
    ClusterBandwidth, "cluster_bandwidth", "GB/s", Scalar, "Memory bandwidth that one cluster can draw.";
    NodeBandwidth, "node_bandwidth", "GB/s", Scalar, "Memory bandwidth of one node.";
    RemoteMemory, "remote_memory", "ns", Scalar, "What an access to another node's memory takes more than to one's own, for each unit of NUMA distance beyond 10.";
    SmtShare, "smt_share", "fraction", Scalar, "What a thread gets done while another thread of its core works, by what it gets done alone.";
    AllCoreClock, "all_core_clock", "fraction", Scalar, "Clock with all cores of a package active, by that with one; 1 where it does not change.";
    Jitter, "jitter", "fraction", Scalar, "Relative standard deviation of each stretch of computing, drawn by the run's seed.";
    NoiseInterval, "noise_interval", "us", Scalar, "Mean time between wake-ups of the machine's background tasks; 0 switches them off.";
    NoiseTime, "noise_time", "us", Scalar, "Mean CPU time of one background wake-up.";
}

/// A figure's number or numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// One number.
    Scalar(f64),
    /// By [`Distance`]; same-cpu is 0, a distance that the machine does not have is `None`.
    ByDistance([Option<f64>; Distance::COUNT]),
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The number or numbers.
    pub value: Value,
    /// Where they come from.
    pub source: String,
    /// How sure they are.
    pub confidence: Confidence,
}

/// All figures of a machine, complete by construction (see the machine file reader).
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    figures: Vec<Figure>,
}

/// A set of figures that does not fit the registry.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CostError {
    /// A figure is missing.
    #[error("missing figure `{name}` ({unit}): {doc}")]
    Missing {
        /// Its name.
        name: &'static str,
        /// Its unit.
        unit: &'static str,
        /// What it means.
        doc: &'static str,
    },
    /// A number is negative, too large, infinite or not a number.
    #[error("figure `{name}` is {value:?}; it must be a number of {unit}, zero or more, {most} at most")]
    NotANumber {
        /// Its name.
        name: &'static str,
        /// Its unit.
        unit: &'static str,
        /// The value found.
        value: f64,
        /// The largest that is accepted.
        most: f64,
    },
    /// A number for each distance was wanted and one was given, or the reverse.
    #[error("figure `{name}` must be {wanted}")]
    WrongShape {
        /// Its name.
        name: &'static str,
        /// What is wanted.
        wanted: &'static str,
    },
}

impl Costs {
    /// Checks and orders the figures that `lookup` gives for each registered name.
    ///
    /// # Errors
    /// The first figure that is missing, negative, too large, not finite or of the wrong shape.
    pub fn from_lookup(mut lookup: impl FnMut(&'static str) -> Option<Figure>) -> Result<Costs, CostError> {
        let mut figures = Vec::with_capacity(COST_KEYS.len());
        for info in COST_KEYS {
            let &CostKeyInfo { name, unit, shape, doc, .. } = info;
            let most = info.most();
            let figure = lookup(name).or_else(|| info.default_figure());
            let figure = figure.ok_or(CostError::Missing { name, unit, doc })?;
            let check = |value: f64| match (0.0..=most).contains(&value) {
                true => Ok(()),
                false => Err(CostError::NotANumber { name, unit, value, most }),
            };
            match (shape, &figure.value) {
                (Shape::Scalar, &Value::Scalar(value)) => check(value)?,
                (Shape::ByDistance, Value::ByDistance(values)) => {
                    values.iter().flatten().try_for_each(|&value| check(value))?;
                }
                (Shape::Scalar, _) => return Err(CostError::WrongShape { name, wanted: "one number `value`" }),
                (Shape::ByDistance, _) => {
                    return Err(CostError::WrongShape {
                        name,
                        wanted: "one number per distance (smt, cluster, llc …)",
                    });
                }
            }
            figures.push(figure);
        }
        Ok(Costs { figures })
    }

    /// The figure with its source.
    pub fn figure(&self, key: CostKey) -> &Figure {
        &self.figures[key as usize]
    }

    /// Gives a figure another value of its shape; one of another shape is not taken.
    pub fn set_value(&mut self, key: CostKey, value: Value) {
        let figure = &mut self.figures[key as usize];
        if std::mem::discriminant(&figure.value) == std::mem::discriminant(&value) {
            figure.value = value;
        }
    }

    /// A scalar figure; 0 for one by distance.
    pub fn scalar(&self, key: CostKey) -> f64 {
        match self.figure(key).value {
            Value::Scalar(value) => value,
            Value::ByDistance(_) => 0.0,
        }
    }

    /// A figure by distance, same-cpu 0; distances that the machine does not state take the next nearer stated one.
    pub fn by_distance(&self, key: CostKey) -> [f64; Distance::COUNT] {
        let mut out = [0.0; Distance::COUNT];
        if let Value::ByDistance(values) = self.figure(key).value {
            for index in 1..Distance::COUNT {
                out[index] = values[index].unwrap_or(out[index - 1]);
            }
        }
        out
    }
}
