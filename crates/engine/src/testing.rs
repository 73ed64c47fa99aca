//! A simulation in which nothing happens but what a test does, for unit tests of the queue and of balancing.

use huddle_domains::Kernel;
use huddle_machine::{CpuId, CpuSet, Machine};
use huddle_policy::Policy;
use huddle_program::{ChannelSpec, Op, Program, Script, ScriptId, TaskId, TaskSpec};

use crate::sim::Sim;
use crate::state::Run;
use crate::{Conditions, Part, Setup, Unobserved, Without};

/// Gives the test a simulation of a machine under a policy: task 0 begins on the last CPU, tasks 1 to `tasks` sleep on CPU `at`
/// as if they had run there before. There is one empty pipe. No event is processed.
pub(crate) fn still(
    (machine, policy): (&Machine, &str),
    (tasks, at): (u32, u32),
    change: impl FnOnce(&mut Kernel),
    test: impl FnOnce(&mut Sim<Unobserved>),
) {
    let policy = Policy::load(policy).unwrap();
    let mut kernel = Kernel::load(&policy.kernel).unwrap();
    change(&mut kernel);
    let tree = huddle_domains::build(&machine.topology, &kernel);
    let plan = policy.compile(&tree, &machine.topology);
    let parent = Script { ops: (1..=tasks).map(|task| Op::Spawn { task: TaskId(task) }).collect() };
    let child = Script { ops: vec![Op::Compute { ns: 1 }] };
    let spec = |task| TaskSpec { script: ScriptId(u32::from(task > 0)), group: None };
    let program = Program {
        scripts: vec![parent, child],
        tasks: (0..=tasks).map(spec).collect(),
        channels: vec![ChannelSpec::Pipe { message_bytes: 100 }],
        gates: 0,
        profiles: Vec::new(),
    };
    let setup = Setup {
        machine,
        tree: &tree,
        kernel: &kernel,
        plan: &plan,
        program: &program,
        cpus: &CpuSet::full(tree.nr_cpus),
        pins: &[(TaskId(0), CpuId::from(tree.nr_cpus - 1))],
        seed: 1,
        limit_ns: u64::MAX,
        // Tests set loads by hand.
        conditions: Conditions { without: Without::default().and(Part::Autogroup), ..Conditions::default() },
    };
    let mut observer = Unobserved;
    let mut sim = Sim::new(&setup, &mut observer).unwrap();
    sim.now = 1;
    for task in &mut sim.tasks[1..=tasks as usize] {
        (task.cpu, task.run) = (at, Run::Sleeping);
    }
    test(&mut sim);
}
