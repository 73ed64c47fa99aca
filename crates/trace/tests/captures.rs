//! Wake-ups recorded in guests of four kernels (24 CPUs in 6 clusters, see docs/agreement.md), cut to what a test needs.

#![allow(clippy::expect_used)]

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use huddle_domains::{Kernel, build};
use huddle_machine::load_topology;
use huddle_policy::Policy;
use huddle_trace::{Agreement, Judge, Row, Section, decisions, ftrace, hogs};

/// Jacobsville has the guests' clusters.
const MACHINE: &str = "jacobsville";
const NR_CPUS: usize = 24;

fn capture(kernel: &str) -> Vec<Section> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/captures/{kernel}.trace.gz"));
    let packed = std::fs::read(path).expect("a capture");
    let mut text = String::new();
    GzDecoder::new(packed.as_slice()).read_to_string(&mut text).expect("text");
    ftrace::parse(&text).expect("a trace")
}

fn agreement(kernel: &str, policy: &str) -> Agreement {
    let (_, topology) = load_topology(Some(MACHINE)).expect("the machine");
    let policy = Policy::load(policy).expect("the policy");
    let tree = build(&topology, &Kernel::load(&policy.kernel).expect("its kernel"));
    let plan = policy.compile(&tree, &topology);
    let mut judge = Judge::new(&plan, &tree);
    for section in capture(kernel) {
        decisions(&section.records, NR_CPUS).iter().for_each(|decision| judge.judge(decision));
    }
    judge.finish()
}

fn same_reads(row: &Row) -> f64 {
    f64::from(row.same_reads) / f64::from(row.decisions)
}

/// The kernel's own record explains choices and, but for the copy of 7.2 that no probe sees, the way to them.
fn explains(kernel: &str, policy: &str, decisive: &[&str]) {
    let own = agreement(kernel, policy);
    for row in own.steps.iter().filter(|row| row.decisions >= 20) {
        assert!(row.share() >= Some(0.9), "{policy}: {row:?}");
        assert!(same_reads(row) >= 0.9 || (kernel, row.name) == ("7.2.6", "ScanLlc"), "{policy}: {row:?}");
    }
    for name in decisive {
        let row = own.steps.iter().find(|row| row.name == *name).expect("a step");
        assert!(row.decisions >= 20, "{policy}: the capture has too little of {row:?}");
    }
    assert!(own.non_trivial().share() >= Some(0.97), "{policy}: {:?}", own.non_trivial());
}

/// A record of another generation misses the way in a third of the decisions at least.
fn misses(kernel: &str, policies: &[&str]) {
    for policy in policies {
        let row = agreement(kernel, policy).non_trivial();
        assert!(row.decisions >= 300 && same_reads(&row) < 0.75, "{policy}: {row:?}");
    }
}

#[test]
fn linux_5_10_is_explained_by_its_record_and_not_by_later_ones() {
    explains("5.10", "linux-5.10", &["PrevIdle", "ScanLlc", "ReturnTarget"]);
    misses("5.10", &["linux-6.1", "linux-7.2"]);
}

#[test]
fn linux_6_1_is_explained_by_its_record_and_not_by_those_of_5_10_and_7_2() {
    explains("6.1", "linux-6.1", &["PrevIdle", "ScanLlc", "ReturnTarget"]);
    misses("6.1", &["linux-5.10", "linux-7.2"]);
}

#[test]
fn linux_6_12_scans_the_cluster_first_as_its_record_does() {
    explains("6.12", "linux-6.12", &["PrevIdle", "ScanCluster", "ScanLlc", "ReturnTarget"]);
    misses("6.12", &["linux-5.10", "linux-6.1"]);
}

#[test]
fn linux_7_2_scans_the_cluster_first_as_its_record_does() {
    explains("7.2.6", "linux-7.2", &["PrevIdle", "RecentIdle", "ScanCluster", "TakeKept", "ReturnTarget"]);
    misses("7.2.6", &["linux-5.10", "linux-6.1"]);
}

#[test]
fn twelve_hogs_of_7_2_were_forked_two_to_a_cluster() {
    let (_, topology) = load_topology(Some(MACHINE)).expect("the machine");
    let sections = capture("7.2.6");
    let section = sections.iter().find(|section| section.load == "hogs12").expect("the load");
    let hogs = hogs(&section.records, "hog");
    let mut sizes = [0; 6];
    hogs.first.iter().for_each(|&cpu| sizes[topology.cluster.index_of(cpu) as usize] += 1);
    assert_eq!(sizes, [2; 6], "{hogs:?}");
}
