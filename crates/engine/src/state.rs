//! The state of the simulated machine: CPUs, tasks, channels, domains, LLCs. Dense arrays by index; nothing here decides.

use std::collections::VecDeque;

use huddle_program::{ChannelSpec, PIPE_SLOTS, SOCKET_BASE, SOCKET_LIMIT, SOCKET_LOW};

use crate::costs::Costs;
use crate::pelt::Pelt;
use crate::report::Mechanism;

/// No task: as current task, the idle task.
pub const NONE: u32 = u32::MAX;

/// What a CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In its idle state.
    Idle,
    /// Leaving its idle state.
    IdleExit,
    /// Changing from one task to the next.
    Switching,
    /// Running a segment of its current task.
    Running,
    /// Its current task spins on a mutex.
    Spinning,
}

/// Interrupts pending on a CPU.
pub mod ipi {
    /// Look at the wake list.
    pub const WAKE_LIST: u8 = 1;
    /// Look at need_resched.
    pub const RESCHED: u8 = 2;
    /// Balance for the idle CPUs.
    pub const NOHZ: u8 = 4;
    /// Push the running task away.
    pub const PUSH: u8 = 8;
}

/// Up to four stretches of time that a CPU spends before (on top of) what its phase says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portions {
    left: [u64; 4],
    mechanism: [u8; 4],
    len: u8,
}

impl Portions {
    /// Adds a stretch, spent before all others. When full it joins the topmost.
    pub fn push(&mut self, mechanism: Mechanism, ns: u64) {
        if ns == 0 {
            return;
        }
        let at = usize::from(self.len);
        if at == self.left.len() {
            self.left[at - 1] += ns;
        } else {
            (self.left[at], self.mechanism[at]) = (ns, mechanism as u8);
            self.len += 1;
        }
    }

    /// Spends `ns`, adding it to `totals`, the rest to `base`.
    #[inline]
    pub fn spend(&mut self, mut ns: u64, base: Mechanism, totals: &mut [u64; Mechanism::COUNT]) {
        while self.len > 0 && ns > 0 {
            let at = usize::from(self.len) - 1;
            let left = &mut self.left[at];
            let part = ns.min(*left);
            totals[usize::from(self.mechanism[at])] += part;
            *left -= part;
            ns -= part;
            if *left == 0 {
                self.len -= 1;
            }
        }
        totals[base as usize] += ns;
    }

    /// Forgets all stretches.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// A CPU and its run queue.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Cpu {
    // What every event touches: one cache line, and the times.
    /// What it is doing.
    pub phase: Phase,
    /// What its time goes to.
    pub mechanism: Mechanism,
    /// The scheduler must be called.
    pub need_resched: bool,
    /// That is asked for at the next return to user mode only (`TIF_NEED_RESCHED_LAZY`).
    pub lazily: bool,
    /// Pending interrupts.
    pub ipi: u8,
    /// The tick is stopped.
    pub tick_stopped: bool,
    /// Its LLC counts it idle (`sd->nohz_idle`).
    pub counted_idle: bool,
    /// An active balance is under way (`rq->active_balance`).
    pub active_balance: bool,
    /// The running task, [`NONE`] for the idle task.
    pub curr: u32,
    /// The CPU that last wrote the queue remotely, [`NONE`] if its owner did.
    pub dirtied_by: u32,
    /// Accounted up to here.
    pub accounted: u64,
    /// Stretches before that.
    pub portions: Portions,

    /// Time by mechanism.
    pub totals: [u64; Mechanism::COUNT],
    /// Since when its memory-bound task has run at the present speed.
    pub memory_since: u64,
    /// While switching: the task that leaves.
    pub leaving: u32,
    /// Where the stopper is to push a task; [`NONE`] when it has nothing to do.
    pub push_to: u32,
    /// Queued and running tasks, those whose dequeue is delayed included.
    pub nr_running: u32,
    /// Of those, tasks that sleep and are still queued (`h_nr_delayed`, EEVDF of 6.12 on).
    pub nr_delayed: u32,
    /// The queue lock is held until then.
    pub lock_free_at: u64,

