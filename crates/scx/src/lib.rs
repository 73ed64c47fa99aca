//! Policies on a real kernel.
//!
//! A compiled [`huddle_policy::Plan`] becomes plain data ([`Image`], [`PlanImage`]) for the interpreter in `bpf/place.h`, which decides
//! as [`huddle_policy::Plan::place`] does; the crate `huddle-scx-native` proves it.

mod estimate;
pub mod image;
mod layout;
#[cfg(feature = "live")]
pub mod live;

pub use estimate::{Estimate, estimates};
pub use image::{Image, ImageError, PlanImage};
