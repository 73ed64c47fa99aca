//! `huddle policies`

use crate::failure::Failure;

/// policies
#[derive(clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args) -> Result<(), Failure> {
    Err(Failure::work("not there yet"))
}
