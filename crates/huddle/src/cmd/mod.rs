//! The subcommands.

pub mod compare;
pub mod domains;
pub mod place;
pub mod policies;
pub mod topo;
