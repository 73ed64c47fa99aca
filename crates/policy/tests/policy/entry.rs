//! The entry rule: wide wake-ups, this CPU against prev.

use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Frozen, Placement, Undecidable, Wakeup};

use crate::machines::{Lab, policy, regular};

fn place(lab: &Lab, state: &mut Frozen, this: u32, prev: u32, sync: bool) -> Placement {
    let wakeup = Wakeup { this: CpuId(this), prev: CpuId(prev), sync };
    lab.plan.place(state, &wakeup, &mut lab.plan.scratch()).unwrap()
}

fn target(lab: &Lab, state: &mut Frozen, this: u32, prev: u32, sync: bool) -> u32 {
    place(lab, state, this, prev, sync).target.0
}

/// Two nodes of 24 CPUs.
fn two_nodes(name: &str) -> Lab {
    let policy = policy(name);
    Lab::new(&policy, regular([1, 2, 1, 6, 4, 1]), &policy.kernel.clone())
}

#[test]
fn kunpeng_node_wide_from_24_flips_and_24_times_as_many() {
    let lab = Lab::kunpeng_node("linux-5.9");
    for (waker, wakee, wide) in
        [(24, 576, true), (576, 24, true), (575, 24, false), (23, 10_000, false), (u32::MAX, u32::MAX, false)]
    {
        let mut state = lab.state_with_busy("0,9");
        (state.waker_flips, state.wakee_flips) = (Some(waker), Some(wakee));
        assert_eq!(place(&lab, &mut state, 0, 9, false).wide, wide, "{waker} {wakee}");
        // Only a wake-up that is not wide is affine and notes the waker's CPU.
        assert_eq!(state.waker_recent, (!wide).then_some(CpuId(0)));
    }
}

#[test]
fn kunpeng_node_margin_is_half_of_17_rounded_down() {
    // (117 - 100) / 2 = 8: 100 × 108 against load × 100.
    let lab = Lab::kunpeng_node("linux-5.9");
    for (load, expected) in [(107, 0), (108, 9)] {
        let mut state = lab.state_with_busy("0,9");
        (state.load[0], state.load[9]) = (load, 100);
        assert_eq!(target(&lab, &mut state, 0, 9, false), expected, "load {load}");
    }
}

#[test]
fn kunpeng_two_nodes_margin_across_nodes_is_12_in_5_9_and_8_in_5_10() {
    for (name, load, expected) in
        [("linux-5.9", 111, 0), ("linux-5.9", 112, 30), ("linux-5.10", 107, 0), ("linux-5.10", 108, 30)]
    {
        let lab = two_nodes(name);
        let mut state = lab.state_with_busy("0,30");
        (state.load[0], state.load[30]) = (load, 100);
        assert_eq!(target(&lab, &mut state, 0, 30, false), expected, "{name} load {load}");
    }
}

#[test]
fn kunpeng_node_weights_move_the_wakees_load_and_scale_by_the_other_capacity() {
    let lab = Lab::kunpeng_node("linux-5.9");
    let mut state = lab.state_with_busy("0,9");
    (state.load[0], state.load[9], state.wakee_load) = (0, 100, 51);
    // 51 × 100 against 49 × 108.
    assert_eq!(target(&lab, &mut state, 0, 9, false), 0);
    state.capacity[0] = 512;
    // The same at half this CPU's capacity: 51 × 100 × 1024 against 49 × 108 × 512.
    assert_eq!(target(&lab, &mut state, 0, 9, false), 9);
    state.wakee_load = 1000;
    // More than prev's load: its side is negative.
    assert_eq!(target(&lab, &mut state, 0, 9, false), 9);
}

