//! Huddle's own policies and the steps that claim: one node of the Kunpeng 920 (24 CPUs, six clusters of four, one LLC), two such
//! nodes, and machines with two threads per core.

use huddle_machine::{CpuId, CpuSet, Distance, Partition};
use huddle_policy::{Event, Frozen, Placement, Plan, Policy, Undecidable, View, Wakeup};

use crate::machines::{Lab, policy, regular};

/// 16 CPUs: two clusters of four cores, 0-7 and 8-15, under one LLC; threads 0-1, 2-3, … share a core.
fn threads(name: &str) -> Lab {
    let policy = policy(name);
    Lab::new(&policy, regular([1, 1, 1, 2, 4, 2]), &policy.kernel)
}

/// 48 CPUs: 0-23 on one node, 24-47 on the other.
fn two_nodes(name: &str) -> Lab {
    let policy = policy(name);
    Lab::new(&policy, regular([1, 2, 1, 6, 4, 1]), &policy.kernel)
}

fn wakeup(this: u32, prev: u32) -> Wakeup {
    Wakeup { this: CpuId(this), prev: CpuId(prev), sync: false }
}

fn place(lab: &Lab, state: &mut Frozen, this: u32, prev: u32) -> Placement {
    lab.plan.place(state, &wakeup(this, prev), &mut lab.plan.scratch()).unwrap()
}

/// The CPU and the step, counted from 1 as `huddle policies` does.
fn decision(lab: &Lab, state: &mut Frozen, this: u32, prev: u32) -> (u32, usize) {
    let placement = place(lab, state, this, prev);
    (placement.cpu.0, usize::from(placement.step) + 1)
}

fn fork(plan: &Plan, state: &mut Frozen, this: u32) -> Placement {
    plan.place_fork(state, &wakeup(this, this), &mut plan.scratch()).unwrap().unwrap()
}

fn set(list: &str, nr_cpus: usize) -> CpuSet {
    CpuSet::parse_list(list).unwrap().resized(nr_cpus)
}

#[test]
fn kunpeng_node_gather_looks_in_the_wakers_cluster_then_at_prev_then_farther() {
    let lab = Lab::kunpeng_node("huddle-gather");
    for (idle, prev, expected) in [
        ("4,6-7,9", 6, (6, 4)), // prev in the waker's cluster
        ("4,7,9", 6, (7, 5)),   // behind the waker: 6, 7, 4, 5
        ("4,9", 9, (4, 5)),     // the cluster before an idle prev elsewhere
        ("8,9,10", 9, (9, 8)),  // then prev
        ("8,3,20", 9, (8, 9)),  // then prev's cluster: 10, 11, 8
        ("3,20", 9, (20, 12)),  // then the LLC from behind the waker
        ("3", 9, (3, 12)),      // with wrap
        ("", 9, (5, 14)),       // else the waker's queue
    ] {
        let mut state = lab.state_with_idle(idle);
        assert_eq!(decision(&lab, &mut state, 5, prev), expected, "idle {idle}, prev {prev}");
        assert!(!state.idle.contains(CpuId(expected.0)), "{idle}: claimed");
    }
}

#[test]
fn kunpeng_node_gather_examines_clusters_free_and_the_llc_within_its_budget() {
    let lab = Lab::kunpeng_node("huddle-gather");
    // Four CPUs of each cluster are looked at, then 6 … 20 at a charge.
    for (limit, expected, examined, exhausted) in [(15, 20, 8 + 15, false), (14, 5, 8 + 14, true), (0, 5, 8, true)] {
        let mut state = lab.state_with_idle("20");
        state.nr_idle_scan.fill(Some(limit));
        let placement = place(&lab, &mut state, 5, 9);
        assert_eq!((placement.cpu.0, placement.exhausted), (expected, exhausted), "limit {limit}");
        assert_eq!(placement.examined.iter().sum::<u32>(), examined, "limit {limit}");
        assert_eq!(
            placement.step,
            if exhausted { 13 } else { 11 },
            "limit {limit}: an exhausted budget skips the node"
        );
    }
    // By distance from CPU 5: itself, its three mates and the four of prev's cluster.
    let mut state = lab.state_with_idle("20");
    state.nr_idle_scan.fill(Some(0));
    assert_eq!(place(&lab, &mut state, 5, 9).examined, [1, 0, 3, 4, 0, 0, 0]);
}

