//! A decision allocates nothing: the counting allocator of `allocation-counter` watches it.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use huddle_domains::{Kernel, build};
use huddle_machine::{Arch, CpuId, Layout, Topology};
use huddle_policy::{Frozen, Policy, Wakeup, policy_names};

#[test]
fn one_thousand_cpus_no_decision_allocates() {
    for threads in [1, 2] {
        let topology = Topology::from_layout(Arch::Arm64, &Layout::new([1, 1, 43, 6, 4, threads])).unwrap();
        for name in policy_names() {
            let policy = Policy::load(&name).unwrap();
            let tree = build(&topology, &Kernel::load(&policy.kernel).unwrap());
            let plan = policy.compile(&tree, &topology);
            let mut scratch = plan.scratch();
            let mut state = Frozen::new(&tree);
            let mut placed = 0;
            let watched = allocation_counter::measure(|| {
                for busy in 0..tree.nr_cpus {
                    // Fewer and fewer idle CPUs, with and without the hint, so that every scan of the records runs.
                    state.occupy(CpuId::from(busy));
                    state.has_idle_cores.fill(busy % 2 == 0);
                    let wakeup = Wakeup { this: CpuId::from(busy), prev: CpuId::from(busy / 2), sync: busy % 3 == 0 };
                    if let Ok(placement) = plan.place(&mut state, &wakeup, &mut scratch) {
                        placed += 1 + placement.examined.iter().sum::<u32>();
                    }
                    if let Some(Ok(placement)) = plan.place_fork(&mut state, &wakeup, &mut scratch) {
                        state.idle.insert(placement.cpu);
                    }
                }
            });
            assert!(placed > 2 * tree.nr_cpus as u32, "{name}: the scans ran over {placed} CPUs");
            assert_eq!(watched.count_total, 0, "{name}");
            assert!(allocation_counter::measure(|| drop(std::hint::black_box(state.clone()))).count_total > 0);
        }
    }
}
