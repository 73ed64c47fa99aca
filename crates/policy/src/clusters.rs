//! The clusters of a machine, as claims know them.
//!
//! ```text
//! clusters   0-3  4-7  8-11 │ 12-15  16-19  20-23 ║ 24-27 … ┆ 5
//!            └──── LLC ─────┘└────── LLC ────────┘          outside the partition
//!            └──────────────── node ─────────────┘
//! ```
//!
//! The clusters of an LLC, of a node and of the partition are runs of one list, so that a search for the idlest one walks a range.

use std::collections::BTreeMap;

use huddle_domains::DomainTree;
use huddle_machine::{CpuId, CpuSet, Topology};

use crate::plan::{ClaimSets, Mask, PlanCpu, Pool};

/// A run of [`crate::Plan::clusters`]: `from..from + len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    /// Index of the first.
    pub from: u32,
    /// How many.
    pub len: u32,
}

/// The sets of one CPU; what [`group`] finds out of all of them is still missing.
pub(crate) fn claim_sets(cpu: CpuId, tree: &DomainTree, topology: &Topology, pool: &mut Pool) -> ClaimSets {
    let mut node = match topology.online.contains(cpu) {
        true => topology.node.set_of(cpu).clone(),
        false => CpuSet::new(tree.nr_cpus),
    };
    node.intersect_with(&tree.online);
    let node = pool.mask(&node);
    if !tree.online.contains(cpu) {
        let alone = pool.mask(&CpuSet::from_cpus(tree.nr_cpus, [cpu.index()]));
        return ClaimSets { cluster: alone, llc: alone, node, ..ClaimSets::default() };
    }
    let llc = match tree.cached[cpu.index()].sd_llc {
        Some(domain) => tree.span(tree.domain(domain).span),
        None => topology.llc.set_of(cpu),
    };
    let llc = llc.intersection(&tree.online);
    // No narrower than a core, no wider than the LLC.
    let mut cluster = tree.span(tree.cluster_raw[cpu.index()]).union(tree.span(tree.smt[cpu.index()]));
    cluster.intersect_with(&llc);
    let is_one_core = cluster.is_subset(tree.span(tree.smt[cpu.index()]));
    ClaimSets { cluster: pool.mask(&cluster), is_one_core, llc: pool.mask(&llc), node, ..ClaimSets::default() }
}

/// A cluster's place in the list: the first CPU of its node, of its LLC, and its own.
type Place = (CpuId, CpuId, CpuId);

/// Lists the clusters and gives each CPU its cluster's index and the runs of its LLC and its node. The second value is the run of
/// all clusters of the partition.
///
/// Sets count as one where they are equal, and stand where their first CPU is. A cluster belongs to the LLC of its first CPU and to
/// the node of that LLC's first CPU, which keeps each run whole where an LLC is wider than a node.
pub(crate) fn group(cpus: &mut [PlanCpu], tree: &DomainTree) -> (Box<[Mask]>, Clusters) {
    let list = places(cpus, tree);
    let (mut of_llc, mut of_node) = (BTreeMap::new(), BTreeMap::new());
    let mut index_of = BTreeMap::new();
    for (index, &((node, llc, _), mask)) in list.iter().enumerate() {
        let none = Clusters { from: index as u32, len: 0 };
        of_llc.entry(llc).or_insert(none).len += 1;
        of_node.entry(node).or_insert(none).len += 1;
        index_of.insert(mask, (index as u32, llc, node));
    }
    let mut clusters: Vec<Mask> = list.iter().map(|&(_, mask)| mask).collect();
    // A node's place is its first CPU.
    let nodes = firsts(cpus, tree, |sets| sets.node);
    for (cpu, facts) in cpus.iter_mut().enumerate() {
        let sets = &mut facts.claim;
        if tree.online.contains(CpuId::from(cpu)) {
            let (index, llc, node) = index_of[&sets.cluster];
            (sets.index, sets.llc_clusters, sets.node_clusters) = (index, of_llc[&llc], of_node[&node]);
            if sets.is_one_core {
                sets.cluster = Mask::default();
            }
        } else {
            sets.index = clusters.len() as u32;
            sets.llc_clusters = Clusters { from: sets.index, len: 1 };
            sets.node_clusters = nodes.get(&sets.node).and_then(|node| of_node.get(node)).copied().unwrap_or_default();
            clusters.push(sets.cluster);
        }
    }
    (clusters.into_boxed_slice(), Clusters { from: 0, len: list.len() as u32 })
}

/// The distinct clusters of the partition in the order of their places.
fn places(cpus: &[PlanCpu], tree: &DomainTree) -> Vec<(Place, Mask)> {
    let (llcs, nodes) = (firsts(cpus, tree, |sets| sets.llc), firsts(cpus, tree, |sets| sets.node));
    let place = |first: CpuId| {
        let llc = llcs[&cpus[first.index()].claim.llc];
        (nodes[&cpus[llc.index()].claim.node], llc, first)
    };
    let clusters = firsts(cpus, tree, |sets| sets.cluster);
    let mut list: Vec<(Place, Mask)> = clusters.iter().map(|(&mask, &first)| (place(first), mask)).collect();
    list.sort_unstable();
    list
}

/// The distinct sets of one kind with the lowest CPU of the partition that has each.
fn firsts(cpus: &[PlanCpu], tree: &DomainTree, set_of: fn(&ClaimSets) -> Mask) -> BTreeMap<Mask, CpuId> {
    let mut firsts = BTreeMap::new();
    for cpu in tree.online.iter() {
        firsts.entry(set_of(&cpus[cpu.index()].claim)).or_insert(cpu);
    }
    firsts
}