#[test]
fn kunpeng_node_gather_holds_to_the_affinity() {
    let lab = Lab::kunpeng_node("huddle-gather");
    let mut state = lab.state_with_idle("6,9-11,20");
    state.allowed = set("5,10-11", 24);
    assert_eq!(decision(&lab, &mut state, 5, 9), (10, 9), "neither 6 nor an idle prev");
    // A waker that the wakee may not share a CPU with: prev is the target.
    let mut state = lab.state_with_idle("6,11");
    state.allowed = set("9-11", 24);
    let placement = place(&lab, &mut state, 5, 9);
    assert_eq!((placement.target.0, placement.cpu.0), (9, 11));
}

#[test]
fn kunpeng_node_gather_waits_behind_a_waker_that_gives_way_however_many_cpus_are_idle() {
    let lab = Lab::kunpeng_node("huddle-gather");
    for (idle, sync, keeps, running, expected) in [
        ("6", true, true, 1, (5, 1)),
        ("0-4,6-23", true, true, 1, (5, 1)),
        ("6", false, true, 1, (6, 5)),
        ("6", true, false, 1, (6, 5)),
        ("6", true, true, 2, (6, 5)),
    ] {
        let mut state = lab.state_with_idle(idle);
        state.nr_running[5] = running;
        state.waker_keeps_sync = Some(keeps);
        let wakeup = Wakeup { sync, ..wakeup(5, 9) };
        let placement = lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch()).unwrap();
        assert_eq!((placement.cpu.0, usize::from(placement.step) + 1), expected, "{idle} {sync} {keeps} {running}");
    }
}

#[test]
fn two_threads_per_core_without_clusters_gather_takes_a_whole_core_before_the_wakers_sibling() {
    let policy = policy("huddle-gather");
    let lab = Lab::new(&policy, regular([1, 1, 1, 8, 1, 2]), &policy.kernel);
    for (idle, prev, expected) in [
        ("1,6-7", 0, 6), // the sibling, or a whole core of the LLC
        ("1,7", 0, 1),   // no whole core: the next idle CPU
        ("1,7", 7, 7),   // prev before the sibling
    ] {
        let mut state = lab.state_with_idle(idle);
        assert_eq!(decision(&lab, &mut state, 0, prev).0, expected, "idle {idle}, prev {prev}");
    }
}

#[test]
fn kunpeng_two_nodes_gather_pulls_to_another_llc_only_for_a_waker_that_gives_way() {
    let lab = two_nodes("huddle-gather");
    for (this, prev, sync, running, target) in
        [(3, 30, false, 1, 30), (3, 30, true, 1, 3), (3, 30, true, 2, 30), (3, 9, false, 2, 3), (9, 9, true, 2, 9)]
    {
        let mut state = lab.state_with_idle("");
        state.nr_running[this as usize] = running;
        state.waker_keeps_sync = Some(false);
        let wakeup = Wakeup { sync, ..wakeup(this, prev) };
        let placement = lab.plan.place(&mut state, &wakeup, &mut lab.plan.scratch()).unwrap();
        assert_eq!((placement.target.0, placement.cpu.0), (target, target), "{wakeup:?}, {running} running");
    }
    // A wake-up that asks for the CPU gets it, from whatever node.
    let mut state = lab.state_with_idle("30");
    state.prefers_current_cpu = true;
    assert_eq!(decision(&lab, &mut state, 3, 30), (3, 15));
}

#[test]
fn two_threads_per_core_gather_takes_a_whole_core_of_the_cluster_first() {
    let lab = threads("huddle-gather");
    for (idle, prev, expected) in [
        ("1,4-5", 0, (4, 3)),      // not the sibling of the waker
        ("1,4-7", 6, (6, 2)),      // prev, with all of its core
        ("1,7", 7, (7, 4)),        // no whole core: prev
        ("1,8-9", 8, (1, 5)),      // a thread of the cluster before a core elsewhere
        ("8-9,12", 8, (8, 6)),     // prev's whole core
        ("8,10-11", 8, (10, 7)),   // a whole core beside prev
        ("8,12", 8, (8, 8)),       // prev
        ("11,12", 8, (11, 9)),     // its cluster, from behind prev
        ("10-11,13", 0, (10, 10)), // the LLC: a whole core
        ("9,11", 0, (9, 12)),      // the LLC: a thread
    ] {
        let mut state = lab.state_with_idle(idle);
        assert_eq!(decision(&lab, &mut state, 0, prev), expected, "idle {idle}, prev {prev}");
    }
}

