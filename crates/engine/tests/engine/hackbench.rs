//! What pipes do to the tasks on them, and what that makes of hackbench's elapsed time.

use huddle_domains::PipeWriterWake;
use huddle_engine::Mechanism;
use huddle_machine::CostKey;
use huddle_program::{ChannelId, ChannelSpec, GateId, Op, Program, TaskId};

use crate::world::{MS, World, hackbench, machine, parent, program, scaled, undisturbed};

const PIPE: ChannelId = ChannelId(0);
const WRITER: u32 = 1;
const READER: u32 = 2;
/// Writer and reader on CPUs of their own.
const APART: [(u32, u32); 2] = [(WRITER, 4), (READER, 8)];

/// A parent, a writer and a reader on one pipe. The gate is opened by the parent at `opens_ms`.
fn on_a_pipe(message_bytes: u32, writer: Vec<Op>, reader: Vec<Op>, opens_ms: u64) -> Program {
    let mut main = parent(2);
    main.splice(3..3, [Op::Compute { ns: opens_ms * MS }, Op::Open { gate: GateId(0) }]);
    let mut program = program(vec![main, writer, reader]);
    program.channels = vec![ChannelSpec::Pipe { message_bytes }];
    program.gates = 1;
    program
}

fn times(op: Op, times: u64) -> Vec<Op> {
    vec![op, Op::Repeat { to: 0, times, counter: 0 }]
}

/// `messages` messages, read from `opens_ms` on.
fn fill(message_bytes: u32, messages: u64, opens_ms: u64) -> Program {
    let read = vec![
        Op::Wait { gate: GateId(0) },
        Op::Receive { channel: PIPE },
        Op::Repeat { to: 1, times: messages, counter: 0 },
    ];
    on_a_pipe(message_bytes, times(Op::Send { channel: PIPE }, messages), read, opens_ms)
}

/// Whether the writer has gone before anything was read.
fn writer_never_waited(message_bytes: u32, messages: u64, opens_ms: u64) -> bool {
    let world = World::new(&undisturbed("kunpeng920:nodes=1"), "linux-5.9");
    let (report, _) = world.run(&fill(message_bytes, messages, opens_ms), "0-23", &APART, 1);
    report.finished_ns[WRITER as usize] < opens_ms * MS
}

#[test]
fn a_pipe_takes_640_messages_of_100_bytes_and_no_more() {
    assert!(writer_never_waited(100, 640, 20));
    assert!(!writer_never_waited(100, 641, 20));
}

#[test]
fn a_pipe_takes_16_messages_of_a_page_and_one_page_each_of_small_ones() {
    assert!(writer_never_waited(4096, 16, 20));
    assert!(!writer_never_waited(4096, 17, 20));
    assert!(writer_never_waited(2000, 32, 20));
    assert!(!writer_never_waited(2000, 33, 20));
}

#[test]
fn a_reader_of_an_empty_pipe_sleeps_and_is_woken_once_by_each_message() {
    let world = World::new(&undisturbed("kunpeng920:nodes=1"), "linux-5.9");
    let write =
        vec![Op::Compute { ns: 2 * MS }, Op::Send { channel: PIPE }, Op::Repeat { to: 0, times: 7, counter: 0 }];
    let program = on_a_pipe(100, write, times(Op::Receive { channel: PIPE }, 7), 1);
    let (report, watch) = world.run(&program, "0-23", &APART, 1);
    assert_eq!(watch.wakes_of(READER), 7);
    assert_eq!(watch.wakes_of(WRITER), 0, "there is always room");
    assert!(watch.wakes.iter().filter(|wake| wake.wakee == READER).all(|wake| wake.waker == WRITER && wake.sync));
    // It sleeps between messages: 14 ms of waiting, a few microseconds each of reading.
    assert!(watch.ran(READER, u64::MAX) < MS / 2, "{}", watch.ran(READER, u64::MAX));
    assert!(report.measured_ns > 14 * MS);
}

