//! Where tasks that only compute are started and moved to: fork placement, active balance between clusters, fairness.
//! The numbers of test vectors are those of spec 5.13.

use std::collections::BTreeMap;

use huddle_domains::Kernel;
use huddle_engine::Cause;
use huddle_machine::{Arch, Layout, Machine, Topology};
use huddle_program::Op;

use crate::watch::Watch;
use crate::world::{MS, World, hogs, undisturbed};

fn jacobsville(policy: &str) -> World {
    World::new(&undisturbed("jacobsville"), policy)
}

/// How many of these tasks each cluster has at the end.
fn per_cluster(world: &World, watch: &Watch, tasks: std::ops::RangeInclusive<u32>) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    tasks.for_each(|task| *counts.entry(world.cluster(watch.place(task))).or_default() += 1);
    counts
}

#[test]
fn jacobsville_six_hogs_fork_onto_successive_cpus_without_the_cluster_level_and_stay() {
    let world = jacobsville("linux-5.14");
    for seed in 0..8 {
        let (_, watch) = world.run(&hogs(&[400; 6]), "0-23", &[], seed);
        let parent = watch.first_cpu(0);
        let cpus: Vec<usize> = (1..=6).map(|task| watch.first_cpu(task)).collect();
        let successive: Vec<usize> = (1..=6).map(|n| (parent + n) % 24).collect();
        assert_eq!(cpus, successive, "seed {seed}");
        // Vector 5: groups of one CPU with one task each are balanced for ever.
        let places: Vec<usize> = (1..=6).map(|task| watch.place(task)).collect();
        assert_eq!(places, cpus, "seed {seed}");
    }
}

#[test]
fn jacobsville_six_hogs_end_one_per_cluster_with_the_cluster_level() {
    for policy in ["linux-5.14-cluster", "linux-6.7"] {
        let world = jacobsville(policy);
        for seed in 0..8 {
            let (_, watch) = world.run(&hogs(&[400; 6]), "0-23", &[], seed);
            assert_eq!(per_cluster(&world, &watch, 1..=6).len(), 6, "{policy}, seed {seed}");
        }
    }
}

#[test]
fn jacobsville_24_hogs_fill_all_cpus_with_or_without_the_cluster_level() {
    for policy in ["linux-5.14", "linux-5.14-cluster", "linux-6.7"] {
        let (report, watch) = jacobsville(policy).run(&hogs(&[200; 24]), "0-23", &[], 1);
        let mut cpus: Vec<usize> = (1..=24).map(|task| watch.place(task)).collect();
        cpus.sort_unstable();
        cpus.dedup();
        assert_eq!(cpus.len(), 24, "{policy}");
        assert!(report.utilisation() > 0.95, "{policy}: {}", report.utilisation());
    }
}

/// Two long hogs that begin on two CPUs of one cluster, all others gone after `short` milliseconds: where both are at
/// the end, and the observer.
fn a_clump_of_two(world: &World, seed: u64, short: u64) -> (u32, u32, Watch) {
    // What a hog computes later does not matter for where it is forked to: a first run tells which two share a cluster
    // that the parent is not in.
    let children = 18;
    let mut lengths = vec![short; children];
    let (_, forked) = world.run(&hogs(&lengths), "0-23", &[], seed);
    let cluster = |task: usize| world.cluster(forked.first_cpu(task as u32));
    let parent = world.cluster(forked.first_cpu(0));
    let pairs = (1..=children).flat_map(|a| (a + 1..=children).map(move |b| (a, b)));
    let (a, b) = pairs.into_iter().find(|&(a, b)| cluster(a) == cluster(b) && cluster(a) != parent).unwrap();
    (lengths[a - 1], lengths[b - 1]) = (short + 600, short + 600);
    let (_, watch) = world.run(&hogs(&lengths), "0-23", &[], seed);
    assert_eq!(watch.first_cpu(a as u32), forked.first_cpu(a as u32));
    assert_eq!(watch.first_cpu(b as u32), forked.first_cpu(b as u32));
    (a as u32, b as u32, watch)
}

