//! Huddle's own policies on its own queues: where hogs and pairs end up, who waits and for how long, what nobody has to
//! wait for.

use std::collections::BTreeMap;

use huddle_domains::QueueKind;
use huddle_engine::{Cause, Mechanism, Report, SimError};
use huddle_machine::{CostKey, Distance};
use huddle_policy::{Policy, Step};
use huddle_program::{ChannelId, ChannelSpec, Op, Program, TaskId};

use crate::laws::lawful;
use crate::watch::Watch;
use crate::world::{MS, Quiet, World, hackbench, hogs, machine, parent, program, undisturbed};

const MODES: [&str; 2] = ["huddle-gather", "huddle-spread"];

fn jacobsville(policy: &str) -> World {
    World::new(&undisturbed("jacobsville"), policy)
}

/// How many of these tasks each cluster has at the end, fewest first.
fn per_cluster(world: &World, watch: &Watch, tasks: std::ops::RangeInclusive<u32>) -> Vec<usize> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    tasks.for_each(|task| *counts.entry(world.cluster(watch.place(task))).or_default() += 1);
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable();
    counts
}

/// Two tasks that pass a message to and fro so many times and compute for `work` ns each time. They begin with
/// computing, so that each has a CPU when the other is forked.
fn pair(rounds: u64, work: u64, first_channel: u32) -> [Vec<Op>; 2] {
    let (there, back) = (ChannelId(first_channel), ChannelId(first_channel + 1));
    let again = Op::Repeat { to: 1, times: rounds, counter: 0 };
    let (begin, compute) = (Op::Compute { ns: 200_000 }, Op::Compute { ns: work });
    [
        vec![begin, Op::Send { channel: there }, Op::Receive { channel: back }, compute, again],
        vec![begin, Op::Receive { channel: there }, compute, Op::Send { channel: back }, again],
    ]
}

/// A parent with such scripts as children, after whom it starts none.
fn children(scripts: Vec<Vec<Op>>, channels: usize) -> Program {
    let mut all = vec![parent(scripts.len() as u32)];
    all.extend(scripts);
    let mut program = program(all);
    program.channels = vec![ChannelSpec::Pipe { message_bytes: 100 }; channels];
    program
}

/// A parent with `pairs` pairs (tasks 1 and 2, 3 and 4 …), then `hogs` hogs of that length.
fn pairs_and_hogs(pairs: u32, rounds: u64, hogs: usize, hog_ms: u64) -> Program {
    let mut scripts: Vec<Vec<Op>> = (0..pairs).flat_map(|index| pair(rounds, 2_000, 2 * index)).collect();
    scripts.extend(vec![vec![Op::Compute { ns: hog_ms * MS }]; hogs]);
    children(scripts, 2 * pairs as usize)
}

/// From when to when a task waited: woken, new or taken off a CPU, until it ran.
fn waits(watch: &Watch, task: u32) -> Vec<(u64, u64)> {
    let stretches: Vec<_> = watch.stretches.iter().filter(|stretch| stretch.task == task).collect();
    let wakes: Vec<u64> = watch.wakes.iter().filter(|wake| wake.wakee == task).map(|wake| wake.at).collect();
    let gaps = stretches.windows(2).map(|two| (two[0].to, two[1].from));
    let ready = |(from, to)| (wakes.iter().copied().find(|&at| (from..=to).contains(&at)).unwrap_or(from), to);
    gaps.map(ready).collect()
}

/// When a CPU ran nothing, between its first task and its last.
fn idle_times(watch: &Watch, cpu: usize) -> Vec<(u64, u64)> {
    let mine: Vec<_> = watch.stretches.iter().filter(|stretch| stretch.cpu == cpu).collect();
    mine.windows(2).map(|two| (two[0].to, two[1].from)).filter(|(from, to)| from < to).collect()
}

