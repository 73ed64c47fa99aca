//! The benchmarks: what each one's tasks do, its load axis, its metric, and the length it was published with.
//!
//! A workload is named `suite/case,key=value,…`, for example `hackbench/threads-pipe,loops=1000`.

mod hackbench;
mod hogs;
mod mcf;
mod pingpong;

use huddle_program::{ChannelId, GateId, Op, Program, Script};

pub use hackbench::{Hackbench, Mode};
pub use hogs::Hogs;
pub use mcf::Mcf;
pub use pingpong::{Pingpong, Via};

/// A benchmark with its parameters. The load (groups, copies) is given when a program is built.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Groups of senders and receivers over pipes or socketpairs.
    Hackbench(Hackbench),
    /// Compute tasks forked from one parent.
    Hogs(Hogs),
    /// Independent memory-bound copies.
    Mcf(Mcf),
    /// Pairs that hand a token to and fro.
    Pingpong(Pingpong),
}

/// A workload that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No such benchmark or case.
    #[error("unknown workload `{name}`; known: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such parameter.
    #[error("workload `{workload}` has no parameter `{key}`; it has: {known}")]
    UnknownKey {
        /// The workload.
        workload: String,
        /// The parameter asked for.
        key: String,
        /// What there is.
        known: &'static str,
    },
    /// A parameter's value is out of range.
    #[error("workload `{workload}`: `{key}={value}` must be a whole number from {min} to {max}")]
    BadValue {
        /// The workload.
        workload: String,
        /// The parameter.
        key: String,
        /// Its value.
        value: String,
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A parameter's value is not one of its words.
    #[error("workload `{workload}`: `{key}={value}` must be one of {known}")]
    BadWord {
        /// The workload.
        workload: String,
        /// The parameter.
        key: String,
        /// Its value.
        value: String,
        /// The words.
        known: &'static str,
    },
    /// A parameter is given again.
    #[error("workload `{workload}`: `{key}` is given twice; give it once")]
    Repeated {
        /// The workload.
        workload: String,
        /// The parameter.
        key: String,
    },
    /// The program would be too large.
    #[error("load {load} of `{workload}` would be {tasks} tasks; at most {MAX_TASKS} are simulated")]
    TooLarge {
        /// The workload.
        workload: String,
        /// The load asked for.
        load: u32,
        /// Tasks of the program.
        tasks: u64,
    },
    /// The load is out of range.
    #[error("load {load} of `{workload}` must be from 1 to {max} {unit}")]
    BadLoad {
        /// The workload.
        workload: String,
        /// The load asked for.
        load: u32,
        /// Greatest load.
        max: u32,
        /// What the load counts.
        unit: &'static str,
    },
}

/// Most tasks of a program; channels are always fewer.
pub const MAX_TASKS: u64 = 1_000_000;

/// Most groups, copies, hogs or pairs.
const MAX_LOAD: u32 = 10_000;

/// Every workload's name.
pub const NAMES: &[&str] = &[
    Mode::ThreadsPipe.name(),
    Mode::ThreadsSocket.name(),
    Mode::ProcessesPipe.name(),
    Mode::ProcessesSocket.name(),
    hogs::NAME,
    mcf::NAME,
    pingpong::NAME,
];

/// The parameters that state a length ([`Workload::work`]).
pub const WORK_KEYS: &[&str] = &["loops", "ms", "minstr", "rounds"];