    // The queue, two lines.
    /// Queued tasks (not the running one) as (key, task), greatest first: the leftmost of the tree is last. The key is the virtual
    /// runtime (CFS) or the virtual deadline (EEVDF).
    pub queue: Vec<(u64, u32)>,
    /// Sum of their weights.
    pub load: u64,
    /// `min_vruntime` (CFS; 0 under EEVDF).
    pub min_vruntime: u64,
    /// Sum of weight × virtual runtime over the queued tasks (EEVDF; `avg_vruntime`, from a base of 0).
    pub moment: i64,
    /// The buddy that preempted, to be picked next (`cfs_rq->next`).
    pub next: u32,
    /// The buddy that was preempted (`cfs_rq->last`).
    pub last: u32,
    /// Sum of the estimates of queued tasks (`util_est`).
    pub util_est: u64,
    /// Averages of the queue.
    pub pelt: Pelt,

    // The rest.
    /// Which task it pushes; [`NONE`] for the oldest that may move.
    pub push_task: u32,
    /// Only a task that prefers the LLC there (7.2).
    pub push_preferring: bool,
    /// Wakees on their way here (only without collisions).
    pub claims: u32,
    /// The address space that it has loaded; before the start every CPU has the first task's.
    pub mm: u32,
    /// Tasks to enqueue at the next interrupt.
    pub wake_list: Vec<u32>,
    /// When it became idle; 0 when that was sampled. All CPUs have idled before the simulation begins.
    pub idle_stamp: u64,
    /// Mean idle time, ns.
    pub avg_idle: u64,
    /// Aged idle time (5.14 … 6.6 budget).
    pub wake_avg_idle: u64,
    /// When it was last aged, in jiffies.
    pub wake_stamp: u64,
    /// `max_idle_balance_cost`.
    pub max_idle_balance_cost: u64,
    /// When the next periodic balance is due.
    pub next_balance: u64,
    /// Phase of its tick.
    pub tick_offset: u64,
    /// `wakee_flips` of the idle task and its last wakee.
    pub idle_flips: Flips,
    /// Rotating start of scans for this target (2018 variants).
    pub next_scan: u32,
    /// Recency counter for the order of its tasks in balancing.
    pub stamp: u64,
}

/// A CPU's load averaged over 1, 2 and 4 ticks (`rq->cpu_load`; of its five, balancing looks at these).
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadHistory {
    /// The averages.
    pub loads: [u64; 3],
    /// The tick of the last update.
    pub tick: u64,
}

/// `wakee_flips` bookkeeping of a waker.
#[derive(Clone, Copy, Debug)]
pub struct Flips {
    /// The count.
    pub flips: u32,
    /// The last wakee.
    pub last_wakee: u32,
    /// When the count was last halved.
    pub decayed: u64,
}

impl Default for Flips {
    fn default() -> Self {
        Flips { flips: 0, last_wakee: NONE, decayed: 0 }
    }
}

/// A task's scheduling state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Not created yet.
    New,
    /// Queued on its CPU.
    Queued,
    /// Current on its CPU.
    Running,
    /// Asleep.
    Sleeping,
    /// Asleep, but still on its CPU's queue until it is eligible (`sched_delayed`, EEVDF of 6.12 on).
    Delayed,
    /// Being woken: chosen by a waker, not yet queued.
    Waking,
    /// Exited.
    Dead,
}

/// Whom to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The first exclusive waiter of a channel's readers.
    Reader(u32),
    /// The first exclusive waiter of a channel's writers.
    Writer(u32),
    /// All who sleep on a channel, so many of them, the latest first (before 5.5).
    Everybody(u32, u32),
    /// All who sleep on a socket, its writers or its readers, the latest first; so many are left, and who comes meanwhile is not
    /// meant.
    Socket(u32, bool, u32),
    /// The first task that waits for a semaphore; no synchronous hint.
    Posted(u32),
    /// The first sleeper of a channel's mutex, if it still sleeps there; no synchronous hint.
    MutexSleeper(u32, u32),
    /// A task that waits for an exit; no synchronous hint.
    Joiner(u32),
    /// All who wait at a gate.
    Gate(u32),
}

