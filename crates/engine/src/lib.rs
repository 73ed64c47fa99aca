//! Discrete-event simulator of the fair scheduling class: run queues, wake-ups, fork placement, load balancing, and the
//! costs of DESIGN §4 under them.

mod report;

use huddle_domains::{DomainTree, Kernel};
use huddle_machine::{CpuSet, Machine};
use huddle_program::Program;

pub use report::{ByDistance, Cause, Mechanism, Report, SimError, WakeCounts};

/// Everything a simulation depends on: equal inputs give equal bytes.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Its domains under the kernel.
    pub tree: &'a DomainTree,
    /// The kernel generation.
    pub kernel: &'a Kernel,
    /// What the tasks do.
    pub program: &'a Program,
    /// CPUs that the program may use, as numactl sets them.
    pub cpus: &'a CpuSet,
    /// The run's seed.
    pub seed: u64,
    /// Simulated time after which the run is given up, ns.
    pub limit_ns: u64,
}
