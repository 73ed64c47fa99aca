//! hackbench with threads or processes over pipes or socketpairs (rt-tests 2.x, `hackbench`, `-p`, `-T`).
//!
//! A group is `fds` receivers, each reading its own channel, and `fds` senders, each writing to all channels of the group in
//! the same order, one message each, `loops` times. Main creates the tasks group by group, receivers before senders; each
//! reports over the *ready* channel and polls; one byte opens the gate for all at once. Measured: from that byte until main
//! has seen the last task exit: threads are joined in the order of creation, processes reaped as they exit.

use huddle_program::{ChannelId, ChannelSpec, GateId, Op, Program, Script, ScriptId, TaskId, TaskSpec};

use crate::{WorkloadError, number, start, worker};

/// Whether the tasks are threads or processes, and what they write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `-p -T`.
    ThreadsPipe,
    /// `-T`.
    ThreadsSocket,
    /// `-p`.
    ProcessesPipe,
    /// Neither option.
    ProcessesSocket,
}

impl Mode {
    /// The four of them.
    pub const ALL: [Mode; 4] = [Mode::ThreadsPipe, Mode::ThreadsSocket, Mode::ProcessesPipe, Mode::ProcessesSocket];

    /// The workload's name.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::ThreadsPipe => "hackbench/threads-pipe",
            Mode::ThreadsSocket => "hackbench/threads-socket",
            Mode::ProcessesPipe => "hackbench/processes-pipe",
            Mode::ProcessesSocket => "hackbench/processes-socket",
        }
    }

    fn processes(self) -> bool {
        matches!(self, Mode::ProcessesPipe | Mode::ProcessesSocket)
    }

    fn channel(self, message_bytes: u32) -> ChannelSpec {
        match self {
            Mode::ThreadsPipe | Mode::ProcessesPipe => ChannelSpec::Pipe { message_bytes },
            Mode::ThreadsSocket | Mode::ProcessesSocket => ChannelSpec::Socket { message_bytes },
        }
    }
}

/// Parameters of hackbench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hackbench {
    /// Threads or processes, pipes or socketpairs.
    pub mode: Mode,
    /// Receivers, and senders, of a group.
    pub fds: u32,
    /// Bytes of a message.
    pub size: u32,
    /// Messages from each sender to each receiver.
    pub loops: u64,
}

impl Default for Hackbench {
    fn default() -> Self {
        Hackbench { mode: Mode::ThreadsPipe, fds: 20, size: 100, loops: 100 }
    }
}

