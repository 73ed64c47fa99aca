//! The subcommands.

pub mod agree;
pub mod calibrate;
pub mod compare;
#[cfg(feature = "live")]
pub mod control;
pub mod domains;
pub mod place;
pub mod policies;
pub mod run;
pub mod topo;
