//! Machines whose every package, node, LLC, cluster and core looks like the next.

use crate::{Arch, Cache, CacheKind, ClusterSource, CpuId, CpuSet, MAX_CPUS, Node, Partition, Topology};

/// A level of the nesting, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Package.
    Package,
    /// NUMA node of a package.
    Node,
    /// Last-level cache of a node.
    Llc,
    /// Cluster under a last-level cache.
    Cluster,
    /// Core of a cluster.
    Core,
    /// Thread of a core.
    Thread,
}

impl Level {
    /// All, outermost first.
    pub const ALL: [Level; 6] = [Level::Package, Level::Node, Level::Llc, Level::Cluster, Level::Core, Level::Thread];
}

/// The nesting of a regular machine and how its CPUs are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many of each level are in one of the level above, by [`Level`].
    pub counts: [usize; 6],
    /// Order in which CPU ids count through the levels, slowest first; each level once. An Intel server with even ids in
    /// package 0, odd ids in package 1 and the second threads after all first ones counts threads, nodes, LLCs, clusters,
    /// cores and, fastest, packages.
    pub numbering: [Level; 6],
}

impl Layout {
    /// `counts` packages, nodes of a package, LLCs of a node, clusters of an LLC, cores of a cluster and threads of a core, numbered
    /// from the outside in.
    pub fn new(counts: [usize; 6]) -> Layout {
        Layout { counts, numbering: Level::ALL }
    }

    /// Number of CPUs; `None` when a count is 0 or there are more than [`MAX_CPUS`].
    pub fn cpus(&self) -> Option<usize> {
        let cpus = self.counts.iter().try_fold(1usize, |product, &count| product.checked_mul(count))?;
        (1..=MAX_CPUS).contains(&cpus).then_some(cpus)
    }

    /// Which thread of which core … of which package a CPU is, by [`Level`].
    fn position(&self, cpu: usize) -> [usize; 6] {
        let mut rest = cpu;
        let mut position = [0; 6];
        for &level in self.numbering.iter().rev() {
            let count = self.counts[level as usize];
            position[level as usize] = rest % count;
            rest /= count;
        }
        position
    }
}

impl Topology {
    /// The machine of that layout: all CPUs online, clusters stated, node numbers as the nodes nest, distance 10 in a
    /// node and 20 outside, no caches, no idle states. `None` when [`Layout::cpus`] is, or when the numbering misses a level.
    pub fn from_layout(arch: Arch, layout: &Layout) -> Option<Topology> {
        let nr_cpus = layout.cpus()?;
        if Level::ALL.iter().any(|level| !layout.numbering.contains(level)) {
            return None;
        }
        let online = CpuSet::full(nr_cpus);
        let positions: Vec<[usize; 6]> = (0..nr_cpus).map(|cpu| layout.position(cpu)).collect();
        // The running number of the CPU's unit at a level, counted through the whole machine.
        let unit = |cpu: CpuId, level: Level| {
            (0..=level as usize).fold(0, |unit, at| unit * layout.counts[at] + positions[cpu.index()][at]) as u64
        };
        let partition = |level: Level| Partition::from_ids(&online, |cpu| unit(cpu, level));
        let nr_nodes = layout.counts[0] * layout.counts[1];
        let mut nodes: Vec<Node> = (0..nr_nodes)
            .map(|id| Node {
                id: id as u32,
                cpus: CpuSet::new(nr_cpus),
                distance: (0..nr_nodes).map(|other| if other == id { 10 } else { 20 }).collect(),
            })
            .collect();
        for cpu in online.iter() {
            nodes[unit(cpu, Level::Node) as usize].cpus.insert(cpu);
        }
        Some(Topology {
            arch,
            offline: CpuSet::new(nr_cpus),
            smt: partition(Level::Core),
            cluster: partition(Level::Cluster),
            cluster_source: ClusterSource::Stated,
            llc: partition(Level::Llc),
            package: partition(Level::Package),
            node: partition(Level::Node),
            nodes,
            capacity: vec![1024; nr_cpus],
            hybrid: false,
            caches: Vec::new(),
            idle_states: Vec::new(),
            findings: Vec::new(),
            online,
        })
    }

    /// Adds a cache of `size` bytes to each unit of a level, keeping caches by level then first CPU.
    pub fn add_caches(&mut self, level: u32, kind: CacheKind, size: u64, shared_by: Level) {
        let sets: Vec<CpuSet> = match shared_by {
            Level::Package => self.package.sets().to_vec(),
            Level::Node => self.node.sets().to_vec(),
            Level::Llc => self.llc.sets().to_vec(),
            Level::Cluster => self.cluster.sets().to_vec(),
            Level::Core => self.smt.sets().to_vec(),
            Level::Thread => Partition::singletons(&self.online).sets().to_vec(),
        };
        self.caches.extend(sets.into_iter().map(|cpus| Cache { level, kind, size: Some(size), cpus }));
        self.caches.sort_by_key(|cache| (cache.level, cache.cpus.first(), cache.kind));
    }
}