/// Where a task is in its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Take the next op.
    Next,
    /// Computing.
    Compute,
    /// Running memory-bound code.
    Memory,
    /// On the way to a pipe's mutex.
    PipeEnter,
    /// Try the mutex, spin if that helps.
    PipeAcquire,
    /// Try the mutex, do not spin: it was preempted while spinning.
    PipeAcquireSlow,
    /// Woken as the mutex's first sleeper.
    PipeAcquireFirst,
    /// Holding the mutex.
    PipeHold,
    /// Released it, found the pipe full or empty.
    PipeWait,
    /// Woken from that.
    PipeWoken,
    /// On the way to a socket's queue.
    SocketEnter,
    /// Holding the queue's spinlock.
    SocketHold,
    /// Found the socket full or empty, or was woken from that.
    SocketWait,
    /// At a semaphore, in user mode.
    Semaphore,
    /// In the kernel to wake who waits for a semaphore.
    SemaphorePost,
    /// In the kernel to wait for a semaphore, or woken from that.
    SemaphoreWait,
    /// Spinning on a spinlock of user space, or thrown off its CPU while it did.
    Spinlock,
    /// Has the word of a mutex of user space.
    MutexTry,
    /// In the kernel to wait for a mutex.
    MutexSleep,
    /// Woken from that.
    MutexWoken,
    /// Has the word of the mutex that it lets go.
    MutexRelease,
    /// Chooses a CPU for the wakee.
    WakeSelect(u32),
    /// Puts the wakee on that CPU's queue.
    WakeEnqueue(u32, u32),
    /// Puts the wakee on that CPU's wake list.
    WakeIpi(u32, u32),
    /// Makes a wakee runnable that has not left its queue.
    WakeRequeue(u32),
    /// Polling a gate.
    GateWait(u32),
    /// Opening a gate.
    GateOpen(u32),
    /// Creating a task.
    Spawn(u32),
    /// Changing its image.
    Exec,
    /// Waiting for a task's exit.
    Join(u32),
    /// Waiting for the exit of any task that it has created.
    Reap,
    /// Exiting.
    Exit,
    /// Goes on with its wake-ups: it was preempted between two.
    WakeNext,
    /// Waking is done, leave.
    Gone,
    /// A background task: sleep for a while.
    NoiseSleep,
    /// A background task: run for a while.
    NoiseRun,
}

