//! What a simulation costs: messages and tasks per second of one core of the host.

#![allow(missing_docs)] // criterion_group! makes public functions

use std::error::Error;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use huddle_domains::{DomainTree, Kernel};
use huddle_engine::{Conditions, Report, Setup, SimError, simulate};
use huddle_machine::{Arch, CpuSet, Layout, Machine, Topology};
use huddle_policy::{Plan, Policy};
use huddle_program::Program;
use huddle_workload::Workload;

/// A machine, a kernel, a policy and a program.
struct World {
    machine: Machine,
    kernel: Kernel,
    tree: DomainTree,
    plan: Plan,
    program: Program,
    cpus: CpuSet,
}

impl World {
    fn new(machine: Machine, policy: &str, workload: &str, load: u32) -> Result<World, Box<dyn Error>> {
        let policy = Policy::load(policy)?;
        let kernel = Kernel::load(&policy.kernel)?;
        let tree = huddle_domains::build(&machine.topology, &kernel);
        let plan = policy.compile(&tree, &machine.topology);
        let program = Workload::parse(workload)?.program(load)?;
        let cpus = machine.topology.online.clone();
        Ok(World { machine, kernel, tree, plan, program, cpus })
    }

    fn run(&self, seed: u64) -> Result<Report, SimError> {
        simulate(&Setup {
            machine: &self.machine,
            tree: &self.tree,
            kernel: &self.kernel,
            plan: &self.plan,
            program: &self.program,
            cpus: &self.cpus,
            pins: &[],
            seed,
            limit_ns: 600_000_000_000,
            conditions: Conditions::default(),
        })
    }
}

/// 43 LLCs of 24 CPUs in one node: a machine of 1032 CPUs with the figures of a Kunpeng.
fn large() -> Result<Machine, Box<dyn Error>> {
    let machine = Machine::load("kunpeng920")?;
    let topology = Topology::from_layout(Arch::Arm64, &Layout::new([1, 1, 43, 6, 4, 1]));
    let topology = topology.ok_or("1032 CPUs are too many")?;
    Ok(Machine { topology, ..machine })
}

/// Measures runs over changing seeds: one run's seed decides how much there is to do.
fn measure(
    criterion: &mut Criterion,
    name: &str,
    elements: fn(&Program) -> u64,
    world: Result<World, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let world = world?;
    let mut group = criterion.benchmark_group("simulate");
    group.sample_size(10).measurement_time(Duration::from_secs(8));
    group.throughput(Throughput::Elements(elements(&world.program)));
    let mut seed = 0;
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            seed += 1;
            world.run(seed)
        });
    });
    group.finish();
    Ok(())
}

fn tasks(program: &Program) -> u64 {
    program.tasks.len() as u64
}

/// A bench that cannot be set up says why.
fn told(result: Result<(), Box<dyn Error>>) {
    if let Err(error) = result {
        eprintln!("error: {error}");
    }
}

fn hackbench_on_24_cpus(criterion: &mut Criterion) {
    for policy in ["linux-5.9", "rfc2-cluster"] {
        let machine = Machine::load("kunpeng920:nodes=1").map_err(Into::into);
        let world = machine.and_then(|machine| World::new(machine, policy, "hackbench/threads-pipe,loops=300", 4));
        told(measure(criterion, &format!("hackbench g=4, 24 CPUs, {policy}"), Program::messages, world));
    }
}

fn hackbench_of_10_000_tasks_on_1032_cpus(criterion: &mut Criterion) {
    let world = large().and_then(|machine| World::new(machine, "linux-5.9", "hackbench/threads-pipe,loops=10", 250));
    told(measure(criterion, "hackbench g=250, 1032 CPUs, linux-5.9", Program::messages, world));
}

fn copies_of_mcf_on_24_cpus(criterion: &mut Criterion) {
    let machine = Machine::load("jacobsville").map_err(Into::into);
    let world = machine.and_then(|machine| World::new(machine, "linux-5.14-cluster", "mcf/copies,minstr=2000", 24));
    told(measure(criterion, "mcf, 24 copies on 24 CPUs, linux-5.14-cluster", tasks, world));
}

criterion_group!(benches, hackbench_on_24_cpus, hackbench_of_10_000_tasks_on_1032_cpus, copies_of_mcf_on_24_cpus);
criterion_main!(benches);
