//! What a tracer hears.

use huddle_machine::CpuId;
use huddle_policy::{AffineRule, Event, Wakeup};

use crate::machines::Lab;

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