#[test]
fn two_threads_per_core_gather_searches_for_cores_free_and_for_threads_within_its_budget() {
    let lab = threads("huddle-gather");
    // No whole core; then 1 … 9.
    for (limit, expected, step) in [(9, 9, 12), (8, 0, 14)] {
        let mut state = lab.state_with_idle("9,11");
        state.nr_idle_scan.fill(Some(limit));
        assert_eq!(decision(&lab, &mut state, 0, 0), (expected, step), "limit {limit}");
    }
}

#[test]
fn two_threads_per_core_a_thread_outside_the_partition_does_not_make_its_core_busy() {
    let policy = policy("huddle-gather");
    let topology = regular([1, 1, 1, 1, 4, 2]);
    let kernel = huddle_domains::Kernel::load(&policy.kernel).unwrap();
    let tree = huddle_domains::build_for(&topology, &kernel, &set("0,2-7", 8));
    let lab = Lab::with_tree(&policy, topology, tree);
    let mut state = lab.state_with_idle("0,3");
    assert_eq!(decision(&lab, &mut state, 2, 2), (0, 3), "3 shares its core with the busy waker");
}

#[test]
fn two_threads_per_core_a_lost_claim_ends_its_whole_core() {
    let lab = threads("huddle-gather");
    let mut state = lab.state_with_idle("2-5");
    state.contested = set("2", 16);
    assert_eq!(decision(&lab, &mut state, 0, 0), (4, 3), "3 is idle, its core not any more");
    assert_eq!(state.idle, set("3,5", 16));
}

#[test]
fn kunpeng_node_a_step_is_left_after_eight_lost_claims() {
    let lab = Lab::kunpeng_node("huddle-gather");
    for (contested, expected, left) in [("4-10", (11, 12), "12-23"), ("4-11", (12, 13), "13-23")] {
        let mut state = lab.state_with_idle("4-23");
        state.contested = set(contested, 24);
        assert_eq!(decision(&lab, &mut state, 0, 0), expected, "{contested}");
        assert_eq!(state.idle, set(left, 24), "{contested}");
    }
}

#[test]
fn kunpeng_node_an_exhausted_claim_is_told_with_what_it_lost() {
    let lab = Lab::kunpeng_node("huddle-gather");
    let mut state = lab.state_with_idle("9,20");
    state.contested = set("9", 24);
    state.nr_idle_scan.fill(Some(3));
    let mut events = Vec::new();
    let mut hear = |event| events.push(event);
    lab.plan.place_traced(&mut state, &wakeup(5, 9), &mut lab.plan.scratch(), &mut hear).unwrap();
    let from = events.iter().position(|event| *event == Event::Step(7)).unwrap();
    assert_eq!(
        events[from..],
        [
            Event::Step(7),
            Event::Tested { cpu: CpuId(9), good: true },
            Event::Claimed { cpu: CpuId(9), won: false },
            Event::Step(8),
            Event::Examined { word: 0, bits: 0xc00 },
            Event::Examined { word: 0, bits: 0x300 },
            Event::Step(9),
            Event::Skipped("no SMT"),
            Event::Step(10),
            Event::Budget(Some(3)),
            Event::Step(11),
            Event::Examined { word: 0, bits: 0x1c0 },
            Event::Exhausted,
            Event::Left(0),
            Event::Step(13),
            Event::Decided(CpuId(5)),
        ]
    );
}

