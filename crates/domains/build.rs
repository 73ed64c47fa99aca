//! Embedded records are data: a change of one must rebuild the crate.

fn main() {
    println!("cargo:rerun-if-changed=../../kernels");
}