/// Nobody waits for longer than it takes to wake a CPU while one of its cluster that it may use idles.
fn nobody_waits_beside_an_idle_cpu(
    world: &World,
    watch: &Watch,
    free_tasks: std::ops::RangeInclusive<u32>,
    cpus: std::ops::Range<usize>,
) {
    const REACTION: u64 = 20_000;
    let idle: Vec<Vec<(u64, u64)>> = cpus.clone().map(|cpu| idle_times(watch, cpu)).collect();
    for task in free_tasks {
        for (from, to) in waits(watch, task).into_iter().filter(|(from, to)| to - from > REACTION) {
            let ran = watch.stretches.iter().find(|stretch| stretch.task == task && stretch.from == to).unwrap();
            let mates = cpus.clone().filter(|&cpu| world.cluster(cpu) == world.cluster(ran.cpu));
            for cpu in mates {
                let both = |&&(begin, end): &&(u64, u64)| end.min(to).saturating_sub(begin.max(from)) > REACTION;
                let found = idle[cpu - cpus.start].iter().find(both);
                assert_eq!(found, None, "task {task} waits from {from} to {to} ns while CPU {cpu} idles");
            }
        }
    }
}

/// Wake-ups that a step of this kind decided.
fn placed_by(world: &World, report: &Report, kind: fn(&Step) -> bool) -> u64 {
    let steps = world.plan.steps().iter().zip(&report.wakes.placed);
    steps.filter(|(step, _)| kind(step)).flat_map(|(_, by_distance)| by_distance).sum()
}

fn claims(step: &Step) -> bool {
    matches!(step, Step::ClaimPrev { .. } | Step::ClaimAny { .. } | Step::ClaimIdlest { .. })
}

#[test]
fn jacobsville_six_hogs_sit_in_six_clusters_and_twelve_two_by_two() {
    for policy in MODES {
        let world = jacobsville(policy);
        for seed in 0..8 {
            for (count, wanted) in [(6, vec![1; 6]), (12, vec![2; 6])] {
                let (_, watch) = world.run(&hogs(&vec![200; count]), "0-23", &[], seed);
                assert_eq!(per_cluster(&world, &watch, 1..=count as u32), wanted, "{policy}, seed {seed}");
                // They were forked there.
                let moved = watch.moves.iter().filter(|moved| moved.cause != Cause::Fork && moved.task > 0).count();
                assert_eq!(moved, 0, "{policy}, seed {seed}: {:?}", watch.moves);
            }
        }
    }
}

#[test]
fn jacobsville_a_difference_of_one_hog_between_clusters_moves_nobody() {
    for policy in MODES {
        let world = jacobsville(policy);
        let (_, watch) = world.run(&hogs(&[200; 7]), "0-23", &[], 1);
        assert_eq!(per_cluster(&world, &watch, 1..=7), [1, 1, 1, 1, 1, 2], "{policy}");
        assert_eq!(watch.moves.iter().filter(|moved| moved.cause == Cause::Active).count(), 0, "{policy}");
    }
}

#[test]
fn jacobsville_two_hogs_left_in_one_cluster_part_at_the_end_of_a_slice() {
    for policy in MODES {
        let world = jacobsville(policy);
        // Twelve lie two by two; all but one pair of them are short.
        let (_, forked) = world.run(&hogs(&[20; 12]), "0-23", &[], 1);
        let mates: Vec<u32> = (1..=12)
            .filter(|&task| world.cluster(forked.first_cpu(task)) == world.cluster(forked.first_cpu(1)))
            .collect();
        let [a, b] = mates[..] else { panic!("{policy}: {mates:?}") };
        let mut lengths = vec![20; 12];
        (lengths[a as usize - 1], lengths[b as usize - 1]) = (100, 100);
        let (_, watch) = world.run(&hogs(&lengths), "0-23", &[], 1);
        let moved: Vec<_> = watch.moves_by(Cause::Active).collect();
        assert_eq!(moved.len(), 1, "{policy}: {moved:?}");
        assert_ne!(world.cluster(watch.place(a)), world.cluster(watch.place(b)), "{policy}");
        // A slice of 5 ms ends at the second tick of 4 ms.
        let gone = watch.stretches.iter().filter(|s| (1..=12).contains(&s.task) && s.task != a && s.task != b);
        let gone = gone.map(|stretch| stretch.to).max().unwrap();
        assert!(moved[0].at - gone <= 9 * MS, "{policy}: after {} ns", moved[0].at - gone);
    }
}

