//! What socketpairs and semaphores do to the tasks on them, what processes differ in from threads, and hackbench in its four
//! modes.

use huddle_engine::Mechanism;
use huddle_machine::{CostKey, Distance};
use huddle_program::{ChannelId, ChannelSpec, GateId, Op, Program, TaskId};
use huddle_workload::{Mode, Workload};

use crate::laws::lawful_program;
use crate::watch::Watch;
use crate::world::{MS, World, machine, parent, program, scaled, undisturbed};

const CHANNEL: ChannelId = ChannelId(0);
const GATE: GateId = GateId(0);
const READER: u32 = 1;
const OPENS: u64 = 30 * MS;

/// A parent, a reader and writers on one channel, each bound to a CPU of its own. The gate opens 30 ms after the start.
fn on_a_channel(channel: ChannelSpec, reader: Vec<Op>, writers: Vec<Vec<Op>>) -> (Program, Vec<(u32, u32)>) {
    let tasks = 1 + writers.len() as u32;
    let mut main = parent(tasks);
    let spawned = 1 + tasks as usize;
    main.splice(spawned..spawned, [Op::Compute { ns: OPENS }, Op::Open { gate: GATE }]);
    let mut program = program([main, reader].into_iter().chain(writers).collect());
    program.channels = vec![channel];
    program.gates = 1;
    (program, (1..=tasks).map(|task| (task, 2 * task)).collect())
}

fn run((program, pins): &(Program, Vec<(u32, u32)>)) -> (huddle_engine::Report, Watch) {
    World::new(&undisturbed("kunpeng920:nodes=1"), "linux-5.9").run(program, "0-23", pins, 1)
}

fn send(times: u64) -> Vec<Op> {
    vec![Op::Send { channel: CHANNEL }, Op::Repeat { to: 0, times, counter: 0 }]
}

/// Reads so many messages once the gate is open, computes for 20 ms, reads the rest.
fn read_in_two(first: u64, rest: u64) -> Vec<Op> {
    let receive = Op::Receive { channel: CHANNEL };
    vec![
        Op::Wait { gate: GATE },
        receive,
        Op::Repeat { to: 1, times: first, counter: 0 },
        Op::Compute { ns: 20 * MS },
        receive,
        Op::Repeat { to: 4, times: rest, counter: 0 },
    ]
}

const SOCKET: ChannelSpec = ChannelSpec::Socket { message_bytes: 100 };

/// Whether a writer of so many messages has gone before any is read.
fn writer_never_waited(message_bytes: u32, messages: u64) -> bool {
    let socket = ChannelSpec::Socket { message_bytes };
    let (report, _) = run(&on_a_channel(socket, read_in_two(1, messages - 1), vec![send(messages)]));
    report.finished_ns[2] < OPENS
}

#[test]
fn a_socketpair_takes_278_messages_of_100_bytes_and_no_more() {
    assert!(writer_never_waited(100, 278));
    assert!(!writer_never_waited(100, 279));
}

#[test]
fn a_socketpair_takes_44_messages_of_a_page() {
    assert!(writer_never_waited(4096, 44));
    assert!(!writer_never_waited(4096, 45));
}

#[test]
fn a_writer_asleep_on_a_full_socketpair_wakes_at_a_quarter_after_209_reads() {
    let woken_at = |first| {
        let (_, watch) = run(&on_a_channel(SOCKET, read_in_two(first, 279 - first), vec![send(279)]));
        let wakes: Vec<_> = watch.wakes.iter().filter(|wake| wake.wakee == 2).collect();
        assert_eq!(wakes.len(), 1);
        assert!(wakes[0].waker == READER && wakes[0].sync);
        wakes[0].at
    };
    // The start of the parent is within the first millisecond, 209 reads within one more.
    assert!((OPENS..OPENS + 5 * MS).contains(&woken_at(209)));
    assert!(woken_at(208) > OPENS + 20 * MS);
}

#[test]
fn all_writers_asleep_on_a_socketpair_wake_together_the_latest_first() {
    // The second fills the socketpair, the third and fourth come a while later.
    let later = |ms| vec![Op::Compute { ns: ms * MS }, Op::Send { channel: CHANNEL }];
    let writers = vec![send(279), later(10), later(20)];
    let (_, watch) = run(&on_a_channel(SOCKET, read_in_two(209, 72), writers));
    let by_reader: Vec<u32> = watch
        .wakes
        .iter()
        .filter(|wake| wake.waker == READER)
        .map(|wake| wake.wakee)
        .filter(|&task| task > 1)
        .collect();
    assert_eq!(by_reader, [4, 3, 2]);
}

