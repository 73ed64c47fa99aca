//! Real kernels, booted as guests, show the sched domains that Huddle makes for them: two kernels, two machines of the
//! matrix. `./x vm-matrix` runs all.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use xtask::{guests, matrix, packages};

fn no_difference(machine: &str, series: &str, chain: &str) {
    if std::env::var_os("HUDDLE_GUESTS").is_some_and(|value| value == "0") {
        println!("HUDDLE_GUESTS=0: no guest was booted");
        return;
    }
    let cache = packages::cache().unwrap();
    let machine = guests::find(machine).unwrap();
    let huddle = Path::new(env!("CARGO_BIN_EXE_huddle"));
    let cell = matrix::judge(&cache, huddle, machine, series).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(cell.differences, Vec::<String>::new(), "{}", cell.release);
    assert_eq!(cell.not_compared, Vec::<String>::new(), "{}", cell.release);
    assert_eq!(cell.chain, chain, "{}", cell.release);
}

#[test]
fn six_clusters_under_6_1() {
    no_difference("clusters", "6.1", "CLS 4, MC 24");
}

#[test]
fn six_clusters_under_7_2() {
    no_difference("clusters", "7.2", "CLS 4, MC 24");
}

#[test]
fn four_nodes_of_two_packages_under_6_1() {
    no_difference("four-nodes", "6.1", "CLS 2, MC 4, NUMA 8, NUMA 12, NUMA 16");
}

#[test]
fn four_nodes_of_two_packages_under_7_2() {
    no_difference("four-nodes", "7.2", "CLS 2, MC 4, NUMA 8, NUMA 12, NUMA 16");
}
