//! The level table: which CPU masks are stacked for a machine under a kernel, bottom-up.
//!
//! Mirrors `default_topology` and `sched_init_numa` (`kernel/sched/topology.c`), `cpu_coregroup_mask` and
//! `cpu_clustergroup_mask` (`drivers/base/arch_topology.c`), `build_sched_topology`
//! (`arch/x86/kernel/smpboot.c`), `s390_topology` (`arch/s390/kernel/topology.c`), 5.9 to 7.3.

use std::borrow::Cow;
use std::collections::BTreeSet;

use huddle_machine::{Arch, CpuId, CpuSet, Partition, Topology};

use crate::{ClusterLimits, Flags, Kernel};

/// One level of the table.
pub(crate) struct Level {
    /// Name of its domains.
    pub name: &'static str,
    /// Flags that the level itself sets.
    pub flags: Flags,
    /// Which mask it takes.
    pub mask: Mask,
}

/// Where a level's mask comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mask {
    /// Threads of a core.
    Smt,
    /// `cpu_clustergroup_mask`.
    Cluster,
    /// `cpu_coregroup_mask`.
    Core,
    /// Books of s390.
    Book,
    /// Drawers of s390.
    Drawer,
    /// The NUMA node: the level is named after the package, its mask is the node's.
    Node,
    /// Nodes within the n-th distinct distance; 0 is the local one.
    Within(usize),
}

/// The table and what its masks are made of.
pub(crate) struct Levels<'a> {
    topology: &'a Topology,
    limits: ClusterLimits,
    /// Bottom-up.
    pub table: Vec<Level>,
    /// Node position by CPU id.
    pub node_of: Vec<u32>,
    /// Distinct distances, ascending.
    distances: Vec<u32>,
    /// By distance, by node position: CPUs of all nodes within that distance.
    within: Vec<Vec<CpuSet>>,
    /// Why distances could not be used.
    pub complaint: Option<String>,
}

impl<'a> Levels<'a> {
    pub fn new(topology: &'a Topology, kernel: &Kernel) -> Self {
        let profile = &kernel.domains;
        let cluster = profile.cluster.as_ref().filter(|cluster| match topology.arch {
            Arch::Arm64 | Arch::Riscv => true,
            Arch::X86_64 => cluster.x86 && (cluster.hybrid || !topology.hybrid),
            Arch::Other => false,
        });
        let mut levels = Levels {
            topology,
            limits: cluster.map_or(ClusterLimits::None, |cluster| cluster.limits),
            table: Vec::new(),
            node_of: node_of(topology),
            distances: Vec::new(),
            within: Vec::new(),
            complaint: None,
        };
        if !profile.x86_smt_if_threaded || topology.arch != Arch::X86_64 || levels.has_threads() {
            levels.push("SMT", Flags::SHARE_CPUCAPACITY.with(Flags::SHARE_LLC), Mask::Smt);
        }
        if let Some(cluster) = cluster {
            let own = if cluster.flag { Flags::CLUSTER } else { Flags::default() };
            levels.push(cluster.name, Flags::SHARE_LLC.with(own), Mask::Cluster);
        }
        levels.push("MC", Flags::SHARE_LLC, Mask::Core);
        if topology.book.is_some() {
            levels.push("BOOK", Flags::default(), Mask::Book);
        }
        if topology.drawer.is_some() {
            levels.push("DRAWER", Flags::default(), Mask::Drawer);
        }
        // x86 leaves the level out when a package holds several nodes (`x86_has_numa_in_package`).
        if topology.arch != Arch::X86_64 || !levels.package_holds_several_nodes() {
            levels.push(profile.package_name, Flags::default(), Mask::Node);
        }
        levels.add_numa(profile.overlap_flag);
        levels
    }

    fn push(&mut self, name: &'static str, flags: Flags, mask: Mask) {
        self.table.push(Level { name, flags, mask });
    }

    /// Whether any core has several threads.
    ///
    /// DEVIATION: the kernel counts threads at boot (`cpu_smt_num_threads`). Where all second threads went offline
    /// later it keeps the level, which only shows in the level numbers.
    fn has_threads(&self) -> bool {
        self.topology.smt.sets().iter().any(|core| core.len() > 1)
    }

    fn package_holds_several_nodes(&self) -> bool {
        let node = &self.topology.node;
        self.topology.package.sets().iter().any(|package| {
            package.first().is_some_and(|first| package.iter().any(|cpu| node.index_of(cpu) != node.index_of(first)))
        })
    }