/// A task.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Task {
    // What every event touches: one cache line.
    /// Where it is.
    pub stage: Stage,
    /// Its script.
    pub script: u32,
    /// The next op.
    pub op: u32,
    /// The channel it works on.
    pub channel: u32,
    /// Its CPU (`task_cpu`).
    pub cpu: u32,
    /// Index of its affinity.
    pub affinity: u32,
    /// Scheduling state.
    pub run: Run,
    /// Its registers are still, or already, on that CPU.
    pub on_cpu: bool,
    /// It writes there.
    pub writes: bool,
    /// It found the ring empty (a writer) or full (a reader) when it took the mutex.
    pub edge: bool,
    /// It has slept in this operation and passes the wake-up on.
    pub woken: bool,
    /// The present wake-up carries the synchronous hint.
    pub sync: bool,
    /// The CPU chosen for its present wake-up was idle when it was chosen.
    pub chosen_idle: bool,
    /// A waker is at work on it while its dequeue is delayed.
    pub being_woken: bool,
    /// Cache refill due at its next run, ns.
    pub refill: u64,
    /// Loop counters.
    pub counters: [u64; huddle_program::Op::LOOPS],

    // Waking others.
    /// Where it goes when its wake-ups are done.
    pub then: Stage,
    /// The wait-queue lock that it holds while it wakes; [`NONE`] for none.
    pub wait_lock: u32,
    /// Wake-ups to do, last first.
    pub wakes: [Option<Wake>; 4],

    // Switches, two lines.
    /// Virtual runtime; relative to the old queue while it moves asleep.
    pub vruntime: u64,
    /// Virtual deadline of its present slice (EEVDF).
    pub deadline: u64,
    /// Virtual time that its queue owed it when it left (EEVDF; `vlag`).
    pub lag: i64,
    /// Its slice, ns of its own time (EEVDF).
    pub slice: u64,
    /// Weight.
    pub weight: u64,
    /// Ran up to here.
    pub exec_start: u64,
    /// Ran in all.
    pub sum_exec: u64,
    /// Ran in all when it was last picked.
    pub picked_at: u64,
    /// Averages.
    pub pelt: Pelt,

    /// Estimated utilisation (`util_est.ewma` and enqueued, the greater).
    pub util_est: u64,
    /// Runs undisturbed while it is eligible and its virtual runtime has not come so far (EEVDF; RUN_TO_PARITY, `vprot`).
    pub protected_until: u64,
    /// What is left of its segment, ns.
    pub remaining: u64,
    /// Order among its CPU's tasks in balancing: least first.
    pub stamp: u64,
    /// Waker bookkeeping.
    pub flips: Flips,
    /// Recently used CPU.
    pub recent: u32,
    /// The idle CPU that is claimed for its present wake-up; [`NONE`] for none.
    pub claimed: u32,
    /// Its address space: the task that began it; [`NONE`] for a background task, which uses whatever is there.
    pub mm: u32,

    // The rest.
    /// Who waits for its exit.
    pub joiner: u32,
    /// Who created it.
    pub parent: u32,
    /// Tasks that it has created and not reaped, which have exited.
    pub exited_children: u32,
    /// Thousands of instructions left of its memory phase.
    pub memory_left: f64,
    /// What a thousand of them costs at present, ns.
    pub memory_cost: f64,
    /// The CPU whose cache its memory-bound code filled last.
    pub cache_cpu: u32,
    /// The node of its memory: where it first ran memory-bound code; [`NONE`] before.
    pub home: u32,
    /// The memory phase's profile.
    pub profile: u32,
    /// Its deadline is relative to its virtual runtime, to be kept when it is queued (EEVDF; `rel_deadline`).
    pub keeps_deadline: bool,
    /// When it exited.
    pub finished: u64,
}

/// A mutex that spins on a running owner and then sleeps (`kernel/locking/mutex.c`).
#[derive(Clone, Debug)]
pub struct Mutex {
    /// Who holds it.
    pub owner: u32,
    /// Spinners in order of arrival.
    pub spinners: VecDeque<u32>,
    /// Sleepers in order of arrival.
    pub sleepers: VecDeque<u32>,
    /// The next release hands the mutex to the first sleeper.
    pub handoff: bool,
}

/// What a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pipe.
    Pipe,
    /// One direction of a Unix stream socketpair.
    Socket,
    /// A semaphore on a futex.
    Semaphore,
    /// A spinlock in user space.
    Spinlock,
    /// A mutex on a futex.
    Mutex,
    /// A line that is written.
    Line,
}

