//! The interpreter that the live scheduler runs in the kernel (`crates/scx/bpf/place.h`), compiled natively, over the
//! same [`huddle_policy::Frozen`] world as [`huddle_policy::Plan::place`]. Its tests hold the two against each other,
//! its bench times them. Nothing else depends on it.

#[allow(unsafe_code)]
mod ffi;

pub use ffi::{Native, Placed, layout, own_layout};
