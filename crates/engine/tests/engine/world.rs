//! A machine, a kernel and a policy to run programs on, and the programs that several tests use.

use huddle_domains::{DomainTree, Kernel};
use huddle_engine::{Conditions, Observer, Rebuild, Report, Setup, SimError, Without, simulate_with};
use huddle_machine::{COST_KEYS, CostKey, Costs, CpuId, CpuSet, Machine, Value};
use huddle_policy::{Plan, Policy};
use huddle_program::{Op, Program, Script, ScriptId, TaskId, TaskSpec};
use huddle_workload::Workload;

use crate::watch::Watch;

pub const MS: u64 = 1_000_000;

/// All that a run needs but the program, its CPUs and its seed.
pub struct World {
    pub machine: Machine,
    pub kernel: Kernel,
    pub tree: DomainTree,
    pub plan: Plan,
    /// Mechanisms left out.
    pub without: Without,
    /// Domains and plan that replace the others after so many ns of the measured stretch.
    pub later: Option<(u64, DomainTree, Plan)>,
}

impl World {
    pub fn new(machine: &Machine, policy: &str) -> World {
        World::with_kernel(machine, policy, |_| ())
    }

    /// With a kernel generation changed by hand.
    pub fn with_kernel(machine: &Machine, policy: &str, change: impl FnOnce(&mut Kernel)) -> World {
        let policy = Policy::load(policy).unwrap();
        let mut kernel = Kernel::load(&policy.kernel).unwrap();
        change(&mut kernel);
        let tree = huddle_domains::build(&machine.topology, &kernel);
        let plan = policy.compile(&tree, &machine.topology);
        World { machine: machine.clone(), kernel, tree, plan, without: Without::default(), later: None }
    }

    /// Without these mechanisms.
    pub fn without(mut self, names: &[&str]) -> World {
        self.without = Without::parse(names.iter().copied()).unwrap();
        self
    }

    /// Becomes another world's domains after so many ns of the measured stretch.
    pub fn then(mut self, after_ns: u64, other: World) -> World {
        self.later = Some((after_ns, other.tree, other.plan));
        self
    }

    fn conditions(&self) -> Conditions<'_> {
        let rebuild = self.later.as_ref().map(|(after_ns, tree, plan)| Rebuild { after_ns: *after_ns, tree, plan });
        Conditions { without: self.without, rebuild }
    }

    /// Runs a program that may fail.
    pub fn try_run(
        &self,
        program: &Program,
        cpus: &str,
        pins: &[(u32, u32)],
        (seed, limit_ns): (u64, u64),
        observer: &mut impl Observer,
    ) -> Result<Report, SimError> {
        let pins: Vec<(TaskId, CpuId)> = pins.iter().map(|&(task, cpu)| (TaskId(task), CpuId(cpu))).collect();
        let setup = Setup {
            machine: &self.machine,
            tree: &self.tree,
            kernel: &self.kernel,
            plan: &self.plan,
            program,
            cpus: &CpuSet::parse_list(cpus).unwrap(),
            pins: &pins,
            seed,
            limit_ns,
            conditions: self.conditions(),
        };
        simulate_with(&setup, observer)
    }

    /// Runs a program under the watch of the laws that hold in every run.
    pub fn run(&self, program: &Program, cpus: &str, pins: &[(u32, u32)], seed: u64) -> (Report, Watch) {
        let mut watch = Watch::new(self, program, cpus, pins);
        let report = self.try_run(program, cpus, pins, (seed, 100_000 * MS), &mut watch).unwrap();
        watch.check(&report);
        (report, watch)
    }

    /// Mean elapsed time over seeds, ms.
    pub fn mean_ms(&self, program: &Program, cpus: &str, seeds: std::ops::Range<u64>) -> f64 {
        let count = (seeds.end - seeds.start) as f64;
        let sum: u64 = seeds
            .map(|seed| self.try_run(program, cpus, &[], (seed, 100_000 * MS), &mut Quiet).unwrap().measured_ns)
            .sum();
        sum as f64 / count / MS as f64
    }

    /// The number of a CPU's cluster.
    pub fn cluster(&self, cpu: usize) -> u32 {
        self.machine.topology.cluster.index_of(CpuId::from(cpu))
    }
}

/// Watches nothing: for runs that only a mean is wanted of.
pub struct Quiet;

impl Observer for Quiet {}

pub fn machine(source: &str) -> Machine {
    Machine::load(source).unwrap()
}

/// The machine with the numbers of one figure multiplied.
pub fn scaled(machine: &Machine, key: CostKey, factor: f64) -> Machine {
    let costs = Costs::from_lookup(|name| {
        let info = COST_KEYS.iter().find(|info| info.name == name)?;
        let mut figure = machine.costs.figure(info.key).clone();
        if info.key == key {
            match &mut figure.value {
                Value::Scalar(value) => *value *= factor,
                Value::ByDistance(values) => values.iter_mut().flatten().for_each(|value| *value *= factor),
            }
        }
        Some(figure)
    });
    Machine { costs: costs.unwrap(), ..machine.clone() }
}

/// The machine without background tasks and without jitter: nothing happens but the program.
pub fn undisturbed(source: &str) -> Machine {
    scaled(&scaled(&machine(source), CostKey::NoiseInterval, 0.0), CostKey::Jitter, 0.0)
}

/// A hackbench program.
pub fn hackbench(groups: u32, loops: u64) -> Program {
    Workload::parse(&format!("hackbench/threads-pipe,loops={loops}")).unwrap().program(groups).unwrap()
}

/// A program of task 0 and one task for each further script, without channels.
pub fn program(scripts: Vec<Vec<Op>>) -> Program {
    let scripts: Vec<Script> = scripts.into_iter().map(|ops| Script { ops }).collect();
    Program {
        tasks: (0..scripts.len()).map(|script| TaskSpec { script: ScriptId(script as u32), group: None }).collect(),
        scripts,
        channels: Vec::new(),
        gates: 0,
        profiles: Vec::new(),
    }
}

/// Task 0 starts the tasks `1..=children`, measures from there, and waits for their end.
pub fn parent(children: u32) -> Vec<Op> {
    let mut ops = vec![Op::Start];
    ops.extend((1..=children).map(|task| Op::Spawn { task: TaskId(task) }));
    ops.extend((1..=children).map(|task| Op::Join { task: TaskId(task) }));
    ops.push(Op::Stop);
    ops
}

/// A parent and tasks that compute for so many milliseconds each.
pub fn hogs(lengths_ms: &[u64]) -> Program {
    let mut scripts = vec![parent(lengths_ms.len() as u32)];
    scripts.extend(lengths_ms.iter().map(|&ms| vec![Op::Compute { ns: ms * MS }]));
    program(scripts)
}
