//! Processes that only compute, forked one after another by one parent: how far fork placement and balancing spread them.
//! Measured: from the first fork to the exit of the last.

use huddle_program::{Op, Program, Script, ScriptId, TaskId, TaskSpec};

use crate::{WorkloadError, number};

pub(crate) const NAME: &str = "hogs/forked";

/// Length of a hog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hogs {
    /// Milliseconds of computing of each.
    pub ms: u64,
}

impl Hogs {
    pub(crate) fn parse(parameters: &[&str]) -> Result<Hogs, WorkloadError> {
        let mut hogs = Hogs { ms: 1000 };
        for parameter in parameters {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                // Spread is sampled at ticks of up to 10 ms: there must be some.
                "ms" => hogs.ms = number(NAME, key, value, 20, 100_000_000)?,
                _ => {
                    return Err(WorkloadError::UnknownKey {
                        workload: NAME.to_owned(),
                        key: key.to_owned(),
                        known: "ms",
                    });
                }
            }
        }
        Ok(hogs)
    }

    pub(crate) fn parameters(&self) -> String {
        format!("ms={}", self.ms)
    }

    /// The program of so many hogs; task 0 is the parent.
    pub fn program(&self, hogs: u32) -> Program {
        let mut parent = vec![Op::Start];
        parent.extend((1..=hogs).map(|task| Op::Fork { task: TaskId(task) }));
        parent.extend((1..=hogs).map(|_| Op::Reap));
        parent.push(Op::Stop);
        let hog = Script { ops: vec![Op::Compute { ns: self.ms * 1_000_000 }] };
        let mut tasks = vec![TaskSpec { script: ScriptId(0), group: None }];
        tasks.extend((0..hogs).map(|_| TaskSpec { script: ScriptId(1), group: None }));
        Program {
            tasks,
            scripts: vec![Script { ops: parent }, hog],
            channels: Vec::new(),
            gates: 0,
            profiles: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_hogs_are_forked_and_reaped() {
        let program = Hogs::parse(&["ms=50"]).unwrap().program(6);
        assert_eq!(program.validate(), Ok(()));
        assert_eq!(program.tasks.len(), 7);
        assert_eq!(program.scripts[1].ops, [Op::Compute { ns: 50_000_000 }]);
    }
}
