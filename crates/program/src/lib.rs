//! What tasks do, as pure data. A program knows nothing of CPUs, schedulers or time spent: it says which channels there are,
//! who sends and receives on them, and how much is computed in between.

/// Declares a typed index.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an array index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A task of a program.
    TaskId
}
id! {
    /// A channel of a program.
    ChannelId
}
id! {
    /// A gate of a program: closed at first, opened once.
    GateId
}
id! {
    /// A script of a program.
    ScriptId
}
id! {
    /// A memory profile of a program.
    ProfileId
}

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Compute for that many nanoseconds of an undisturbed CPU.
    Compute {
        /// Nanoseconds.
        ns: u64,
    },
    /// Run memory-bound code.
    Memory {
        /// Its behaviour.
        profile: ProfileId,
        /// Thousands of instructions.
        kilo_instructions: u64,
    },
    /// Send one message; sleeps while the channel is full.
    Send {
        /// The channel.
        channel: ChannelId,
    },
    /// Receive one message; sleeps while the channel is empty.
    Receive {
        /// The channel.
        channel: ChannelId,
    },
    /// Write a line of memory that others write too.
    Write {
        /// The line.
        line: ChannelId,
    },
    /// Sleep until the gate is open (a poll on it).
    Wait {
        /// The gate.
        gate: GateId,
    },
    /// Open the gate and wake all who wait, with the synchronous hint.
    Open {
        /// The gate.
        gate: GateId,
    },
    /// Create and start a thread: a task in the address space of its creator.
    Spawn {
        /// The task; every task but the first is spawned or forked exactly once.
        task: TaskId,
    },
    /// Create and start a process: a task in an address space of its own.
    Fork {
        /// The task; every task but the first is spawned or forked exactly once.
        task: TaskId,
    },
    /// Ask for slices of a length of its own (`sched_setattr` with a runtime; heeded by Linux 6.12 and later, from 0.1 to 100 ms).
    SetSlice {
        /// Nanoseconds.
        ns: u64,
    },
    /// Replace the image (exec): the scheduler may place the task anew.
    Exec,
    /// Sleep until the task has exited.
    Join {
        /// The task.
        task: TaskId,
    },
    /// Sleep until one more of the tasks that this one has created has exited, whichever it is (`wait`).
    Reap,
    /// Go back to op `to` until the body has run `times` times in all.
    Repeat {
        /// Index of the first op of the body.
        to: u32,
        /// How often the body runs.
        times: u64,
        /// Which of the task's [`Op::LOOPS`] counters counts; nested loops need different ones.
        counter: u8,
    },
    /// The measured stretch begins.
    Start,
    /// The measured stretch ends.
    Stop,
}

impl Op {
    /// Number of loop counters of a task.
    pub const LOOPS: usize = 2;
}

/// What a kind of task does; it exits after the last op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The steps.
    pub ops: Vec<Op>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Its script.
    pub script: ScriptId,
    /// The group it belongs to (a hackbench group), for purity.
    pub group: Option<u32>,
}

/// A channel and its kernel semantics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelSpec {
    /// A pipe: a ring of page slots; a message merges into the last slot only if it fits there whole.
    Pipe {
        /// Bytes of a message, 1..=4096.
        message_bytes: u32,
    },
    /// One direction of a Unix stream socketpair: a queue of buffers, each charged to the writers' socket until it is read.
    Socket {
        /// Bytes of a message, 1..=4096.
        message_bytes: u32,
    },
    /// A counting semaphore in shared memory: sending posts, receiving waits. Both enter the kernel (futex) only when somebody
    /// sleeps or must sleep. Sending never sleeps.
    Semaphore,
    /// A spinlock in shared memory (`pthread_spin_lock`): receiving takes it, sending, by its holder, lets it go.
    Spinlock,
    /// A mutex in shared memory (`pthread_mutex_lock`, not adaptive): likewise; the kernel is entered (futex) only when somebody sleeps
    /// or must sleep.
    Mutex,
    /// A line of memory: no message, only [`Op::Write`].
    Line,
}

