//! Scan budgets to the CPU, and what a scan writes.

use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Frozen, Placement, Wakeup};

use crate::machines::{Lab, policy, regular};

fn place(lab: &Lab, state: &mut Frozen, target: u32) -> Placement {
    let wakeup = Wakeup { this: CpuId(0), prev: CpuId(target), sync: false };
    lab.plan.select(state, &wakeup, CpuId(target), &mut lab.plan.scratch()).unwrap()
}

fn examined(placement: &Placement) -> u32 {
    placement.examined.iter().sum()
}

#[test]
fn kunpeng_node_proportional_floor_of_four_examines_three() {
    let lab = Lab::kunpeng_node("linux-5.9");
    let mut state = lab.state_with_idle("8");
    state.avg_idle.fill(0);
    state.avg_scan_cost.fill(1000);
    let placement = place(&lab, &mut state, 5);
    assert_eq!((placement.cpu.0, examined(&placement), placement.exhausted), (5, 3, true));
    assert_eq!(state.avg_scan_cost, [1000; 24], "an exhausted scan books no time");
    // One CPU nearer it is found: 5, 6, 7.
    let mut state = lab.state_with_idle("7");
    state.avg_idle.fill(0);
    let placement = place(&lab, &mut state, 5);
    assert_eq!((placement.cpu.0, examined(&placement), placement.exhausted), (7, 3, false));
}

#[test]
fn kunpeng_node_proportional_budget_follows_idle_time_over_cost() {
    let lab = Lab::kunpeng_node("linux-5.9");
    // 24 × (51200 / 512) / (239 + 1) = 10, so nine CPUs: 5 … 13.
    for (idle, expected) in [("13", 13), ("14", 5)] {
        let mut state = lab.state_with_idle(idle);
        state.avg_idle.fill(51_200);
        state.avg_scan_cost.fill(239);
        assert_eq!(place(&lab, &mut state, 5).cpu.0, expected, "{idle}");
    }
}

#[test]
fn kunpeng_node_completed_scan_books_an_eighth_of_the_difference() {
    let lab = Lab::kunpeng_node("linux-5.9");
    let mut state = lab.state_with_idle("6");
    (state.scan_fixed, state.scan_per_cpu) = (100, [50; 7]);
    place(&lab, &mut state, 5);
    // Two CPUs examined: 200 ns; (200 - 0) / 8 = 25, for the CPU that wakes.
    assert_eq!((state.avg_scan_cost[0], state.avg_scan_cost[5]), (25, 0));
    // Nothing found in 24 CPUs: 1300 ns; downwards division is towards zero as well.
    let mut state = lab.state_with_idle("");
    (state.scan_fixed, state.scan_per_cpu) = (100, [50; 7]);
    state.avg_scan_cost[0] = 1307;
    let placement = place(&lab, &mut state, 5);
    assert_eq!((examined(&placement), placement.exhausted, state.avg_scan_cost[0]), (24, false, 1307));
    state.avg_scan_cost[0] = 1308;
    place(&lab, &mut state, 5);
    assert_eq!(state.avg_scan_cost[0], 1307);
}

#[test]
fn kunpeng_node_aged_budget_pays_for_its_scans() {
    let lab = Lab::kunpeng_node("linux-5.16");
    let mut state = lab.state_with_idle("6");
    state.aged_idle[0] = 170;
    (state.scan_fixed, state.scan_per_cpu) = (100, [50; 7]);
    assert_eq!(place(&lab, &mut state, 5).cpu.0, 6);
    assert_eq!((state.aged_idle[0], state.avg_scan_cost[0]), (20, 18));
    state.idle = CpuSet::from_cpus(24, [9]);
    // 24 × 20 / 19 = 25: all of the LLC; then 0 idle time is left and the floor holds.
    assert_eq!(place(&lab, &mut state, 5).cpu.0, 9);
    assert_eq!(state.aged_idle[0], 0);
    assert!(place(&lab, &mut state, 5).exhausted);
}

#[test]
fn kunpeng_node_utilisation_budget_is_shared_by_cluster_and_llc() {
    let lab = Lab::kunpeng_node("linux-6.7");
    // Four in the cluster, then 8.
    for (limit, expected, count) in [(4, 5, 4), (5, 8, 5), (3, 5, 3), (0, 5, 0)] {
        let mut state = lab.state_with_idle("8");
        state.nr_idle_scan = vec![Some(limit)];
        let placement = place(&lab, &mut state, 5);
        assert_eq!((placement.cpu.0, examined(&placement)), (expected, count), "limit {limit}");
        assert_eq!(placement.exhausted, expected == 5, "limit {limit}");
    }
}

