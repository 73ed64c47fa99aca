//! Whole simulations, seen from outside: laws that hold in every run, what hackbench's pipes do, where tasks are placed and
//! balanced to, what memory-bound copies cost each other, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

mod balancing;
mod counterfactual;
mod determinism;
mod dsq;
mod errors;
mod hackbench;
mod laws;
mod locks;
mod memory;
mod sockets;
mod watch;
mod world;
