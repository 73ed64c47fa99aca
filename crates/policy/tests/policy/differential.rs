//! The interpreter against the reference, decision for decision.

use huddle_domains::kernel_names;
use huddle_policy::Frozen;

use crate::machines::{Rng, all_policies, random_case, random_lab};
use crate::reference::{Outcome, Reference};

const MACHINES: usize = 1200;
const DECISIONS: usize = 60;

#[test]
fn words_and_cpu_by_cpu_decide_alike() {
    let policies = all_policies();
    let kernels = kernel_names();
    let mut rng = Rng(20_200_612);
    let mut steps_seen = std::collections::BTreeSet::new();
    for machine in 0..MACHINES {
        let policy = &policies[machine % policies.len()];
        // Half under the policy's own kernel, half under any: a record must not depend on its own.
        let kernel = if rng.chance(50) { &policy.kernel } else { &kernels[rng.below(kernels.len())] };
        let lab = random_lab(&mut rng, policy, kernel);
        let mut scratch = lab.plan.scratch();
        for decision in 0..DECISIONS {
            let (state, wakeup, target) = random_case(&mut rng, &lab);
            let (mut ours, mut theirs): (Frozen, Frozen) = (state.clone(), state.clone());
            let mut reference = Reference { policy, tree: &lab.tree, topology: &lab.topology, state: &mut theirs };
            let (steps, placement, expected) = match (decision % 3, &policy.fork) {
                (0, Some(fork)) => (
                    fork,
                    lab.plan.place_fork(&mut ours, &wakeup, &mut scratch).unwrap(),
                    reference.place_fork(&wakeup),
                ),
                (1, _) => {
                    let placement = lab.plan.select(&mut ours, &wakeup, target, &mut scratch);
                    (&policy.steps, placement, reference.select(&wakeup, target.0))
                }
                _ => (&policy.steps, lab.plan.place(&mut ours, &wakeup, &mut scratch), reference.place(&wakeup)),
            };
            let placement = placement.unwrap();
            let found = Outcome {
                cpu: placement.cpu.0,
                target: placement.target.0,
                step: placement.step.into(),
                wide: placement.wide,
                exhausted: placement.exhausted,
                examined: placement.examined,
            };
            let case = || {
                format!(
                    "{} on {kernel}, machine {machine}, decision {decision}: {wakeup:?} {target:?} {state:?}",
                    policy.name
                )
            };
            assert_eq!(found, expected, "{}", case());
            assert_eq!(ours, theirs, "state left by {}", case());
            steps_seen.insert(steps.get(found.step).map_or("the core", |step| step.kind()));
        }
    }
    // Every kind that can decide has decided somewhere; the others only prepare.
    let decides = [
        "TargetIdle",
        "PrevIdle",
        "KthreadStack",
        "RecentIdle",
        "AsymScan",
        "NeedLlc",
        "IdleCore",
        "IdleSmt",
        "ScanCluster",
        "ScanLlc",
        "ScanMerged",
        "TakeKept",
        "ClaimPrev",
        "ClaimAny",
        "ClaimIdlest",
        "ClaimSmt",
        "SyncStack",
        "SyncClaimPrev",
        "SyncWaker",
        "ReturnTarget",
        "ReturnPrev",
        "the core",
    ];
    for kind in decides {
        assert!(steps_seen.contains(kind), "{kind} never decided: the cases do not reach it");
    }
}
