//! What tells the records of neighbouring releases and postings apart, beside the specification's table.

use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Event, Wakeup};

use crate::machines::{Lab, policy, regular};

#[test]
fn four_threads_per_core_the_bug_of_the_merged_search_takes_the_cpu_where_it_met_the_best_core() {
    for (name, partly, whole) in [("merged-idle-search", 9, 12), ("merged-idle-search-bug", 8, 12)] {
        let lab = Lab::new(&policy(name), regular([1, 1, 1, 1, 4, 4]), "4.17");
        // Core 1 has one idle thread, core 2 three, of which 8 is none.
        assert_eq!(lab.select(&mut lab.state_with_idle("6,9-11"), 0, 0), partly, "{name}");
        assert_eq!(lab.select(&mut lab.state_with_idle("6,12-15"), 0, 0), whole, "{name}: a whole core");
    }
}

#[test]
fn four_threads_per_core_the_merged_search_goes_on_where_its_budget_ended() {
    let lab = Lab::new(&policy("merged+next-cpu"), regular([1, 1, 1, 1, 4, 4]), "4.17");
    let mut state = lab.state_with_idle("12-15");
    state.avg_idle.fill(0);
    // Three cores are looked at, the fourth is met when nothing is left.
    assert_eq!((lab.select(&mut state, 0, 0), state.next_cpu[0]), (0, Some(CpuId(12))));
    assert_eq!((lab.select(&mut state, 0, 0), state.next_cpu[0]), (12, Some(CpuId(12))));
}

#[test]
fn four_threads_per_core_the_limited_window_has_room_for_two_cores_less_one() {
    let lab = Lab::new(&policy("subhra-full-2018"), regular([1, 1, 1, 1, 8, 4]), "4.17");
    let wakeup = Wakeup { this: CpuId(0), prev: CpuId(0), sync: false };
    for (idle, expected) in [("6", (6, 7, false)), ("7", (0, 7 + 4, true))] {
        let mut state = lab.state_with_idle(idle);
        let placement = lab.plan.select(&mut state, &wakeup, CpuId(0), &mut lab.plan.scratch()).unwrap();
        // Seven from 0 up; then the target's own core.
        let examined = placement.examined.iter().sum::<u32>();
        assert_eq!((placement.cpu.0, examined, placement.exhausted), expected, "idle {idle}");
    }
}

#[test]
fn kunpeng_node_prev_becomes_the_recent_cpu_in_any_case_from_5_16_on() {
    for (name, expected) in [("linux-4.17", 9), ("linux-5.14", 9), ("linux-5.16", 6), ("v7-cluster-scan", 6)] {
        let lab = Lab::kunpeng_node(name);
        let mut state = lab.state_with_idle("20");
        state.recent = Some(CpuId(9));
        lab.select(&mut state, 5, 6);
        assert_eq!(state.recent, Some(CpuId(expected)), "{name}");
    }
}

#[test]
fn kunpeng_two_nodes_from_6_12_on_sleepers_with_a_delayed_dequeue_do_not_keep_a_sync_waker_from_being_alone() {
    for (name, delayed, expected) in
        [("linux-6.7", 2, 30), ("linux-6.12", 2, 3), ("linux-6.12", 1, 30), ("linux-7.2", 2, 3)]
    {
        let policy = policy(name);
        let lab = Lab::new(&policy, regular([1, 2, 1, 6, 4, 1]), &policy.kernel);
        let mut state = lab.state_with_idle("");
        (state.nr_running[3], state.nr_delayed[3], state.load[3]) = (3, delayed, 5000);
        let wakeup = Wakeup { this: CpuId(3), prev: CpuId(30), sync: true };
        let placement = lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch()).unwrap();
        assert_eq!(placement.target.0, expected, "{name}, {delayed} delayed");
    }
}

