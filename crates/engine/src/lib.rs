//! Discrete-event simulator of the fair scheduling class, and of Huddle's own scheduler in its place: run queues, wake-ups,
//! fork placement, load balancing, and the costs of DESIGN §4 under them.

mod autogroup;
mod balance;
mod byload;
mod cache;
mod costs;
mod dsq;
mod eevdf;
mod groups;
mod heap;
mod interrupt;
mod lock;
mod memory;
mod pace;
mod pelt;
mod pipe;
mod queue;
mod rebuild;
mod report;
mod sched;
mod script;
mod semaphore;
mod sim;
mod socket;
mod state;
#[cfg(test)]
mod testing;
mod wake;
mod without;

use huddle_domains::{DomainTree, Kernel};
use huddle_machine::{CpuId, CpuSet, Machine};
use huddle_policy::{Placement, Plan, Wakeup};
use huddle_program::{Program, TaskId};

pub use report::{ByDistance, Cause, Mechanism, Report, SimError, WakeCounts};
pub use without::{Part, UnknownPart, Without};

/// Everything a simulation depends on: equal inputs give equal bytes.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Its domains under the kernel.
    pub tree: &'a DomainTree,
    /// The kernel generation.
    pub kernel: &'a Kernel,
    /// The policy, compiled for these domains.
    pub plan: &'a Plan,
    /// What the tasks do.
    pub program: &'a Program,
    /// CPUs that the program may use, as numactl sets them.
    pub cpus: &'a CpuSet,
    /// Tasks bound to one CPU each, as `sched_setaffinity` does; all others may use all of `cpus`.
    pub pins: &'a [(TaskId, CpuId)],
    /// The run's seed.
    pub seed: u64,
    /// Simulated time after which the run is given up, ns.
    pub limit_ns: u64,
    /// What is other than the machine and the kernel have it; nothing by default.
    pub conditions: Conditions<'a>,
}

/// What a run changes on purpose.
#[derive(Clone, Copy, Default)]
pub struct Conditions<'a> {
    /// Mechanisms left out.
    pub without: Without,
    /// The domains are rebuilt while the program runs.
    pub rebuild: Option<Rebuild<'a>>,
}

/// Sched domains that replace those of [`Setup`] in the middle of a run.
#[derive(Clone, Copy)]
pub struct Rebuild<'a> {
    /// When, ns after the measured stretch begins; of the simulation in a program that does not say where that is.
    pub after_ns: u64,
    /// The domains from then on.
    pub tree: &'a DomainTree,
    /// The same policy, compiled for them.
    pub plan: &'a Plan,
}

/// Told what happens. Task numbers are those of the program; greater ones are background tasks, `u32::MAX` is idle.
pub trait Observer {
    /// A wake-up was placed.
    fn wakeup(&mut self, now: u64, wakeup: &Wakeup, wakee: u32, placement: &Placement) {
        let _ = (now, wakeup, wakee, placement);
    }
    /// A CPU changed from one task to another.
    fn switch(&mut self, now: u64, cpu: CpuId, prev: u32, next: u32) {
        let _ = (now, cpu, prev, next);
    }
    /// A task changed its CPU.
    fn migrate(&mut self, now: u64, task: u32, from: usize, to: usize, cause: Cause) {
        let _ = (now, task, from, to, cause);
    }
    /// The sched domains were rebuilt: these hold from now on.
    fn rebuilt(&mut self, now: u64, tree: &DomainTree) {
        let _ = (now, tree);
    }
}

/// Watches nothing.
pub struct Unobserved;

impl Observer for Unobserved {}

/// Runs a program to its end.
///
/// # Errors
/// When the program, the CPUs or the kernel cannot be simulated, when simulated time runs out, or when a conservation law
/// does not hold, which would be a defect.
pub fn simulate(setup: &Setup) -> Result<Report, SimError> {
    simulate_with(setup, &mut Unobserved)
}

/// Runs a program to its end under an observer's eyes.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with(setup: &Setup, observer: &mut impl Observer) -> Result<Report, SimError> {
    sim::Sim::new(setup, observer)?.run()
}
