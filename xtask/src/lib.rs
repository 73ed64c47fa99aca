//! Guests that boot real kernels: what they are made of, the matrix of kernels and machines that judges Huddle's sched
//! domains, and the loads that schedulers are compared under.

pub mod agreement;
pub mod btf;
pub mod emulator;
pub mod guest;
pub mod guests;
pub mod initramfs;
pub mod kernel;
pub mod live;
pub mod load;
pub mod matrix;
pub mod packages;
pub mod schedulers;
pub mod shape;
pub mod stress;
