//! Laws that hold in every run of hackbench, on machines and CPUs of many shapes.

use huddle_domains::{Kernel, PipeWriterWake, QueueKind, kernel_names};
use huddle_engine::Cause;
use huddle_machine::Distance;
use huddle_program::Program;

use crate::world::{World, hackbench, machine};

const POLICIES: [&str; 7] = [
    "linux-5.9",
    "linux-5.10",
    "linux-5.14",
    "linux-5.14-cluster",
    "linux-6.7",
    "rfc2-cluster",
    "rfc2-no-select-idle-cluster",
];

/// Runs hackbench and checks what must hold whatever the machine and the policy.
pub fn lawful(world: &World, cpus: &str, groups: u32, loops: u64, seed: u64) {
    let program = hackbench(groups, loops);
    lawful_program(world, cpus, &program, (40 * groups, u64::from(groups) * 400 * loops), seed);
}

/// The same of a hackbench of so many workers and messages between them.
pub fn lawful_program(world: &World, cpus: &str, program: &Program, (workers, messages): (u32, u64), seed: u64) {
    let (report, watch) = world.run(program, cpus, &[], seed);
    assert_eq!(report.messages, messages + u64::from(workers), "messages and ready bytes");
    for task in 1..=workers as usize {
        let finished = report.finished_ns[task];
        assert!(finished > 0 && finished <= report.measured_ns, "task {task} finished at {finished}");
    }
    // Nothing else runs when the gate opens and when the last task has been joined, so that each task placed on another
    // CPU has moved there within the measured stretch.
    for distance in Distance::ALL.into_iter().filter(|&distance| distance != Distance::SameCpu) {
        let placed: u64 = report.wakes.placed.iter().map(|by| by[distance as usize]).sum();
        let moved = report.migrations[Cause::WakeUp as usize][distance as usize];
        assert_eq!(placed, moved, "placed and moved over the distance {}", distance.name());
    }
    // Each worker's ready byte finds main asleep or busy; each sender's first message finds a reader; nobody runs unseen.
    for task in 0..=workers {
        assert!(watch.ran(task, u64::MAX) > 0, "task {task} never ran");
    }
}

#[test]
fn kunpeng_one_node_under_every_policy() {
    let machine = machine("kunpeng920:nodes=1");
    for policy in POLICIES {
        let world = World::new(&machine, policy);
        for (groups, seed) in [(1, 1), (2, 2), (3, 3)] {
            lawful(&world, "0-23", groups, 6, seed);
        }
    }
}

/// Every kernel of the fair class, under a policy that knows its domains.
fn every_kernel(mut test: impl FnMut(&str, Kernel, &str)) {
    for name in kernel_names() {
        let kernel = Kernel::load(&name).unwrap();
        if kernel.queue.kind != QueueKind::ClusterDsq {
            let flag = kernel.domains.cluster.as_ref().is_some_and(|cluster| cluster.flag);
            test(&name, kernel, if flag { "linux-6.7" } else { "linux-5.10" });
        }
    }
}

#[test]
fn every_kernel_on_a_kunpeng_node_two_nodes_a_xeon_and_jacobsville() {
    let machines = ["kunpeng920:nodes=1", "kunpeng920", "xeon-2s44c88t", "jacobsville"].map(machine);
    every_kernel(|name, kernel, policy| {
        println!("{name}");
        for (machine, (cpus, groups)) in machines.iter().zip([("0-7", 1), ("0-47", 2), ("0-87", 2), ("0-23", 1)]) {
            let world = World::with_kernel(machine, policy, |record| *record = kernel.clone());
            lawful(&world, cpus, groups, 6, 4);
        }
    });
}

#[test]
fn every_kernel_that_is_not_preemptible_on_four_crowded_cpus() {
    let mut machine = machine("kunpeng920:nodes=1");
    machine.config.preempt = false;
    every_kernel(|name, kernel, policy| {
        println!("{name}");
        let world = World::with_kernel(&machine, policy, |record| *record = kernel.clone());
        (0..2).for_each(|seed| lawful(&world, "0-3", 1, 20, seed));
    });
}

#[test]
fn kunpeng_only_kernels_with_delayed_dequeue_wake_tasks_on_queues_that_they_never_left() {
    let machine = machine("kunpeng920:nodes=1");
    every_kernel(|name, kernel, policy| {
        let delays = kernel.queue.delay_dequeue;
        let world = World::with_kernel(&machine, policy, |record| *record = kernel.clone());
        let (report, _) = world.run(&hackbench(1, 50), "0-3", &[], 1);
        assert_eq!(report.wakes.requeued > 0, delays, "{name}");
    });
}

#[test]
fn kunpeng_before_5_8_no_wake_up_goes_without_placement() {
    let machine = machine("kunpeng920");
    for (name, wanted) in [("4.17", false), ("5.9", true)] {
        let later = |record: &mut Kernel| *record = Kernel::load(name).unwrap();
        let world = World::with_kernel(&machine, "linux-5.9", later);
        let (report, _) = world.run(&hackbench(2, 50), "0-47", &[], 1);
        assert_eq!(report.wakes.unplaced > 0, wanted, "{name}");
    }
}