#[test]
fn a_reader_that_finds_messages_is_not_woken() {
    let world = World::new(&undisturbed("kunpeng920:nodes=1"), "linux-5.9");
    let mut read = vec![Op::Compute { ns: 10 * MS }, Op::Receive { channel: PIPE }];
    read.push(Op::Repeat { to: 1, times: 500, counter: 0 });
    let program = on_a_pipe(100, times(Op::Send { channel: PIPE }, 500), read, 1);
    let (_, watch) = world.run(&program, "0-23", &APART, 1);
    assert_eq!((watch.wakes_of(READER), watch.wakes_of(WRITER)), (0, 0));
}

/// How often the writer of a full pipe with 640 more messages to write is woken while they are read.
fn wakes_of_a_full_pipe(rule: PipeWriterWake) -> usize {
    // Reads are slower than writes here, so that the reader never overtakes the writer.
    let machine = scaled(&undisturbed("kunpeng920:nodes=1"), CostKey::PipeRead, 4.0);
    let world = World::with_kernel(&machine, "linux-5.9", |kernel| kernel.pipe_writer_wake = rule);
    world.run(&fill(100, 1280, 20), "0-23", &APART, 1).1.wakes_of(WRITER)
}

#[test]
fn a_writer_is_woken_once_a_slot_is_free_from_6_14_on_and_in_vain_by_reads_before_that_in_5_9() {
    // 40 reads free the first slot; from then on writer and reader take turns at the mutex and the ring is not full again.
    assert_eq!(wakes_of_a_full_pipe(PipeWriterWake::FreedSlot), 1);
    // A wake-up takes the time of two or three reads, so that of the 40 reads every third or so finds the writer asleep.
    let every = wakes_of_a_full_pipe(PipeWriterWake::EveryFullRead);
    assert!((10..=40).contains(&every), "{every}");
}

#[test]
fn kunpeng_hackbench_on_one_cpu_whose_pipes_fill_wakes_far_less_with_the_freed_slot_rule() {
    let machine = machine("kunpeng920:nodes=1");
    let wakes = |rule| {
        let world = World::with_kernel(&machine, "linux-5.9", |kernel| kernel.pipe_writer_wake = rule);
        let program = hackbench(1, 200);
        (0..3).map(|seed| world.run(&program, "5", &[], seed).0.wakes.total()).sum::<u64>()
    };
    let (every, freed) = (wakes(PipeWriterWake::EveryFullRead), wakes(PipeWriterWake::FreedSlot));
    assert!(freed * 2 < every, "{freed} wake-ups against {every}");
}

#[test]
fn hackbench_starts_as_a_herd_that_main_wakes_at_once() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let (_, watch) = world.run(&hackbench(2, 5), "0-23", &[], 1);
    let by_main: Vec<_> = watch.wakes.iter().filter(|wake| wake.waker == 0).collect();
    let mut woken: Vec<u32> = by_main.iter().map(|wake| wake.wakee).collect();
    woken.sort_unstable();
    assert_eq!(woken, (1..=80).collect::<Vec<u32>>(), "each worker once");
    assert!(by_main.iter().all(|wake| wake.sync));
    let (first, last) = (by_main[0].at, by_main[79].at);
    assert!(last - first < MS, "the herd took {} ns", last - first);
    // They gather nothing: most CPUs of the node get some.
    let mut cpus: Vec<usize> = by_main.iter().map(|wake| wake.chosen).collect();
    cpus.sort_unstable();
    cpus.dedup();
    assert!(cpus.len() > 12, "{cpus:?}");
}

#[test]
fn kunpeng_elapsed_time_grows_in_proportion_to_the_loops() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    for (groups, loops) in [(1, 250), (3, 100)] {
        let elapsed = |loops| world.mean_ms(&hackbench(groups, loops), "0-23", 0..6);
        let ratio = elapsed(2 * loops) / elapsed(loops);
        assert!((1.6..2.4).contains(&ratio), "{groups} groups: {ratio}");
    }
}

