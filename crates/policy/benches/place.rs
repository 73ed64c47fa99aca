//! What a decision costs: whole searches that find nothing (failed, exhausted) and that find the last CPU, per decision and per
//! CPU examined, at 24, 88 and about 1024 CPUs.

#![allow(missing_docs)] // criterion_group! makes public functions

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use huddle_domains::{Kernel, build};
use huddle_machine::{Arch, CpuId, Layout, Topology};
use huddle_policy::{Frozen, Plan, Policy, Wakeup};

/// Packages, nodes, LLCs, clusters, cores, threads.
const MACHINES: [(&str, [usize; 6]); 4] = [
    ("24 CPUs", [1, 1, 1, 6, 4, 1]),
    ("88 CPUs", [2, 1, 1, 22, 1, 2]),
    ("1032 CPUs, 43 LLCs", [1, 1, 43, 6, 4, 1]),
    ("1024 CPUs, 1 LLC", [1, 1, 1, 256, 4, 1]),
];

/// A situation: what is idle beside the waker's LLC state, and the scan limit.
const SITUATIONS: [&str; 3] = ["failed", "exhausted", "last"];

fn decide(
    plan: &Plan,
    state: &mut Frozen,
    idle: Option<CpuId>,
    wakeup: &Wakeup,
    scratch: &mut huddle_policy::Scratch,
) -> u32 {
    // A claim takes it.
    idle.into_iter().for_each(|cpu| state.idle.insert(cpu));
    match plan.select(state, wakeup, wakeup.this, scratch) {
        Ok(placement) => placement.examined.iter().sum(),
        Err(_) => 0,
    }
}

fn place(criterion: &mut Criterion) {
    for name in ["linux-5.9", "linux-6.7", "huddle-gather", "huddle-spread"] {
        let Ok(policy) = Policy::load(name) else { continue };
        let Ok(kernel) = Kernel::load(&policy.kernel) else { continue };
        let mut group = criterion.benchmark_group(name);
        for (machine, counts) in MACHINES {
            let Some(topology) = Topology::from_layout(Arch::Arm64, &Layout::new(counts)) else { continue };
            let tree = build(&topology, &kernel);
            let plan = policy.compile(&tree, &topology);
            let mut scratch = plan.scratch();
            let wakeup = Wakeup { this: CpuId(5), prev: CpuId(5), sync: false };
            for situation in SITUATIONS {
                let mut state = Frozen::new(&tree);
                tree.online.iter().for_each(|cpu| state.occupy(cpu));
                if situation == "exhausted" {
                    state.avg_idle.fill(0);
                    state.nr_idle_scan.fill(Some(3));
                }
                let idle = (situation == "last").then_some(CpuId(4));
                // A search by clusters examines no single CPU.
                let examined = decide(&plan, &mut state, idle, &wakeup, &mut scratch).max(1);
                group.throughput(Throughput::Elements(examined.into()));
                group.bench_function(BenchmarkId::new(situation, machine), |bencher| {
                    bencher.iter(|| decide(&plan, &mut state, idle, &wakeup, &mut scratch));
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, place);
criterion_main!(benches);