#[test]
fn a_writer_that_has_not_slept_gets_into_a_full_socketpair_after_one_read() {
    // The third writes at 40 ms: one message has been read by then.
    let late = vec![Op::Compute { ns: 40 * MS }, Op::Send { channel: CHANNEL }];
    let (report, watch) = run(&on_a_channel(SOCKET, read_in_two(1, 279), vec![send(279), late]));
    assert!(report.finished_ns[3] < OPENS + 20 * MS && report.finished_ns[2] > OPENS + 20 * MS);
    assert_eq!(watch.wakes_of(3), 0);
}

#[test]
fn a_reader_asleep_on_a_socketpair_is_woken_by_each_write_and_one_that_finds_messages_is_not() {
    let mut slow = send(7);
    slow.insert(0, Op::Compute { ns: 2 * MS });
    let receive = |times| vec![Op::Receive { channel: CHANNEL }, Op::Repeat { to: 0, times, counter: 0 }];
    let (_, watch) = run(&on_a_channel(SOCKET, receive(7), vec![slow]));
    assert_eq!(watch.wakes_of(READER), 7);
    assert!(watch.wakes.iter().filter(|wake| wake.wakee == READER).all(|wake| wake.waker == 2 && wake.sync));
    let (_, watch) = run(&on_a_channel(SOCKET, read_in_two(100, 100), vec![send(200)]));
    // Once by the gate.
    assert_eq!((watch.wakes_of(READER), watch.wakes_of(2)), (1, 0));
}

#[test]
fn a_semaphore_wakes_one_waiter_for_each_post_without_the_hint_and_never_makes_the_poster_wait() {
    let mut slow = send(5);
    slow.insert(0, Op::Compute { ns: 2 * MS });
    let receive = vec![Op::Receive { channel: CHANNEL }, Op::Repeat { to: 0, times: 5, counter: 0 }];
    let (_, watch) = run(&on_a_channel(ChannelSpec::Semaphore, receive, vec![slow]));
    assert_eq!((watch.wakes_of(READER), watch.wakes_of(2)), (5, 0));
    assert!(watch.wakes.iter().filter(|wake| wake.wakee == READER).all(|wake| !wake.sync));
    let (report, watch) = run(&on_a_channel(ChannelSpec::Semaphore, read_in_two(1, 99_999), vec![send(100_000)]));
    assert!(report.finished_ns[2] < OPENS);
    assert_eq!(watch.wakes_of(READER), 1, "by the gate");
}

#[test]
fn a_message_of_4000_bytes_costs_more_than_one_of_100_by_the_copy_and_its_lines() {
    let undisturbed = undisturbed("kunpeng920:nodes=1");
    let copy = 3900.0 * undisturbed.costs.scalar(CostKey::CopyByte);
    // Ten messages fit at once, read from another CPU of the same LLC when all are there. Of a socket each comes from its writer's
    // CPU, of a pipe from the CPU that used it last: the reader's own after the first.
    for (small, large, pulled) in [
        (ChannelSpec::Pipe { message_bytes: 100 }, ChannelSpec::Pipe { message_bytes: 4000 }, 1.0),
        (SOCKET, ChannelSpec::Socket { message_bytes: 4000 }, 10.0),
    ] {
        let cpu_time = |channel| {
            let (report, _) = run(&on_a_channel(channel, read_in_two(1, 9), vec![send(10)]));
            let of = |mechanism: Mechanism| report.cpu_ns[mechanism as usize] as f64;
            (of(Mechanism::Kernel), of(Mechanism::SharedData))
        };
        let ((small, small_lines), (large, large_lines)) = (cpu_time(small), cpu_time(large));
        // Each message is copied in and out.
        assert!((large - small - 20.0 * copy).abs() < 200.0, "{large} against {small}");
        // 63 lines are 61 more than two.
        let line = undisturbed.costs.by_distance(CostKey::Line)[Distance::Llc as usize];
        let payload = pulled * 61.0 * undisturbed.costs.scalar(CostKey::PayloadOverlap) * line;
        assert!((large_lines - small_lines - payload).abs() < 100.0, "{large_lines} against {small_lines}");
    }
}

/// A parent that forks two processes of 20 and 5 ms, each on a CPU of its own, and measures until it has reaped so many.
fn reaping(reaped: usize) -> u64 {
    let mut main = vec![Op::Start];
    main.extend([1, 2].map(|task| Op::Fork { task: TaskId(task) }));
    main.extend([Op::Reap, Op::Reap]);
    main.insert(3 + reaped, Op::Stop);
    let hog = |ms| vec![Op::Compute { ns: ms * MS }];
    let program = program(vec![main, hog(20), hog(5)]);
    run(&(program, vec![(1, 4), (2, 8)])).0.measured_ns
}

#[test]
fn a_parent_reaps_whoever_exits_first() {
    assert!((5 * MS..6 * MS).contains(&reaping(1)));
    assert!((20 * MS..21 * MS).contains(&reaping(2)));
}