#[test]
fn kunpeng_node_budget_that_just_suffices_is_not_exhausted() {
    let lab = Lab::kunpeng_node("linux-6.0");
    let mut state = lab.state_with_idle("");
    state.nr_idle_scan = vec![Some(24)];
    let placement = place(&lab, &mut state, 5);
    assert_eq!((placement.cpu.0, examined(&placement), placement.exhausted), (5, 24, false));
}

#[test]
fn kunpeng_node_cpus_outside_the_affinity_are_free_but_in_4_17() {
    let mut outcomes = Vec::new();
    for name in ["linux-5.9", "linux-4.17"] {
        let lab = Lab::kunpeng_node(name);
        let mut state = lab.state_with_idle("6-23");
        state.avg_idle.fill(0);
        state.allowed = CpuSet::parse_list("5,12-23").unwrap();
        let placement = place(&lab, &mut state, 5);
        outcomes.push((placement.cpu.0, examined(&placement), placement.exhausted));
    }
    // 4.17 spends its three on 5, 6 and 7, of which it may examine one.
    assert_eq!(outcomes, [(12, 2, false), (5, 1, true)]);
}

#[test]
fn kunpeng_node_examined_cpus_are_counted_by_distance_from_the_waking_cpu() {
    let lab = Lab::kunpeng_node("linux-6.0");
    let mut state = lab.state_with_idle("3");
    let wakeup = Wakeup { this: CpuId(1), prev: CpuId(20), sync: false };
    let placement = lab.plan.select(&mut state, &wakeup, CpuId(20), &mut lab.plan.scratch()).unwrap();
    // 21, 22, 23, 0, 1, 2, 3.
    assert_eq!((placement.cpu.0, placement.examined), (3, [1, 0, 3, 3, 0, 0, 0]));
}

#[test]
fn kunpeng_node_rotating_window_starts_where_the_last_one_ended() {
    let lab = Lab::kunpeng_node("subhra-full-2018");
    let mut state = lab.state_with_idle("8");
    // Floor 2, at most 4: three examined, the fourth visited and remembered.
    let placement = place(&lab, &mut state, 5);
    assert_eq!((placement.cpu.0, state.next_cpu[5]), (5, Some(CpuId(8))));
    let placement = place(&lab, &mut state, 5);
    assert_eq!((placement.cpu.0, state.next_cpu[5], examined(&placement)), (8, Some(CpuId(8)), 1));
}

#[test]
fn two_threads_per_core_the_hint_is_read_searched_and_cleared() {
    // Four cores of two threads: 0-1, 2-3, 4-5, 6-7.
    let lab = Lab::new(&policy("linux-6.7"), regular([1, 1, 1, 1, 4, 2]), "6.7");
    let mut state = lab.state_with_idle("1,3,6-7");
    state.has_idle_cores = vec![true];
    assert_eq!(place(&lab, &mut state, 0).cpu.0, 6, "a whole core before an idle thread");
    let mut state = lab.state_with_idle("1,3");
    state.has_idle_cores = vec![true];
    let placement = place(&lab, &mut state, 0);
    assert_eq!((placement.cpu.0, state.has_idle_cores[0]), (1, false), "the scan begins behind the target");
    // No hint: prev's sibling first.
    let mut state = lab.state_with_idle("1,3,6-7");
    assert_eq!(place(&lab, &mut state, 2).cpu.0, 3);
}

#[test]
fn two_threads_per_core_merged_search_takes_the_core_with_fewest_busy_threads() {
    let lab = Lab::new(&policy("merged-idle-search"), regular([1, 1, 1, 1, 4, 4]), "4.17");
    // Core 0 all busy, core 1 one idle thread, core 2 three idle threads, core 3 all busy.
    let mut state = lab.state_with_idle("6,9-11");
    assert_eq!(place(&lab, &mut state, 0).cpu.0, 9);
    // A budget of four cores less one ends before the fourth core; core 3 is never looked at.
    let mut state = lab.state_with_idle("6,12-15");
    state.avg_idle.fill(0);
    let placement = place(&lab, &mut state, 0);
    assert_eq!((placement.cpu.0, placement.exhausted, examined(&placement)), (6, true, 12));
}

#[test]
fn two_llcs_transposed_scan_starts_at_prevs_position() {
    let lab = Lab::new(&policy("transpose-offset"), regular([1, 2, 1, 1, 8, 1]), "4.17");
    let mut state = lab.state_with_idle("9,13");
    let wakeup = Wakeup { this: CpuId(8), prev: CpuId(3), sync: false };
    let placement = lab.plan.select(&mut state, &wakeup, CpuId(8), &mut lab.plan.scratch()).unwrap();
    // Prev is fourth of its LLC: the scan of 8-15 starts at 11.
    assert_eq!(placement.cpu.0, 13);
}