#[test]
fn kunpeng_node_spread_keeps_prev_while_its_cluster_is_no_busier() {
    let lab = Lab::kunpeng_node("huddle-spread");
    // Two busy in every cluster, 5 idle: as busy as the others.
    let everywhere = "6-7,0-1,8-9,12-13,16-17,20-21";
    for (busy, expected) in [
        (everywhere.to_owned(), (5, 3)),
        (format!("{everywhere},4"), (10, 4)), // three against two: the next cluster behind prev's, from behind prev
        (format!("{everywhere},4,8-19"), (22, 4)), // of the two that are left, behind prev: 20-23 before 0-3
        (format!("{everywhere},4,8-23"), (2, 4)),
        ("4,6-7,0-3,8-23".to_owned(), (5, 3)), // no other cluster has an idle CPU
    ] {
        let mut state = lab.state_with_busy(&busy);
        assert_eq!(decision(&lab, &mut state, 0, 5), expected, "busy {busy}");
        assert!(!state.idle.contains(CpuId(expected.0)), "busy {busy}: claimed");
    }
}

#[test]
fn kunpeng_node_spread_leaves_a_busy_prev_for_the_idlest_cluster() {
    let lab = Lab::kunpeng_node("huddle-spread");
    for (busy, prev, expected) in [
        ("5,0,8,12,16,20", 5, (6, 4)),           // all alike: prev's own cluster, from behind prev
        ("4-7,0,8,12,16,20", 5, (9, 4)),         // own cluster full: the next
        ("20-23,0,4,8,12,16", 21, (1, 4)),       // with wrap
        ("4-7,0-1,8-9,12,16-17,20", 5, (13, 4)), // the least busy, the nearer of two
        ("0-23", 5, (5, 7)),                     // nothing idle: prev's queue
    ] {
        let mut state = lab.state_with_busy(busy);
        assert_eq!(decision(&lab, &mut state, 0, prev), expected, "busy {busy}");
    }
}

#[test]
fn kunpeng_node_spread_goes_on_in_the_idlest_cluster_after_a_lost_claim() {
    let lab = Lab::kunpeng_node("huddle-spread");
    // 8-11 is idle, all others but 12-15 are full.
    for (contested, expected) in [("8", 9), ("8,9", 10)] {
        let mut state = lab.state_with_busy("0-7,12,16-23");
        state.contested = set(contested, 24);
        assert_eq!(decision(&lab, &mut state, 0, 5), (expected, 4), "{contested}");
    }
    // Prev itself lost: its cluster now is busier than the others.
    let mut state = lab.state_with_busy("0,8,12,16,20,4");
    state.contested = set("5", 24);
    assert_eq!(decision(&lab, &mut state, 0, 5), (9, 4));
}

#[test]
fn clusters_of_different_size_are_compared_by_the_busy_part() {
    // 0-3, 4-5 and 6-9.
    let mut topology = regular([1, 1, 1, 10, 1, 1]);
    topology.cluster = Partition::from_ids(&topology.online, |cpu| match cpu.0 {
        0..=3 => 0,
        4..=5 => 1,
        _ => 2,
    });
    let lab = Lab::new(&policy("huddle-spread"), topology, "7.1+huddle");
    for (busy, expected) in [("0-4,6", 7), ("0-4,6-7", 5), ("0-4,6-8", 5)] {
        assert_eq!(decision(&lab, &mut lab.state_with_busy(busy), 0, 1), (expected, 4), "busy {busy}");
    }
}

#[test]
fn two_threads_per_core_spread_counts_only_clusters_with_a_whole_core() {
    let lab = threads("huddle-spread");
    for (busy, prev, expected) in [
        ("2,4,9", 0, (10, 2)), // one busy against two: leave, for the first whole core from prev's number up
        ("2,4,8,10,12", 0, (0, 1)), // the other is busier
        ("2,4,6,8,10", 0, (12, 2)), // three busy against two: the whole cores there are 12-13 and 14-15
        ("1,3,5,7,8,10,12,14", 0, (0, 3)), // no whole core anywhere, equally busy: prev
        ("1-7,8,10,12,14", 0, (9, 4)), // a thread of the idler cluster
    ] {
        assert_eq!(decision(&lab, &mut lab.state_with_busy(busy), 0, prev), expected, "busy {busy}");
    }
    // The idler cluster has no whole core: prev stays with its own.
    assert_eq!(decision(&lab, &mut lab.state_with_busy("2-7,8,10,12,14"), 0, 0), (0, 1));
}