#[test]
fn jacobsville_two_hogs_left_in_one_cluster_are_spread_by_active_balance() {
    // Vector 1: four failed passes, each one or two intervals of 24 ms after the last, then the running task is pushed.
    let world = jacobsville("linux-5.14-cluster");
    for seed in 0..8 {
        let short = 40;
        let (a, b, watch) = a_clump_of_two(&world, seed, short);
        assert_ne!(world.cluster(watch.place(a)), world.cluster(watch.place(b)), "seed {seed}");
        let gone = watch.stretches.iter().filter(|stretch| ![0, a, b].contains(&stretch.task)).map(|s| s.to).max();
        let gone = gone.unwrap();
        let pushed: Vec<_> = watch.moves_by(Cause::Active).filter(|moved| moved.at > gone).collect();
        assert_eq!(pushed.len(), 1, "seed {seed}: {pushed:?}");
        let after = (pushed[0].at - gone) / MS;
        assert!((2 * 24..=5 * 48).contains(&after), "seed {seed}: after {after} ms");
        assert_ne!(world.cluster(pushed[0].from), world.cluster(pushed[0].to), "seed {seed}");
    }
}

#[test]
fn jacobsville_two_hogs_left_in_one_cluster_stay_without_the_cluster_level() {
    // Vector 5.
    let world = jacobsville("linux-5.14");
    for seed in 0..8 {
        let (a, b, watch) = a_clump_of_two(&world, seed, 40);
        let at = |task| (watch.first_cpu(task), watch.place(task));
        assert_eq!(at(a).0, at(a).1, "seed {seed}");
        assert_eq!(at(b).0, at(b).1, "seed {seed}");
        assert_eq!(watch.moves_by(Cause::Active).count(), 0, "seed {seed}");
    }
}

#[test]
fn a_difference_of_one_task_between_clusters_is_no_imbalance() {
    // Vectors 2 and 3: seven hogs on six clusters leave one cluster with two; nobody is pushed back and forth.
    let world = jacobsville("linux-5.14-cluster");
    for seed in 0..4 {
        let (_, watch) = world.run(&hogs(&[500; 7]), "0-23", &[], seed);
        let counts = per_cluster(&world, &watch, 1..=7);
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 1, 1, 1, 2], "seed {seed}");
        let late = watch.moves.iter().filter(|moved| moved.at > 300 * MS && moved.cause != Cause::WakeUp).count();
        assert_eq!(late, 0, "seed {seed}: {:?}", watch.moves);
    }
}

#[test]
fn jacobsville_two_hogs_on_one_cpu_share_it_in_slices() {
    // The period of two tasks is 24 ms on 8 CPUs or more, a slice is half of it; it is looked at every 4 ms.
    let world = jacobsville("linux-5.14");
    let (report, watch) = world.run(&hogs(&[300, 300]), "3", &[], 1);
    let (first, last) =
        (report.finished_ns[1].min(report.finished_ns[2]), report.finished_ns[1].max(report.finished_ns[2]));
    assert!(last > 600 * MS && last < 605 * MS, "{last}");
    assert!(last - first <= 17 * MS, "one has {} ns more than the other", last - first);
    let slices: Vec<u64> =
        watch.stretches.iter().filter(|s| s.task == 1 || s.task == 2).map(|s| s.to - s.from).collect();
    assert!(slices.len() > 30, "{slices:?}");
    // The first few depend on when the parent forked; the last ones are cut by the exit.
    for slice in &slices[4..slices.len() - 4] {
        assert!((12 * MS..=17 * MS).contains(slice), "{slices:?}");
    }
}

#[test]
fn jacobsville_two_hogs_on_one_cpu_take_turns_at_the_first_tick_after_a_slice_under_eevdf() {
    // The base slice is 3 ms on 8 CPUs or more. At 250 Hz every tick, 4 ms apart, finds it over, at 1000 Hz every third. Whoever has
    // run less than the other is the only one that is eligible then.
    for (hz, turn) in [(250, 4 * MS), (1000, 3 * MS)] {
        let mut machine = undisturbed("jacobsville");
        machine.config.hz = hz;
        let (report, watch) = World::new(&machine, "linux-6.7").run(&hogs(&[300, 300]), "3", &[], 1);
        let stretches = watch.stretches.iter().filter(|stretch| stretch.task == 1 || stretch.task == 2);
        let turns: Vec<u64> = stretches.map(|stretch| stretch.to - stretch.from).collect();
        // The first few depend on when the parent forked; the last ones are cut by the exit.
        let settled = &turns[4..turns.len() - 2];
        assert!(settled.len() as u64 > 400 * MS / turn, "{turns:?}");
        assert!(settled.iter().all(|&ns| ns == turn), "{hz} Hz: {turns:?}");
        let ends = [report.finished_ns[1], report.finished_ns[2]];
        assert!(ends[0].abs_diff(ends[1]) <= 2 * turn, "{hz} Hz: {ends:?}");
    }
}

