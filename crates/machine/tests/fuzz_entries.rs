//! The entries of the fuzz targets (`fuzz/`) on their seeds and on a few thousand changes to them, the same each time.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use huddle_machine::Machine;

#[path = "../../../fuzz/src/machine.rs"]
mod machine;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

fn run(seeds: &str, count: u64, entry: fn(&[u8])) {
    mutate::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(seeds), count, entry);
}

#[test]
fn cpu_lists_and_masks() {
    run("fuzz/corpus-seeds/cpu_set", 1000, machine::cpu_set);
}

#[test]
fn hwloc_exports() {
    run("fuzz/corpus-seeds/hwloc_xml", 3000, machine::hwloc_xml);
}

#[test]
fn machine_files() {
    run("machines", 300, machine::machine_toml);
}

#[test]
fn sys_trees() {
    run("fuzz/corpus-seeds/sys_tree", 2000, machine::sys_tree);
}

#[test]
fn sys_archives() {
    run("fuzz/corpus-seeds/sys_archive", 1000, machine::sys_archive);
}

#[test]
fn absurd_machine_files_are_refused_before_they_are_built() {
    let good = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/kunpeng920.toml")).unwrap();
    assert!(Machine::parse("x.toml", &good).is_ok());
    for (from, to, part) in [
        ("packages = 2", "packages = 1000000000", "16384 CPUs and 1024 nodes at most"),
        ("packages = 2", "packages = 9223372036854775807", "16384 CPUs and 1024 nodes at most"),
        ("nodes_per_package = 2", "nodes_per_package = 1024", "16384 CPUs and 1024 nodes at most"),
        ("packages = 2", "packages = 0", "every count must be 1 or more"),
    ] {
        assert!(good.contains(from), "{from}");
        let message = Machine::parse("x.toml", &good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(message.contains(part), "{to}: {message}");
    }
    let long = format!("{good}\na{} = 1", ".a".repeat(100_000));
    let message = Machine::parse("x.toml", &long).unwrap_err().to_string();
    assert!(message.chars().count() < 5000, "{} characters", message.len());
}