#[test]
fn two_llcs_spread_searches_the_node_when_its_llc_is_full() {
    let lab = Lab::new(&policy("huddle-spread"), regular([1, 1, 2, 3, 4, 1]), "7.1+huddle");
    assert_eq!(decision(&lab, &mut lab.state_with_idle("14,20"), 5, 5), (14, 6));
    let lab = two_nodes("huddle-spread");
    assert_eq!(decision(&lab, &mut lab.state_with_idle("30"), 5, 5), (5, 7), "the other node is left alone");
}

#[test]
fn kunpeng_node_six_forks_sit_in_six_clusters_and_twelve_two_by_two() {
    for name in ["huddle-gather", "huddle-spread"] {
        let lab = Lab::kunpeng_node(name);
        let mut state = lab.state_with_busy("5");
        let cpus: Vec<u32> = (0..11).map(|_| fork(&lab.plan, &mut state, 5).cpu.0).collect();
        assert_eq!(cpus, [8, 12, 16, 20, 0, 6, 9, 13, 17, 21, 1], "{name}");
    }
}

#[test]
fn two_threads_per_core_forks_take_whole_cores_of_all_clusters_before_threads() {
    let lab = threads("huddle-spread");
    let mut state = lab.state_with_busy("0");
    let cpus: Vec<u32> = (0..9).map(|_| fork(&lab.plan, &mut state, 0).cpu.0).collect();
    // Seven cores in turns, then the sibling in the own cluster, then in the other.
    assert_eq!(cpus, [8, 2, 10, 4, 12, 6, 14, 1, 9]);
}

#[test]
fn kunpeng_two_nodes_forks_fill_their_node_before_the_other() {
    let lab = two_nodes("huddle-gather");
    let mut state = lab.state_with_idle("3,40");
    assert_eq!(fork(&lab.plan, &mut state, 5).cpu.0, 3);
    let placement = fork(&lab.plan, &mut state, 5);
    assert_eq!((placement.cpu.0, placement.step), (40, 3));
    let placement = fork(&lab.plan, &mut state, 5);
    assert_eq!((placement.cpu.0, placement.step, placement.examined), (5, 4, [0; Distance::COUNT]));
    // Core rules around the steps.
    state.allowed = set("30", 48);
    assert_eq!((fork(&lab.plan, &mut state, 5).cpu.0, fork(&lab.plan, &mut state, 5).step), (30, 5));
    state.allowed = set("30-31", 48);
    assert_eq!((fork(&lab.plan, &mut state, 5).cpu.0, fork(&lab.plan, &mut state, 5).step), (30, 5));
}

#[test]
fn a_record_without_fork_steps_leaves_forks_to_the_kernel() {
    let lab = Lab::kunpeng_node("linux-6.7");
    let mut state = lab.state_with_idle("");
    assert_eq!(lab.plan.place_fork(&mut state, &wakeup(5, 5), &mut lab.plan.scratch()), None);
}

#[test]
fn kunpeng_node_sync_wake_up_stays_with_a_waker_that_keeps_its_word() {
    let lab = Lab::kunpeng_node("claims-before-scans");
    let stay = |change: &dyn Fn(&mut Frozen, &mut Wakeup)| {
        let mut state = lab.state_with_idle("6,20");
        state.waker_keeps_sync = Some(true);
        let mut wakeup = Wakeup { sync: true, ..wakeup(5, 9) };
        change(&mut state, &mut wakeup);
        let placement = lab.plan.select(&mut state, &wakeup, CpuId(5), &mut lab.plan.scratch()).unwrap();
        (placement.cpu.0, placement.step) == (5, 0)
    };
    assert!(stay(&|_, _| ()));
    assert!(stay(&|state, _| state.idle = set("20", 24)));
    assert!(!stay(&|state, _| state.allowed = set("7-9", 24)));
    assert!(!stay(&|state, _| state.nr_running[5] = 2));
    assert!(!stay(&|state, _| state.waker_keeps_sync = Some(false)));
    assert!(!stay(&|_, wakeup| wakeup.sync = false));
    assert!(!stay(&|_, wakeup| wakeup.this = CpuId(4)));
}

/// A world that knows idle CPUs and affinity, and nothing that has a default.
struct Blind(Frozen);