#[test]
fn jacobsville_a_pair_forked_into_two_clusters_gathers_and_does_not_under_spread() {
    for (policy, gathered) in [("huddle-gather", true), ("huddle-spread", false)] {
        let world = jacobsville(policy);
        for seed in 0..8 {
            let (report, watch) = world.run(&pairs_and_hogs(1, 200, 0, 0), "0-23", &[], seed);
            assert_ne!(world.cluster(watch.first_cpu(1)), world.cluster(watch.first_cpu(2)), "{policy}, seed {seed}");
            let together = world.cluster(watch.place(1)) == world.cluster(watch.place(2));
            assert_eq!(together, gathered, "{policy}, seed {seed}");
            // At most the first ones are woken from afar.
            let near = |distance: Distance| report.wakes.waker_to_chosen[distance as usize];
            let (all, far) = (report.wakes.total(), near(Distance::Llc));
            assert!(if gathered { far <= 4 } else { far + 4 >= all }, "{policy}, seed {seed}: {far} of {all}");
        }
    }
}

#[test]
fn jacobsville_hogs_fill_a_pairs_cluster_and_the_pair_leaves_without_waiting() {
    // The pair gathers; after 5 ms a hog comes to each CPU of its cluster and cannot leave it.
    let late = |hogs: [usize; 4]| {
        let mut scripts = vec![Vec::new()];
        scripts.extend(pair(2_000, 2_000, 0));
        scripts.extend(vec![vec![Op::Compute { ns: 30 * MS }]; 4]);
        let spawn = |task| Op::Spawn { task: TaskId(task) };
        scripts[0] = vec![Op::Start, spawn(1), spawn(2), Op::Compute { ns: 5 * MS }];
        scripts[0].extend((3..=6).map(spawn));
        scripts[0].extend((1..=6).map(|task| Op::Join { task: TaskId(task) }));
        scripts[0].push(Op::Stop);
        let mut program = program(scripts);
        program.channels = vec![ChannelSpec::Pipe { message_bytes: 100 }; 2];
        let pins: Vec<(u32, u32)> = hogs.iter().zip(3..).map(|(&cpu, task)| (task, cpu as u32)).collect();
        (program, pins)
    };
    for policy in MODES {
        let world = jacobsville(policy);
        let cpus_of = |cluster: u32| {
            let cpus: Vec<usize> = (0..24).filter(|&cpu| world.cluster(cpu) == cluster).collect();
            <[usize; 4]>::try_from(cpus).unwrap()
        };
        let (program, pins) = late(cpus_of(0));
        let (_, before) = world.run(&program, "0-23", &pins, 1);
        let at_5_ms = before.stretches.iter().rfind(|s| s.task == 1 && s.to < 4 * MS).unwrap().cpu;
        let filled = world.cluster(at_5_ms);
        let (program, pins) = late(cpus_of(filled));
        let (_, watch) = world.run(&program, "0-23", &pins, 1);
        let full = (3..=6).map(|hog| watch.stretches.iter().find(|s| s.task == hog).unwrap().from).max().unwrap();
        assert!(full < 10 * MS, "{policy}: the hogs begin at {full} ns");
        let late: Vec<_> = watch.wakes.iter().filter(|w| w.wakee <= 2 && w.wakee > 0 && w.at > full + MS).collect();
        assert!(late.len() > 500, "{policy}: {}", late.len());
        let on_hogs = late.iter().filter(|wake| world.cluster(wake.chosen) == filled).count();
        assert_eq!(on_hogs, 0, "{policy}");
        for task in [1, 2] {
            let longest =
                waits(&watch, task).into_iter().filter(|&(from, _)| from > full + MS).map(|(f, t)| t - f).max();
            assert!(longest.unwrap() < 20_000, "{policy}: task {task} waits {longest:?} ns");
        }
    }
}

#[test]
fn jacobsville_more_hogs_than_cpus_share_them_and_all_end() {
    for policy in MODES {
        let world = jacobsville(policy);
        for seed in 0..4 {
            let (report, watch) = world.run(&hogs(&[60; 30]), "0-23", &[], seed);
            nobody_waits_beside_an_idle_cpu(&world, &watch, 1..=30, 0..24);
            // 30 × 60 ms on 24 CPUs are 75 ms; shared evenly, all end near there.
            let ends = &report.finished_ns[1..];
            let (first, last) = (ends.iter().min().unwrap() / MS, ends.iter().max().unwrap() / MS);
            assert!(first >= 60 && last <= 95, "{policy}, seed {seed}: from {first} to {last} ms");
            assert!(report.utilisation() > 0.8, "{policy}, seed {seed}: {}", report.utilisation());
        }
    }
}

