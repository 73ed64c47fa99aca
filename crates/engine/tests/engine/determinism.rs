//! Equal inputs give equal results, whatever else runs in between; other seeds give others.

use huddle_engine::Report;
use huddle_program::Program;

use crate::world::{World, hackbench, machine};

fn run(world: &World, program: &Program, seed: u64) -> Report {
    world.run(program, "0-23", &[], seed).0
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let program = hackbench(2, 10);
    for policy in ["linux-5.9", "rfc2-cluster", "linux-5.14-cluster", "linux-6.7"] {
        let report = || run(&World::new(&machine("kunpeng920:nodes=1"), policy), &program, 7);
        assert_eq!(report(), report(), "{policy}");
    }
}

#[test]
fn different_seeds_give_different_reports() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let program = hackbench(1, 10);
    let reports: Vec<Report> = (0..8).map(|seed| run(&world, &program, seed)).collect();
    for (index, report) in reports.iter().enumerate() {
        assert!(reports[..index].iter().all(|other| other.measured_ns != report.measured_ns), "seed {index}");
    }
}

#[test]
fn a_report_does_not_depend_on_other_policies_run_in_between() {
    let machine = machine("kunpeng920:nodes=1");
    let program = hackbench(1, 10);
    let world = World::new(&machine, "linux-5.9");
    let alone = run(&world, &program, 3);
    let other = run(&World::new(&machine, "rfc2-cluster"), &program, 3);
    assert_ne!(alone, other, "the two policies decide alike; the test shows nothing");
    assert_eq!(run(&world, &program, 3), alone);
}