impl Workload {
    /// Reads `suite/case,key=value,…`.
    ///
    /// # Errors
    /// Names the workload, parameter or value that does not exist and what does.
    pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let keys: Vec<&str> =
            parameters.iter().map(|parameter| parameter.split('=').next().unwrap_or_default()).collect();
        if let Some((_, key)) = keys.iter().enumerate().find(|&(index, key)| keys[..index].contains(key)) {
            return Err(WorkloadError::Repeated { workload: name.to_owned(), key: (*key).to_owned() });
        }
        if let Some(mode) = Mode::ALL.into_iter().find(|mode| mode.name() == name) {
            return Hackbench::parse(mode, &parameters).map(Workload::Hackbench);
        }
        match name {
            hogs::NAME => Hogs::parse(&parameters).map(Workload::Hogs),
            pingpong::NAME => Pingpong::parse(&parameters).map(Workload::Pingpong),
            mcf::NAME => Mcf::parse(&parameters).map(Workload::Mcf),
            _ => Err(WorkloadError::Unknown { name: name.to_owned(), known: NAMES.join(", ") }),
        }
    }

    /// `suite/case`.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Hackbench(hackbench) => hackbench.mode.name(),
            Workload::Hogs(_) => hogs::NAME,
            Workload::Mcf(_) => mcf::NAME,
            Workload::Pingpong(_) => pingpong::NAME,
        }
    }

    /// All parameters, for reports: `fds=20,size=100,loops=1000`.
    pub fn parameters(&self) -> String {
        match self {
            Workload::Hackbench(hackbench) => hackbench.parameters(),
            Workload::Hogs(hogs) => hogs.parameters(),
            Workload::Mcf(mcf) => mcf.parameters(),
            Workload::Pingpong(pingpong) => pingpong.parameters(),
        }
    }

    /// What the load counts.
    pub fn load_unit(&self) -> &'static str {
        match self {
            Workload::Hackbench(_) => "groups",
            Workload::Hogs(_) => "hogs",
            Workload::Mcf(_) => "copies",
            Workload::Pingpong(_) => "pairs",
        }
    }

    /// What [`Workload::work`] counts.
    pub fn work_unit(&self) -> &'static str {
        match self {
            Workload::Hackbench(_) => "loops",
            Workload::Hogs(_) => "milliseconds",
            Workload::Mcf(_) => "million instructions",
            Workload::Pingpong(_) => "rounds",
        }
    }

    /// The length: loops of a sender, milliseconds of a hog, millions of instructions of a copy, rounds of a pair. Elapsed time grows in proportion.
    pub fn work(&self) -> u64 {
        match self {
            Workload::Hackbench(hackbench) => hackbench.loops,
            Workload::Hogs(hogs) => hogs.ms,
            Workload::Mcf(mcf) => mcf.million_instructions,
            Workload::Pingpong(pingpong) => pingpong.rounds,
        }
    }

    /// The same benchmark with another length.
    #[must_use]
    pub fn with_work(&self, work: u64) -> Workload {
        match self {
            Workload::Hackbench(hackbench) => Workload::Hackbench(Hackbench { loops: work, ..hackbench.clone() }),
            Workload::Hogs(_) => Workload::Hogs(Hogs { ms: work }),
            Workload::Mcf(_) => Workload::Mcf(Mcf { million_instructions: work }),
            Workload::Pingpong(pingpong) => Workload::Pingpong(Pingpong { rounds: work, ..pingpong.clone() }),
        }
    }

    /// Whether there is a program at a load, without building it.
    ///
    /// # Errors
    /// When the load is 0 or too large to be meant, or the program would be too large.
    pub fn check(&self, load: u32) -> Result<(), WorkloadError> {
        let workload = self.name().to_owned();
        if load == 0 || load > MAX_LOAD {
            return Err(WorkloadError::BadLoad { workload, load, max: MAX_LOAD, unit: self.load_unit() });
        }
        let per_load = match self {
            Workload::Hackbench(hackbench) => 2 * u64::from(hackbench.fds),
            Workload::Hogs(_) | Workload::Mcf(_) => 1,
            Workload::Pingpong(_) => 2,
        };
        let tasks = 1 + u64::from(load) * per_load;
        if tasks > MAX_TASKS {
            return Err(WorkloadError::TooLarge { workload, load, tasks });
        }
        Ok(())
    }

    /// The program at a load.
    ///
    /// # Errors
    /// What [`Workload::check`] refuses.
    pub fn program(&self, load: u32) -> Result<Program, WorkloadError> {
        self.check(load)?;
        Ok(match self {
            Workload::Hackbench(hackbench) => hackbench.program(load),
            Workload::Hogs(hogs) => hogs.program(load),
            Workload::Mcf(mcf) => mcf.program(load),
            Workload::Pingpong(pingpong) => pingpong.program(load),
        })
    }
}

/// How main starts workers behind a gate: creates them, receives one byte of each, begins to measure and opens the gate.
fn start(create: impl Iterator<Item = Op>, ready: ChannelId, gate: GateId) -> Vec<Op> {
    let mut ops: Vec<Op> = create.collect();
    let workers = ops.len() as u32;
    ops.push(Op::Receive { channel: ready });
    ops.push(Op::Repeat { to: workers, times: workers.into(), counter: 0 });
    ops.push(Op::Start);
    ops.push(Op::Open { gate });
    ops
}

/// A worker that says it is ready, waits for the gate and runs `body` so many times.
fn worker(ready: ChannelId, gate: GateId, body: impl IntoIterator<Item = Op>, times: u64) -> Script {
    let mut ops = vec![Op::Send { channel: ready }, Op::Wait { gate }];
    let to = ops.len() as u32;
    ops.extend(body);
    ops.push(Op::Repeat { to, times, counter: 0 });
    Script { ops }
}

/// Reads `key=value` with a whole number in a range.
fn number(workload: &str, key: &str, value: &str, min: u64, max: u64) -> Result<u64, WorkloadError> {
    let bad = || WorkloadError::BadValue {
        workload: workload.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
        min,
        max,
    };
    let number: u64 = value.parse().map_err(|_| bad())?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_given_again_is_refused() {
        for (text, key) in
            [("hackbench/threads-pipe,loops=1,fds=3,loops=2", "loops"), ("mcf/copies,minstr=1,minstr=1", "minstr")]
        {
            let error = Workload::parse(text).unwrap_err();
            assert!(error.to_string().ends_with(&format!("`{key}` is given twice; give it once")), "{error}");
        }
    }

    #[test]
    fn every_name_is_read_and_told_again() {
        for &name in NAMES {
            let workload = Workload::parse(name).unwrap();
            assert_eq!(workload.name(), name);
            let again = Workload::parse(&format!("{name},{}", workload.parameters())).unwrap();
            assert_eq!(again, workload);
            assert_eq!(workload.with_work(12_345).work(), 12_345);
            let stated = workload.parameters();
            let works = |parameter: &str| WORK_KEYS.iter().any(|key| parameter.starts_with(&format!("{key}=")));
            assert_eq!(stated.split(',').filter(|parameter| works(parameter)).count(), 1, "{stated}");
        }
    }

    #[test]
    fn programs_too_large_are_refused_before_they_are_built() {
        let workload = Workload::parse("hackbench/threads-pipe,fds=1000").unwrap();
        let error = workload.program(10_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "load 10000 of `hackbench/threads-pipe` would be 20000001 tasks; at most 1000000 are simulated"
        );
        assert_eq!(workload.check(499), Ok(()));
        assert!(matches!(workload.check(0), Err(WorkloadError::BadLoad { .. })));
        assert_eq!(Workload::parse("mcf/copies").unwrap().check(10_000), Ok(()));
    }
}
