//! The table of the specification's 9.5: one node of the Kunpeng 920, 24 CPUs in six clusters under one LLC, no SMT.

use huddle_machine::{CpuId, Partition};
use huddle_policy::Frozen;

use crate::machines::{Lab, policy, regular};

/// The records of each column: the specification's first, then those that it must equal here.
const COLUMNS: [&[&str]; 8] = [
    &[
        "linux-5.9",
        "linux-5.10",
        "rfc2-no-select-idle-cluster",
        "linux-4.17",
        "no-idle-core",
        "merged-idle-search",
        "merged-idle-search-bug",
        "merged+next-cpu",
        "transpose-offset",
    ],
    &["rfc2-cluster", "rfc2-on-5.10"],
    &["linux-5.16", "linux-5.14", "linux-5.14-cluster"],
    &["linux-6.0", "linux-6.1"],
    &["v7-cluster-scan"],
    &["v7-second-chance"],
    &["linux-6.7", "linux-6.12", "linux-7.2", "linux-7.2-nocache"],
    &["v7-scan-prev-llc"],
];

/// One row: CPUs that are idle, the previous CPU, the recent CPU, a scan limit (`None`: large), the expected CPU by column.
fn row(idle: &str, prev: u32, recent: Option<u32>, limit: Option<u32>, expected: [u32; 8]) {
    for (names, expected) in COLUMNS.into_iter().zip(expected) {
        for name in names {
            let lab = Lab::kunpeng_node(name);
            let mut state: Frozen = lab.state_with_idle(idle);
            state.recent = recent.map(CpuId);
            if let Some(limit) = limit {
                // The proportional budgets have a floor of 4, which examines three.
                state.nr_idle_scan = vec![Some(limit)];
                state.avg_idle.fill(0);
                state.aged_idle.fill(0);
            }
            assert_eq!(lab.select(&mut state, 5, prev), expected, "{name}");
        }
    }
}

#[test]
fn kunpeng_node_prev_idle_in_another_cluster_and_a_cluster_mate_idle() {
    row("6,9", 9, None, None, [9, 9, 9, 9, 6, 6, 6, 9]);
}

#[test]
fn kunpeng_node_prev_idle_in_another_cluster_own_cluster_busy() {
    row("9,10", 9, None, None, [9; 8]);
}

#[test]
fn kunpeng_node_prev_idle_in_another_cluster_budget_of_three() {
    row("9,10", 9, None, Some(3), [9, 9, 9, 9, 5, 9, 9, 9]);
}

#[test]
fn kunpeng_node_prev_idle_in_another_cluster_no_scan_at_all() {
    row("9,10", 9, None, Some(0), [9, 9, 9, 9, 5, 9, 9, 9]);
}

#[test]
fn kunpeng_node_recent_idle_in_another_cluster_budget_of_three() {
    row("9", 5, Some(9), Some(3), [9, 9, 9, 9, 5, 5, 9, 9]);
}

#[test]
fn kunpeng_node_no_candidates_one_cluster_mate_below_the_target_idle() {
    row("4,20", 5, None, None, [20, 4, 20, 20, 4, 4, 4, 4]);
}

#[test]
fn kunpeng_node_prev_idle_in_the_targets_cluster() {
    row("6", 6, None, None, [6; 8]);
}

#[test]
fn kunpeng_node_target_idle() {
    row("5,6,9", 9, Some(6), None, [5; 8]);
}

#[test]
fn kunpeng_node_target_busy_takes_cluster_mate() {
    // The example of the command line: 5 and 7-9 busy, the wakee was on 9.
    for (name, expected) in [("linux-6.7", 6), ("rfc2-cluster", 6), ("linux-5.9", 6)] {
        let lab = Lab::kunpeng_node(name);
        assert_eq!(lab.select(&mut lab.state_with_busy("5,7-9"), 5, 9), expected, "{name}");
    }
}

#[test]
fn kunpeng_node_order_of_the_cluster_scan_starts_behind_the_target() {
    // 6, 7, 4, 5 in cluster 4-7.
    let lab = Lab::kunpeng_node("linux-6.7");
    assert_eq!(lab.select(&mut lab.state_with_idle("4,7"), 5, 5), 7);
    assert_eq!(lab.select(&mut lab.state_with_idle("4"), 5, 5), 4);
    // RFC v2 starts at the target.
    let lab = Lab::kunpeng_node("rfc2-cluster");
    assert_eq!(lab.select(&mut lab.state_with_idle("4,7"), 5, 5), 7);
}

#[test]
fn cpu_without_cluster_shares_with_the_cluster_of_the_llcs_first_cpu() {
    // Two clusters of four, 0-3 and 6-9, and two single cores 4 and 5: the ids of clusters and LLCs are one number space, so
    // that 4 seems to share a cluster with 0.
    let mut topology = regular([1, 1, 1, 10, 1, 1]);
    topology.cluster = Partition::from_ids(&topology.online, |cpu| match cpu.0 {
        0..=3 => 0,
        6..=9 => 3,
        single => single.into(),
    });
    let lab = Lab::new(&policy("linux-6.7"), topology, "6.7");
    assert_eq!(lab.select(&mut lab.state_with_idle("0,5"), 4, 0), 0, "taken at once");
    assert_eq!(lab.select(&mut lab.state_with_idle("5,6"), 4, 6), 5, "kept, and the scan finds another");
    assert_eq!(lab.select(&mut lab.state_with_idle("0,7"), 6, 0), 7, "from a real cluster it is another one");
}