/// A channel.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Channel {
    // What every message touches: a cache line, and the queues.
    /// Messages in each slot of a pipe.
    pub slots: [u16; PIPE_SLOTS as usize],
    /// First used slot.
    pub tail: u32,
    /// Used slots.
    pub used: u32,
    /// Messages in the channel.
    pub len: u32,
    /// The CPU that used it last.
    pub last_cpu: u32,
    /// Messages that fit a slot.
    pub per_slot: u16,
    /// What it is.
    pub kind: Kind,
    /// Copying a message costs so much more than one of 100 bytes, ns.
    pub copy: u32,
    /// Lines of a message beyond those of 100 bytes, as [`crate::costs::Costs::payload`] gives them.
    pub payload: u32,

    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// The mutex of a pipe. Of a spinlock: owner and spinners. Of a mutex in user space: the owner, and as `handoff` that the word says
    /// that somebody may sleep.
    pub mutex: Mutex,
    /// Sleeping readers in order of arrival.
    pub readers: VecDeque<u32>,
    /// Sleeping writers in order of arrival.
    pub writers: VecDeque<u32>,

    // The rest.
    /// When the spinlock of a socket's queue is free again; when a line of user space has come to the last who asked for it.
    pub lock_free_at: u64,
    /// What a message charges a socket with, bytes.
    pub charge: u32,
    /// What a socket is charged with, bytes.
    pub charged: u32,
    /// The CPU that wrote each message in a socket, in order.
    pub sources: VecDeque<u32>,
}

impl Channel {
    /// An empty channel.
    pub fn new(spec: ChannelSpec, costs: &Costs) -> Channel {
        let (kind, bytes) = match spec {
            ChannelSpec::Pipe { message_bytes } => (Kind::Pipe, message_bytes),
            ChannelSpec::Socket { message_bytes } => (Kind::Socket, message_bytes),
            ChannelSpec::Semaphore => (Kind::Semaphore, 0),
            ChannelSpec::Spinlock => (Kind::Spinlock, 0),
            ChannelSpec::Mutex => (Kind::Mutex, 0),
            ChannelSpec::Line => (Kind::Line, 0),
        };
        Channel {
            kind,
            copy: costs.copy(bytes) as u32,
            payload: costs.payload(bytes) as u32,
            lock_free_at: 0,
            charge: spec.charge(),
            charged: SOCKET_BASE,
            sources: VecDeque::new(),
            mutex: Mutex { owner: NONE, spinners: VecDeque::new(), sleepers: VecDeque::new(), handoff: false },
            slots: [0; PIPE_SLOTS as usize],
            tail: 0,
            used: 0,
            per_slot: spec.messages_per_slot() as u16,
            len: 0,
            last_cpu: NONE,
            readers: VecDeque::new(),
            writers: VecDeque::new(),
            sent: 0,
            received: 0,
        }
    }

    /// A socket takes a message (`sock_alloc_send_pskb`, `net/core/sock.c`); several writers may find so before one has charged it.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.charged < SOCKET_LIMIT
    }

    /// A message is put on a socket by a CPU.
    #[inline]
    pub fn put_on_socket(&mut self, c: u32) {
        self.sources.push_back(c);
        self.len += 1;
        self.sent += 1;
    }

    /// A message is taken off a socket and its charge lifted. True when that lets sleeping writers wake (`sock_wfree`: the last byte
    /// of the charge is lifted after the test).
    #[inline]
    pub fn take_from_socket(&mut self) -> bool {
        self.sources.pop_front();
        self.len -= 1;
        self.received += 1;
        self.charged -= self.charge;
        self.charged < SOCKET_LOW
    }

    /// All slots of a pipe are taken (`pipe_full`); the last may still have room for a merge.
    #[inline]
    pub fn ring_full(&self) -> bool {
        self.used == PIPE_SLOTS
    }

    #[inline]
    fn last_slot(&self) -> usize {
        ((self.tail + self.used - 1) % PIPE_SLOTS) as usize
    }

    /// A message can be written: merged into the last slot or into a new one. A writer that has waited in this write does
    /// not look for a merge any more (`pipe_write`): it needs a new slot.
    #[inline]
    pub fn can_write(&self, waited: bool) -> bool {
        !self.ring_full() || (!waited && self.slots[self.last_slot()] < self.per_slot)
    }

    /// Appends a message; [`Channel::can_write`] must hold.
    #[inline]
    pub fn push(&mut self, waited: bool) {
        if waited || self.used == 0 || self.slots[self.last_slot()] == self.per_slot {
            self.used += 1;
            let slot = self.last_slot();
            self.slots[slot] = 0;
        }
        let slot = self.last_slot();
        self.slots[slot] += 1;
        self.len += 1;
        self.sent += 1;
    }

    /// Takes a message; there must be one. True when that emptied a slot.
    #[inline]
    pub fn pop(&mut self) -> bool {
        let slot = self.tail as usize;
        self.slots[slot] -= 1;
        self.len -= 1;
        self.received += 1;
        let emptied = self.slots[slot] == 0;
        if emptied {
            self.tail = (self.tail + 1) % PIPE_SLOTS;
            self.used -= 1;
        }
        emptied
    }
}