#[test]
fn kunpeng_four_groups_take_longer_than_one_but_not_four_times_as_long() {
    let world = World::new(&machine("kunpeng920:nodes=1"), "linux-5.9");
    let elapsed = |groups| world.mean_ms(&hackbench(groups, 200), "0-23", 0..3);
    let ratio = elapsed(4) / elapsed(1);
    assert!((1.5..4.0).contains(&ratio), "{ratio}");
}

#[test]
fn kunpeng_dearer_lines_and_dearer_writes_make_hackbench_slower() {
    let program = hackbench(2, 80);
    let machine = machine("kunpeng920:nodes=1");
    let elapsed = |key, factor| World::new(&scaled(&machine, key, factor), "linux-5.9").mean_ms(&program, "0-23", 0..5);
    let plain = elapsed(CostKey::Line, 1.0);
    for key in [CostKey::Line, CostKey::PipeWrite] {
        let dearer = elapsed(key, 2.0);
        assert!(dearer > 1.05 * plain, "{key:?}: {dearer} ms against {plain} ms");
    }
}

#[test]
fn a_mechanism_without_cost_takes_no_time() {
    let program = hackbench(1, 20);
    let machine = machine("kunpeng920:nodes=1");
    for (key, mechanism) in [(CostKey::Scan, Mechanism::Search), (CostKey::Tick, Mechanism::Tick)] {
        let time = |factor| {
            let report = World::new(&scaled(&machine, key, factor), "linux-5.9").run(&program, "0-23", &[], 1).0;
            report.cpu_ns[mechanism as usize]
        };
        assert!(time(1.0) > 0);
        assert_eq!(time(0.0), 0, "{}", mechanism.name());
    }
}

#[test]
fn kunpeng_one_node_two_groups_doubling_the_length_changes_no_verdict() {
    let machine = machine("kunpeng920:nodes=1");
    let worlds = ["linux-5.9", "rfc2-cluster"].map(|policy| World::new(&machine, policy));
    // Of both policies: mean time per loop. Of the second against the first: mean change and its standard error, by seed.
    let measure = |loops: u64| {
        let program = hackbench(2, loops);
        let seeds = 0..6;
        let times: Vec<[f64; 2]> = seeds
            .map(|seed| {
                [&worlds[0], &worlds[1]].map(|world| world.mean_ms(&program, "0-23", seed..seed + 1) / loops as f64)
            })
            .collect();
        let count = times.len() as f64;
        let per_loop = [0, 1].map(|policy| times.iter().map(|pair| pair[policy]).sum::<f64>() / count);
        let changes: Vec<f64> = times.iter().map(|[base, other]| other / base - 1.0).collect();
        let mean = changes.iter().sum::<f64>() / count;
        let variance = changes.iter().map(|change| (change - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (per_loop, mean, (variance / count).sqrt())
    };
    let (short_times, short, short_error) = measure(300);
    let (long_times, long, long_error) = measure(600);
    for (short, long) in short_times.into_iter().zip(long_times) {
        assert!((long / short - 1.0).abs() < 0.15, "{short_times:?} and {long_times:?} ms per loop");
    }
    let apart = (short - long).abs() / short_error.hypot(long_error);
    assert!(apart < 3.0, "changes of {short:.3} +- {short_error:.3} and {long:.3} +- {long_error:.3}");
}

#[test]
fn one_task_joins_another_that_has_gone_without_sleeping() {
    let world = World::new(&undisturbed("kunpeng920:nodes=1"), "linux-5.9");
    let main = vec![Op::Spawn { task: TaskId(1) }, Op::Compute { ns: 5 * MS }, Op::Join { task: TaskId(1) }];
    let (_, watch) = world.run(&program(vec![main, vec![Op::Compute { ns: MS }]]), "0-23", &[], 1);
    assert_eq!(watch.wakes_of(0), 0);
}
