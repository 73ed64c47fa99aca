//! What holds for every record (specification 9.9), on random machines and states.

use huddle_machine::{CpuId, CpuSet};
use huddle_policy::{Frozen, LOST_CLAIMS, Placement, Policy, Pred, Step, Wakeup};
use proptest::prelude::*;

use crate::machines::{Lab, Rng, all_policies, policy, random_case, random_lab, regular};

fn select(lab: &Lab, state: &mut Frozen, wakeup: &Wakeup, target: CpuId) -> Placement {
    lab.plan.select(state, wakeup, target, &mut lab.plan.scratch()).unwrap()
}

/// A policy and a seed for machine and states.
fn any_policy() -> impl Strategy<Value = (Policy, u64)> {
    (proptest::sample::select(all_policies()), any::<u64>())
}

/// CPUs that claims took out of everybody's sight.
fn taken(before: &Frozen, after: &Frozen) -> CpuSet {
    let mut taken = before.idle.clone();
    taken.subtract(&after.idle);
    taken
}

fn good(state: &Frozen, pred: Pred, cpu: CpuId) -> bool {
    let sched_idle = match pred {
        Pred::Idle | Pred::Avail => false,
        Pred::Ok59 => state.sched_idle.contains(cpu),
        Pred::Ok72 => state.sched_idle.contains(cpu) && !state.wakee_is_sched_idle,
    };
    state.idle.contains(cpu) || sched_idle
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_result_is_in_the_affinity_and_online((policy, seed) in any_policy()) {
        let mut rng = Rng(seed);
        let lab = random_lab(&mut rng, &policy, &policy.kernel);
        for _ in 0..20 {
            let (mut state, wakeup, _) = random_case(&mut rng, &lab);
            let placement = lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch()).unwrap();
            prop_assert!(state.allowed.contains(placement.cpu), "{placement:?}");
            prop_assert!(lab.tree.online.contains(placement.cpu), "{placement:?}");
        }
    }

    #[test]
    fn a_good_target_is_taken((policy, seed) in any_policy()) {
        if policy.steps.iter().any(Step::claims) {
            return Ok(());
        }
        let mut rng = Rng(seed);
        let lab = random_lab(&mut rng, &policy, &policy.kernel);
        let asym_first = matches!(policy.steps[0], Step::AsymScan { .. });
        let Some(Step::TargetIdle { pred, .. }) = policy.steps.iter().find(|s| s.kind() == "TargetIdle") else {
            return Err(TestCaseError::fail("no TargetIdle"));
        };
        for _ in 0..20 {
            let (mut state, wakeup, target) = random_case(&mut rng, &lab);
            if lab.tree.asym_active && (asym_first || !state.fitting.contains(target)) {
                continue;
            }
            if good(&state, *pred, target) {
                prop_assert_eq!(select(&lab, &mut state, &wakeup, target).cpu, target);
            }
        }
    }

    #[test]
    fn without_inner_clusters_6_7_decides_as_6_0(
        (seed, llcs, cores, threads, single_core) in
            (any::<u64>(), 1usize..4, 2usize..9, 1usize..3, any::<bool>())
    ) {
        // One cluster for the whole LLC, or one core for each cluster: no cluster level is left.
        let counts = if single_core { [1, 1, llcs, cores, 1, threads] } else { [1, 1, llcs, 1, cores, threads] };
        let new = Lab::new(&policy("linux-6.7"), regular(counts), "6.7");
        let old = Lab::new(&policy("linux-6.0"), regular(counts), "6.7");
        let mut rng = Rng(seed);
        for _ in 0..30 {
            let (mut state, wakeup, target) = random_case(&mut rng, &new);
            let mut other = state.clone();
            let (a, b) = (select(&new, &mut state, &wakeup, target), select(&old, &mut other, &wakeup, target));
            prop_assert_eq!((a.cpu, a.examined, a.exhausted), (b.cpu, b.examined, b.exhausted));
            prop_assert_eq!(state, other);
        }
    }

    #[test]
    fn only_what_a_wake_up_may_write_is_written((policy, seed) in any_policy()) {
        let mut rng = Rng(seed);
        let lab = random_lab(&mut rng, &policy, &policy.kernel);
        for _ in 0..20 {
            let (before, wakeup, _) = random_case(&mut rng, &lab);
            let mut after = before.clone();
            lab.plan.place(&mut after, &wakeup, &mut lab.plan.scratch()).unwrap();
            for (now, then) in after.has_idle_cores.iter().zip(&before.has_idle_cores) {
                prop_assert!(now <= then, "a search never sets the hint");
            }
            let restored = Frozen {
                idle: before.idle.clone(),
                recent: before.recent,
                waker_recent: before.waker_recent,
                has_idle_cores: before.has_idle_cores.clone(),
                next_cpu: before.next_cpu.clone(),
                last_rotated: before.last_rotated.clone(),
                avg_scan_cost: before.avg_scan_cost.clone(),
                aged_idle: before.aged_idle.clone(),
                ..after.clone()
            };
            prop_assert_eq!(&restored, &before);
            prop_assert!(after.idle.is_subset(&before.idle), "a wake-up makes no CPU idle");
            let this = wakeup.this.index();
            let others = |costs: &[u64]| [&costs[..this], &costs[this + 1..]].concat();
            prop_assert_eq!(others(&after.avg_scan_cost), others(&before.avg_scan_cost));
            prop_assert_eq!(others(&after.aged_idle), others(&before.aged_idle));
            let others = |choices: &[CpuId]| [&choices[..this], &choices[this + 1..]].concat();
            prop_assert_eq!(others(&after.last_rotated), others(&before.last_rotated));
        }
    }

    #[test]
    fn what_a_claim_takes_was_idle_and_no_won_claim_is_lost((policy, seed) in any_policy()) {
        let mut rng = Rng(seed);
        let lab = random_lab(&mut rng, &policy, &policy.kernel);
        for _ in 0..20 {
            let (before, wakeup, _) = random_case(&mut rng, &lab);
            let mut after = before.clone();
            let placement = lab.plan.place(&mut after, &wakeup, &mut lab.plan.scratch()).unwrap();
            let cpu = placement.cpu;
            let mut lost = taken(&before, &after);
            if policy.steps.get(usize::from(placement.step)).is_some_and(Step::claims) {
                prop_assert!(lost.contains(cpu) && before.allowed.contains(cpu) && !before.contested.contains(cpu));
                lost.remove(cpu);
            }
            // sched_ext of 6.12 claims an idle prev that the wakee may not use, and leaves it so.
            if policy.steps.iter().any(|s| matches!(s, Step::ClaimPrev { disallowed: true, .. })) {
                lost.remove(if before.allowed.contains(wakeup.prev) { cpu } else { wakeup.prev });
            }
            prop_assert!(lost.is_subset(&before.contested), "{lost:?} claimed and left idle");
            let steps = policy.steps.iter().filter(|step| step.claims()).count();
            prop_assert!(lost.len() <= steps * LOST_CLAIMS as usize, "{lost:?}");
        }
    }

    #[test]
    fn huddle_queues_no_task_while_its_llc_or_node_has_an_idle_cpu(seed in any::<u64>(), spread in any::<bool>()) {
        let mut rng = Rng(seed);
        let policy = policy(if spread { "huddle-spread" } else { "huddle-gather" });
        let lab = random_lab(&mut rng, &policy, &policy.kernel);
        for _ in 0..20 {
            let (mut before, wakeup, _) = random_case(&mut rng, &lab);
            before.contested = CpuSet::new(lab.tree.nr_cpus);
            before.nr_idle_scan.fill(Some(Frozen::AMPLE));
            before.prefers_current_cpu = false;
            // Behind a waker that keeps its word a task may wait.
            before.waker_keeps_sync = Some(false);
            let mut after = before.clone();
            let placement = lab.plan.place(&mut after, &wakeup, &mut lab.plan.scratch()).unwrap();
            // Gather searches no farther than a target without an LLC; one CPU for a task leaves no choice.
            let target = placement.target;
            let searched = lab.tree.online.contains(target)
                && (spread || lab.tree.cached[target.index()].sd_llc.is_some())
                && before.allowed.len() > 1;
            let mut usable = before.idle.intersection(&before.allowed);
            usable.intersect_with(lab.topology.node.set_of(target));
            if searched && !usable.is_empty() {
                prop_assert!(before.idle.contains(placement.cpu), "{wakeup:?} {placement:?} {usable}");
                prop_assert_eq!(taken(&before, &after).iter().collect::<Vec<_>>(), [placement.cpu]);
            }
        }
    }

    #[test]
    fn no_more_cpus_are_examined_than_the_scans_may((policy, seed) in any_policy()) {
        let mut rng = Rng(seed);
        let lab = random_lab(&mut rng, &policy, &policy.kernel);
        if lab.tree.asym_active {
            return Ok(());
        }
        // Each LLC-wide search looks at every CPU once at most; RFC v2 may look at a cluster a second time; and a core's threads.
        let searches = policy.steps.iter().filter(|s| ["IdleCore", "ScanLlc", "ScanMerged"].contains(&s.kind())).count();
        let claims = |charged: bool| {
            policy.steps.iter().filter(|s| matches!(s, Step::ClaimAny { charge, .. } if *charge == charged)).count()
        };
        let util = policy.steps.iter().any(|s| matches!(s, Step::Budget { method: huddle_policy::Method::Util, .. }));
        for _ in 0..20 {
            let (mut state, wakeup, target) = random_case(&mut rng, &lab);
            let cached = &lab.tree.cached[target.index()];
            let weight = |span| lab.tree.span(span).len();
            let threads = [target, wakeup.prev].map(|cpu| weight(lab.tree.smt[cpu.index()])).into_iter().max().unwrap();
            // A core search reads a core's threads outside the partition too.
            let mut reach = CpuSet::new(lab.tree.nr_cpus);
            if let Some(llc) = cached.sd_llc {
                let llc = lab.tree.span(lab.tree.domain(llc).span);
                llc.iter().for_each(|cpu| reach.union_with(lab.tree.span(lab.tree.smt[cpu.index()])));
            }
            let raw = policy.steps.iter().any(|s| matches!(s, Step::ScanCluster { remove: false, .. }));
            let raw = if raw { weight(lab.tree.cluster_raw[target.index()]) } else { 0 };
            let hinted = lab.tree.smt_active
                && lab.tree.online.contains(target)
                && state.has_idle_cores[cached.llc_index as usize];
            let limit = state.nr_idle_scan.get(cached.llc_index as usize).copied().flatten();
            let placement = select(&lab, &mut state, &wakeup, target);
            let examined = placement.examined.iter().sum::<u32>() as usize;
            let free = claims(false) * lab.tree.online.len();
            let claimed = claims(true) * lab.tree.online.len() + free;
            prop_assert!(examined <= searches * reach.len() + raw + threads + claimed, "{examined} {placement:?}");
            if util && !hinted && let Some(limit) = limit {
                let smt = if lab.tree.smt_active { threads } else { 0 };
                prop_assert!(examined <= limit as usize + smt + free, "{examined} {placement:?}");
            }
        }
    }

    #[test]
    fn a_kept_cpu_is_returned_only_when_the_scan_found_none(seed in any::<u64>()) {
        let mut rng = Rng(seed);
        let second_chance = policy("linux-6.7");
        let lab = random_lab(&mut rng, &second_chance, "6.7");
        // The same record without what it keeps: what its scan finds, the full record must return.
        let mut steps = second_chance.steps.clone();
        for step in &mut steps {
            if let Step::PrevIdle { keep, .. } | Step::RecentIdle { keep, .. } = step {
                *keep = false;
            }
        }
        let bare = Policy { steps, ..second_chance }.compile(&lab.tree, &lab.topology);
        for _ in 0..30 {
            let (mut state, wakeup, target) = random_case(&mut rng, &lab);
            let mut other = state.clone();
            let full = select(&lab, &mut state, &wakeup, target);
            let bare = bare.select(&mut other, &wakeup, target, &mut lab.plan.scratch()).unwrap();
            if lab.policy.steps[full.step as usize].kind() == "TakeKept" {
                prop_assert_eq!(bare.cpu, target, "nothing found");
            } else {
                prop_assert_eq!(bare.cpu, full.cpu);
            }
        }
    }

    #[test]
    fn rfc2_without_its_scan_decides_as_5_9(seed in any::<u64>()) {
        let mut rng = Rng(seed);
        let lab = random_lab(&mut rng, &policy("linux-5.9"), "5.9+rfc2");
        let bare = policy("rfc2-no-select-idle-cluster").compile(&lab.tree, &lab.topology);
        for _ in 0..30 {
            let (mut state, wakeup, _) = random_case(&mut rng, &lab);
            let mut other = state.clone();
            let a = lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch()).unwrap();
            let b = bare.place(&mut other, &wakeup, &mut lab.plan.scratch()).unwrap();
            prop_assert_eq!(a, b);
            prop_assert_eq!(state, other);
        }
    }
}
