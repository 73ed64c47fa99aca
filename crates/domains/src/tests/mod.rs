//! Machines to build domains for, and what the tests look at.

mod differences;
mod golden;
mod properties;

use huddle_machine::{Arch, Cache, CacheKind, ClusterSource, CpuId, CpuSet, Node, Partition, Topology};

use crate::{Domain, DomainTree, Flags, Group, Kernel};

/// CPUs in a row: how many form a core, a cluster, an LLC, a package, a node.
pub(crate) struct Sizes {
    pub smt: usize,
    pub cluster: usize,
    pub llc: usize,
    pub package: usize,
    pub node: usize,
}

/// A machine whose CPU `numbering(i)` is the `i`-th in the row.
pub(crate) fn machine(
    arch: Arch,
    cpus: usize,
    sizes: &Sizes,
    distances: &[&[u32]],
    numbering: impl Fn(usize) -> usize,
) -> Topology {
    let mut place = vec![0; cpus];
    for index in 0..cpus {
        place[numbering(index)] = index;
    }
    let online = CpuSet::full(cpus);
    let level = |size: usize| Partition::from_ids(&online, |cpu| (place[cpu.index()] / size) as u64);
    let members = |node: usize| CpuSet::from_cpus(cpus, (0..cpus).filter(|&cpu| place[cpu] / sizes.node == node));
    let nodes = distances.iter().enumerate().map(|(node, distance)| Node {
        id: node as u32,
        cpus: members(node),
        distance: distance.to_vec(),
    });
    Topology {
        arch,
        offline: CpuSet::new(cpus),
        smt: level(sizes.smt),
        cluster: level(sizes.cluster),
        cluster_source: ClusterSource::Stated,
        llc: level(sizes.llc),
        package: level(sizes.package),
        book: None,
        drawer: None,
        node: level(sizes.node),
        nodes: nodes.collect(),
        capacity: vec![1024; cpus],
        node_reclaim_distance: huddle_machine::NODE_RECLAIM_DISTANCE,
        hybrid: false,
        caches: Vec::new(),
        idle_states: Vec::new(),
        findings: Vec::new(),
        online,
    }
}

pub(crate) fn in_order(index: usize) -> usize {
    index
}

/// One node of a Kunpeng 920 with 24 cores.
pub(crate) fn kunpeng_node() -> Topology {
    machine(Arch::Arm64, 24, &Sizes { smt: 1, cluster: 4, llc: 24, package: 24, node: 24 }, &[&[10]], in_order)
}

/// Four of them in two packages.
pub(crate) fn kunpeng() -> Topology {
    let distances: [&[u32]; 4] = [&[10, 16, 32, 33], &[16, 10, 25, 32], &[32, 25, 10, 16], &[33, 32, 16, 10]];
    machine(Arch::Arm64, 96, &Sizes { smt: 1, cluster: 4, llc: 24, package: 48, node: 24 }, &distances, in_order)
}

pub(crate) fn jacobsville() -> Topology {
    machine(Arch::X86_64, 24, &Sizes { smt: 1, cluster: 4, llc: 24, package: 24, node: 24 }, &[&[10]], in_order)
}

/// Two packages of 22 cores; second threads are numbered after all first ones.
pub(crate) fn skl() -> Topology {
    let sizes = Sizes { smt: 2, cluster: 2, llc: 44, package: 44, node: 44 };
    machine(Arch::X86_64, 88, &sizes, &[&[10, 21], &[21, 10]], |index| index / 2 + index % 2 * 44)
}

/// Clusters of two that share no cache below the package.
pub(crate) fn altra() -> Topology {
    let sizes = Sizes { smt: 1, cluster: 2, llc: 1, package: 80, node: 80 };
    let mut topology = machine(Arch::Arm64, 160, &sizes, &[&[10, 20], &[20, 10]], in_order);
    let l2 =
        |cpu| Cache { level: 2, kind: CacheKind::Unified, size: Some(1 << 20), cpus: CpuSet::from_cpus(160, [cpu]) };
    topology.caches = (0..160).map(l2).collect();
    topology
}

/// Eight cores of two threads, then two clusters of four single-threaded cores, under one LLC.
pub(crate) fn hybrid() -> Topology {
    let one = Sizes { smt: 1, cluster: 1, llc: 24, package: 24, node: 24 };
    let mut topology = machine(Arch::X86_64, 24, &one, &[&[10]], in_order);
    let online = topology.online.clone();
    topology.smt = Partition::from_ids(&online, |cpu| if cpu.0 < 16 { cpu.0 / 2 } else { cpu.0 }.into());
    topology.cluster = Partition::from_ids(&online, |cpu| if cpu.0 < 16 { cpu.0 / 2 } else { 100 + cpu.0 / 4 }.into());
    topology.hybrid = true;
    topology
}

pub(crate) fn kernel(name: &str) -> Kernel {
    Kernel::load(name).unwrap()
}

pub(crate) fn tree(topology: &Topology, name: &str) -> DomainTree {
    crate::build(topology, &kernel(name))
}

pub(crate) fn domains(tree: &DomainTree, cpu: u32) -> Vec<&Domain> {
    tree.chain(CpuId(cpu)).map(|id| tree.domain(id)).collect()
}

/// `name span min/max/busy/pct/tries` per domain.
pub(crate) fn chain(tree: &DomainTree, cpu: u32) -> Vec<String> {
    let text = |domain: &&Domain| {
        let Domain { name, min_interval, max_interval, busy_factor, imbalance_pct, cache_nice_tries, .. } = domain;
        let span = tree.span(domain.span);
        format!("{name} {span} {min_interval}/{max_interval}/{busy_factor}/{imbalance_pct}/{cache_nice_tries}")
    };
    domains(tree, cpu).iter().map(text).collect()
}

/// `name span` per domain.
pub(crate) fn spans(tree: &DomainTree, cpu: u32) -> Vec<String> {
    domains(tree, cpu).iter().map(|domain| format!("{} {}", domain.name, tree.span(domain.span))).collect()
}

pub(crate) fn groups(tree: &DomainTree, cpu: u32, domain: usize) -> Vec<&Group> {
    let id = tree.chain(CpuId(cpu)).nth(domain).unwrap();
    tree.groups_of(id).map(|group| tree.group(group)).collect()
}

pub(crate) fn group_spans(tree: &DomainTree, cpu: u32, domain: usize) -> Vec<String> {
    groups(tree, cpu, domain).iter().map(|group| tree.span(group.span).to_string()).collect()
}

/// Short names of flags.
pub(crate) fn flags(flags: Flags) -> String {
    let names: Vec<&str> = Flags::NAMES.iter().filter(|&&(flag, _)| flags.has(flag)).map(|&(_, name)| name).collect();
    names.join(" ").replace("BALANCE_", "")
}
