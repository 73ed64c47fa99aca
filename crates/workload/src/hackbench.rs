//! hackbench with threads over pipes (rt-tests 2.x, `hackbench -p -T`).
//!
//! A group is `fds` receivers, each reading its own pipe, and `fds` senders, each writing to all pipes of the group in the
//! same order, one message each, `loops` times. Main creates the tasks group by group, receivers before senders; each
//! reports over the *ready* pipe and polls; one byte opens the gate for all at once. Measured: from that byte to the join
//! of the last task.

use huddle_program::{ChannelId, ChannelSpec, GateId, Op, Program, Script, ScriptId, TaskId, TaskSpec};

use crate::{WorkloadError, number};

pub(crate) const NAME: &str = "hackbench/threads-pipe";

/// Parameters of hackbench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hackbench {
    /// Receivers, and senders, of a group.
    pub fds: u32,
    /// Bytes of a message.
    pub size: u32,
    /// Messages from each sender to each receiver.
    pub loops: u64,
}

impl Default for Hackbench {
    fn default() -> Self {
        Hackbench { fds: 20, size: 100, loops: 100 }
    }
}

impl Hackbench {
    pub(crate) fn parse(parameters: &[&str]) -> Result<Hackbench, WorkloadError> {
        let mut hackbench = Hackbench::default();
        for parameter in parameters {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "loops" => hackbench.loops = number(NAME, key, value, 1, 100_000_000)?,
                "fds" => hackbench.fds = number(NAME, key, value, 1, 1000)? as u32,
                "size" => hackbench.size = number(NAME, key, value, 1, 4096)? as u32,
                _ => {
                    return Err(WorkloadError::UnknownKey {
                        workload: NAME.to_owned(),
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
        let pipe = |group: u32, fd: u32| ChannelId(1 + group * self.fds + fd);

        let mut channels = vec![ChannelSpec::Pipe { message_bytes: 1 }];
        channels.extend((0..groups * self.fds).map(|_| ChannelSpec::Pipe { message_bytes: self.size }));

        let mut scripts = vec![Script { ops: main_ops(workers, ready, gate) }];
        let mut tasks = vec![TaskSpec { script: ScriptId(0), group: None }];
        let mut push = |group: u32, script: u32| tasks.push(TaskSpec { script: ScriptId(script), group: Some(group) });
        for group in 0..groups {
            for fd in 0..self.fds {
                let channel = pipe(group, fd);
                push(group, scripts.len() as u32);
                let messages = u64::from(self.fds) * self.loops;
                scripts.push(worker(ready, gate, [Op::Receive { channel }], messages));
            }
            let sends = (0..self.fds).map(|fd| Op::Send { channel: pipe(group, fd) });
            let sender = scripts.len() as u32;
            scripts.push(worker(ready, gate, sends, self.loops));
            (0..self.fds).for_each(|_| push(group, sender));
        }
        Program { tasks, scripts, channels, gates: 1, profiles: Vec::new() }
    }
}

fn main_ops(workers: u32, ready: ChannelId, gate: GateId) -> Vec<Op> {
    let mut ops: Vec<Op> = (1..=workers).map(|task| Op::Spawn { task: TaskId(task) }).collect();
    ops.push(Op::Receive { channel: ready });
    ops.push(Op::Repeat { to: workers, times: workers.into(), counter: 0 });
    ops.push(Op::Start);
    ops.push(Op::Open { gate });
    ops.extend((1..=workers).map(|task| Op::Join { task: TaskId(task) }));
    ops.push(Op::Stop);
    ops
}

fn worker(ready: ChannelId, gate: GateId, body: impl IntoIterator<Item = Op>, times: u64) -> Script {
    let mut ops = vec![Op::Send { channel: ready }, Op::Wait { gate }];
    let to = ops.len() as u32;
    ops.extend(body);
    ops.push(Op::Repeat { to, times, counter: 0 });
    Script { ops }
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
    fn receivers_come_before_senders_in_each_group() {
        let program = Hackbench { fds: 2, loops: 1, size: 100 }.program(2);
        let sends = |task: usize| {
            let script = &program.scripts[program.tasks[task].script.index()];
            script.ops.iter().filter(|op| matches!(op, Op::Send { .. })).count()
        };
        // One send is the ready byte; a sender adds one per pipe.
        assert_eq!((1..9).map(sends).collect::<Vec<_>>(), [1, 1, 3, 3, 1, 1, 3, 3]);
    }

    #[test]
    fn bad_parameters_are_named() {
        assert!(matches!(Hackbench::parse(&["loops=0"]), Err(WorkloadError::BadValue { .. })));
        assert!(matches!(Hackbench::parse(&["loops=12abc"]), Err(WorkloadError::BadValue { .. })));
        assert!(matches!(Hackbench::parse(&["lops=1"]), Err(WorkloadError::UnknownKey { .. })));
    }
}
