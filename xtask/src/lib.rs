//! Guests that boot real kernels: what they are made of, and the matrix of kernels and machines that judges Huddle's sched
//! domains.

pub mod emulator;
pub mod guest;
pub mod guests;
pub mod initramfs;
pub mod kernel;
pub mod matrix;
pub mod packages;
pub mod shape;
