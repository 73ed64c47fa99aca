//! What each kernel makes of the built-in machines. Every chain is derived by hand from the machine's files or snapshot
//! and the kernel's rules, none is taken from this crate's output.
//!
//! Sizes of the masks that the level tables stack, by machine (and kind of CPU):
//!
//! | machine        | SMT | cluster | LLC | node | package | CPUs within each farther NUMA distance |
//! |----------------|-----|---------|-----|------|---------|----------------------------------------|
//! | alder-lake, P  | 2   | 2 (L2)  | 16  | 16   | 16      |                                        |
//! | alder-lake, E  | 1   | 4 (L2)  | 16  | 16   | 16      |                                        |
//! | altra          | 1   | 2       | 1   | 80   | 80      | 20: 160                                |
//! | graviton       | 1   | 1       | 64  | 64   | 64      |                                        |
//! | kunpeng920-32, |     |         |     |      |         |                                        |
//! | outer nodes    | 1   | 4       | 32  | 32   | 64      | 16: 64, 25: 64, 32: 96, 33: 128        |
//! | inner nodes    | 1   | 4       | 32  | 32   | 64      | 16: 64, 25: 96, 32: 128                |
//! | rome           | 2   | 2 (L2)  | 8   | 128  | 128     | 32: 256                                |
//! | sierra-forest  | 1   | 4 (L2)  | 112 | 112  | 112     | 21: 224                                |
//! | snow-ridge     | 1   | 4 (L2)  | 24  | 24   | 24      |                                        |
//! | turin          | 2   | 2 (L2)  | 16  | 128  | 128     | 32: 256                                |
//!
//! Rules, in the order in which they act:
//!
//! 1. Levels: 4.17 to 5.10 SMT, MC, DIE; from 5.16 CLS between SMT and MC, on hybrid x86 not before 6.6; DIE is called
//!    PKG from 6.7. DIE and PKG take the node's mask. NODE and one NUMA level per farther distance come above.
//! 2. x86 takes the masks as they are. arm64: MC is the smallest of node, package and LLC, from 5.18 at least the
//!    cluster; a cluster that is not narrower than MC gives CLS the CPU alone (6.0) or its threads (6.1 on).
//! 3. A level narrower than the one below is widened to it, with a complaint for each CPU.
//! 4. A CPU's chain ends at the level that spans the machine.
//! 5. A level of one CPU goes; of two with one span the upper goes, unless it has a flag of its own.
//!
//! Altra, the machine where all of this matters, level by level (weights before rule 5, `!` after a complaint):
//!
//! | kernel    | SMT | CLS | MC  | DIE/PKG | NODE | NUMA | left                      |
//! |-----------|-----|-----|-----|---------|------|------|---------------------------|
//! | 5.9, 5.10 | 1   |     | 1   | 80      | 80   | 160  | DIE 80, NUMA 160          |
//! | 5.16      | 1   | 2   | 2 ! | 80      | 80   | 160  | CLS 2, DIE 80, NUMA 160   |
//! | 6.0 - 6.6 | 1   | 1   | 2   | 80      | 80   | 160  | MC 2, DIE 80, NUMA 160    |
//! | 6.7 on    | 1   | 1   | 2   | 80      | 80   | 160  | MC 2, PKG 80, NUMA 160    |
//!
//! Sources: `kernel/sched/topology.c`, `drivers/base/arch_topology.c` (`cpu_coregroup_mask`, `cpu_clustergroup_mask`),
//! `arch/x86/kernel/smpboot.c`; for Altra under 6.0 also the mails on "arch_topology: Limit span of
//! cpu_clustergroup_mask()", July 2022, which say that CLS goes and MC of two CPUs stays.

#![allow(clippy::unwrap_used, clippy::panic)]

use huddle_domains::{DomainTree, Kernel, build};
use huddle_machine::{CpuId, builtin_names, load_topology};

/// Kernels that treat these machines alike, named after the first.
type Kernels = &'static [&'static str];

/// No cluster level.
const V5_9: Kernels = &["4.17", "5.9", "5.10"];
/// A cluster level with the masks as they are.
const V5_16: Kernels = &["5.16"];
/// Cluster and core masks limited against each other.
const V6_0: Kernels = &["6.0", "6.1"];
/// The cluster level on hybrid machines too.
const V6_6: Kernels = &["6.6"];
/// DIE is called PKG.
const V6_7: Kernels = &["6.7", "6.9", "6.10", "6.12", "6.17", "6.18.33", "7.1", "7.2", "7.2-nocache"];
const ALL: &[Kernels] = &[V5_9, V5_16, V6_0, V6_6, V6_7];

/// What some kernels make of some CPUs of a machine.
struct Row {
    machine: &'static str,
    /// First CPU and the one after the last.
    cpus: (u32, u32),
    kernels: &'static [Kernels],
    /// Name and weight of each domain, narrowest first.
    chain: &'static str,
    llc_size: u32,
    /// Of the whole machine.
    complaints: usize,
}

