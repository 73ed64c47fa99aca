//! What runs are without a mechanism, and with domains that are rebuilt on the way.

use huddle_domains::Kernel;
use huddle_engine::{Cause, Mechanism, Part, Report};
use huddle_program::{ChannelId, ChannelSpec, GateId, Op, Program};

use crate::watch::Watch;
use crate::world::{MS, Quiet, World, hackbench, hogs, machine, parent, program, undisturbed};

fn kunpeng(without: &[&str]) -> Report {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-6.7").without(without);
    world.run(&hackbench(2, 30), "0-23", &[], 1).0
}

fn moved(report: &Report, causes: &[Cause]) -> u64 {
    causes.iter().flat_map(|&cause| report.migrations[cause as usize]).sum()
}

#[test]
fn kunpeng_without_a_cost_no_time_goes_to_it() {
    let whole = kunpeng(&[]);
    for (without, mechanism) in [
        ("scan-cost", Mechanism::Search),
        ("tick", Mechanism::Tick),
        ("balance-cost", Mechanism::Balance),
        ("refill", Mechanism::Refill),
        ("shared-data", Mechanism::SharedData),
    ] {
        assert!(whole.cpu_ns[mechanism as usize] > 0, "{without}: the whole run spends nothing on it");
        assert_eq!(kunpeng(&[without, "hand-over"]).cpu_ns[mechanism as usize], 0, "{without}");
    }
    // A switch that takes no time still takes the nanosecond that every segment lasts.
    let free = kunpeng(&["switch"]);
    assert!(free.cpu_ns[Mechanism::Switch as usize] <= 2 * free.switches + 24 * 2);
}

#[test]
fn kunpeng_without_everything_hackbench_still_ends() {
    let names: Vec<&str> = Part::ALL.iter().map(|part| part.name()).collect();
    kunpeng(&names);
    // Whatever costs time taken away, balancing kept.
    let costs: Vec<&str> = names.into_iter().filter(|&name| name != "balancing").collect();
    assert!(kunpeng(&costs).measured_ns < kunpeng(&[]).measured_ns);
}

#[test]
fn kunpeng_without_balancing_only_wake_ups_and_fork_move_tasks() {
    let balanced = [Cause::NewIdle, Cause::Periodic, Cause::Active];
    assert!(moved(&kunpeng(&[]), &balanced) > 0);
    let without = kunpeng(&["balancing"]);
    assert_eq!(moved(&without, &balanced), 0);
    assert!(moved(&without, &[Cause::WakeUp]) > 0);
}

#[test]
fn kunpeng_without_collisions_wakers_hardly_ever_meet_on_a_cpu_that_was_idle_when_chosen() {
    // Under 5.10 wakers of one LLC enqueue themselves: a CPU looks idle until they have. Without balancing nothing but a wake-up
    // brings a task to an idle CPU.
    let collided = |without: &[&str]| {
        let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.10").without(without);
        world.run(&hackbench(2, 30), "0-23", &[], 1).0.wakes.collided
    };
    // What is left are wakers that found nothing idle and took the wakee's target, for which another wakee was on its way.
    assert!(collided(&["balancing"]) >= 20 * collided(&["balancing", "collisions"]).max(1));
}

/// Two writers on CPUs of their own fill a pipe of which nothing is read before the gate opens at 50 ms.
fn two_writers() -> Program {
    let send = Op::Send { channel: ChannelId(0) };
    let write = vec![send, Op::Repeat { to: 0, times: 300, counter: 0 }];
    let read = vec![
        Op::Wait { gate: GateId(0) },
        Op::Receive { channel: ChannelId(0) },
        Op::Repeat { to: 1, times: 600, counter: 0 },
    ];
    let mut main = parent(3);
    main.splice(4..4, [Op::Compute { ns: 50 * MS }, Op::Open { gate: GateId(0) }]);
    let mut program = program(vec![main, write.clone(), write, read]);
    program.channels = vec![ChannelSpec::Pipe { message_bytes: 100 }];
    program.gates = 1;
    program
}

#[test]
fn kunpeng_writers_spin_for_the_pipe_and_without_its_mutex_do_not() {
    let spun = |without: &[&str]| {
        let world = World::new(&undisturbed("kunpeng920:nodes=1"), "linux-5.10").without(without);
        world.run(&two_writers(), "0-23", &[(1, 4), (2, 8), (3, 12)], 1).0.cpu_ns[Mechanism::LockSpin as usize]
    };
    assert!(spun(&[]) > 0);
    assert_eq!(spun(&["pipe-mutex"]), 0);
}

// ---- threads and clocks ----------------------------------------------------------------------------------------------------

/// Two hogs of 400 ms that start together on these CPUs of a Xeon without turbo figures, and when each was done.
fn xeon_pair(cpus: (u32, u32), without: &[&str]) -> [u64; 2] {
    let world = World::new(&undisturbed("xeon-2s44c88t"), "linux-6.7").without(without);
    let pins = [(0, 4), (1, cpus.0), (2, cpus.1)];
    let report = world.run(&hogs(&[400, 400]), "0-87", &pins, 1).0;
    [report.finished_ns[1], report.finished_ns[2]]
}