    /// NODE, then one level NUMA per further distinct distance between nodes that have CPUs.
    fn add_numa(&mut self, overlap_flag: bool) {
        let nr_cpus = self.topology.nr_cpus();
        let nodes: Vec<usize> =
            (0..self.topology.nodes.len()).filter(|&node| !self.topology.nodes[node].cpus.is_empty()).collect();
        let distance = |from: usize, to: usize| self.topology.nodes[from].distance.get(to).copied().unwrap_or(10);
        let pairs = || nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to)));
        if let Some((from, to)) = pairs().find(|&(from, to)| !(10..256).contains(&distance(from, to))) {
            let [from_id, to_id] = [from, to].map(|node| self.topology.nodes[node].id);
            let found = distance(from, to);
            self.complaint =
                Some(format!("NUMA distance {found} from node {from_id} to {to_id} is outside 10-255: no NUMA levels"));
            return;
        }
        self.distances = pairs().map(|(from, to)| distance(from, to)).collect::<BTreeSet<_>>().into_iter().collect();
        for &limit in &self.distances {
            let mut masks = vec![CpuSet::new(nr_cpus); self.topology.nodes.len()];
            for (from, to) in pairs().filter(|&(from, to)| distance(from, to) <= limit) {
                masks[from].union_with(&self.topology.nodes[to].cpus);
            }
            self.within.push(masks);
        }
        if nodes.len() < 2 {
            return;
        }
        self.push("NODE", Flags::default(), Mask::Within(0));
        let overlap = if overlap_flag { Flags::OVERLAP } else { Flags::default() };
        for index in 1..self.distances.len() {
            self.push("NUMA", Flags::NUMA.with(Flags::SERIALIZE).with(overlap), Mask::Within(index));
        }
    }

    /// Whether the level is so far that tasks do not go there on fork, exec or wake-up.
    pub fn is_far(&self, level: &Level) -> bool {
        matches!(level.mask, Mask::Within(index) if self.distances[index] > self.topology.node_reclaim_distance)
    }

    /// The level's mask of an online CPU, before a partition cuts it.
    pub fn mask(&self, level: &Level, cpu: CpuId) -> Cow<'_, CpuSet> {
        match level.mask {
            Mask::Smt => self.in_node(self.topology.smt.set_of(cpu), cpu),
            Mask::Cluster => self.cluster_group(cpu),
            Mask::Core => self.core_group(cpu),
            Mask::Book => self.of_s390(self.topology.book.as_ref(), cpu),
            Mask::Drawer => self.of_s390(self.topology.drawer.as_ref(), cpu),
            Mask::Node => Cow::Borrowed(self.topology.node.set_of(cpu)),
            Mask::Within(index) => {
                let mask = &self.within[index][self.node_of[cpu.index()] as usize];
                // a CPU that no node lists
                if mask.contains(cpu) { Cow::Borrowed(mask) } else { Cow::Borrowed(self.topology.node.set_of(cpu)) }
            }
        }
    }

    /// x86 joins no CPUs of different nodes below the package (`topology_sane`, `match_llc`); elsewhere the mask as it is.
    fn in_node(&self, mask: &'a CpuSet, cpu: CpuId) -> Cow<'a, CpuSet> {
        let node = self.topology.node.set_of(cpu);
        if self.topology.arch != Arch::X86_64 || mask.is_subset(node) {
            Cow::Borrowed(mask)
        } else {
            Cow::Owned(mask.intersection(node))
        }
    }

    /// The CPU's book or drawer.
    fn of_s390(&self, partition: Option<&'a Partition>, cpu: CpuId) -> Cow<'a, CpuSet> {
        Cow::Borrowed(partition.map_or_else(|| self.topology.package.set_of(cpu), |partition| partition.set_of(cpu)))
    }

    fn core_group(&self, cpu: CpuId) -> Cow<'a, CpuSet> {
        if self.topology.book.is_some() || self.topology.drawer.is_some() {
            // s390 takes the socket, whatever its caches.
            return Cow::Borrowed(self.topology.package.set_of(cpu));
        }
        let llc = self.topology.llc.set_of(cpu);
        if self.topology.arch == Arch::X86_64 {
            return self.in_node(llc, cpu);
        }
        let mut mask = self.topology.node.set_of(cpu);
        let package = self.topology.package.set_of(cpu);
        if package.is_subset(mask) {
            mask = package;
        }
        // Without any cache information the LLC counts as unknown, not as private.
        let known = !self.topology.caches.is_empty() || llc != self.topology.smt.set_of(cpu);
        if known && llc.is_subset(mask) {
            mask = llc;
        }
        let cluster = self.topology.cluster.set_of(cpu);
        if self.limits != ClusterLimits::None && mask.is_subset(cluster) {
            mask = cluster;
        }
        Cow::Borrowed(mask)
    }

    fn cluster_group(&self, cpu: CpuId) -> Cow<'a, CpuSet> {
        let cluster = self.topology.cluster.set_of(cpu);
        if self.topology.arch == Arch::X86_64 {
            return self.in_node(cluster, cpu);
        }
        let too_wide = || self.core_group(cpu).is_subset(cluster);
        match self.limits {
            ClusterLimits::CutToSelf if too_wide() => {
                Cow::Owned(CpuSet::from_cpus(self.topology.nr_cpus(), [cpu.index()]))
            }
            ClusterLimits::CutToSmt if too_wide() => Cow::Borrowed(self.topology.smt.set_of(cpu)),
            _ => Cow::Borrowed(cluster),
        }
    }
}

fn node_of(topology: &Topology) -> Vec<u32> {
    let mut node_of = vec![0; topology.nr_cpus()];
    for (position, node) in topology.nodes.iter().enumerate() {
        for cpu in node.cpus.iter() {
            if let Some(slot) = node_of.get_mut(cpu.index()) {
                *slot = position as u32;
            }
        }
    }
    node_of
}
