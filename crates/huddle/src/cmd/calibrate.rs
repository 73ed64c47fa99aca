//! `huddle calibrate`: direct measurements of a machine beside what the simulator makes of them.

use std::io::{self, Write};

use huddle_lab::{Calibration, LabError, render_calibration};

use crate::failure::Failure;

/// Replay direct measurements of a machine in the simulator and print measured against simulated.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  huddle calibrate kunpeng920")]
pub struct Args {
    /// A machine with measurements: a built-in name, or a machine file of that name with other figures
    machine: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let calibrated = Calibration::load(&args.machine).and_then(|calibration| calibration.replay()).map_err(failure)?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&calibrated)
            .map_err(|error| Failure::work(format!("cannot form the JSON: {error}")))?,
        false => render_calibration(&calibrated).trim_end().to_owned(),
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

fn failure(error: LabError) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::work(error) }
}
