//! The benchmarks: what each one's tasks do, its load axis, its metric, and the length it was published with.
//!
//! A workload is named `suite/case,key=value,…`, for example `hackbench/threads-pipe,loops=1000`.

mod hackbench;
mod mcf;

use huddle_program::Program;

pub use hackbench::Hackbench;
pub use mcf::Mcf;

/// A benchmark with its parameters. The load (groups, copies) is given when a program is built.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Groups of senders and receivers over pipes.
    Hackbench(Hackbench),
    /// Independent memory-bound copies.
    Mcf(Mcf),
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

/// Every workload's name.
pub const NAMES: &[&str] = &[hackbench::NAME, mcf::NAME];

impl Workload {
    /// Reads `suite/case,key=value,…`.
    ///
    /// # Errors
    /// Names the workload, parameter or value that does not exist and what does.
    pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        match name {
            hackbench::NAME => Hackbench::parse(&parameters).map(Workload::Hackbench),
            mcf::NAME => Mcf::parse(&parameters).map(Workload::Mcf),
            _ => Err(WorkloadError::Unknown { name: name.to_owned(), known: NAMES.join(", ") }),
        }
    }

    /// `suite/case`.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Hackbench(_) => hackbench::NAME,
            Workload::Mcf(_) => mcf::NAME,
        }
    }

    /// All parameters, for reports: `fds=20,size=100,loops=1000`.
    pub fn parameters(&self) -> String {
        match self {
            Workload::Hackbench(hackbench) => hackbench.parameters(),
            Workload::Mcf(mcf) => mcf.parameters(),
        }
    }

    /// What the load counts.
    pub fn load_unit(&self) -> &'static str {
        match self {
            Workload::Hackbench(_) => "groups",
            Workload::Mcf(_) => "copies",
        }
    }

    /// The length: loops of a sender, millions of instructions of a copy. Elapsed time grows in proportion.
    pub fn work(&self) -> u64 {
        match self {
            Workload::Hackbench(hackbench) => hackbench.loops,
            Workload::Mcf(mcf) => mcf.million_instructions,
        }
    }

    /// The same benchmark with another length.
    #[must_use]
    pub fn with_work(&self, work: u64) -> Workload {
        match self {
            Workload::Hackbench(hackbench) => Workload::Hackbench(Hackbench { loops: work, ..hackbench.clone() }),
            Workload::Mcf(_) => Workload::Mcf(Mcf { million_instructions: work }),
        }
    }

    /// The program at a load.
    ///
    /// # Errors
    /// When the load is 0 or too large to be meant.
    pub fn program(&self, load: u32) -> Result<Program, WorkloadError> {
        let max = 10_000;
        if load == 0 || load > max {
            return Err(WorkloadError::BadLoad { workload: self.name().to_owned(), load, max, unit: self.load_unit() });
        }
        Ok(match self {
            Workload::Hackbench(hackbench) => hackbench.program(load),
            Workload::Mcf(mcf) => mcf.program(load),
        })
    }
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
