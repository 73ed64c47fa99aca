//! Pairs of threads that hand a token to and fro, in the manner of `perf bench sched pipe -T`, each computing for a while before
//! it hands the token on. Main starts them behind a gate; measured: from the gate to the join of the last.

use huddle_program::{ChannelId, ChannelSpec, GateId, Op, Program, Script, ScriptId, TaskId, TaskSpec};

use crate::{WorkloadError, number, start};

pub(crate) const NAME: &str = "pingpong/pairs";

/// Parameters of the pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pingpong {
    /// What carries the token.
    pub via: Via,
    /// What each side computes before it hands the token on, ns.
    pub run_ns: u64,
    /// Round trips of each pair.
    pub rounds: u64,
}

/// What carries a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A pipe each way.
    Pipe,
    /// A socketpair.
    Socket,
    /// A semaphore each way, in memory, over a futex.
    Futex,
}

impl Via {
    const ALL: [Via; 3] = [Via::Pipe, Via::Socket, Via::Futex];

    fn name(self) -> &'static str {
        match self {
            Via::Pipe => "pipe",
            Via::Socket => "socket",
            Via::Futex => "futex",
        }
    }

    fn channel(self) -> ChannelSpec {
        match self {
            Via::Pipe => ChannelSpec::Pipe { message_bytes: 1 },
            Via::Socket => ChannelSpec::Socket { message_bytes: 1 },
            Via::Futex => ChannelSpec::Semaphore,
        }
    }
}

impl Pingpong {
    pub(crate) fn parse(parameters: &[&str]) -> Result<Pingpong, WorkloadError> {
        let mut pingpong = Pingpong { via: Via::Pipe, run_ns: 0, rounds: 1000 };
        for parameter in parameters {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "via" => {
                    let via = Via::ALL.into_iter().find(|via| via.name() == value);
                    pingpong.via = via.ok_or_else(|| WorkloadError::BadWord {
                        workload: NAME.to_owned(),
                        key: key.to_owned(),
                        value: value.to_owned(),
                        known: "pipe, socket, futex",
                    })?;
                }
                "run_ns" => pingpong.run_ns = number(NAME, key, value, 0, 1_000_000_000)?,
                "rounds" => pingpong.rounds = number(NAME, key, value, 1, 100_000_000)?,
                _ => {
                    return Err(WorkloadError::UnknownKey {
                        workload: NAME.to_owned(),
                        key: key.to_owned(),
                        known: "via, run_ns, rounds",
                    });
                }
            }
        }
        Ok(pingpong)
    }

    pub(crate) fn parameters(&self) -> String {
        format!("via={},run_ns={},rounds={}", self.via.name(), self.run_ns, self.rounds)
    }

    /// The program of so many pairs: main is task 0, then the first and second of each pair in turn.
    pub fn program(&self, pairs: u32) -> Program {
        let (gate, ready) = (GateId(0), ChannelId(0));
        let mut channels = vec![ChannelSpec::Pipe { message_bytes: 1 }];
        channels.extend((0..2 * pairs).map(|_| self.via.channel()));
        let tasks = 1..=2 * pairs;
        let mut main = start(tasks.clone().map(|task| Op::Spawn { task: TaskId(task) }), ready, gate);
        main.extend(tasks.clone().map(|task| Op::Join { task: TaskId(task) }));
        main.push(Op::Stop);
        let mut scripts = vec![Script { ops: main }];
        for pair in 0..pairs {
            let (there, back) = (ChannelId(1 + 2 * pair), ChannelId(2 + 2 * pair));
            let run = (self.run_ns > 0).then_some(Op::Compute { ns: self.run_ns });
            let first = [run, Some(Op::Send { channel: there }), Some(Op::Receive { channel: back })];
            let second = [Some(Op::Receive { channel: there }), run, Some(Op::Send { channel: back })];
            for body in [first, second] {
                scripts.push(crate::worker(ready, gate, body.into_iter().flatten(), self.rounds));
            }
        }
        let specs =
            (0..=2 * pairs).map(|task| TaskSpec { script: ScriptId(task), group: task.checked_sub(1).map(|t| t / 2) });
        Program { tasks: specs.collect(), scripts, channels, gates: 1, profiles: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_pairs_are_six_threads_and_two_messages_a_round_each() {
        for via in ["pipe", "socket", "futex"] {
            let pingpong = Pingpong::parse(&[&format!("via={via}"), "run_ns=200000", "rounds=5"]).unwrap();
            let program = pingpong.program(3);
            assert_eq!(program.validate(), Ok(()));
            assert_eq!(program.tasks.len(), 7);
            // Six bytes tell that all are ready.
            assert_eq!(program.messages(), 3 * 2 * 5 + 6, "{via}");
            let computes =
                |script: &Script| script.ops.iter().filter(|op| matches!(op, Op::Compute { ns: 200_000 })).count();
            assert_eq!(program.scripts.iter().map(computes).sum::<usize>(), 6);
        }
    }

    #[test]
    fn without_a_run_nothing_is_computed_and_another_carrier_is_refused() {
        let program = Pingpong::parse(&[]).unwrap().program(1);
        assert!(program.scripts.iter().flat_map(|script| &script.ops).all(|op| !matches!(op, Op::Compute { .. })));
        assert_eq!(
            Pingpong::parse(&["via=fifo"]).unwrap_err().to_string(),
            "workload `pingpong/pairs`: `via=fifo` must be one of pipe, socket, futex"
        );
    }
}