#[test]
fn jacobsville_three_hogs_on_two_cpus_of_one_cluster_get_equal_shares() {
    for policy in MODES {
        let world = jacobsville(policy);
        let (report, watch) = world.run(&hogs(&[200; 3]), "4,5", &[], 1);
        let ran: Vec<u64> = (1..=3).map(|task| watch.ran(task, 150 * MS) / MS).collect();
        assert!(ran.iter().all(|ran| (92..=108).contains(ran)), "{policy}: {ran:?}");
        // Who takes a task that the other CPU has put into the queue pulls its line.
        let line = world.machine.costs.by_distance(CostKey::Line)[Distance::Cluster as usize] as u64;
        let taken = watch.moves_by(Cause::Queue).count() as u64;
        let lines = report.cpu_ns[Mechanism::SharedData as usize];
        assert!(taken > 20 && lines >= taken * line, "{policy}: {lines} ns of lines for {taken} tasks");
        nobody_waits_beside_an_idle_cpu(&world, &watch, 1..=3, 4..6);
    }
}

#[test]
fn jacobsville_hogs_in_two_clusters_are_taken_across_when_one_runs_dry() {
    // Two CPUs in each of two clusters, five hogs: one waits. The first to end leaves a CPU, in whichever cluster.
    for policy in MODES {
        let world = jacobsville(policy);
        for seed in 0..4 {
            let (report, watch) = world.run(&hogs(&[40, 80, 80, 80, 80]), "0,1,4,5", &[], seed);
            let taken = watch.moves_by(Cause::Queue).filter(|m| world.cluster(m.from) != world.cluster(m.to)).count();
            assert!(taken > 0, "{policy}, seed {seed}");
            // 360 ms of work on four CPUs.
            let last = report.finished_ns.iter().max().unwrap() / MS;
            assert!((90..112).contains(&last), "{policy}, seed {seed}: {last}");
        }
    }
}

#[test]
fn jacobsville_bound_hogs_share_their_cpu_with_those_of_the_cluster() {
    // Two hogs bound to CPU 8 and two to CPU 9, three that may use both.
    for policy in MODES {
        let world = jacobsville(policy);
        let pins = [(1, 8), (2, 8), (3, 9), (4, 9)];
        let (_, watch) = world.run(&hogs(&[100; 7]), "8,9", &pins, 1);
        let ran: Vec<u64> = (1..=7).map(|task| watch.ran(task, 140 * MS) / MS).collect();
        // 40 ms each if all were alike; by turns a bound one has 35, a free one 47.
        assert!(ran.iter().all(|ran| (25..=60).contains(ran)), "{policy}: {ran:?}");
    }
}

/// A free hog (task 1), and when it has run for some 10 ms on a CPU, hogs bound to these (tasks 2 on).
fn a_hog_among_bound_ones(world: &World, bound_to: fn(usize) -> Vec<usize>) -> (Report, Watch) {
    let bound = bound_to(0).len() as u32;
    let spawn = |task| Op::Spawn { task: TaskId(task) };
    let mut main = vec![Op::Start, spawn(1), Op::Compute { ns: 10 * MS }];
    main.extend((2..=1 + bound).map(spawn));
    main.extend((1..=1 + bound).map(|task| Op::Join { task: TaskId(task) }));
    main.push(Op::Stop);
    let mut scripts = vec![main];
    scripts.extend(vec![vec![Op::Compute { ns: 100 * MS }]; 1 + bound as usize]);
    let program = program(scripts);
    let (_, alone) = world.run(&program, "0-23", &[], 1);
    let pins = bound_to(alone.first_cpu(1)).into_iter().zip(2..).map(|(cpu, task)| (task, cpu as u32));
    world.run(&program, "0-23", &pins.collect::<Vec<_>>(), 1)
}