/// Beside those of the first list.
const OTHER_POLICIES: [&str; 19] = [
    "linux-4.17",
    "no-idle-core",
    "subhra-full-2018",
    "merged-idle-search",
    "merged-idle-search-bug",
    "merged+next-cpu",
    "transpose-offset",
    "rfc2-on-5.10",
    "linux-5.16",
    "linux-6.0",
    "linux-6.1",
    "v7-cluster-scan",
    "v7-second-chance",
    "v7-scan-prev-llc",
    "linux-6.12",
    "linux-7.2",
    "linux-7.2-nocache",
    "scx-default-6.12",
    "scx-default-7.2",
];

#[test]
fn kunpeng_two_nodes_and_xeon_with_smt_under_the_other_policies() {
    let (kunpeng, xeon) = (machine("kunpeng920"), machine("xeon-2s44c88t"));
    for policy in OTHER_POLICIES {
        lawful(&World::new(&kunpeng, policy), "0-47", 1, 6, 1);
        lawful(&World::new(&xeon, policy), "0-87", 1, 6, 2);
    }
}

#[test]
fn kunpeng_one_cpu_and_one_cluster() {
    let machine = machine("kunpeng920:nodes=1");
    for policy in ["linux-5.9", "linux-6.7", "rfc2-cluster"] {
        let world = World::new(&machine, policy);
        for seed in 0..3 {
            lawful(&world, "5", 1, 8, seed);
            lawful(&world, "4-7", 1, 8, seed);
        }
    }
}

#[test]
fn kunpeng_two_of_four_nodes() {
    let machine = machine("kunpeng920");
    for policy in ["linux-5.9", "linux-5.14-cluster", "linux-6.7", "rfc2-cluster"] {
        let world = World::new(&machine, policy);
        for (groups, seed) in [(1, 1), (2, 2), (3, 3)] {
            lawful(&world, "0-47", groups, 6, seed);
        }
    }
}

#[test]
fn xeon_with_smt_whole_and_one_package() {
    let machine = machine("xeon-2s44c88t");
    for policy in ["linux-5.9", "linux-5.10", "linux-5.14", "linux-6.7"] {
        let world = World::new(&machine, policy);
        lawful(&world, "0-87", 3, 6, 1);
        lawful(&world, "0-86", 1, 6, 2);
        // Both threads of four cores.
        lawful(&world, "0,2,4,6,44,46,48,50", 1, 6, 3);
    }
}

#[test]
fn jacobsville_with_and_without_the_cluster_level() {
    let machine = machine("jacobsville");
    for policy in ["linux-5.14", "linux-5.14-cluster", "linux-6.7"] {
        let world = World::new(&machine, policy);
        (0..4).for_each(|seed| lawful(&world, "0-23", 2, 6, seed));
    }
}

#[test]
fn preemptible_and_not_with_either_writer_wake_up_rule() {
    let mut machine = machine("kunpeng920:nodes=1");
    for preempt in [false, true] {
        machine.config.preempt = preempt;
        for rule in [PipeWriterWake::EveryFullRead, PipeWriterWake::FreedSlot] {
            for policy in ["linux-5.9", "linux-6.7"] {
                let world = World::with_kernel(&machine, policy, |kernel| kernel.pipe_writer_wake = rule);
                for (cpus, groups) in [("0-23", 2), ("0-3", 1)] {
                    (0..2).for_each(|seed| lawful(&world, cpus, groups, 10, seed));
                }
            }
        }
    }
}

#[test]
fn kunpeng_purity_is_1_on_one_node_and_a_half_when_receivers_and_senders_are_held_apart() {
    let world = World::new(&machine("kunpeng920"), "linux-5.9");
    let program = hackbench(1, 100);
    let purity = |cpus, pins: &[(u32, u32)]| world.run(&program, cpus, pins, 1).0.purity.unwrap();
    assert_eq!(purity("0-23", &[]), 1.0);
    // Receivers 1-20 on node 0, senders 21-40 on node 1; the senders end a little earlier.
    let apart: Vec<(u32, u32)> = (1..=40).map(|task| (task, if task > 20 { task + 3 } else { task })).collect();
    let apart = purity("0-47", &apart);
    assert!((0.5..0.75).contains(&apart), "{apart}");
}

#[test]
fn a_program_bound_to_chosen_cpus_stays_there_and_no_wake_up_moves_it() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let program = hackbench(1, 10);
    // Worker n on CPU n % 24; the watch compares every event with that.
    let pins: Vec<(u32, u32)> = (1..41).map(|task| (task, task % 24)).collect();
    let (report, watch) = world.run(&program, "0-23", &pins, 1);
    let moved = watch.moves.iter().filter(|moved| (1..41).contains(&moved.task) && moved.cause != Cause::Fork).count();
    assert_eq!(moved, 0);
    assert!(report.wakes.placed.last().unwrap().iter().sum::<u64>() > 40, "placed by the rule for bound tasks");
}

#[test]
fn a_first_task_that_is_bound_starts_on_its_cpu() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    for seed in 0..8 {
        let (_, watch) = world.run(&hackbench(1, 2), "0-23", &[(0, 7)], seed);
        assert_eq!(watch.first_cpu(0), 7, "seed {seed}");
    }
}

#[test]
fn a_child_bound_to_the_other_package_of_kunpeng_starts_there_though_fork_does_not_reach_that_far() {
    let world = World::new(&machine("kunpeng920"), "linux-5.10");
    for seed in 0..8 {
        let (_, watch) = world.run(&hackbench(1, 2), "0-95", &[(0, 0), (1, 72)], seed);
        assert_eq!((watch.first_cpu(0), watch.first_cpu(1)), (0, 72), "seed {seed}");
    }
}
