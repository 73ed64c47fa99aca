//! Replays direct measurements of the Kunpeng 920 and prints measured against simulated: pipe round trips by distance
//! (lmbench lat_pipe; `line` and `idle_exit` of `machines/kunpeng920.toml` are fitted to them), and hackbench on four CPUs of
//! one cluster or of four (nothing is fitted to it). The sources are spec/hardware.md §1 and hw/kunpeng920_pipe_latency.csv.

use huddle_engine::{Conditions, Report, Setup, simulate};
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
        let report = run(&machine, &ping_pong(), &CpuSet::full(96), &pins, 1)?;
        println!("{name:30} {measured:9.2} {:10.2}", report.measured_ns as f64 / ROUNDS as f64 / 1e3);
    }
    println!("\nhackbench -g 1 -l 20000 on four CPUs, s (five runs, sorted)");
    for (name, cpus, measured) in [("one cluster", "0-3", 4.285), ("four clusters", "0,4,8,12", 5.524)] {
        let program = Workload::parse("hackbench/threads-pipe,loops=20000")?.program(1)?;
        let cpus = CpuSet::parse_list(cpus)?;
        let mut seconds = Vec::new();
        for seed in 1..=5 {
            seconds.push(run(&machine, &program, &cpus, &[], seed)?.measured_ns as f64 / 1e9);
        }
        seconds.sort_by(f64::total_cmp);
        println!("{name:30} {measured:9.2}  {seconds:.2?}");
    }
    Ok(())
}

fn run(
    machine: &Machine,
    program: &Program,
    cpus: &CpuSet,
    pins: &[(TaskId, CpuId)],
    seed: u64,
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
        seed,
        limit_ns: 100_000_000_000,
        conditions: Conditions::default(),
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