/// A gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// It is open.
    pub open: bool,
    /// Who waits, the latest last.
    pub waiters: Vec<u32>,
}

/// What changes in a sched domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct DomainState {
    /// When it was last balanced.
    pub last_balance: u64,
    /// Present interval, ms.
    pub balance_interval: u32,
    /// Failed attempts.
    pub nr_balance_failed: u32,
    /// Greatest cost of new-idle balancing, ns.
    pub max_newidle_lb_cost: u64,
    /// When that last decayed.
    pub decayed: u64,
    /// Mean cost of an idle search, ns.
    pub avg_scan_cost: u64,
    /// New-idle attempts, made or left out, and those that pulled, weighted by how seldom they are made; halved now and then.
    pub newidle_calls: u32,
    /// The latter.
    pub newidle_success: u32,
    /// How many of 1024 new-idle attempts are made.
    pub newidle_ratio: u32,
    /// When that was last set.
    pub newidle_rated: u64,
}

/// What changes in an LLC.
#[derive(Clone, Copy, Debug, Default)]
pub struct LlcState {
    /// CPUs whose tick runs (`nr_busy_cpus`).
    pub nr_busy: i32,
    /// The idle-core hint.
    pub has_idle_cores: bool,
    /// The budget of SIS_UTIL.
    pub nr_idle_scan: u32,
    /// Utilisation when a periodic pass last looked (7.2).
    pub util: u64,
    /// Capacity; 0 when none has looked yet (7.2).
    pub capacity: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe_of_100_bytes() -> Channel {
        let machine = huddle_machine::Machine::load("kunpeng920").unwrap();
        Channel::new(
            ChannelSpec::Pipe { message_bytes: 100 },
            &Costs::compile(&machine.costs, crate::without::Without::default()),
        )
    }

    #[test]
    fn a_pipe_of_100_byte_messages_takes_640_and_frees_a_slot_every_40_reads() {
        let mut pipe = pipe_of_100_bytes();
        let mut written = 0;
        while pipe.can_write(false) {
            pipe.push(false);
            written += 1;
        }
        assert_eq!((written, pipe.len), (640, 640));
        let freed: Vec<usize> = (1..=80).filter(|_| pipe.pop()).collect();
        assert_eq!(freed, [40, 80]);
        assert!(!pipe.ring_full());
    }

    #[test]
    fn a_full_ring_whose_last_slot_has_room_takes_messages_of_writers_that_have_not_waited() {
        let mut pipe = pipe_of_100_bytes();
        (0..601).for_each(|_| pipe.push(false));
        assert!(pipe.ring_full() && pipe.can_write(false) && !pipe.can_write(true));
    }

    #[test]
    fn portions_are_spent_last_pushed_first_and_the_rest_goes_to_the_base() {
        let mut totals = [0; Mechanism::COUNT];
        let mut portions = Portions::default();
        portions.push(Mechanism::SharedData, 10);
        portions.push(Mechanism::Interrupt, 5);
        portions.spend(7, Mechanism::Kernel, &mut totals);
        assert_eq!((totals[Mechanism::Interrupt as usize], totals[Mechanism::SharedData as usize]), (5, 2));
        portions.spend(20, Mechanism::Kernel, &mut totals);
        assert_eq!((totals[Mechanism::SharedData as usize], totals[Mechanism::Kernel as usize]), (10, 12));
    }
}
