//! The command line: one file per subcommand that parses, calls and renders.

mod cmd;
mod draw;
mod failure;
mod lists;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Cluster-aware CPU scheduling for Linux: judge placement policies on machines you may not own.
#[derive(Parser)]
#[command(name = "huddle", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Topo(cmd::topo::Args),
    Domains(cmd::domains::Args),
    Policies(cmd::policies::Args),
    Place(cmd::place::Args),
    Compare(Box<cmd::compare::Args>),
    Agree(cmd::agree::Args),
    Calibrate(cmd::calibrate::Args),
    Run(cmd::run::Args),
    #[cfg(feature = "live")]
    Mode(cmd::control::ModeArgs),
    #[cfg(feature = "live")]
    Status(cmd::control::StatusArgs),
    #[cfg(feature = "live")]
    Stop(cmd::control::StopArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Topo(args) => cmd::topo::run(&args),
        Command::Domains(args) => cmd::domains::run(&args),
        Command::Policies(args) => cmd::policies::run(&args),
        Command::Place(args) => cmd::place::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Agree(args) => cmd::agree::run(&args),
        Command::Calibrate(args) => cmd::calibrate::run(&args),
        Command::Run(args) => cmd::run::run(&args),
        #[cfg(feature = "live")]
        Command::Mode(args) => cmd::control::mode(&args),
        #[cfg(feature = "live")]
        Command::Status(args) => cmd::control::status(&args),
        #[cfg(feature = "live")]
        Command::Stop(args) => cmd::control::stop(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
