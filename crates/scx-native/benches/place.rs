//! What a decision costs in C and in Rust, on an idle machine, one where a last CPU is left, and a full one. Before
//! that, ten million random decisions must be the same in both; `cargo test --benches` makes do with a few.

#![allow(missing_docs)] // criterion_group! makes public functions
#![allow(clippy::unwrap_used, clippy::panic)]

// The cases are those of the differential test.
#[allow(dead_code)]
#[path = "../tests/differential/cases.rs"]
mod cases;
#[allow(dead_code)]
#[path = "../../policy/tests/policy/machines.rs"]
mod machines;

use cases::Cases;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use huddle_domains::{Kernel, build};
use huddle_machine::{Arch, CpuId, Layout, Topology};
use huddle_policy::{Frozen, Policy, Wakeup};
use huddle_scx::{Image, PlanImage};
use huddle_scx_native::Native;

const DECISIONS: u64 = 10_000_000;
const CASES_PER_SEED: u64 = 100_000;

/// Packages, nodes, LLCs, clusters, cores, threads.
const MACHINES: [(&str, [usize; 6]); 2] = [("24 CPUs", [1, 1, 1, 6, 4, 1]), ("256 CPUs", [2, 1, 4, 4, 4, 2])];

fn decide_alike(_: &mut Criterion) {
    let decisions = if std::env::args().any(|argument| argument == "--bench") { DECISIONS } else { 1000 };
    for seed in 0..decisions.div_ceil(CASES_PER_SEED) {
        let mut cases = Cases::new(seed);
        for _ in 0..CASES_PER_SEED.min(decisions) {
            let (ours, theirs) = cases.decide();
            assert!(
                theirs.placed == ours.placed && theirs.state == ours.state,
                "C {:?}, Rust {:?}: {}",
                theirs.placed,
                ours.placed,
                cases.describe()
            );
        }
    }
    println!("{decisions} decisions are the same in C and in Rust");
}

fn place(criterion: &mut Criterion) {
    for name in ["huddle-gather", "huddle-spread", "linux-6.0", "linux-6.7"] {
        let policy = Policy::load(name).unwrap();
        let mut group = criterion.benchmark_group(name);
        for (machine, counts) in MACHINES {
            let topology = Topology::from_layout(Arch::Arm64, &Layout::new(counts)).unwrap();
            let tree = build(&topology, &Kernel::load(&policy.kernel).unwrap());
            let plan = policy.compile(&tree, &topology);
            let image = PlanImage::new(&plan).unwrap();
            let mut native = Native::new(Image::new(&plan, &[]).unwrap(), &tree.online);
            let mut scratch = plan.scratch();
            let wakeup = Wakeup { this: CpuId(5), prev: CpuId(9), sync: false };
            for situation in ["idle", "last", "full"] {
                let mut state = Frozen::new(&tree);
                if situation != "idle" {
                    tree.online.iter().for_each(|cpu| state.occupy(cpu));
                }
                if situation == "last" {
                    state.idle.insert(CpuId(4));
                }
                // A claim takes its CPU: each decision begins with the same ones.
                let idle = state.idle.clone();
                let mut again = state.clone();
                group.bench_function(BenchmarkId::new(format!("{situation}, C"), machine), |bencher| {
                    bencher.iter(|| {
                        state.idle.words_mut().copy_from_slice(idle.words());
                        native.place(&image, &mut state, &wakeup, false)
                    });
                });
                group.bench_function(BenchmarkId::new(format!("{situation}, Rust"), machine), |bencher| {
                    bencher.iter(|| {
                        again.idle.words_mut().copy_from_slice(idle.words());
                        plan.place(&mut again, &wakeup, &mut scratch)
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, decide_alike, place);
criterion_main!(benches);
