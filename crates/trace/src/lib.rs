//! Recorded wake-ups of real kernels, held against placement policies.
//!
//! ```text
//! ftrace::parse    text of the tracer → Record      one event on one CPU, in the order of time
//! decisions        Record → Decision                what a placement knew, read and chose
//! Judge            Decision × Plan → Agreement      whether the policy would have chosen the same, by deciding step
//! ```
//!
//! Probes on the kernel's own functions say exactly what a placement was asked, which target it worked with, which CPUs it found idle and
//! what it returned; where they are missing, the state is what the scheduler's events amount to. What neither shows (scan limits,
//! loads) is bracketed: a choice agrees if some value of it allows it.

mod decision;
mod event;
pub mod ftrace;
mod hogs;
mod judge;

pub use decision::{Decision, Kind, Read, decisions};
pub use event::{Context, Event, Record, Section};
pub use hogs::{Hogs, hogs};
pub use judge::{Agreement, Disagreement, Judge, Row};