#[test]
fn a_process_costs_more_to_create_and_to_end_than_a_thread() {
    let machine = undisturbed("kunpeng920:nodes=1");
    let world = World::new(&machine, "linux-5.9");
    let cpu_ns = |create: fn(TaskId) -> Op| {
        let mut main = parent(1);
        main[1] = create(TaskId(1));
        let (report, _) = world.run(&program(vec![main, vec![Op::Compute { ns: MS }]]), "0-23", &[(0, 0), (1, 4)], 1);
        report.cpu_ns[Mechanism::Kernel as usize]
    };
    let figure = |key| machine.costs.scalar(key) as u64;
    let process = cpu_ns(|task| Op::Fork { task }) - figure(CostKey::ProcessFork) - figure(CostKey::ProcessExit);
    let thread = cpu_ns(|task| Op::Spawn { task }) - figure(CostKey::Fork) - figure(CostKey::Exit);
    assert_eq!(process, thread);
}

#[test]
fn hackbench_keeps_the_laws_in_its_four_modes() {
    let machine = machine("kunpeng920:nodes=1");
    for mode in Mode::ALL {
        for (policy, cpus, groups) in [("linux-5.9", "0-23", 2), ("linux-6.7", "4-7", 1), ("rfc2-cluster", "5", 1)] {
            let world = World::new(&machine, policy);
            let program = Workload::parse(&format!("{},fds=8,loops=60", mode.name())).unwrap().program(groups).unwrap();
            lawful_program(&world, cpus, &program, (16 * groups, u64::from(groups) * 64 * 60), 3);
        }
    }
}

#[test]
fn hackbench_under_the_schedulers_own_queues_keeps_the_laws_with_sockets_and_processes() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "huddle-gather");
    for mode in Mode::ALL {
        let program = Workload::parse(&format!("{},loops=6", mode.name())).unwrap().program(1).unwrap();
        let (report, _) = world.run(&program, "0-23", &[], 1);
        assert_eq!(report.messages, 400 * 6 + 40, "{}", mode.name());
    }
}

#[test]
fn hackbench_over_socketpairs_is_deterministic() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let program = Workload::parse("hackbench/processes-socket,loops=10").unwrap().program(2).unwrap();
    let run = |seed| world.run(&program, "0-23", &[], seed).0;
    assert_eq!(run(4), run(4));
    assert_ne!(run(4).measured_ns, run(5).measured_ns);
}

#[test]
fn hackbench_over_socketpairs_wakes_fewer_writers_than_over_pipes_whose_every_read_wakes_one() {
    // One CPU, so that channels fill: 10 senders of 100 rounds want more than 278 messages into each.
    let machine = machine("kunpeng920:nodes=1");
    let world = World::new(&machine, "linux-5.9");
    let wakes = |mode: Mode| {
        let program = Workload::parse(&format!("{},fds=10,loops=100", mode.name())).unwrap().program(1).unwrap();
        world.run(&program, "5", &[], 1).0.wakes.total()
    };
    assert!(wakes(Mode::ThreadsSocket) < wakes(Mode::ThreadsPipe));
}

#[test]
fn pairs_make_a_round_trip_in_twice_the_run_time_and_the_hand_over_whatever_carries_the_token() {
    let machine = scaled(&undisturbed("kunpeng920:nodes=1"), CostKey::NoiseTime, 0.0);
    let world = World::new(&machine, "linux-5.9");
    for via in ["pipe", "socket", "futex"] {
        let text = format!("pingpong/pairs,via={via},run_ns=200000,rounds=50");
        let program = Workload::parse(&text).unwrap().program(3).unwrap();
        let (report, _) = world.run(&program, "0-23", &[], 1);
        let round = report.measured_ns / 50;
        assert!((400_000..440_000).contains(&round), "{via}: {round} ns");
        // Each hand-over switches to the other side and away from this one, on one CPU or on two.
        assert!(report.switches >= 3 * 2 * 50, "{via}: {} switches", report.switches);
    }
}

#[test]
fn kunpeng_six_forked_hogs_fill_two_clusters_without_the_cluster_level_and_six_with_it() {
    let used = |policy: &str| {
        let world = World::new(&undisturbed("kunpeng920:nodes=1"), policy);
        let program = Workload::parse("hogs/forked,ms=200").unwrap().program(6).unwrap();
        let report = world.run(&program, "0-23", &[], 3).0;
        report.clusters_used.unwrap()
    };
    // Fork goes to the first idle CPU after the parent's: neighbours, in two clusters or, around a boundary, three.
    assert!((1.9..=3.1).contains(&used("linux-5.9")), "{}", used("linux-5.9"));
    assert!(used("linux-5.14-cluster") > 5.9, "{}", used("linux-5.14-cluster"));
}