const fn row(
    machine: &'static str,
    cpus: (u32, u32),
    kernels: &'static [Kernels],
    chain: &'static str,
    llc_size: u32,
    complaints: usize,
) -> Row {
    Row { machine, cpus, kernels, chain, llc_size, complaints }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("alder-lake", (0, 8), ALL, "SMT 2, MC 16", 16, 0),
    row("alder-lake", (8, 16), &[V5_9, V5_16, V6_0], "MC 16", 16, 0),
    row("alder-lake", (8, 16), &[V6_6, V6_7], "CLS 4, MC 16", 16, 0),
    row("altra", (0, 160), &[V5_9], "DIE 80, NUMA 160", 1, 0),
    row("altra", (0, 160), &[V5_16], "CLS 2, DIE 80, NUMA 160", 2, 160),
    row("altra", (0, 160), &[V6_0, V6_6], "MC 2, DIE 80, NUMA 160", 2, 0),
    row("altra", (0, 160), &[V6_7], "MC 2, PKG 80, NUMA 160", 2, 0),
    row("graviton", (0, 64), ALL, "MC 64", 64, 0),
    row("kunpeng920-32", (0, 128), &[V5_9], "MC 32, NUMA 64, NUMA 96, NUMA 128", 32, 0),
    row("kunpeng920-32", (0, 128), &[V5_16, V6_0, V6_6, V6_7], "CLS 4, MC 32, NUMA 64, NUMA 96, NUMA 128", 32, 0),
    row("rome", (0, 256), &[V5_9, V5_16, V6_0, V6_6], "SMT 2, MC 8, DIE 128, NUMA 256", 8, 0),
    row("rome", (0, 256), &[V6_7], "SMT 2, MC 8, PKG 128, NUMA 256", 8, 0),
    row("sierra-forest", (0, 224), &[V5_9], "MC 112, NUMA 224", 112, 0),
    row("sierra-forest", (0, 224), &[V5_16, V6_0, V6_6, V6_7], "CLS 4, MC 112, NUMA 224", 112, 0),
    row("snow-ridge", (0, 24), &[V5_9], "MC 24", 24, 0),
    row("snow-ridge", (0, 24), &[V5_16, V6_0, V6_6, V6_7], "CLS 4, MC 24", 24, 0),
    row("turin", (0, 256), &[V5_9, V5_16, V6_0, V6_6], "SMT 2, MC 16, DIE 128, NUMA 256", 16, 0),
    row("turin", (0, 256), &[V6_7], "SMT 2, MC 16, PKG 128, NUMA 256", 16, 0),
];

/// `MC 32, NUMA 64`.
fn chain(tree: &DomainTree, cpu: CpuId) -> String {
    let domain = |id| {
        let domain = tree.domain(id);
        assert_eq!(tree.span(domain.span).len(), domain.weight as usize);
        format!("{} {}", domain.name, domain.weight)
    };
    tree.chain(cpu).map(domain).collect::<Vec<_>>().join(", ")
}

#[test]
fn machines_get_the_domains_that_their_masks_and_the_kernel_s_rules_give() {
    for row in ROWS {
        let topology = load_topology(Some(row.machine)).unwrap_or_else(|error| panic!("{error}")).1;
        for name in row.kernels.concat() {
            let tree = build(&topology, &Kernel::load(name).unwrap());
            for cpu in (row.cpus.0..row.cpus.1).map(CpuId) {
                let found = (chain(&tree, cpu), tree.cached[cpu.index()].sd_llc_size);
                assert_eq!(found, (row.chain.to_owned(), row.llc_size), "{} {cpu} under {name}", row.machine);
            }
            assert_eq!(tree.complaints.len(), row.complaints, "{} under {name}", row.machine);
            let borken = "arch topology borken: the CLS domain not a subset of the MC domain";
            assert!(tree.complaints.iter().all(|complaint| complaint == borken), "{} under {name}", row.machine);
        }
    }
}

#[test]
fn every_cpu_of_every_machine_is_in_one_row_per_kernel() {
    // The first three machines have their own tests: golden.rs.
    let elsewhere = ["jacobsville", "kunpeng920", "xeon-2s44c88t"];
    for machine in builtin_names().into_iter().filter(|machine| !elsewhere.contains(machine)) {
        let nr_cpus = load_topology(Some(machine)).unwrap().1.nr_cpus() as u32;
        for name in ALL.concat() {
            let rows = ROWS.iter().filter(|row| row.machine == machine && row.kernels.concat().contains(&name));
            let mut ranges: Vec<_> = rows.map(|row| row.cpus).collect();
            ranges.sort_unstable();
            let end = ranges.iter().fold(0, |end, range| if range.0 == end { range.1 } else { u32::MAX });
            assert_eq!(end, nr_cpus, "{machine} under {name}: {ranges:?}");
        }
    }
}

#[test]
fn altra_s_pairs_are_the_llc_of_wake_ups_once_a_level_spans_them() {
    let topology = load_topology(Some("altra")).unwrap().1;
    let of = |name: &str, cpu: usize| {
        let tree = build(&topology, &Kernel::load(name).unwrap());
        (tree.cached[cpu].sd_llc_id, tree.cached[cpu].sd_share_id, tree.nr_llcs, tree.cluster_active)
    };
    // without a cluster level no two CPUs share anything: no idle search beyond target, prev and recent
    assert_eq!(of("5.10", 81), (81, 81, 160, false));
    // whatever the level is called, its flag says that a cache is shared; MC is no cluster to the wake-up path
    for name in [V5_16, V6_0, V6_6, V6_7].concat() {
        let (llc, share, llcs, _) = of(name, 81);
        assert_eq!((llc, share, llcs), (80, 80, 80), "{name}");
    }
}