#[test]
fn jacobsville_a_hog_whose_cpu_a_bound_one_takes_goes_to_an_idle_cpu_of_its_cluster_and_then_leaves_that() {
    for policy in MODES {
        let world = jacobsville(policy);
        let (report, watch) = a_hog_among_bound_ones(&world, |at| vec![at]);
        let mine: Vec<_> = watch.stretches.iter().filter(|stretch| stretch.task == 1).collect();
        let [first, second, last] = mine[..] else { panic!("{policy}: {mine:?}") };
        assert!(second.cpu != first.cpu && world.cluster(second.cpu) == world.cluster(first.cpu), "{policy}: {mine:?}");
        assert!(second.from - first.to < 20_000, "{policy}: waits {} ns", second.from - first.to);
        // Two hogs in this cluster, none in others.
        assert_ne!(world.cluster(last.cpu), world.cluster(first.cpu), "{policy}: {mine:?}");
        assert!(report.finished_ns[1] < 101 * MS, "{policy}: {}", report.finished_ns[1]);
    }
}

#[test]
fn jacobsville_a_hog_leaves_a_cluster_that_bound_ones_fill() {
    for policy in MODES {
        let world = jacobsville(policy);
        let (report, watch) = a_hog_among_bound_ones(&world, |at| (at / 4 * 4..at / 4 * 4 + 4).collect());
        assert_ne!(world.cluster(watch.place(1)), world.cluster(watch.first_cpu(1)), "{policy}");
        // It may have to share until the cluster's CPUs have been busy for 4 ms.
        assert!(report.finished_ns[1] < 110 * MS, "{policy}: {}", report.finished_ns[1]);
    }
}

/// How long the woken task of a program waits on average, ns: every 3 ms task 1 wakes task 2, which works for a moment.
fn mean_wait_of_woken(policy: &str, hogs: usize, cpus: &str, pins: &[(u32, u32)]) -> u64 {
    let channel = ChannelId(0);
    let again = Op::Repeat { to: 0, times: 40, counter: 0 };
    let mut scripts = vec![
        vec![Op::Compute { ns: 3 * MS }, Op::Send { channel }, again],
        vec![Op::Receive { channel }, Op::Compute { ns: 5_000 }, again],
    ];
    scripts.extend(vec![vec![Op::Compute { ns: 400 * MS }]; hogs]);
    let (_, watch) = jacobsville(policy).run(&children(scripts, 1), cpus, pins, 1);
    mean_wait(&watch, 2)
}

fn mean_wait(watch: &Watch, task: u32) -> u64 {
    let waits: Vec<u64> = waits(watch, task).into_iter().map(|(from, to)| to - from).collect();
    waits.iter().sum::<u64>() / waits.len() as u64
}

#[test]
fn jacobsville_a_woken_task_takes_the_cpu_of_a_hog_that_has_run_on() {
    // All CPUs have a task. Without preemption the wait would be for a tick, every 4 ms.
    for policy in MODES {
        let free = mean_wait_of_woken(policy, 2, "4,5,8", &[(1, 8)]);
        assert!(free < 20_000, "{policy}: {free} ns");
        let bound = mean_wait_of_woken(policy, 1, "4,8", &[(1, 8), (2, 4), (3, 4)]);
        assert!(bound < 20_000, "{policy}: {bound} ns");
    }
}

#[test]
fn jacobsville_a_pair_that_runs_little_comes_before_waiting_hogs() {
    // In the order of arrival each message would wait for two hogs' slices of 4 ms.
    for policy in MODES {
        let (_, watch) = jacobsville(policy).run(&pairs_and_hogs(1, 100, 4, 400), "4,5", &[], 1);
        for task in [1, 2] {
            assert!(mean_wait(&watch, task) < 500_000, "{policy}: {} ns", mean_wait(&watch, task));
        }
    }
}

#[test]
fn jacobsville_slices_are_shorter_the_more_tasks_wait() {
    // They end at ticks, every 4 ms: one of 5 ms at the second, one of at most 2.5 ms at the first.
    for policy in MODES {
        let world = jacobsville(policy);
        let longest = |hogs: usize| {
            let (_, watch) = world.run(&crate::world::hogs(&vec![60; hogs]), "4,5", &[], 1);
            watch.stretches.iter().filter(|s| s.task > 0 && s.from > 20 * MS).map(|s| s.to - s.from).max().unwrap()
        };
        let (few, many) = (longest(3), longest(10));
        assert!((7 * MS..9 * MS).contains(&few) && many < 5 * MS, "{policy}: {few} and {many} ns");
    }
}

