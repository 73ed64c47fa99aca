//! `huddle place`

use crate::failure::Failure;

/// place
#[derive(clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args) -> Result<(), Failure> {
    Err(Failure::work("not there yet"))
}
