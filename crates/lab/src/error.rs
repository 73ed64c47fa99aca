//! Why a comparison cannot be made: one line each, saying what, where and what to do.

use huddle_domains::KernelError;
use huddle_engine::SimError;
use huddle_machine::{MachineError, ParseCpuSetError};
use huddle_policy::PolicyError;
use huddle_workload::WorkloadError;

/// What can go wrong between an experiment and its table.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No experiment of that name is shipped.
    #[error("unknown experiment `{name}`; known are {known}, or give the path of a .toml file")]
    UnknownExperiment {
        /// The name asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The experiment's file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    ReadExperiment {
        /// The file.
        file: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// The file is no experiment: not TOML, or a key is unknown, missing or of the wrong type.
    #[error("{place}: {message}")]
    ExperimentFormat {
        /// File, line and key, as far as they are known.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// A value makes no sense.
    #[error("{file}: {key}: {message}")]
    ExperimentKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// What would be right.
        message: String,
    },
    /// The machine cannot be had.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A policy cannot be had.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Two policies have one name.
    #[error("policies `{first}` and `{second}` are both named `{name}`; keep one of them, or rename its record")]
    SamePolicy {
        /// The one asked for first.
        first: String,
        /// The other.
        second: String,
        /// The name of both.
        name: String,
    },
    /// A policy's kernel cannot be had.
    #[error("policy `{policy}`: {source}")]
    Kernel {
        /// The policy that names it.
        policy: String,
        /// What is wrong with it.
        source: KernelError,
    },
    /// A part of a kernel cannot be replaced so.
    #[error("override `{token}`: {message}")]
    Override {
        /// What was asked for.
        token: String,
        /// Why not, and what would be right.
        message: String,
    },
    /// The workload or its load cannot be had.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The machine lacks a node that the benchmark is to use.
    #[error("machine `{machine}` has no node {node} with CPUs; it has {known}")]
    NoNode {
        /// The machine.
        machine: String,
        /// The node asked for.
        node: u32,
        /// The nodes that have CPUs.
        known: String,
    },
    /// The CPU list cannot be read.
    #[error("cpus `{list}`: {source}")]
    Cpus {
        /// The list.
        list: String,
        /// What is wrong with it.
        source: ParseCpuSetError,
    },
    /// A CPU that the benchmark is to use is not online.
    #[error("cpus `{list}`: CPU {cpu} is not online on machine `{machine}`, which has {online}")]
    NotOnline {
        /// The list.
        list: String,
        /// The first such CPU.
        cpu: u32,
        /// The machine.
        machine: String,
        /// Its online CPUs.
        online: String,
    },
    /// No kernel of the comparison has a cluster level that could be switched.
    #[error(
        "none of the kernels {kernels} has a cluster level to switch; compare a policy of 5.16 or later, or of the RFC"
    )]
    NoClusterLevel {
        /// The kernels.
        kernels: String,
    },
    /// The pilots cannot tell how much work is needed.
    #[error("policy `{policy}`, load {load}, pilot run: {message}")]
    Pilot {
        /// The policy.
        policy: String,
        /// The load.
        load: u32,
        /// Why not, and what to do.
        message: String,
    },
    /// A simulation failed.
    #[error("policy `{policy}`, load {load}, {run}: {source}")]
    Run {
        /// The policy.
        policy: String,
        /// The load.
        load: u32,
        /// Which run.
        run: String,
        /// What happened.
        source: SimError,
    },
    /// Nothing was measured on the machine that could be replayed.
    #[error("machine `{machine}` has no direct measurements; those that have: {known}")]
    NoCalibration {
        /// The machine.
        machine: String,
        /// Those that have.
        known: String,
    },
    /// A measurement cannot be replayed.
    #[error("{group}, {case}: {source}")]
    Replay {
        /// What was measured.
        group: String,
        /// Which measurement.
        case: String,
        /// What happened.
        source: SimError,
    },
    /// The threads that run cells cannot be started.
    #[error("cannot start {jobs} worker threads: {message}; try fewer --jobs")]
    Threads {
        /// How many were asked for, 0 for one per core.
        jobs: usize,
        /// The system's word.
        message: String,
    },
}

impl LabError {
    /// Whether something was asked for that does not exist (exit status 2), rather than work that failed (1).
    pub fn is_usage(&self) -> bool {
        match self {
            LabError::UnknownExperiment { .. }
            | LabError::SamePolicy { .. }
            | LabError::NoCalibration { .. }
            | LabError::Override { .. }
            | LabError::Workload(_)
            | LabError::NoNode { .. }
            | LabError::NoClusterLevel { .. }
            | LabError::Cpus { .. }
            | LabError::NotOnline { .. } => true,
            LabError::Machine(error) => error.is_usage(),
            LabError::Policy(error) => error.is_usage(),
            _ => false,
        }
    }

    /// The error of a value that an experiment's file gives, named by file and key.
    pub(crate) fn in_file(self, file: &str) -> LabError {
        let key = match &self {
            LabError::Machine(_) => "machine",
            LabError::Policy(_) | LabError::Kernel { .. } | LabError::SamePolicy { .. } => "policies",
            LabError::NoNode { .. } => "nodes",
            LabError::NoClusterLevel { .. } => "cluster",
            LabError::Cpus { .. } | LabError::NotOnline { .. } => "cpus",
            _ => return self,
        };
        LabError::ExperimentKey { file: file.to_owned(), key: key.to_owned(), message: self.to_string() }
    }
}
