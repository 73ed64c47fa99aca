//! A machine's cost figures compiled into whole nanoseconds and dense tables by distance.

use huddle_machine::{CostKey, Costs as Figures, Distance};

use crate::without::{Part, Without};

/// Nanoseconds by distance.
pub type ByDistanceNs = [u64; Distance::COUNT];

/// The figures as the engine uses them.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Lines of a pipe operation.
    pub pipe_lines: ByDistanceNs,
    /// The wakee's task lines, pulled by the waker.
    pub task_lines: ByDistanceNs,
    /// A queue's lines, pulled by whoever enqueues remotely and pulled back by the owner.
    pub queue_lines: ByDistanceNs,
    /// One line.
    pub line: ByDistanceNs,
    /// A mutex that passes from its owner to a spinner.
    pub hand_over: ByDistanceNs,
    /// Outside the mutex: entry, user loop.
    pub write_outside: u64,
    /// Under the mutex.
    pub write_locked: u64,
    /// Outside the mutex.
    pub read_outside: u64,
    /// Under the mutex.
    pub read_locked: u64,
    /// Under the mutex when the operation finds that it must wait.
    pub probe: u64,
    /// Lines of a socket operation under the queue's lock.
    pub socket_lock_lines: ByDistanceNs,
    /// Lines of a socket operation outside it.
    pub socket_lines: ByDistanceNs,
    /// Outside the lock: entry, user loop, allocation, copy.
    pub socket_write_outside: u64,
    /// Under the lock.
    pub socket_write_locked: u64,
    /// Outside the lock.
    pub socket_read_outside: u64,
    /// Under the lock.
    pub socket_read_locked: u64,
    /// Copying one byte, ns.
    pub copy_byte: f64,
    /// Share of a line's stall that a line of a long message costs.
    pub payload_overlap: f64,
    /// Any other system call.
    pub syscall: u64,
    /// The waker's fixed cost.
    pub wake_up: u64,
    /// Per CPU examined.
    pub scan: [f64; Distance::COUNT],
    /// Putting a task on a queue.
    pub enqueue: u64,
    /// Sending an interrupt.
    pub ipi_send: u64,
    /// Until the handler runs.
    pub ipi_latency: ByDistanceNs,
    /// Handling it.
    pub irq: u64,
    /// Leaving the idle state.
    pub idle_exit: u64,
    /// Idle CPUs watch a flag.
    pub idle_polling: bool,
    /// Taking a task off.
    pub switch_out: u64,
    /// Putting a task on.
    pub switch_in: u64,
    /// The tick.
    pub tick: u64,
    /// One balance attempt.
    pub balance_pass: u64,
    /// Per CPU looked at.
    pub balance_cpu: u64,
    /// Per task moved.
    pub migrate: u64,
    /// First run after a migration.
    pub refill: ByDistanceNs,
    /// Creating a thread.
    pub fork: u64,
    /// A thread's end.
    pub exit: u64,
    /// Creating a process.
    pub process_fork: u64,
    /// A process's end.
    pub process_exit: u64,
    /// Changing the address space.
    pub mm_switch: u64,
    /// Relative deviation of computing.
    pub jitter: f64,
    /// Mean time between background wake-ups, ns; 0 for none.
    pub noise_interval: u64,
    /// Mean CPU time of one, ns.
    pub noise_time: u64,
}

/// Under the mutex, this share of an operation's locked time passes before it finds that it must wait: the head and tail
/// are read, nothing is copied.
const PROBE_SHARE: f64 = 0.3;

/// Bytes of the messages that the figures of pipes and sockets are for.
const FIGURE_BYTES: u32 = 100;
const LINE_BYTES: u32 = 64;
/// Resolution of [`Costs::payload`].
pub const PAYLOAD_UNIT: u64 = 1024;