#[test]
fn jacobsville_a_task_that_execs_beside_another_moves_to_an_idler_cluster_at_once() {
    for policy in MODES {
        let world = jacobsville(policy);
        // Twelve lie two by two; the first and its mate stay, and the first execs when the others are gone.
        let (_, forked) = world.run(&hogs(&[3; 12]), "0-23", &[], 1);
        let mate = (2..=12).find(|&task| world.cluster(forked.first_cpu(task)) == world.cluster(forked.first_cpu(1)));
        let mut scripts = vec![vec![Op::Compute { ns: MS }]; 12];
        scripts[0] = vec![Op::Compute { ns: 2 * MS }, Op::Exec, Op::Compute { ns: MS }];
        scripts[mate.unwrap() as usize - 1] = vec![Op::Compute { ns: 3 * MS }];
        let (_, watch) = world.run(&children(scripts, 0), "0-23", &[], 1);
        let moved: Vec<_> = watch.moves_by(Cause::Exec).map(|moved| moved.task).collect();
        assert_eq!(moved, [1], "{policy}");
        assert_ne!(world.cluster(watch.place(1)), world.cluster(watch.place(mate.unwrap())), "{policy}");
    }
}

#[test]
fn jacobsville_pairs_crowd_a_cluster_and_nobody_waits_while_one_of_its_cpus_idles() {
    // Tasks work for longer than a CPU takes to react, so that one that is not called would idle beside a waiting task.
    let pairs = (0..5).flat_map(|index| pair(200, 60_000 + 1_000 * u64::from(index), 2 * index)).collect();
    let program = children(pairs, 10);
    for policy in MODES {
        let world = World::new(&machine("jacobsville"), policy);
        for seed in 0..8 {
            let (report, watch) = world.run(&program, "4-7", &[], seed);
            nobody_waits_beside_an_idle_cpu(&world, &watch, 1..=10, 4..8);
            assert!(report.wakes.stacked > 0, "{policy}, seed {seed}: nobody had to wait; the test shows nothing");
        }
    }
}

#[test]
fn jacobsville_a_task_woken_while_the_other_cpu_goes_idle_is_not_left_waiting() {
    // A waker that never sleeps on one CPU; on the other its wakees work for about as long as until the next is woken.
    let channel = |wakee: u32| ChannelId(wakee);
    let again = Op::Repeat { to: 0, times: 400, counter: 0 };
    let mut waker: Vec<Op> =
        (0..3).flat_map(|wakee| [Op::Send { channel: channel(wakee) }, Op::Compute { ns: 50_000 }]).collect();
    waker.push(again);
    let mut scripts = vec![waker];
    scripts
        .extend((0..3).map(|wakee| vec![Op::Receive { channel: channel(wakee) }, Op::Compute { ns: 46_000 }, again]));
    let program = children(scripts, 3);
    for policy in MODES {
        let world = World::new(&machine("jacobsville"), policy);
        for seed in 0..8 {
            let (_, watch) = world.run(&program, "4,5", &[(1, 4)], seed);
            nobody_waits_beside_an_idle_cpu(&world, &watch, 2..=4, 4..6);
        }
    }
}

#[test]
fn jacobsville_wake_ups_are_all_placed_and_claimed_cpus_take_them() {
    for policy in MODES {
        let world = jacobsville(policy);
        let program = pairs_and_hogs(4, 300, 4, 10);
        let (report, watch) = world.run(&program, "0-23", &[], 3);
        assert_eq!(report.wakes.unplaced, 0, "{policy}");
        // Twelve tasks on 24 CPUs: each finds an idle one or a waker that sleeps at once, and no two find the same.
        let claimed = placed_by(&world, &report, claims);
        let behind_waker = placed_by(&world, &report, |step| matches!(step, Step::SyncStack));
        assert_eq!(claimed + behind_waker, report.wakes.total(), "{policy}");
        assert_eq!(behind_waker > 0, policy == "huddle-gather", "{policy}: {behind_waker}");
        assert_eq!(report.wakes.collided, 0, "{policy}");
        assert_eq!(watch.moves_by(Cause::Queue).count(), 0, "{policy}: nobody waits in a queue");
    }
}

