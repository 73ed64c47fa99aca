//! What cannot be simulated is refused with one clear line.

use huddle_engine::SimError;
use huddle_program::{GateId, Op, ProgramError, TaskId};

use crate::world::{MS, Quiet, World, hackbench, hogs, machine, program};

const LIMIT: u64 = 1000 * MS;

#[test]
fn cpus_that_the_machine_has_not() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let error = world.try_run(&hackbench(1, 1), "24-30", &[], (1, LIMIT), &mut Quiet).unwrap_err();
    assert_eq!(error, SimError::NoCpu { cpus: "24-30".to_owned() });
    assert!(error.to_string().contains("24-30"));
}

#[test]
fn cpus_beyond_the_machine_beside_good_ones_are_left_out() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let report = world.try_run(&hogs(&[1]), "22-30", &[], (1, LIMIT), &mut Quiet).unwrap();
    assert_eq!(report.cpus, 2);
}

#[test]
fn a_limit_shorter_than_the_program() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let error = world.try_run(&hogs(&[50, 5]), "0-23", &[], (1, 20 * MS), &mut Quiet).unwrap_err();
    // The long hog and the parent that waits for it.
    assert_eq!(error, SimError::TimeLimit { waiting: 2, tasks: 3, limit_ms: 20 });
}

#[test]
fn tasks_that_wait_for_ever_end_in_an_error() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let mut stuck = program(vec![
        vec![Op::Spawn { task: TaskId(1) }, Op::Join { task: TaskId(1) }],
        vec![Op::Wait { gate: GateId(0) }],
    ]);
    stuck.gates = 1;
    let error = world.try_run(&stuck, "0-23", &[], (1, LIMIT), &mut Quiet).unwrap_err();
    let waiting = match error {
        SimError::TimeLimit { waiting, .. } | SimError::Deadlock { waiting, .. } => waiting,
        other => panic!("{other}"),
    };
    assert_eq!(waiting, 2);
}

#[test]
fn a_program_whose_sends_and_receives_differ() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let mut lopsided = hackbench(1, 1);
    let last = lopsided.scripts.len() - 1;
    lopsided.scripts[last].ops.pop();
    lopsided.scripts[last].ops.pop();
    let error = world.try_run(&lopsided, "0-23", &[], (1, LIMIT), &mut Quiet).unwrap_err();
    assert!(matches!(error, SimError::Program(ProgramError::Unbalanced { sent: 0, received: 20, .. })), "{error}");
}

#[test]
fn a_program_without_tasks() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let error = world.try_run(&program(Vec::new()), "0-23", &[], (1, LIMIT), &mut Quiet).unwrap_err();
    assert_eq!(error, SimError::Program(ProgramError::Empty));
}
