//! Copies of a memory-bound program in the manner of SPECrate 505.mcf_r: `copies` identical independent processes, started
//! one after another by one parent with fork and exec, run to their end; the metric is the time of the slowest.
//!
//! The figures below describe the *program*, not a machine. None was measured here: they are the middle of the ranges that
//! spec/workloads §7 recalls (L2 misses 30-60 and LLC misses 5-15 per thousand instructions, IPC 0.6-0.9 on a server core,
//! 1-3 GB/s a copy, a hot set of a few MiB), confidence D. docs/model.md says what they do to the table.

use huddle_program::{MemoryProfile, MissCurve, Op, ProfileId, Program, Script, ScriptId, TaskId, TaskSpec};

use crate::{WorkloadError, number};

pub(crate) const NAME: &str = "mcf/copies";

/// Length of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mcf {
    /// Millions of instructions of each copy.
    pub million_instructions: u64,
}

const MIB: f64 = 1024.0 * 1024.0;

/// The program's behaviour per thousand instructions.
pub const PROFILE: MemoryProfile = MemoryProfile {
    base_ns: 350.0,
    l2_accesses: 75.0,
    l2_misses: MissCurve { min: 5.0, max: 70.0, scale: MIB, exponent: 0.7 },
    llc_misses: MissCurve { min: 2.0, max: 22.0, scale: 4.0 * MIB, exponent: 0.7 },
    overlap: 2.0,
    bytes_per_miss: 96.0,
};

impl Mcf {
    pub(crate) fn parse(parameters: &[&str]) -> Result<Mcf, WorkloadError> {
        let mut mcf = Mcf { million_instructions: 2000 };
        for parameter in parameters {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "minstr" => mcf.million_instructions = number(NAME, key, value, 1, 100_000_000)?,
                _ => {
                    return Err(WorkloadError::UnknownKey {
                        workload: NAME.to_owned(),
                        key: key.to_owned(),
                        known: "minstr",
                    });
                }
            }
        }
        Ok(mcf)
    }

    pub(crate) fn parameters(&self) -> String {
        format!("minstr={}", self.million_instructions)
    }

    /// The program of `copies` copies; task 0 is the parent.
    pub fn program(&self, copies: u32) -> Program {
        let mut parent = vec![Op::Start];
        parent.extend((1..=copies).map(|task| Op::Spawn { task: TaskId(task) }));
        parent.extend((1..=copies).map(|task| Op::Join { task: TaskId(task) }));
        parent.push(Op::Stop);
        let run = Op::Memory { profile: ProfileId(0), kilo_instructions: self.million_instructions * 1000 };
        let copy = Script { ops: vec![Op::Exec, run] };
        let mut tasks = vec![TaskSpec { script: ScriptId(0), group: None }];
        tasks.extend((0..copies).map(|_| TaskSpec { script: ScriptId(1), group: None }));
        Program {
            tasks,
            scripts: vec![Script { ops: parent }, copy],
            channels: Vec::new(),
            gates: 0,
            profiles: vec![PROFILE],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_copies_are_spawned_and_joined() {
        let program = Mcf { million_instructions: 5 }.program(6);
        assert_eq!(program.validate(), Ok(()));
        assert_eq!(program.tasks.len(), 7);
    }
}
