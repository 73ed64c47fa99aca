//! Policies on frozen states: the published differences, properties that hold for every record, and a literal reference
//! interpreter that the word-wise one must equal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

mod budget;
mod claims;
mod clusters;
mod differential;
mod entry;
mod machines;
mod properties;
mod records;
mod reference;
mod releases;
mod scx;
mod table;
mod tracing;