#[test]
fn kunpeng_crowded_hackbench_loses_nobody_and_counters_add_up() {
    let machine = machine("kunpeng920:nodes=1");
    for policy in MODES {
        let world = World::new(&machine, policy);
        let (report, watch) = world.run(&hackbench(4, 30), "0-23", &[], 2);
        let (claimed, all) = (placed_by(&world, &report, claims), report.wakes.total());
        let queued = placed_by(&world, &report, |step| matches!(step, Step::ReturnTarget | Step::ReturnPrev));
        assert!(claimed > 0 && queued > 0 && claimed + queued <= all, "{policy}: {claimed} + {queued} of {all}");
        assert_eq!(report.wakes.unplaced, 0, "{policy}");
        assert!(report.cpu_ns[Mechanism::Refill as usize] > 0, "{policy}: moves cost something");
        // A claimed CPU that other work has reached first is rare.
        assert!(report.wakes.collided * 20 <= all, "{policy}: {} of {all}", report.wakes.collided);
        let near = |moved: &&crate::watch::Move| world.cluster(moved.from) == world.cluster(moved.to);
        let (own, all) = (watch.moves_by(Cause::Queue).filter(near).count(), watch.moves_by(Cause::Queue).count());
        assert!(own > 0 && own < all, "{policy}: {own} of {all} waiting tasks were taken inside their cluster");
        nobody_waits_beside_an_idle_cpu(&world, &watch, 1..=160, 0..24);
        for kernel_balancing in [Cause::NewIdle, Cause::Periodic] {
            assert_eq!(watch.moves_by(kernel_balancing).count(), 0, "{policy}");
        }
    }
}

#[test]
fn kunpeng_two_nodes_hogs_fill_both() {
    let machine = undisturbed("kunpeng920:nodes=2");
    for policy in MODES {
        let world = World::new(&machine, policy);
        let (report, watch) = world.run(&hogs(&[30; 48]), "0-47", &[], 1);
        let mut cpus: Vec<usize> = (1..=48).map(|task| watch.place(task)).collect();
        cpus.sort_unstable();
        cpus.dedup();
        assert_eq!(cpus.len(), 48, "{policy}");
        assert!(report.utilisation() > 0.9, "{policy}: {}", report.utilisation());
    }
}

#[test]
fn kunpeng_two_nodes_a_node_that_runs_dry_takes_from_the_other_where_several_wait() {
    let machine = undisturbed("kunpeng920:nodes=2");
    // Both nodes are full of hogs bound to each CPU, short ones on node 1; eight more begin on node 0, where no CPU
    // idles.
    let mut lengths = vec![60; 56];
    lengths[24..48].fill(10);
    let mut pins: Vec<(u32, u32)> = (1..=48).map(|task| (task, task - 1)).collect();
    pins.push((0, 0));
    for policy in MODES {
        let world = World::new(&machine, policy);
        let (_, watch) = world.run(&hogs(&lengths), "0-47", &pins, 1);
        let crossed: Vec<_> = watch.moves_by(Cause::Queue).filter(|moved| moved.from < 24 && moved.to >= 24).collect();
        assert!(crossed.len() >= 2, "{policy}: {crossed:?}");
    }
}

#[test]
fn xeon_claims_whole_cores_before_their_threads() {
    let machine = undisturbed("xeon-2s44c88t");
    for policy in MODES {
        let world = World::new(&machine, policy);
        let (_, watch) = world.run(&hogs(&[20; 22]), "0-87", &[], 1);
        let mut cores: Vec<u32> =
            (1..=22).map(|task| machine.topology.smt.index_of(watch.first_cpu(task).into())).collect();
        cores.sort_unstable();
        cores.dedup();
        assert_eq!(cores.len(), 22, "{policy}");
    }
}

