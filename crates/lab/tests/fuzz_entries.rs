//! The entries of the fuzz targets (`fuzz/`) for records, on the records that ship and on changes to them, the same each
//! time.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/records.rs"]
mod records;

fn run(seeds: &str, count: u64, entry: fn(&[u8])) {
    mutate::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(seeds), count, entry);
}

#[test]
fn kernel_records() {
    run("kernels", 300, records::kernel_toml);
}

#[test]
fn policy_records() {
    run("policies", 500, records::policy_toml);
}

#[test]
fn domains_of_hwloc_exports() {
    run("fuzz/corpus-seeds/hwloc_xml", 500, records::domains);
}

#[test]
fn experiments() {
    run("experiments", 300, records::experiment_toml);
}
