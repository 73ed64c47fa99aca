//! Locks and lines that threads share in user space.

use huddle_engine::Report;
use huddle_program::{ChannelId, ChannelSpec, GateId, Op};

use crate::world::{MS, World, parent, program, undisturbed};

const LOCK: ChannelId = ChannelId(0);
const LINE: ChannelId = ChannelId(1);

/// Threads on these CPUs, all let go at once, each doing `body` so many times.
fn run(lock: ChannelSpec, body: &[Op], times: u64, cpus: &[u32]) -> Report {
    let (tasks, gate) = (cpus.len() as u32, GateId(0));
    let ops = [Op::Wait { gate }].into_iter().chain(body.iter().copied());
    let script: Vec<Op> = ops.chain([Op::Repeat { to: 1, times, counter: 0 }]).collect();
    let mut main = parent(tasks);
    main.insert(1 + cpus.len(), Op::Open { gate });
    let mut program = program([main].into_iter().chain(cpus.iter().map(|_| script.clone())).collect());
    program.channels = vec![lock, ChannelSpec::Line];
    program.gates = 1;
    let pins: Vec<(u32, u32)> = (1..).zip(cpus.iter().copied()).collect();
    World::new(&undisturbed("kunpeng920"), "linux-5.9").run(&program, "0-95", &pins, 1).0
}

fn held(ns: u64) -> [Op; 3] {
    [Op::Receive { channel: LOCK }, Op::Compute { ns }, Op::Send { channel: LOCK }]
}

#[test]
fn one_thread_at_a_time_holds_a_lock() {
    for lock in [ChannelSpec::Spinlock, ChannelSpec::Mutex] {
        let report = run(lock, &held(1000), 500, &[0, 1, 4, 24, 72]);
        assert!(report.measured_ns >= 5 * 500 * 1000, "{lock:?}: {}", report.measured_ns);
        assert_eq!(report.messages, 5 * 500);
    }
}

#[test]
fn a_mutex_makes_its_waiters_sleep_and_a_spinlock_does_not() {
    // Tasks begin and end in either case; what they wait for is a millisecond.
    let switches = |lock| run(lock, &held(MS), 10, &[0, 4, 8]).switches;
    assert!(switches(ChannelSpec::Mutex) > 10 + switches(ChannelSpec::Spinlock));
}

#[test]
fn kunpeng_a_spinlock_is_handed_over_faster_inside_a_cluster_than_between_nodes() {
    let body = [Op::Receive { channel: LOCK }, Op::Write { line: LINE }, Op::Send { channel: LOCK }];
    let of = |cpus: &[u32]| run(ChannelSpec::Spinlock, &body, 10_000, cpus).measured_ns;
    let (cluster, clusters, nodes) = (of(&[0, 1, 2, 3]), of(&[0, 4, 8, 12]), of(&[0, 24, 48, 72]));
    assert!(cluster < clusters && clusters < nodes, "{cluster} {clusters} {nodes}");
    // Two lines of 35 or of 72 ns each time, but while few threads have woken and when one is left.
    assert!(cluster > 30_000 * 70 && clusters > 30_000 * 144, "{cluster} {clusters}");
}

#[test]
fn threads_of_a_lock_on_one_cpu_all_come_to_their_end() {
    for lock in [ChannelSpec::Spinlock, ChannelSpec::Mutex] {
        // Longer than a slice: a holder is thrown off its CPU, and whoever spins for it too.
        let report = run(lock, &held(10 * MS), 4, &[0, 0, 0]);
        assert!(report.measured_ns >= 12 * 10 * MS, "{lock:?}: {}", report.measured_ns);
    }
}

#[test]
fn kunpeng_writers_of_one_line_are_slower_in_two_clusters() {
    let of = |cpus: &[u32]| run(ChannelSpec::Mutex, &[Op::Write { line: LINE }], 5000, cpus).measured_ns;
    let (alone, near, far) = (of(&[0]), of(&[0, 1]), of(&[0, 4]));
    assert!(alone < near && near < far, "{alone} {near} {far}");
}