impl View for Blind {
    fn idle_word(&self, word: usize) -> u64 {
        self.0.idle_word(word)
    }
    fn sched_idle_word(&self, _: usize) -> u64 {
        0
    }
    fn allowed_word(&self, word: usize) -> u64 {
        self.0.allowed_word(word)
    }
    fn nr_running(&self, cpu: CpuId) -> Option<u32> {
        self.0.nr_running(cpu)
    }
    fn cpu_load(&self, _: CpuId) -> Option<u64> {
        None
    }
    fn capacity(&self, _: CpuId) -> Option<u64> {
        None
    }
    fn waker_load(&self) -> Option<u64> {
        None
    }
    fn wakee_load(&self) -> Option<u64> {
        None
    }
    fn waker_flips(&self) -> Option<u32> {
        None
    }
    fn wakee_flips(&self) -> Option<u32> {
        None
    }
    fn waker_is_per_cpu_kthread(&self) -> bool {
        false
    }
    fn wakee_is_sched_idle(&self) -> bool {
        false
    }
    fn fits(&self, _: CpuId) -> Option<bool> {
        None
    }
    fn recent(&self) -> Option<CpuId> {
        None
    }
    fn set_recent(&mut self, _: CpuId) {}
    fn set_waker_recent(&mut self, _: CpuId) {}
    fn has_idle_cores(&self, _: u32) -> Option<bool> {
        None
    }
    fn set_has_idle_cores(&mut self, _: u32, _: bool) {}
    fn avg_idle(&self, _: CpuId) -> Option<u64> {
        None
    }
    fn avg_scan_cost(&self, _: CpuId) -> Option<u64> {
        None
    }
    fn set_avg_scan_cost(&mut self, _: CpuId, _: u64) {}
    fn aged_idle(&mut self, _: CpuId) -> Option<u64> {
        None
    }
    fn charge_aged_idle(&mut self, _: CpuId, _: u64) {}
    fn scan_time(&self, _: &[u32; Distance::COUNT]) -> u64 {
        0
    }
    fn nr_idle_scan(&self, _: u32) -> Option<u32> {
        None
    }
    fn next_cpu(&self, _: CpuId) -> Option<CpuId> {
        None
    }
    fn set_next_cpu(&mut self, _: CpuId, _: CpuId) {}
}

#[test]
fn claims_in_a_world_without_them_are_undecidable_only_where_one_is_tried() {
    let undecidable = |lab: &Lab, idle: &str, sync: bool| {
        let wakeup = Wakeup { sync, ..wakeup(0, 0) };
        let mut world = Blind(lab.state_with_idle(idle));
        lab.plan.place(&mut world, &wakeup, &mut lab.plan.scratch()).map(|placement| placement.cpu.0)
    };
    let spread = Lab::kunpeng_node("huddle-spread");
    assert_eq!(undecidable(&spread, "9", false), Err(Undecidable("whether an idle CPU is claimed")));
    assert_eq!(undecidable(&spread, "", false), Ok(0), "no idle CPU, no claim");
    assert_eq!(undecidable(&threads("huddle-spread"), "9", false), Err(Undecidable("which cores are idle as a whole")));
    let stacks = Lab::kunpeng_node("claims-everywhere");
    let promise = "whether the waker sleeps after its sync wake-ups";
    assert_eq!(undecidable(&stacks, "9", true), Err(Undecidable(promise)));
    assert_eq!(undecidable(&stacks, "", false), Ok(0));
}

#[test]
fn a_plan_shows_what_it_was_compiled_from() {
    let lab = threads("huddle-gather");
    let Policy { entry, steps, fork, .. } = policy("huddle-gather");
    let plan = &lab.plan;
    assert_eq!((plan.entry(), plan.steps(), plan.fork_steps()), (entry, &steps[..], fork.as_deref()));
    assert_eq!((plan.after_scans(), plan.nr_cpus(), plan.nr_words()), (13, 16, 1));
    assert!(plan.smt_active() && plan.cluster_active() && !plan.asym_active() && !plan.walk_disallowed());
    let facts = plan.facts(CpuId(3)).unwrap();
    let affine = &plan.affine_spans()[facts.affine_from as usize..][..facts.affine_len as usize];
    // SMT, cluster, LLC: 2, 8 and 16 CPUs.
    assert_eq!(affine.iter().map(|domain| domain.span.weight).collect::<Vec<_>>(), [2, 8, 16]);
}