impl Hackbench {
    pub(crate) fn parse(mode: Mode, parameters: &[&str]) -> Result<Hackbench, WorkloadError> {
        let mut hackbench = Hackbench { mode, ..Hackbench::default() };
        let name = mode.name();
        for parameter in parameters {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "loops" => hackbench.loops = number(name, key, value, 1, 100_000_000)?,
                "fds" => hackbench.fds = number(name, key, value, 1, 1000)? as u32,
                "size" => hackbench.size = number(name, key, value, 1, 4096)? as u32,
                _ => {
                    return Err(WorkloadError::UnknownKey {
                        workload: name.to_owned(),
                        key: key.to_owned(),
                        known: "loops, fds, size",
                    });
                }
            }
        }
        Ok(hackbench)
    }

    pub(crate) fn parameters(&self) -> String {
        format!("fds={},size={},loops={}", self.fds, self.size, self.loops)
    }

    /// The program of `groups` groups: main is task 0, then each group's receivers and senders in the order of creation.
    pub fn program(&self, groups: u32) -> Program {
        let per_group = 2 * self.fds;
        let workers = groups * per_group;
        let gate = GateId(0);
        let ready = ChannelId(0);
        let channel_of = |group: u32, fd: u32| ChannelId(1 + group * self.fds + fd);

        let mut channels = vec![self.mode.channel(1)];
        channels.extend((0..groups * self.fds).map(|_| self.mode.channel(self.size)));

        let mut scripts = vec![Script { ops: self.main_ops(workers, ready, gate) }];
        let mut tasks = vec![TaskSpec { script: ScriptId(0), group: None }];
        let mut push = |group: u32, script: u32| tasks.push(TaskSpec { script: ScriptId(script), group: Some(group) });
        for group in 0..groups {
            for fd in 0..self.fds {
                let channel = channel_of(group, fd);
                push(group, scripts.len() as u32);
                let messages = u64::from(self.fds) * self.loops;
                scripts.push(worker(ready, gate, [Op::Receive { channel }], messages));
            }
            let sends = (0..self.fds).map(|fd| Op::Send { channel: channel_of(group, fd) });
            let sender = scripts.len() as u32;
            scripts.push(worker(ready, gate, sends, self.loops));
            (0..self.fds).for_each(|_| push(group, sender));
        }
        Program { tasks, scripts, channels, gates: 1, profiles: Vec::new() }
    }

    fn main_ops(&self, workers: u32, ready: ChannelId, gate: GateId) -> Vec<Op> {
        let tasks = (1..=workers).map(TaskId);
        let processes = self.mode.processes();
        let create = |task| if processes { Op::Fork { task } } else { Op::Spawn { task } };
        let mut ops = start(tasks.clone().map(create), ready, gate);
        ops.extend(tasks.map(|task| if processes { Op::Reap } else { Op::Join { task } }));
        ops.push(Op::Stop);
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_groups_are_80_workers_and_800_messages_a_loop() {
        let program = Hackbench { loops: 3, ..Hackbench::default() }.program(2);
        assert_eq!(program.validate(), Ok(()));
        assert_eq!(program.tasks.len(), 81);
        assert_eq!(program.messages(), 2 * 400 * 3 + 80);
        assert_eq!(program.channels[1].capacity(), 640);
    }

    #[test]
    fn all_modes_send_the_same_messages_over_channels_of_their_kind() {
        for mode in Mode::ALL {
            let program = Hackbench { mode, fds: 3, size: 1000, loops: 7 }.program(2);
            assert_eq!(program.validate(), Ok(()), "{}", mode.name());
            assert_eq!(program.messages(), 2 * 3 * 3 * 7 + 12);
            // 16 slots of four messages of 1000 bytes; 93 buffers of 2304 bytes reach 212992.
            let fits = if mode.name().ends_with("pipe") { 64 } else { 93 };
            assert!(program.channels[1..].iter().all(|channel| channel.capacity() == fits), "{}", mode.name());
            let forks = program.scripts[0].ops.iter().filter(|op| matches!(op, Op::Fork { .. })).count();
            assert_eq!(forks, if mode.name().starts_with("hackbench/processes") { 12 } else { 0 });
        }
    }

    #[test]
    fn receivers_come_before_senders_in_each_group() {
        let program = Hackbench { fds: 2, loops: 1, ..Hackbench::default() }.program(2);
        let sends = |task: usize| {
            let script = &program.scripts[program.tasks[task].script.index()];
            script.ops.iter().filter(|op| matches!(op, Op::Send { .. })).count()
        };
        // One send is the ready byte; a sender adds one per pipe.
        assert_eq!((1..9).map(sends).collect::<Vec<_>>(), [1, 1, 3, 3, 1, 1, 3, 3]);
    }

    #[test]
    fn bad_parameters_are_named() {
        assert!(matches!(Hackbench::parse(Mode::ProcessesSocket, &["loops=0"]), Err(WorkloadError::BadValue { .. })));
        assert!(matches!(
            Hackbench::parse(Mode::ProcessesSocket, &["loops=12abc"]),
            Err(WorkloadError::BadValue { .. })
        ));
        assert!(matches!(Hackbench::parse(Mode::ProcessesSocket, &["lops=1"]), Err(WorkloadError::UnknownKey { .. })));
    }
}
