//! What a tracer hears.

use huddle_machine::CpuId;
use huddle_policy::{AffineRule, Event, Frozen, Wakeup};

use crate::machines::{Lab, policy, regular};

/// The rule that chose the target.
fn rule(name: &str, prev: u32, sync: bool, state: impl Fn(&mut Frozen)) -> (AffineRule, u32) {
    let policy = policy(name);
    let lab = Lab::new(&policy, regular([1, 2, 1, 6, 4, 1]), &policy.kernel);
    let mut frozen = lab.state_with_idle("");
    state(&mut frozen);
    let mut chosen = None;
    let mut hear = |event| {
        if let Event::Target { rule, target } = event {
            chosen = Some((rule, target.0));
        }
    };
    let wakeup = Wakeup { this: CpuId(5), prev: CpuId(prev), sync };
    lab.plan.place_traced(&mut frozen, &wakeup, &mut lab.plan.scratch(), &mut hear).unwrap();
    chosen.unwrap()
}

#[test]
fn kunpeng_two_nodes_the_rules_of_anchored_targets_are_told() {
    let as_is = |_: &mut Frozen| ();
    assert_eq!(rule("huddle-gather", 9, false, as_is), (AffineRule::ThisNear, 5));
    assert_eq!(rule("huddle-gather", 30, false, as_is), (AffineRule::PrevFar, 30));
    assert_eq!(rule("huddle-gather", 30, true, as_is), (AffineRule::SyncAlone, 5));
    assert_eq!(rule("huddle-gather", 5, false, as_is), (AffineRule::SameCpu, 5));
    let elsewhere = |state: &mut Frozen| state.allowed.remove(CpuId(5));
    assert_eq!(rule("huddle-gather", 9, true, elsewhere), (AffineRule::ThisNotAllowed, 9));
    let asks = |state: &mut Frozen| state.prefers_current_cpu = true;
    assert_eq!(rule("huddle-gather", 30, false, asks), (AffineRule::CurrentCpu, 5));
    let wide = |state: &mut Frozen| (state.waker_flips, state.wakee_flips) = (Some(900), Some(900));
    assert_eq!(rule("huddle-gather", 9, true, |state| state.waker_flips = Some(900)), (AffineRule::ThisNear, 5));
    assert_eq!(rule("huddle-spread", 9, true, wide), (AffineRule::AlwaysPrev, 9));
    assert_eq!(rule("huddle-spread", 30, true, asks), (AffineRule::AlwaysPrev, 30));
}

#[test]
fn kunpeng_node_second_chance_is_told_step_by_step() {
    let lab = Lab::kunpeng_node("linux-6.7");
    let mut state = lab.state_with_idle("9,10");
    state.nr_idle_scan = vec![Some(5)];
    let mut events = Vec::new();
    let wakeup = Wakeup { this: CpuId(5), prev: CpuId(9), sync: true };
    let placement =
        lab.plan.place_traced(&mut state, &wakeup, &mut lab.plan.scratch(), &mut |event| events.push(event)).unwrap();
    assert_eq!(
        events,
        [
            Event::Wide { waker_flips: 0, wakee_flips: 0, factor: 24, wide: false },
            Event::Target { rule: AffineRule::SyncAlone, target: CpuId(5) },
            Event::Step(0),
            Event::Tested { cpu: CpuId(5), good: false },
            Event::Step(1),
            Event::Tested { cpu: CpuId(9), good: true },
            Event::Kept(CpuId(9)),
            Event::Step(2),
            Event::Skipped("the waker is no per-CPU kernel thread"),
            Event::Step(3),
            Event::Skipped("no recent CPU"),
            Event::Step(4),
            Event::Skipped("all capacities are equal"),
            Event::Step(5),
            Event::Step(6),
            Event::Hint(false),
            Event::Step(7),
            Event::Skipped("no SMT"),
            Event::Step(8),
            Event::Budget(Some(5)),
            Event::Step(9),
            Event::Examined { word: 0, bits: 0xc0 },
            Event::Examined { word: 0, bits: 0x30 },
            Event::Left(1),
            Event::Step(10),
            Event::Examined { word: 0, bits: 0x100 },
            Event::Exhausted,
            Event::Left(0),
            Event::Step(11),
            Event::Decided(CpuId(9)),
        ]
    );
    assert_eq!((placement.cpu, placement.step, placement.exhausted), (CpuId(9), 11, true));
}

#[test]
fn kunpeng_node_an_idler_cluster_is_told_with_what_is_busy() {
    let lab = Lab::kunpeng_node("huddle-spread");
    let mut state = lab.state_with_busy("4,0,12,16,20");
    state.contested.insert(CpuId(8));
    let mut events = Vec::new();
    let wakeup = Wakeup { this: CpuId(0), prev: CpuId(5), sync: false };
    lab.plan.place_traced(&mut state, &wakeup, &mut lab.plan.scratch(), &mut |event| events.push(event)).unwrap();
    let from = events.iter().position(|event| *event == Event::Step(2)).unwrap();
    assert_eq!(
        events[from..],
        [
            Event::Step(2),
            Event::Tested { cpu: CpuId(5), good: true },
            Event::Cluster { first: CpuId(8), busy: 0, size: 4 },
            Event::Skipped("a cluster of prev's LLC is less busy"),
            Event::Step(3),
            Event::Cluster { first: CpuId(8), busy: 0, size: 4 },
            Event::Claimed { cpu: CpuId(8), won: false },
            Event::Claimed { cpu: CpuId(9), won: true },
            Event::Decided(CpuId(9)),
        ]
    );
}
