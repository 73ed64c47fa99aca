//! sched_ext's own choice, 6.12 and 7.2: two nodes of two LLCs of four cores with two threads each (LLCs 0-7, 8-15, 16-23, 24-31), and
//! nodes of the Kunpeng 920 (24 CPUs under one LLC, no SMT).

use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Event, Frozen, Wakeup};

use crate::machines::{Lab, policy, regular};

fn threads(name: &str) -> Lab {
    let policy = policy(name);
    Lab::new(&policy, regular([1, 2, 2, 1, 4, 2]), &policy.kernel)
}

/// The CPU and the step, counted from 1.
fn decision(lab: &Lab, state: &mut Frozen, this: u32, prev: u32, sync: bool) -> (u32, usize) {
    let wakeup = Wakeup { this: CpuId(this), prev: CpuId(prev), sync };
    let placement = lab.plan.place(state, &wakeup, &mut lab.plan.scratch()).unwrap();
    (placement.cpu.0, usize::from(placement.step) + 1)
}

#[test]
fn two_threads_per_core_7_2_goes_from_cores_to_threads_and_from_near_to_far() {
    let lab = threads("scx-default-7.2");
    for (idle, last, expected) in [
        ("2-3,6-7", 0, (2, 3)),  // prev's whole core
        ("2,6-7", 0, (6, 4)),    // a whole core of its LLC before prev alone
        ("2,4-7", 4, (5, 4)),    // any thread of such a core: the next behind the last choice
        ("2,12-13", 0, (12, 5)), // of its node
        ("2,20-21", 0, (20, 6)), // of all
        ("2,5,21", 0, (2, 7)),   // no whole core: prev
        ("3,5", 4, (3, 8)),      // its sibling
        ("1,5", 1, (5, 9)),      // the LLC, from behind the last choice
        ("1,5", 5, (1, 9)),      // with wrap
        ("9,21", 20, (9, 10)),   // the node
        ("17,31", 20, (31, 11)), // all
        ("", 0, (2, 12)),
    ] {
        let mut state = lab.state_with_idle(idle);
        state.last_rotated[10] = CpuId(last);
        assert_eq!(decision(&lab, &mut state, 10, 2, false), expected, "idle {idle}, last {last}");
        let rotates = [4, 5, 6, 9, 10, 11].contains(&expected.1);
        let chosen = CpuId(if rotates { expected.0 } else { last });
        assert_eq!(state.last_rotated[10], chosen, "idle {idle}, last {last}");
        assert!(!state.idle.contains(CpuId(expected.0)), "idle {idle}: claimed");
    }
}

#[test]
fn two_threads_per_core_6_12_knows_neither_llcs_nor_siblings() {
    let lab = threads("scx-default-6.12");
    for (idle, last, expected) in [
        ("2-3,6-7", 0, (2, 2)),
        ("2,6-7,20-21,30-31", 25, (30, 3)),
        ("2,21", 0, (2, 4)),
        ("3,21", 10, (21, 5)),
        ("3,21", 21, (3, 5)),
        ("", 0, (2, 6)),
    ] {
        let mut state = lab.state_with_idle(idle);
        state.last_rotated[10] = CpuId(last);
        assert_eq!(decision(&lab, &mut state, 10, 2, false), expected, "idle {idle}, last {last}");
    }
}

#[test]
fn two_threads_per_core_a_sync_wake_up_goes_to_the_waker_while_a_cpu_is_idle() {
    let (new, old) = (threads("scx-default-7.2"), threads("scx-default-6.12"));
    for (this, idle, waiting, expected_new, expected_old) in [
        (4, "2,6-7", 0, (2, 1), (4, 1)),     // under one LLC 7.2 prefers an idle prev
        (4, "6-7", 0, (4, 2), (4, 1)),       // prev busy
        (10, "2-3,21", 0, (10, 2), (10, 1)), // prev under another LLC
        (10, "2-3,21", 1, (2, 3), (2, 2)),   // a task waits in the waker's own queue
        (10, "", 0, (2, 12), (2, 6)),        // no CPU is idle
    ] {
        for (lab, expected) in [(&new, expected_new), (&old, expected_old)] {
            let mut state = lab.state_with_idle(idle);
            state.nr_local[this as usize] = waiting;
            assert_eq!(decision(lab, &mut state, this, 2, true), expected, "{} {this} {idle}", lab.policy.name);
        }
    }
    let mut state = new.state_with_idle("6-7");
    state.allowed.remove(CpuId(4));
    assert_eq!(decision(&new, &mut state, 4, 2, true), (6, 4), "the wakee may not run on the waker's CPU");
}