#[test]
fn hybrid_fifteen_hogs_leave_a_thread_idle_and_no_whole_core_from_6_6_on() {
    // P cores 0-1 … 6-7, E cores 8-15. The one of the sixteen that is soon done ran on an E core: a core with two tasks gives it one,
    // though its module has three and so, before 6.6, more than the core.
    let mut machine = undisturbed("alder-lake");
    machine.topology.capacity.fill(1024);
    let before = |kernel: &mut Kernel| {
        (kernel.balance.smt_balance, kernel.balance.sibling_by_cores) = (false, false);
    };
    let worlds =
        [(World::new(&machine, "linux-6.7"), true), (World::with_kernel(&machine, "linux-6.7", before), false)];
    for (world, relieves) in worlds {
        // All of one speed: else the hogs of E cores end before those that share a core, which then spread.
        let world = world.without(&["smt"]);
        for seed in 0..4 {
            let mut lengths = [500; 16];
            let (_, all) = world.run(&hogs(&lengths), "0-15", &[], seed);
            let on_e_core = (1..=16).find(|&task| all.place(task) >= 8).unwrap();
            lengths[on_e_core as usize - 1] = 100;
            let (_, watch) = world.run(&hogs(&lengths), "0-15", &[], seed);
            let rest = (1..=16).filter(|&task| task != on_e_core);
            let on_e_cores = rest.filter(|&task| watch.place(task) >= 8).count();
            assert_eq!(on_e_cores, if relieves { 8 } else { 7 }, "seed {seed}, from 6.6 on: {relieves}");
        }
    }
}

#[test]
fn three_hogs_on_a_machine_of_two_cpus_are_moved_around_until_all_have_had_their_share() {
    // One cluster of two cores: on a larger machine idle CPUs lower the average load below that of either.
    let two = Topology::from_layout(Arch::X86_64, &Layout::new([1, 1, 1, 1, 2, 1])).unwrap();
    let world = World::new(&Machine { topology: two, ..undisturbed("jacobsville") }, "linux-5.14-cluster");
    for seed in 0..4 {
        let (_, watch) = world.run(&hogs(&[2000; 3]), "0,1", &[], seed);
        let moved = watch.moves_by(Cause::Periodic).filter(|moved| moved.at < 1900 * MS).count();
        assert!(moved >= 8, "seed {seed}: moved {moved} times");
        let ran: Vec<u64> = (1..=3).map(|task| watch.ran(task, 1900 * MS) / MS).collect();
        // Fair is 1267 each; without moves one has 1900 and two have 950.
        assert!(ran.iter().all(|ran| (1100..1600).contains(ran)), "seed {seed}: {ran:?}");
    }
}

#[test]
fn an_idle_cpu_pulls_from_an_overloaded_one() {
    // Three hogs on two CPUs; when one is done, its CPU has nothing left or the other has two: both stay busy to the end.
    let world = jacobsville("linux-5.14");
    let (report, _) = world.run(&hogs(&[100, 300, 300]), "0,1", &[], 1);
    let busy = report.utilisation();
    assert!(busy > 0.9, "{busy}");
}

/// How many of a process's eight threads end on each node of a Kunpeng 920, two nodes of 24 CPUs allowed. They compute for 2 s.
fn threads_by_node(kernel: &str, processes: bool) -> BTreeMap<u32, usize> {
    let machine = undisturbed("kunpeng920");
    let world = World::with_kernel(&machine, "linux-6.7", |record| *record = Kernel::load(kernel).unwrap());
    let mut program = hogs(&[2000; 8]);
    if processes {
        program.scripts[1..].iter_mut().for_each(|script| script.ops.insert(0, Op::Exec));
    }
    let (_, watch) = world.run(&program, "0-47", &[], 1);
    let mut nodes = BTreeMap::new();
    (1..=8).for_each(|task| *nodes.entry(world.tree.node_of[watch.place(task)]).or_default() += 1);
    nodes
}

#[test]
fn kunpeng_threads_of_a_process_end_on_one_node_only_with_cache_aware_balancing_and_processes_do_not() {
    let spread = |nodes: &BTreeMap<u32, usize>| nodes.len() == 2 && nodes.values().all(|&tasks| tasks >= 2);
    let gathered = threads_by_node("7.2", false);
    assert_eq!(gathered.values().copied().max(), Some(8), "{gathered:?}");
    let without = threads_by_node("7.2-nocache", false);
    assert!(spread(&without), "{without:?}");
    let processes = threads_by_node("7.2", true);
    assert!(spread(&processes), "{processes:?}");
}