#[test]
fn kunpeng_node_in_7_2_a_sched_idle_task_takes_no_cpu_from_its_like() {
    for (name, sched_idle, expected) in
        [("linux-6.12", true, 6), ("linux-7.2", true, 5), ("linux-7.2", false, 6), ("linux-7.2-nocache", true, 5)]
    {
        let lab = Lab::kunpeng_node(name);
        let mut state = lab.state_with_idle("");
        state.sched_idle = CpuSet::from_cpus(24, [6]);
        state.wakee_is_sched_idle = sched_idle;
        assert_eq!(lab.select(&mut state, 5, 5), expected, "{name}, wakee {sched_idle}");
    }
}

#[test]
fn two_threads_per_core_in_7_2_an_llc_outside_the_affinity_keeps_its_hint() {
    for (name, limit, hint) in [("linux-6.12", 9, false), ("linux-7.2", 9, true), ("linux-6.12", 0, true)] {
        let policy = policy(name);
        let lab = Lab::new(&policy, regular([1, 1, 2, 1, 4, 2]), &policy.kernel);
        let mut state = lab.state_with_idle("2-3");
        state.has_idle_cores = vec![true; 2];
        state.nr_idle_scan = vec![Some(limit); 2];
        state.allowed = CpuSet::from_cpus(16, [8, 9]);
        assert_eq!(lab.select(&mut state, 0, 0), 0, "{name}");
        assert_eq!(state.has_idle_cores[0], hint, "{name}, limit {limit}");
    }
}

#[test]
fn two_threads_per_core_in_7_2_the_budget_is_read_before_the_affinity() {
    let policy = policy("linux-7.2");
    let lab = Lab::new(&policy, regular([1, 1, 2, 1, 4, 2]), &policy.kernel);
    for (limit, expected) in
        [(0, Event::Exhausted), (9, Event::Skipped("no CPU of the LLC is in the affinity: no scans"))]
    {
        let mut state = lab.state_with_idle("");
        state.nr_idle_scan = vec![Some(limit); 2];
        state.allowed = CpuSet::from_cpus(16, [8, 9]);
        let mut events = Vec::new();
        let wakeup = Wakeup { this: CpuId(0), prev: CpuId(0), sync: false };
        let mut hear = |event| events.push(event);
        lab.plan.select_traced(&mut state, &wakeup, CpuId(0), &mut lab.plan.scratch(), &mut hear).unwrap();
        let budget = events.iter().position(|event| *event == Event::Budget(Some(limit))).unwrap();
        assert_eq!(events[budget + 1], expected, "limit {limit}");
    }
}

#[test]
fn two_capacities_7_2_ranks_whole_cores_and_the_minimum_clamp() {
    // Cores of two threads; big cores 0 and 2 (CPUs 0-1, 4-5) have twice the capacity of 1 and 3.
    let mut topology = regular([1, 1, 1, 1, 4, 2]);
    for cpu in [2, 3, 6, 7] {
        topology.capacity[cpu] = 512;
    }
    let policy = policy("linux-7.2");
    let lab = Lab::new(&policy, topology, &policy.kernel);
    for (idle, fitting, clamped, expected) in [
        ("1,6-7", "1,6-7", "", 6), // a whole core that fits before a thread that does
        ("1,6-7", "1", "", 6),     // even one too small: -3 before -2
        ("2-3,6-7", "", "6", 6),   // which misses only the clamp: -4
        ("1,3", "3", "", 3),       // threads: one that fits, -2
        ("1,3", "", "3", 3),       // one that misses only the clamp, -1
        ("1,3", "", "", 1),        // else the larger
        ("", "", "", 0),
    ] {
        let mut state = lab.state_with_idle(idle);
        state.has_idle_cores = vec![true];
        state.fitting = CpuSet::parse_list(fitting).unwrap().resized(8);
        state.clamped = CpuSet::parse_list(clamped).unwrap().resized(8);
        assert_eq!(lab.select(&mut state, 0, 0), expected, "idle {idle}, fit {fitting}, clamped {clamped}");
    }
}