/// Slots of a pipe's ring (`PIPE_DEF_BUFFERS`).
pub const PIPE_SLOTS: u32 = 16;
/// Bytes of a pipe slot.
pub const PIPE_SLOT_BYTES: u32 = 4096;

/// Bytes that a socket may be charged with: a message is taken while the charge is less (`sk_sndbuf`, by default
/// `net.core.wmem_default`).
pub const SOCKET_LIMIT: u32 = 212_992;
/// Sleeping writers wake when the charge has fallen to this (`unix_writable`, `net/unix/af_unix.c`: a quarter of the limit).
pub const SOCKET_LOW: u32 = SOCKET_LIMIT / 4;
/// What an empty socket is charged with: the reference that the socket holds to itself (`sk_wmem_alloc`, `net/core/sock.c`).
pub const SOCKET_BASE: u32 = 1;
/// Bytes of a buffer's description (`struct sk_buff`, rounded up to cache lines).
const BUFFER_BYTES: u32 = 256;
/// Bytes at the end of a buffer's data (`struct skb_shared_info`, rounded up to cache lines).
const BUFFER_END_BYTES: u32 = 320;
const CACHE_LINE_BYTES: u32 = 64;
const PAGE_BYTES: u32 = 4096;

impl ChannelSpec {
    /// Messages that fit into one slot of a pipe; 0 for what has no slots.
    pub fn messages_per_slot(self) -> u32 {
        match self {
            ChannelSpec::Pipe { message_bytes } => PIPE_SLOT_BYTES / message_bytes,
            _ => 0,
        }
    }

    /// Bytes that a message charges a socket with (`skb->truesize`); 0 for other channels. The data and what follows it come
    /// from the allocator of powers of two; what does not fit one page together is a page of its own
    /// (`unix_stream_sendmsg`, `net/unix/af_unix.c`; `__alloc_skb`, `net/core/skbuff.c`).
    pub fn charge(self) -> u32 {
        let ChannelSpec::Socket { message_bytes } = self else { return 0 };
        let head = |bytes: u32| {
            let data = bytes.next_multiple_of(CACHE_LINE_BYTES) + BUFFER_END_BYTES;
            data.next_power_of_two() + BUFFER_BYTES
        };
        if message_bytes <= PAGE_BYTES - BUFFER_END_BYTES { head(message_bytes) } else { head(0) + PAGE_BYTES }
    }

    /// Messages that fit when nobody reads.
    pub fn capacity(self) -> u32 {
        match self {
            ChannelSpec::Pipe { .. } => PIPE_SLOTS * self.messages_per_slot(),
            ChannelSpec::Socket { .. } => (SOCKET_LIMIT - SOCKET_BASE).div_ceil(self.charge()),
            ChannelSpec::Semaphore => u32::MAX,
            ChannelSpec::Spinlock | ChannelSpec::Mutex => 1,
            ChannelSpec::Line => 0,
        }
    }
}

/// How memory-bound code behaves, per thousand instructions. Misses of a cache of `s` bytes follow
/// `min + (max - min) * (1 + s / scale) ^ -exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryProfile {
    /// Cycles that hit the first-level cache, ns.
    pub base_ns: f64,
    /// Accesses that reach the level-2 cache.
    pub l2_accesses: f64,
    /// Misses of the level-2 cache.
    pub l2_misses: MissCurve,
    /// Misses of the last-level cache; never more than those of level 2.
    pub llc_misses: MissCurve,
    /// Misses that overlap: a stall counts once for this many.
    pub overlap: f64,
    /// Bytes moved per last-level miss, write-backs included.
    pub bytes_per_miss: f64,
}

/// Misses by cache size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissCurve {
    /// With an endless cache.
    pub min: f64,
    /// Without a cache.
    pub max: f64,
    /// Bytes.
    pub scale: f64,
    /// Power of the fall.
    pub exponent: f64,
}