#[test]
fn kunpeng_node_sync_wake_up() {
    let lab = Lab::kunpeng_node("linux-5.9");
    let mut state = lab.state_with_busy("0,9");
    (state.load[0], state.load[9]) = (1000, 0);
    assert_eq!(target(&lab, &mut state, 0, 9, true), 0, "the waker is alone");
    state.nr_running[0] = 2;
    state.waker_load = 1000;
    assert_eq!(target(&lab, &mut state, 0, 9, true), 0, "both sides 0: sync adds one to prev's");
    state.waker_load = 999;
    assert_eq!(target(&lab, &mut state, 0, 9, true), 9);
    state.waker_load = 1001;
    assert_eq!(target(&lab, &mut state, 0, 9, true), 0, "the waker's load exceeds the queue's");
}

#[test]
fn kunpeng_node_woken_from_an_interrupt_on_an_idle_cpu() {
    let lab = Lab::kunpeng_node("linux-5.9");
    assert_eq!(target(&lab, &mut lab.state_with_idle("0,9"), 0, 9, false), 9, "both idle: prev");
    assert_eq!(target(&lab, &mut lab.state_with_idle("0"), 0, 9, false), 0, "only this CPU is idle");
}

#[test]
fn kunpeng_two_nodes_idle_prev_wins_from_5_11_on() {
    for (name, expected) in [("linux-5.10", 0), ("linux-5.14", 30)] {
        let lab = two_nodes(name);
        let mut state = lab.state_with_idle("30");
        // The wakee's blocked load still weighs on prev.
        (state.load[0], state.load[30]) = (10, 100);
        assert_eq!(target(&lab, &mut state, 0, 30, false), expected, "{name}");
    }
}

#[test]
fn kunpeng_node_this_cpu_outside_the_affinity_is_no_target() {
    let lab = Lab::kunpeng_node("linux-5.9");
    let mut state = lab.state_with_busy("0,9");
    (state.load[0], state.load[9]) = (0, 100);
    state.allowed = CpuSet::parse_list("8-11").unwrap();
    assert_eq!(target(&lab, &mut state, 0, 9, false), 9);
    assert_eq!(state.waker_recent, None);
}

#[test]
fn kunpeng_node_core_rules_around_the_policy() {
    let lab = two_nodes("linux-6.7");
    let by_core = lab.plan.nr_steps() as u8;
    let mut state = lab.state_with_busy("0");
    state.allowed = CpuSet::parse_list("17").unwrap();
    let placement = place(&lab, &mut state, 0, 9, false);
    assert_eq!((placement.cpu.0, placement.step), (17, by_core), "one CPU: no policy is asked");
    assert_eq!(state.recent, None);
    // The affinity has moved away from prev, which is busy and so is all of its LLC.
    let mut state = lab.state_with_idle("");
    state.allowed = CpuSet::parse_list("12-13,40-47").unwrap();
    let placement = place(&lab, &mut state, 30, 9, false);
    assert_eq!((placement.cpu.0, placement.step), (12, by_core), "the first allowed CPU of prev's node");
    let mut state = lab.state_with_busy("3,9");
    state.prefers_current_cpu = true;
    let placement = place(&lab, &mut state, 3, 9, false);
    assert_eq!((placement.cpu.0, placement.step), (3, by_core), "a wake-up that asks for this CPU");
}

#[test]
fn what_the_world_does_not_know_is_undecidable_only_where_it_is_asked() {
    let lab = Lab::kunpeng_node("linux-6.7");
    let wakeup = Wakeup { this: CpuId(0), prev: CpuId(9), sync: false };
    let mut state = lab.state_with_busy("0,9");
    state.nr_idle_scan = vec![None];
    let result = lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch());
    assert_eq!(result, Err(Undecidable("nr_idle_scan of the LLC")));
    state.idle.insert(CpuId(9));
    assert!(lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch()).is_ok(), "an idle prev needs no scan");
    state.wakee_flips = None;
    let result = lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch());
    assert_eq!(result.unwrap_err().to_string(), "undecidable: `wakee_flips of the wakee` is not known");
    let beyond = Wakeup { this: CpuId(0), prev: CpuId(24), sync: false };
    assert!(lab.plan.place(&mut state, &beyond, &mut lab.plan.scratch()).is_err());
}
