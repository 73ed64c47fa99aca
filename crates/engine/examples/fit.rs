//! Replays the direct measurements that `machines/kunpeng920.toml` is fitted to, and prints measured against simulated:
//! pipe round trips by distance (lmbench lat_pipe) and hackbench on four CPUs of one cluster or of four.
//! The sources are spec/hardware.md §1 and hw/kunpeng920_pipe_latency.csv.

use huddle_engine::{Report, Setup, simulate};
use huddle_machine::{CpuId, CpuSet, Machine};
use huddle_policy::Policy;
use huddle_program::{ChannelId, ChannelSpec, Op, Program, Script, ScriptId, TaskId, TaskSpec};
use huddle_workload::Workload;

const ROUNDS: u64 = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = std::env::args().nth(1).unwrap_or_else(|| "kunpeng920".to_owned());
    let machine = Machine::load(&machine)?;
    println!("pipe round trip, us             measured  simulated");
    for (name, a, b, measured) in [
        ("one CPU", 0, 0, 11.88),
        ("one cluster", 0, 1, 10.18),
        ("one node, other cluster", 0, 4, 11.65),
        ("one package, other node", 0, 24, 15.01),
        ("other package", 0, 72, 17.54),
    ] {
        let pins = [(TaskId(1), CpuId(a)), (TaskId(2), CpuId(b))];
        let report = run(&machine, &ping_pong(), &CpuSet::full(96), &pins)?;
        println!("{name:30} {measured:9.2} {:10.2}", report.measured_ns as f64 / ROUNDS as f64 / 1e3);
    }
    println!("CPU time per message of hackbench -g 1 on four CPUs, us");
    for (name, cpus, measured) in [("one cluster", "0-3", 2.14), ("four clusters", "0,4,8,12", 2.76)] {
        let program = Workload::parse("hackbench/threads-pipe,loops=1000")?.program(1)?;
        let report = run(&machine, &program, &CpuSet::parse_list(cpus)?, &[])?;
        let us = 4.0 * report.measured_ns as f64 / report.messages as f64 / 1e3;
        println!("{name:30} {measured:9.2} {us:10.2}");
    }
    Ok(())
}

fn run(
    machine: &Machine,
    program: &Program,
    cpus: &CpuSet,
    pins: &[(TaskId, CpuId)],
) -> Result<Report, Box<dyn std::error::Error>> {
    let policy = Policy::load("linux-5.10")?;
    let kernel = huddle_domains::Kernel::load(&policy.kernel)?;
    let tree = huddle_domains::build(&machine.topology, &kernel);
    let plan = policy.compile(&tree, &machine.topology);
    let setup = Setup {
        machine,
        tree: &tree,
        kernel: &kernel,
        plan: &plan,
        program,
        cpus,
        pins,
        seed: 1,
        limit_ns: 100_000_000_000,
    };
    Ok(simulate(&setup)?)
}

/// Two tasks that pass a byte to and fro over two pipes, as lat_pipe does.
fn ping_pong() -> Program {
    let (there, back) = (ChannelId(0), ChannelId(1));
    let script = |ops: Vec<Op>| Script { ops };
    Program {
        tasks: (0..3).map(|script| TaskSpec { script: ScriptId(script), group: None }).collect(),
        scripts: vec![
            script(vec![
                Op::Spawn { task: TaskId(1) },
                Op::Spawn { task: TaskId(2) },
                Op::Join { task: TaskId(1) },
                Op::Join { task: TaskId(2) },
            ]),
            script(vec![
                Op::Start,
                Op::Send { channel: there },
                Op::Receive { channel: back },
                Op::Repeat { to: 1, times: ROUNDS, counter: 0 },
                Op::Stop,
            ]),
            script(vec![
                Op::Receive { channel: there },
                Op::Send { channel: back },
                Op::Repeat { to: 0, times: ROUNDS, counter: 0 },
            ]),
        ],
        channels: vec![ChannelSpec::Pipe { message_bytes: 1 }; 2],
        gates: 0,
        profiles: Vec::new(),
    }
}