#[test]
fn hackbench_keeps_the_laws_on_machines_and_cpus_of_many_shapes() {
    let (one_node, two_nodes) = (machine("kunpeng920:nodes=1"), machine("kunpeng920:nodes=2"));
    let (xeon, jacobsville) = (machine("xeon-2s44c88t"), machine("jacobsville"));
    for policy in MODES {
        let world = World::new(&one_node, policy);
        for (cpus, groups, seed) in [("0-23", 1, 1), ("0-23", 3, 2), ("5", 1, 3), ("4-7", 1, 4), ("3,4,9-14", 1, 5)] {
            lawful(&world, cpus, groups, 8, seed);
        }
        (1..4).for_each(|groups| lawful(&World::new(&two_nodes, policy), "0-47", groups, 6, u64::from(groups)));
        let world = World::new(&xeon, policy);
        lawful(&world, "0-87", 3, 6, 1);
        // Both threads of four cores.
        lawful(&world, "0,2,4,6,44,46,48,50", 1, 6, 3);
        (0..4).for_each(|seed| lawful(&World::new(&jacobsville, policy), "0-23", 2, 6, seed));
    }
}

#[test]
fn jacobsville_wakees_wait_behind_wakers_that_sleep_at_once_and_not_behind_others() {
    let record = r#"
        name = "stacking"
        title = "behind the waker if that keeps sync, else anywhere"
        kernel = "7.1+huddle"
        [entry]
        anchor = "waker"
        wide = false
        affine_idle_prev = false
        sync_minus_delayed = false
        set_waker_recent = false
        prefer_current_hint = false
        [[steps]]
        kind = "SyncStack"
        [[steps]]
        kind = "ClaimAny"
        within = "all"
        [[steps]]
        kind = "ReturnTarget"
    "#;
    let mut world = jacobsville("huddle-gather");
    world.plan = Policy::parse("stacking.toml", record).unwrap().compile(&world.tree, &world.machine.topology);
    let stacked = |report: &Report| placed_by(&world, report, |step| matches!(step, Step::SyncStack));
    let (report, watch) = world.run(&pairs_and_hogs(1, 400, 0, 0), "0-23", &[], 1);
    assert!(stacked(&report) > 400, "{} of {}", stacked(&report), report.wakes.total());
    assert_eq!(watch.place(1), watch.place(2));
    // One that wakes two before it sleeps keeps no promise; its partners answer and sleep.
    let [there, back, other_there, other_back] = [0, 1, 2, 3].map(ChannelId);
    let again = Op::Repeat { to: 0, times: 400, counter: 0 };
    let receive = |channel| Op::Receive { channel };
    let send = |channel| Op::Send { channel };
    let partner = |there, back| vec![receive(there), Op::Compute { ns: 30_000 }, send(back), again];
    let both = vec![send(there), send(other_there), receive(back), receive(other_back), again];
    let scripts = vec![both, partner(there, back), partner(other_there, other_back)];
    let (_, watch) = world.run(&children(scripts, 4), "0-23", &[], 1);
    let ran_on = |at: u64| watch.stretches.iter().find(|s| s.task == 1 && s.from <= at && at <= s.to).unwrap().cpu;
    let by_1: Vec<_> = watch.wakes.iter().filter(|wake| wake.waker == 1 && wake.wakee > 1).collect();
    let behind_1 = by_1.iter().filter(|wake| wake.chosen == ran_on(wake.at)).count();
    // Seldom one of the two is awake already, and a promise kept.
    assert!(by_1.len() > 700 && behind_1 * 20 < by_1.len(), "{behind_1} of {}", by_1.len());
}

#[test]
fn a_kernel_with_the_fair_class_knows_no_claims() {
    let policy = "huddle-gather";
    let world = World::with_kernel(&machine("jacobsville"), policy, |kernel| kernel.queue.kind = QueueKind::Cfs);
    let error = world.try_run(&hackbench(1, 1), "0-23", &[], (1, 1000 * MS), &mut Quiet).unwrap_err();
    assert!(matches!(&error, SimError::NotSimulated { kernel, .. } if kernel == "7.1+huddle"), "{error}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for policy in MODES {
        let report = || World::new(&machine("kunpeng920:nodes=1"), policy).run(&hackbench(2, 10), "0-23", &[], 7).0;
        assert_eq!(report(), report(), "{policy}");
        let other = World::new(&machine("kunpeng920:nodes=1"), policy).run(&hackbench(2, 10), "0-23", &[], 8).0;
        assert_ne!(report(), other, "{policy}");
    }
}