#[test]
fn two_threads_per_core_6_12_claims_an_idle_prev_that_the_wakee_may_not_use() {
    let outcome = |name| {
        let lab = threads(name);
        let mut state = lab.state_with_idle("2-3,20-21");
        state.allowed = CpuSet::parse_list("8-31").unwrap().resized(32);
        let found = decision(&lab, &mut state, 10, 2, false);
        (found, state.idle)
    };
    // The core's choice then: the first allowed CPU of prev's node.
    assert_eq!(outcome("scx-default-6.12"), ((8, 7), CpuSet::from_cpus(32, [3, 20, 21])));
    assert_eq!(outcome("scx-default-7.2"), ((20, 6), CpuSet::from_cpus(32, [2, 3, 21])));
}

#[test]
fn kunpeng_nodes_the_llc_and_the_node_are_looked_at_only_where_they_say_something() {
    let policy = policy("scx-default-7.2");
    let one = "one LLC has all CPUs, or prev has none";
    let same = "there is one node, or nodes are the LLCs";
    // One LLC; two nodes that are LLCs; two nodes of two LLCs each.
    for (counts, expected) in [
        ([1, 1, 1, 6, 4, 1], &[one, same][..]),
        ([1, 2, 1, 6, 4, 1], &[same]),
        ([1, 2, 2, 3, 4, 1], &[]),
        ([1, 1, 2, 3, 4, 1], &[same]),
    ] {
        let lab = Lab::new(&policy, regular(counts), &policy.kernel);
        let mut state = lab.state_with_idle("");
        let mut skipped = Vec::new();
        let mut hear = |event| match event {
            Event::Step(8..11) => skipped.push(""),
            Event::Skipped(why) => skipped.extend(skipped.last().is_some().then_some(why)),
            _ => {}
        };
        let wakeup = Wakeup { this: CpuId(0), prev: CpuId(5), sync: false };
        lab.plan.place_traced(&mut state, &wakeup, &mut lab.plan.scratch(), &mut hear).unwrap();
        skipped.retain(|why| !why.is_empty());
        assert_eq!(skipped, expected, "{counts:?}");
    }
}

#[test]
fn kunpeng_node_choices_of_one_cpu_rotate_and_leave_cpu_0_out_at_first() {
    let lab = Lab::kunpeng_node("scx-default-7.2");
    let mut state = lab.state_with_idle("0,3,9,15");
    for expected in [3, 9, 15, 0, 3] {
        assert_eq!(decision(&lab, &mut state, 1, 5, false).0, expected);
        state.idle.insert(CpuId(expected));
    }
    assert_eq!(decision(&lab, &mut state, 2, 5, false).0, 3, "another CPU has its own turn");
    // A lost claim counts as a choice.
    let mut state = lab.state_with_idle("3,9,15");
    state.contested = CpuSet::from_cpus(24, [3]);
    assert_eq!(decision(&lab, &mut state, 1, 5, false), (9, 11));
    assert_eq!((state.last_rotated[1], state.idle), (CpuId(9), CpuSet::from_cpus(24, [15])));
}

#[test]
fn two_threads_per_core_a_new_task_is_placed_like_a_wakee_that_nobody_syncs() {
    for (name, expected) in [("scx-default-6.12", (20, 1)), ("scx-default-7.2", (4, 1))] {
        let lab = threads(name);
        let mut state = lab.state_with_idle("4-5,20-21");
        state.last_rotated[2] = CpuId(16);
        let wakeup = Wakeup { this: CpuId(2), prev: CpuId(2), sync: false };
        let placement = lab.plan.place_fork(&mut state, &wakeup, &mut lab.plan.scratch()).unwrap().unwrap();
        assert_eq!((placement.cpu.0, placement.step), expected, "{name}");
    }
}