/// A whole program. Task 0 is there at the start; it spawns the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The tasks.
    pub tasks: Vec<TaskSpec>,
    /// The scripts.
    pub scripts: Vec<Script>,
    /// The channels.
    pub channels: Vec<ChannelSpec>,
    /// Number of gates.
    pub gates: u32,
    /// Memory profiles.
    pub profiles: Vec<MemoryProfile>,
}

/// A program that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// There is no task.
    #[error("the program has no task")]
    Empty,
    /// Something names an id that does not exist.
    #[error("script {script}, op {op}: there is no {what} {id}")]
    NoSuch {
        /// The script.
        script: usize,
        /// The op.
        op: usize,
        /// The kind of thing.
        what: &'static str,
        /// Its number.
        id: u32,
    },
    /// A task's script does not exist.
    #[error("task {0}: its script does not exist")]
    NoScript(usize),
    /// A loop jumps forward, uses a counter that does not exist or runs no times.
    #[error("script {script}, op {op}: a loop must go back, run at least once and use counter 0 or 1")]
    BadLoop {
        /// The script.
        script: usize,
        /// The op.
        op: usize,
    },
    /// A task is spawned never or more than once.
    #[error("task {task} is spawned {times} times; every task but the first must be spawned once")]
    Spawned {
        /// The task.
        task: usize,
        /// How often.
        times: u64,
    },
    /// A script reaps more tasks than it creates.
    #[error("script {script} creates {created} tasks and reaps {reaped}")]
    Reaped {
        /// The script.
        script: usize,
        /// Tasks that it creates.
        created: u64,
        /// Tasks whose exit it waits for.
        reaped: u64,
    },
    /// A message that does not fit a slot, or none.
    #[error("channel {0}: a message has 1 to 4096 bytes")]
    MessageSize(usize),
    /// A channel is read by several tasks, or sends and receives differ in number.
    #[error("channel {channel}: {sent} messages are sent and {received} received")]
    Unbalanced {
        /// The channel.
        channel: usize,
        /// Sent in all.
        sent: u64,
        /// Received in all.
        received: u64,
    },
}

impl Program {
    /// Checks that every id exists, loops go back, each task is spawned once, none reaps more than it creates, and each
    /// channel's sends and receives are equal in number, so that the program can end.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn validate(&self) -> Result<(), ProgramError> {
        if self.tasks.is_empty() {
            return Err(ProgramError::Empty);
        }
        for (channel, spec) in self.channels.iter().enumerate() {
            let (ChannelSpec::Pipe { message_bytes } | ChannelSpec::Socket { message_bytes }) = *spec else { continue };
            if message_bytes == 0 || message_bytes > PIPE_SLOT_BYTES {
                return Err(ProgramError::MessageSize(channel));
            }
        }
        for (script, ops) in self.scripts.iter().map(|script| &script.ops).enumerate() {
            for (op, step) in ops.iter().enumerate() {
                self.check_op(script, op, step)?;
            }
        }
        let mut totals = Totals::new(self);
        for (task, spec) in self.tasks.iter().enumerate() {
            let script = self.scripts.get(spec.script.index()).ok_or(ProgramError::NoScript(task))?;
            let (created, reaped) = totals.add(script);
            if reaped > created {
                return Err(ProgramError::Reaped { script: spec.script.index(), created, reaped });
            }
        }
        totals.spawned[0] += 1;
        if let Some((task, &times)) = totals.spawned.iter().enumerate().find(|&(_, &times)| times != 1) {
            return Err(ProgramError::Spawned { task, times });
        }
        for (channel, (&sent, &received)) in totals.sent.iter().zip(&totals.received).enumerate() {
            if sent != received {
                return Err(ProgramError::Unbalanced { channel, sent, received });
            }
        }
        Ok(())
    }

    fn check_op(&self, script: usize, op: usize, step: &Op) -> Result<(), ProgramError> {
        let is_line = |channel: ChannelId| self.channels.get(channel.index()) == Some(&ChannelSpec::Line);
        let (what, id, count) = match *step {
            Op::Send { channel } | Op::Receive { channel } if is_line(channel) => ("message channel", channel.0, 0),
            Op::Write { line } if is_line(line) => return Ok(()),
            Op::Write { line } => ("line", line.0, 0),
            Op::Send { channel } | Op::Receive { channel } => ("channel", channel.0, self.channels.len()),
            Op::Wait { gate } | Op::Open { gate } => ("gate", gate.0, self.gates as usize),
            Op::Spawn { task } | Op::Fork { task } | Op::Join { task } => ("task", task.0, self.tasks.len()),
            Op::Memory { profile, .. } => ("memory profile", profile.0, self.profiles.len()),
            Op::Repeat { to, times, counter } => {
                return match to as usize >= op || times == 0 || usize::from(counter) >= Op::LOOPS {
                    true => Err(ProgramError::BadLoop { script, op }),
                    false => Ok(()),
                };
            }
            Op::Compute { .. } | Op::SetSlice { .. } | Op::Exec | Op::Reap | Op::Start | Op::Stop => return Ok(()),
        };
        match (id as usize) < count {
            true => Ok(()),
            false => Err(ProgramError::NoSuch { script, op, what, id }),
        }
    }

    /// Messages sent in the whole program.
    pub fn messages(&self) -> u64 {
        let mut totals = Totals::new(self);
        for spec in &self.tasks {
            if let Some(script) = self.scripts.get(spec.script.index()) {
                totals.add(script);
            }
        }
        totals.sent.iter().sum()
    }
}

