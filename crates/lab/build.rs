//! Embedded experiments and measurements are data: a new or changed one must rebuild the crate.

fn main() {
    println!("cargo:rerun-if-changed=../../experiments");
    println!("cargo:rerun-if-changed=../../calibrations");
}
