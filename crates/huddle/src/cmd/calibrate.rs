//! `huddle calibrate`: direct measurements of a machine beside what the simulator makes of them.

use std::io::{self, Write};

use huddle_lab::{
    Calibration, Experiment, LabError, Options, Spread, render_calibration, render_sensitivity, sensitivity,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Replay direct measurements of a machine in the simulator and print measured against simulated.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  huddle calibrate kunpeng920")]
pub struct Args {
    /// A machine with measurements: a built-in name, or a machine file of that name with other figures
    machine: String,
    /// Instead: halve and double each assumed figure (D) and show which verdicts of an experiment change
    #[arg(long)]
    sensitivity: bool,
    /// The experiment of --sensitivity, as its file's sketch has it [default: the first on that machine]
    #[arg(long, value_name = "EXPERIMENT", requires = "sensitivity")]
    experiment: Option<String>,
    /// All of the experiment's reduced form for --sensitivity: an hour where the sketch takes a minute
    #[arg(long, requires = "sensitivity")]
    reduced: bool,
    /// Simulations of --sensitivity at once; all cores when not given. The result does not depend on it
    #[arg(long, value_name = "JOBS", default_value_t = 0, hide_default_value = true, requires = "sensitivity")]
    jobs: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.sensitivity {
        return vary(args);
    }
    let calibrated = Calibration::load(&args.machine).and_then(|calibration| calibration.replay()).map_err(failure)?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&calibrated)
            .map_err(|error| Failure::work(format!("cannot form the JSON: {error}")))?,
        false => render_calibration(&calibrated).trim_end().to_owned(),
    };
    print(&text)
}

/// Which verdicts hang on assumed figures.
fn vary(args: &Args) -> Result<(), Failure> {
    let experiment = match &args.experiment {
        Some(name) => Experiment::load(name).map_err(failure)?,
        None => first_on(&args.machine)?,
    };
    let mut experiment = experiment;
    if experiment.machine.split(':').next() != args.machine.split(':').next() {
        return Err(Failure::usage(format!(
            "--experiment {}: is for the machine {}, not {}",
            experiment.name, experiment.machine, args.machine
        )));
    }
    match args.reduced {
        true => experiment.reduce(),
        false => experiment.sketch(),
    }
    let options = Options { seed: 1, jobs: args.jobs, std: Spread::Population, version: env!("CARGO_PKG_VERSION") };
    let style = ProgressStyle::with_template("{msg:<28} {wide_bar} {pos}/{len} {elapsed}");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let result = sensitivity(&experiment, options, &|done, total, name| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(name.to_owned());
    });
    bar.finish_and_clear();
    let result = result.map_err(failure)?;
    match args.json {
        true => print(
            &serde_json::to_string_pretty(&result)
                .map_err(|error| Failure::work(format!("cannot form the JSON: {error}")))?,
        ),
        false => print(render_sensitivity(&result).trim_end()),
    }
}

/// The first shipped experiment on a machine.
fn first_on(machine: &str) -> Result<Experiment, Failure> {
    for name in Experiment::names() {
        let experiment = Experiment::load(&name).map_err(failure)?;
        if experiment.machine.split(':').next() == machine.split(':').next() {
            return Ok(experiment);
        }
    }
    Err(Failure::usage(format!("no shipped experiment is for {machine}; name one of yours with --experiment")))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

fn failure(error: LabError) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::work(error) }
}
