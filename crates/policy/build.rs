//! A new record in `policies/` makes this crate build again: the macro that embeds the folder notices changed files only.

fn main() {
    println!("cargo::rerun-if-changed=../../policies");
}