fn within(value: u64, wanted: u64, percent: u64) {
    assert!(value.abs_diff(wanted) * 100 <= wanted * percent, "{value}, wanted {wanted} within {percent} %");
}

#[test]
fn xeon_threads_of_a_core_get_done_five_eighths_of_what_one_does_alone() {
    // CPUs 0 and 44 are threads of a core. 400 ms / 0.625 = 640 ms.
    xeon_pair((0, 44), &["frequency"]).iter().for_each(|&ns| within(ns, 640 * MS, 2));
    xeon_pair((0, 2), &["frequency"]).iter().for_each(|&ns| within(ns, 400 * MS, 2));
    xeon_pair((0, 44), &["smt", "frequency"]).iter().for_each(|&ns| within(ns, 400 * MS, 2));
}

#[test]
fn xeon_a_thread_is_slowed_only_while_the_other_works() {
    // 200 ms of work of both take 320 ms; then the longer one has 200 ms left, alone: 520 ms.
    let world = World::new(&undisturbed("xeon-2s44c88t"), "linux-6.7").without(&["frequency"]);
    let report = world.run(&hogs(&[200, 400]), "0-87", &[(0, 4), (1, 0), (2, 44)], 1).0;
    within(report.finished_ns[1], 320 * MS, 2);
    within(report.finished_ns[2], 520 * MS, 2);
}

// ---- domains rebuilt ---------------------------------------------------------------------------------------------------------

fn without_level(kernel: &mut Kernel) {
    kernel.domains.cluster = None;
}

fn clusters(world: &World, watch: &Watch) -> usize {
    let mut clusters: Vec<u32> = (1..=6).map(|task| world.cluster(watch.place(task))).collect();
    clusters.sort_unstable();
    clusters.dedup();
    clusters.len()
}

#[test]
fn jacobsville_six_hogs_spread_once_the_cluster_level_is_switched_on() {
    let machine = undisturbed("jacobsville");
    let off = || World::with_kernel(&machine, "linux-5.14-cluster", without_level);
    for seed in 0..4 {
        // Forked onto six CPUs in a row: two or three clusters, for ever without the level (spec 5.13, vector 5).
        let world = off();
        let (report, watch) = world.run(&hogs(&[1000; 6]), "0-23", &[], seed);
        assert!(clusters(&world, &watch) <= 3 && report.rebuilt_ns.is_none(), "seed {seed}");
        // Vector 1: about four passes for each that leaves, of 24 to 48 ms.
        let world = off().then(100 * MS, World::new(&machine, "linux-5.14-cluster"));
        let (report, watch) = world.run(&hogs(&[1000; 6]), "0-23", &[], seed);
        assert_eq!((clusters(&world, &watch), report.rebuilt_ns), (6, Some(100 * MS)), "seed {seed}");
        assert!(moved(&report, &[Cause::Active]) > 0);
    }
}

#[test]
fn jacobsville_hogs_stay_where_the_cluster_level_has_put_them_when_it_is_switched_off() {
    let machine = undisturbed("jacobsville");
    let world = World::new(&machine, "linux-6.7");
    let world = world.then(100 * MS, World::with_kernel(&machine, "linux-6.7", without_level));
    let (report, watch) = world.run(&hogs(&[400; 6]), "0-23", &[], 3);
    assert_eq!((clusters(&world, &watch), report.rebuilt_ns), (6, Some(100 * MS)));
}

#[test]
fn kunpeng_a_run_that_is_over_before_the_switch_never_sees_it() {
    let machine = undisturbed("kunpeng920:nodes=1");
    let world = World::new(&machine, "linux-6.7").then(1000 * MS, World::new(&machine, "linux-6.7"));
    assert_eq!(world.run(&hogs(&[20]), "0-23", &[], 1).0.rebuilt_ns, None);
}

#[test]
fn kunpeng_hackbench_goes_on_over_a_rebuild_and_repeats_itself() {
    let machine = machine("kunpeng920:nodes=1");
    let world =
        World::new(&machine, "linux-6.7").then(2 * MS, World::with_kernel(&machine, "linux-6.7", without_level));
    let [first, second] = [0; 2].map(|_| world.run(&hackbench(2, 30), "0-23", &[], 5).0);
    assert_eq!((first.rebuilt_ns, &first), (Some(2 * MS), &second));
}

#[test]
fn kunpeng_a_scheduler_that_reads_no_domains_refuses_their_rebuild() {
    let machine = machine("kunpeng920:nodes=1");
    let world = World::new(&machine, "huddle-gather").then(MS, World::new(&machine, "huddle-gather"));
    let refused = world.try_run(&hogs(&[20]), "0-23", &[], (1, 1000 * MS), &mut Quiet).unwrap_err().to_string();
    assert!(refused.starts_with("kernel 7.1+huddle: a rebuild of the sched domains under"), "{refused}");
}
