//! How fast one simulation of a kind runs: `speed CASE [CPUS] [PAIRS|GROUPS] [ROUNDS]`, a case being `pairs` (tasks that wake each
//! other in turn and run 200 us each way) or `hackbench` (threads and pipes). Prints switches, messages, events and nanoseconds of this
//! machine for each, and the most memory it took. CPUs beyond 24 are LLCs of 24 with the figures of a Kunpeng. For a profiler:
//! `perf record -g target/release/examples/speed pairs`.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Instant;

use huddle_domains::Kernel;
use huddle_engine::{Conditions, Setup, simulate};
use huddle_machine::{Arch, Layout, Machine, Topology};
use huddle_policy::Policy;
use huddle_program::{ChannelId, ChannelSpec, Op, Program, Script, ScriptId, TaskId, TaskSpec};
use huddle_workload::Workload;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let case = words.first().map_or("pairs", String::as_str);
    let number = |at: usize, absent: u64| words.get(at).map_or(Ok(absent), |word| word.parse::<u64>());
    let cpus = number(1, 24)? as usize;
    let load = number(2, 12)? as u32;
    let rounds = number(3, 2000)?;
    let policy = Policy::load(&std::env::var("POLICY").unwrap_or_else(|_| "linux-5.9".to_owned()))?;

    let mut machine = Machine::load("kunpeng920:nodes=1")?;
    if cpus > 24 {
        let layout = Layout::new([1, 1, cpus.div_ceil(24), 6, 4, 1]);
        machine.topology = Topology::from_layout(Arch::Arm64, &layout).ok_or("too many CPUs")?;
    }
    let program = match case {
        "pairs" => pairs(load, rounds),
        "hackbench" => Workload::parse(&format!("hackbench/threads-pipe,loops={rounds}"))?.program(load)?,
        other => return Err(format!("no case {other}; there are pairs and hackbench").into()),
    };
    let kernel = Kernel::load(&policy.kernel)?;
    let tree = huddle_domains::build(&machine.topology, &kernel);
    let plan = policy.compile(&tree, &machine.topology);
    let setup = Setup {
        machine: &machine,
        tree: &tree,
        kernel: &kernel,
        plan: &plan,
        program: &program,
        cpus: &machine.topology.online,
        pins: &[],
        conditions: Conditions::default(),
        seed: 1,
        limit_ns: 3_600_000_000_000,
    };
    let begun = Instant::now();
    let report = simulate(&setup)?;
    let ns = begun.elapsed().as_nanos() as f64;
    let rate =
        |count: u64| format!("{count} ({:.2} million/s, {:.0} ns each)", count as f64 * 1e3 / ns, ns / count as f64);
    println!(
        "{} CPUs, {} tasks, {:.3} s simulated in {:.3} s",
        machine.topology.online.len(),
        program.tasks.len(),
        report.simulated_ns as f64 / 1e9,
        ns / 1e9
    );
    println!("switches {}", rate(report.switches));
    println!("messages {}", rate(program.messages().max(1)));
    println!("events   {}", rate(report.events));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("memory: not known here"));
    Ok(())
}

/// A parent and pairs of tasks that pass a message to and fro, and run 200 us each way.
fn pairs(pairs: u32, rounds: u64) -> Program {
    let again = Op::Repeat { to: 0, times: rounds, counter: 0 };
    let run = Op::Compute { ns: 200_000 };
    let mut scripts = vec![parent(2 * pairs)];
    for pair in 0..pairs {
        let (there, back) = (ChannelId(2 * pair), ChannelId(2 * pair + 1));
        scripts.push(vec![run, Op::Send { channel: there }, Op::Receive { channel: back }, again]);
        scripts.push(vec![Op::Receive { channel: there }, run, Op::Send { channel: back }, again]);
    }
    let task = |script| TaskSpec { script: ScriptId(script), group: None };
    Program {
        tasks: (0..scripts.len() as u32).map(task).collect(),
        scripts: scripts.into_iter().map(|ops| Script { ops }).collect(),
        channels: vec![ChannelSpec::Pipe { message_bytes: 100 }; 2 * pairs as usize],
        gates: 0,
        profiles: Vec::new(),
    }
}

fn parent(children: u32) -> Vec<Op> {
    let all = || (1..=children).map(TaskId);
    let spawn = all().map(|task| Op::Spawn { task });
    std::iter::once(Op::Start).chain(spawn).chain(all().map(|task| Op::Join { task })).chain([Op::Stop]).collect()
}