impl Costs {
    /// Compiles the figures; those of mechanisms left out are 0.
    pub fn compile(figures: &Figures, without: Without) -> Costs {
        let scalar = |key| if free(key, without) { 0.0 } else { figures.scalar(key) };
        let by_distance = |key| if free(key, without) { [0.0; Distance::COUNT] } else { figures.by_distance(key) };
        let ns = |key| round(scalar(key));
        let table = |key| by_distance(key).map(round);
        let line = by_distance(CostKey::Line);
        let lines = |count: f64| line.map(|ns| round(ns * count));
        let wake_lines = figures.scalar(CostKey::WakeLines);
        let (write, read) = (figures.scalar(CostKey::PipeWrite), figures.scalar(CostKey::PipeRead));
        let locked = figures.scalar(CostKey::PipeLocked).min(1.0);
        let (socket_write, socket_read) = (figures.scalar(CostKey::SocketWrite), figures.scalar(CostKey::SocketRead));
        let socket_locked = figures.scalar(CostKey::SocketLocked).min(1.0);
        Costs {
            pipe_lines: lines(figures.scalar(CostKey::PipeLines)),
            task_lines: lines(wake_lines / 2.0),
            queue_lines: lines(wake_lines / 2.0),
            line: lines(1.0),
            hand_over: if without.has(Part::HandOver) { [0; Distance::COUNT] } else { lines(1.0) },
            write_outside: round(write * (1.0 - locked)),
            write_locked: round(write * locked),
            read_outside: round(read * (1.0 - locked)),
            read_locked: round(read * locked),
            probe: round(read * locked * PROBE_SHARE),
            socket_lock_lines: lines(figures.scalar(CostKey::SocketLockLines)),
            socket_lines: lines(figures.scalar(CostKey::SocketLines)),
            socket_write_outside: round(socket_write * (1.0 - socket_locked)),
            socket_write_locked: round(socket_write * socket_locked),
            socket_read_outside: round(socket_read * (1.0 - socket_locked)),
            socket_read_locked: round(socket_read * socket_locked),
            copy_byte: figures.scalar(CostKey::CopyByte),
            payload_overlap: figures.scalar(CostKey::PayloadOverlap),
            syscall: ns(CostKey::Syscall),
            wake_up: ns(CostKey::WakeUp),
            scan: by_distance(CostKey::Scan),
            enqueue: ns(CostKey::Enqueue),
            ipi_send: ns(CostKey::IpiSend),
            ipi_latency: table(CostKey::IpiLatency),
            irq: ns(CostKey::Irq),
            idle_exit: ns(CostKey::IdleExit),
            idle_polling: figures.scalar(CostKey::IdlePolling) > 0.5,
            switch_out: ns(CostKey::SwitchOut),
            switch_in: ns(CostKey::Switch),
            tick: ns(CostKey::Tick),
            balance_pass: ns(CostKey::BalancePass),
            balance_cpu: ns(CostKey::BalanceCpu),
            migrate: ns(CostKey::Migrate),
            refill: table(CostKey::Refill),
            fork: ns(CostKey::Fork),
            exit: ns(CostKey::Exit),
            process_fork: ns(CostKey::ProcessFork),
            process_exit: ns(CostKey::ProcessExit),
            mm_switch: ns(CostKey::MmSwitch),
            jitter: scalar(CostKey::Jitter),
            noise_interval: round(scalar(CostKey::NoiseInterval) * 1000.0),
            noise_time: round(figures.scalar(CostKey::NoiseTime) * 1000.0),
        }
    }

    /// What the copy of a message costs on top of one of 100 bytes, ns.
    pub fn copy(&self, message_bytes: u32) -> u64 {
        round(f64::from(message_bytes.saturating_sub(FIGURE_BYTES)) * self.copy_byte)
    }

    /// The lines of a message beyond those of 100 bytes, as full stalls in units of 1/[`PAYLOAD_UNIT`].
    pub fn payload(&self, message_bytes: u32) -> u64 {
        let lines = message_bytes.div_ceil(LINE_BYTES).saturating_sub(FIGURE_BYTES.div_ceil(LINE_BYTES));
        round(f64::from(lines) * self.payload_overlap * PAYLOAD_UNIT as f64)
    }

    /// Time of a scan that examined these CPUs.
    #[inline]
    pub fn scan_time(&self, examined: &[u32; Distance::COUNT]) -> u64 {
        let mut ns = 0.0;
        for (count, cost) in examined.iter().zip(self.scan) {
            ns += f64::from(*count) * cost;
        }
        ns as u64
    }
}

/// Whether a figure belongs to a mechanism that is left out.
fn free(key: CostKey, without: Without) -> bool {
    let part = match key {
        CostKey::Line => Part::SharedData,
        CostKey::WakeUp | CostKey::Enqueue => Part::WakeUp,
        CostKey::IpiSend | CostKey::IpiLatency | CostKey::Irq => Part::Ipi,
        CostKey::IdleExit => Part::IdleExit,
        CostKey::Scan => Part::ScanCost,
        CostKey::SwitchOut | CostKey::Switch => Part::Switch,
        CostKey::Tick => Part::Tick,
        CostKey::BalancePass | CostKey::BalanceCpu | CostKey::Migrate => Part::BalanceCost,
        CostKey::Refill => Part::Refill,
        CostKey::Jitter => Part::Jitter,
        CostKey::NoiseInterval => Part::Noise,
        _ => return false,
    };
    without.has(part)
}

/// To whole nanoseconds.
fn round(ns: f64) -> u64 {
    (ns + 0.5) as u64
}
