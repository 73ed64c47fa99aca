//! The laboratory: experiments, their runs, and the tables that come of them.
//!
//! ```text
//! Experiment (experiments/*.toml, or put together by the caller)
//!   └─ Bench              machine, CPUs, and per policy its kernel's domains and compiled plan
//!        └─ run           pilots choose the work of each load; then policy × load × run, seeds paired over policies
//!             └─ Comparison  everything that is shown and written: numbers per run, per cell, per change
//!                  └─ render  the tables as text; Comparison itself serialises to JSON
//! ```

mod bench;
mod calibrate;
mod error;
mod experiment;
mod overrides;
mod render;
mod run;
mod sensitivity;
mod summary;

pub use calibrate::{
    CALIBRATION_SCHEMA, Calibrated, CalibratedGroup, CalibratedRow, Calibration, TOLERANCE, render_calibration,
};
pub use error::LabError;
pub use experiment::{
    Affinity, Conditions, Experiment, MAX_RUNS, MAX_SECONDS, MIN_SECONDS, Published, PublishedChange, PublishedRow,
    Reduced, StatedUtilisation,
};
pub use huddle_engine::{Part, UnknownPart, Without};
pub use huddle_stats::Spread;
pub use overrides::Override;
pub use render::render;
pub use run::Progress;
pub use sensitivity::{SENSITIVITY_SCHEMA, Sensitivity, Varied, Verdict, render_sensitivity, sensitivity};
pub use summary::{
    Agreement, Cell, Change, ChangedInfo, Comparison, Cost, Level, Load, MachineInfo, MetricInfo, Named, PolicyInfo,
    Run, SCHEMA, Wakes,
};

use bench::Bench;
use huddle_machine::Machine;

/// How to run an experiment. None of it but the seed changes a simulated number.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed from which the runs' seeds are drawn.
    pub seed: u64,
    /// Worker threads; 0 for one per core.
    pub jobs: usize,
    /// The standard deviation that tables show.
    pub std: Spread,
    /// Version of the program, for the result file.
    pub version: &'static str,
}

/// Runs an experiment. `progress` is called from worker threads.
///
/// # Errors
/// What the experiment names and does not exist, or the first run that fails.
pub fn compare(
    experiment: &Experiment,
    options: Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Comparison, LabError> {
    compare_on(Machine::load(&experiment.machine)?, experiment, options, progress)
}

/// [`compare`] on a machine that may have other figures than the experiment's.
fn compare_on(
    machine: Machine,
    experiment: &Experiment,
    options: Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Comparison, LabError> {
    let bench = Bench::new(machine, experiment)?;
    let simulate = |policy: usize, program: &_, seed| bench.simulate(policy, program, seed);
    let runs = run::run_cells(experiment, options.seed, options.jobs, &simulate, progress)?;
    Ok(Comparison::new(experiment, &bench, &runs, options))
}
