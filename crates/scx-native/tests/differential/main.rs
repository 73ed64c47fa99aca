//! The interpreter in C against the one in Rust, decision for decision.

#![allow(clippy::unwrap_used, clippy::panic)]

// The machines, records and states are those by which the policy crate holds its interpreter against the
// specification's text.
#[allow(dead_code)]
#[path = "../../../policy/tests/policy/machines.rs"]
mod machines;

mod cases;

use std::collections::BTreeSet;

use cases::{Cases, Outcome};

const DECISIONS: usize = 100_000;

#[test]
fn c_and_rust_decide_alike() {
    let (mut cases, mut seen) = (Cases::new(20_201_201), Seen::default());
    for _ in 0..DECISIONS {
        let (ours, theirs) = cases.decide();
        assert_eq!(theirs.placed, ours.placed, "C (left) and Rust decide differently: {}", cases.describe());
        assert_eq!(theirs.state, ours.state, "C (left) and Rust leave different states: {}", cases.describe());
        seen.note(&cases, &ours);
    }
    seen.check();
}

/// What the cases reached: a difference can only show where something was decided.
#[derive(Default)]
struct Seen {
    kinds: BTreeSet<&'static str>,
    events: BTreeSet<&'static str>,
}

impl Seen {
    fn note(&mut self, cases: &Cases, outcome: &Outcome) {
        self.kinds.insert(cases.kind(outcome.placed.step));
        let events = [
            ("claimed", outcome.placed.claimed),
            ("new task", cases.is_fork()),
            ("lost claims", outcome.state.idle.len() + usize::from(outcome.placed.claimed) < cases.idle()),
            ("more than 128 CPUs", cases.nr_cpus() > 128),
            ("one CPU", cases.nr_cpus() == 1),
            ("offline CPUs", cases.has_holes()),
            ("a list of steps of no record", cases.is_random()),
        ];
        self.events.extend(events.into_iter().filter(|&(_, seen)| seen).map(|(name, _)| name));
    }

    fn check(&self) {
        let deciding = "TargetIdle PrevIdle KthreadStack RecentIdle NeedLlc IdleSmt ScanCluster ScanLlc \
                        TakeKept SyncStack ClaimPrev ClaimAny ClaimIdlest ReturnTarget ReturnPrev core";
        for kind in deciding.split_whitespace() {
            assert!(self.kinds.contains(kind), "{kind} never decided: the cases do not reach it");
        }
        assert_eq!(self.events.len(), 7, "of what the cases should reach, only {:?}", self.events);
    }
}
