//! What holds for the domains of any machine under any kernel.

use huddle_machine::{Arch, CpuId, CpuSet, Topology};
use proptest::prelude::*;

use super::*;
use crate::{DomainTree, build_for, kernel_names};

/// Flags that a domain's children must have too.
const SHARED_CHILD: [Flags; 7] = [
    Flags::BALANCE_NEWIDLE,
    Flags::BALANCE_EXEC,
    Flags::BALANCE_FORK,
    Flags::BALANCE_WAKE,
    Flags::WAKE_AFFINE,
    Flags::SHARE_CPUCAPACITY,
    Flags::SHARE_LLC,
];

/// Flags that a domain's parent must have too.
const SHARED_PARENT: [Flags; 5] =
    [Flags::ASYM_CPUCAPACITY, Flags::ASYM_CPUCAPACITY_FULL, Flags::SERIALIZE, Flags::NUMA, Flags::OVERLAP];

fn check(tree: &DomainTree) {
    for cpu in tree.online.iter() {
        let mut child = None;
        for id in tree.chain(cpu) {
            let domain = tree.domain(id);
            let span = tree.span(domain.span);
            assert!(domain.cpu == cpu && domain.child == child);
            assert!(span.contains(cpu) && span.is_subset(&tree.online) && span.len() > 1);
            assert_eq!(domain.weight as usize, span.len());
            if let Some(child) = child.map(|child| tree.domain(child)) {
                assert!(tree.span(child.span).is_subset(span) && child.level < domain.level);
                for flag in SHARED_CHILD {
                    assert!(!domain.flags.has(flag) || child.flags.has(flag), "{cpu:?} {} {flag:?}", domain.name);
                }
                for flag in SHARED_PARENT {
                    assert!(!child.flags.has(flag) || domain.flags.has(flag), "{cpu:?} {} {flag:?}", domain.name);
                }
            }
            check_groups(tree, id, cpu, span);
            child = Some(id);
        }
        check_cached(tree, cpu);
    }
}

fn check_groups(tree: &DomainTree, id: crate::DomainId, cpu: CpuId, span: &CpuSet) {
    assert!(tree.span(tree.first_group(id).span).contains(cpu));
    let mut covered = CpuSet::new(tree.nr_cpus);
    let mut weights = 0;
    for group in tree.groups_of(id).map(|group| tree.group(group)) {
        let (cpus, mask) = (tree.span(group.span), tree.span(group.balance_mask));
        covered.union_with(cpus);
        weights += cpus.len();
        assert!(mask.is_subset(cpus) && !mask.is_empty());
        assert!(group.weight as usize == cpus.len() && group.cores <= group.weight && group.cores > 0);
        assert!((group.capacity_id as usize) < tree.nr_capacities);
    }
    assert!(span.is_subset(&covered), "{cpu:?}: groups cover {covered}, the span is {span}");
    if !tree.domain(id).flags.has(Flags::NUMA) {
        assert!(covered == *span && weights == span.len());
    }
}

fn check_cached(tree: &DomainTree, cpu: CpuId) {
    let cached = tree.cached[cpu.index()];
    let chain = domains(tree, cpu.0);
    let first = |domain: &&Domain| tree.span(domain.span).first().unwrap().0;
    let llc = chain.iter().rfind(|domain| domain.flags.has(Flags::SHARE_LLC));
    let cluster = chain.iter().find(|domain| domain.flags.has(Flags::CLUSTER));
    assert_eq!(cached.sd_llc_id, llc.map_or(cpu.0, first));
    assert_eq!(cached.sd_share_id, cluster.or(llc).map_or(cpu.0, first));
    let mates = llc.map_or_else(|| vec![cpu], |llc| tree.span(llc.span).iter().collect());
    assert_eq!(cached.sd_llc_size as usize, mates.len());
    for other in tree.online.iter() {
        let same = tree.cached[other.index()].llc_index == cached.llc_index;
        assert_eq!(same, mates.contains(&other), "{cpu:?} {other:?}");
    }
}

prop_compose! {
    /// Nested sizes, one of three numberings, distances that grow with the number of nodes between.
    fn any_machine()(
        arch in prop_oneof![Just(Arch::Arm64), Just(Arch::X86_64), Just(Arch::Other)],
        smt in 1usize..3,
        cores in 1usize..4,
        clusters in 1usize..4,
        llcs in 1usize..3,
        nodes in 1usize..5,
        nodes_per_package in 1usize..3,
        numbering in 0usize..3,
        step in 3u32..13,
        ring in any::<bool>(),
        little in any::<bool>(),
        hybrid in any::<bool>(),
    ) -> Topology {
        let cluster = smt * cores;
        let llc = cluster * clusters;
        let node = llc * llcs;
        let cpus = node * nodes;
        let sizes = Sizes { smt, cluster, llc, package: (node * nodes_per_package).max(llc), node };
        let hops = |from: usize, to: usize| {
            let straight = from.abs_diff(to);
            if ring { straight.min(nodes - straight) } else { straight }
        };
        let rows: Vec<Vec<u32>> =
            (0..nodes).map(|from| (0..nodes).map(|to| 10 + step * hops(from, to) as u32).collect()).collect();
        let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let mut topology = machine(arch, cpus, &sizes, &rows, |index| match numbering {
            0 => index,
            // threads after all cores
            1 => index / smt + index % smt * (cpus / smt),
            // nodes in turn
            _ => index % node * nodes + index / node,
        });
        if little {
            topology.capacity[..cpus / 2].fill(500);
        }
        topology.hybrid = hybrid;
        topology
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_machine_any_kernel(topology in any_machine(), kernel_index in 0..kernel_names().len()) {
        let name = &kernel_names()[kernel_index];
        let tree = tree(&topology, name);
        check(&tree);
        // 6.0 cuts a cluster as wide as the LLC to one thread of a core
        prop_assert!(tree.complaints.is_empty() || name.starts_with("6.0"), "{:?}", tree.complaints);
    }

    #[test]
    fn any_partition_of_a_machine(topology in any_machine(), seed in any::<u64>(), kernel_index in 0..kernel_names().len()) {
        let cpus = topology.nr_cpus();
        let members = (0..cpus).filter(|cpu| seed.rotate_left(*cpu as u32 * 7) & 3 != 0);
        let partition = CpuSet::from_cpus(cpus, members);
        check(&build_for(&topology, &kernel(&kernel_names()[kernel_index]), &partition));
    }
}

#[test]
fn the_checks_reject_a_tree_whose_groups_miss_a_cpu() {
    let mut broken = tree(&kunpeng_node(), "6.7");
    broken.group_lists[0].pop();
    assert!(std::panic::catch_unwind(|| check(&broken)).is_err());
}