/// What a whole program does in all.
struct Totals {
    spawned: Vec<u64>,
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Totals {
    fn new(program: &Program) -> Totals {
        let (tasks, channels) = (program.tasks.len(), program.channels.len());
        Totals { spawned: vec![0; tasks], sent: vec![0; channels], received: vec![0; channels] }
    }

    /// Adds what one run of a (checked) script does; the number of tasks that it creates and reaps. From its end to its start: a
    /// loop's factor holds from its `Repeat` back to the first op of its body.
    fn add(&mut self, script: &Script) -> (u64, u64) {
        let (mut created, mut reaped) = (0, 0);
        let mut loops: Vec<(usize, u64)> = Vec::new();
        for (index, op) in script.ops.iter().enumerate().rev() {
            loops.retain(|&(to, _)| to <= index);
            let times = loops.iter().map(|&(_, times)| times).product::<u64>();
            match *op {
                Op::Repeat { to, times, .. } => loops.push((to as usize, times)),
                Op::Send { channel } => self.sent[channel.index()] += times,
                Op::Receive { channel } => self.received[channel.index()] += times,
                Op::Spawn { task } | Op::Fork { task } => {
                    self.spawned[task.index()] += times;
                    created += times;
                }
                Op::Reap => reaped += times,
                _ => {}
            }
        }
        (created, reaped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(times: u64, received: u64) -> Program {
        let channel = ChannelId(0);
        Program {
            tasks: vec![TaskSpec { script: ScriptId(0), group: None }, TaskSpec { script: ScriptId(1), group: None }],
            scripts: vec![
                Script {
                    ops: vec![
                        Op::Spawn { task: TaskId(1) },
                        Op::Send { channel },
                        Op::Repeat { to: 1, times, counter: 0 },
                        Op::Join { task: TaskId(1) },
                    ],
                },
                Script { ops: vec![Op::Receive { channel }, Op::Repeat { to: 0, times: received, counter: 0 }] },
            ],
            channels: vec![ChannelSpec::Pipe { message_bytes: 100 }],
            gates: 0,
            profiles: Vec::new(),
        }
    }

    #[test]
    fn a_pipe_of_100_byte_messages_holds_640() {
        assert_eq!(ChannelSpec::Pipe { message_bytes: 100 }.capacity(), 640);
        assert_eq!(ChannelSpec::Pipe { message_bytes: 1 }.capacity(), 65536);
        assert_eq!(ChannelSpec::Pipe { message_bytes: 4096 }.capacity(), 16);
    }

    #[test]
    fn a_socket_takes_what_a_fill_test_of_6_18_on_x86_measured() {
        // Bytes, messages that fitted, messages read until the full socket could be written to: measured on a default socketpair.
        for (message_bytes, fits, read) in [
            (1, 278, 209),
            (100, 278, 209),
            (192, 278, 209),
            (193, 167, 126),
            (704, 167, 126),
            (705, 93, 70),
            (1728, 93, 70),
            (1729, 49, 37),
            (3776, 49, 37),
            (3777, 44, 34),
            (4096, 44, 34),
        ] {
            let socket = ChannelSpec::Socket { message_bytes };
            assert_eq!(socket.capacity(), fits, "{message_bytes} bytes");
            let left = (SOCKET_LOW - SOCKET_BASE) / socket.charge();
            assert_eq!(socket.capacity() - left, read, "{message_bytes} bytes");
        }
    }

    #[test]
    fn a_task_that_reaps_more_than_it_creates_is_refused() {
        let mut program = ping(1, 1);
        program.scripts[0].ops[3] = Op::Reap;
        assert_eq!(program.validate(), Ok(()));
        program.scripts[0].ops.push(Op::Reap);
        assert_eq!(program.validate(), Err(ProgramError::Reaped { script: 0, created: 1, reaped: 2 }));
    }

    #[test]
    fn a_balanced_program_is_accepted_and_counted() {
        let program = ping(7, 7);
        assert_eq!(program.validate(), Ok(()));
        assert_eq!(program.messages(), 7);
    }

    #[test]
    fn nested_loops_multiply_and_end_where_their_bodies_begin() {
        let mut program = ping(1, 1 + 2 * 15);
        let channel = ChannelId(0);
        program.scripts[0].ops = vec![
            Op::Spawn { task: TaskId(1) },
            Op::Send { channel },
            Op::Send { channel },
            Op::Repeat { to: 2, times: 5, counter: 0 },
            Op::Send { channel },
            Op::Repeat { to: 4, times: 5, counter: 0 },
            Op::Repeat { to: 2, times: 3, counter: 1 },
        ];
        assert_eq!(program.validate(), Ok(()));
        assert_eq!(program.messages(), 31);
    }

    #[test]
    fn unequal_sends_and_receives_are_refused() {
        assert_eq!(ping(7, 6).validate(), Err(ProgramError::Unbalanced { channel: 0, sent: 7, received: 6 }));
    }

    #[test]
    fn a_line_takes_no_messages_and_only_a_line_is_written() {
        let refused = |what| Err(ProgramError::NoSuch { script: 0, op: 1, what, id: 0 });
        let mut program = ping(1, 1);
        program.channels[0] = ChannelSpec::Line;
        assert_eq!(program.validate(), refused("message channel"));
        program.scripts[0].ops[1] = Op::Write { line: ChannelId(0) };
        program.scripts[1].ops[0] = Op::Write { line: ChannelId(0) };
        assert_eq!(program.validate(), Ok(()));
        program.channels[0] = ChannelSpec::Mutex;
        assert_eq!(program.validate(), refused("line"));
    }

    #[test]
    fn a_task_nobody_spawns_is_refused() {
        let mut program = ping(1, 1);
        program.scripts[0].ops[0] = Op::Start;
        assert_eq!(program.validate(), Err(ProgramError::Spawned { task: 1, times: 0 }));
    }

    #[test]
    fn a_loop_forward_and_a_missing_channel_are_refused() {
        let mut program = ping(1, 1);
        program.scripts[1].ops[1] = Op::Repeat { to: 1, times: 1, counter: 0 };
        assert_eq!(program.validate(), Err(ProgramError::BadLoop { script: 1, op: 1 }));
        let mut program = ping(1, 1);
        program.scripts[1].ops[0] = Op::Receive { channel: ChannelId(3) };
        assert!(matches!(program.validate(), Err(ProgramError::NoSuch { what: "channel", id: 3, .. })));
    }
}
