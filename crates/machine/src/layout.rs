//! Machines whose every package, node, LLC, cluster and core looks like the next, and machines of a few such parts.

use crate::assemble::MAX_NODES;
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

/// The nesting of a regular machine, or of one of its parts, and how its CPUs are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many of each level are in one of the level above, by [`Level`]; 1 for a level that is not there.
    pub counts: [usize; 6],
    /// Order in which CPU ids count through the levels, slowest first; each level once. An Intel server with even ids in
    /// package 0, odd ids in package 1 and the second threads after all first ones counts threads, nodes, LLCs, clusters,
    /// cores and, fastest, packages.
    pub numbering: [Level; 6],
    /// Whether cores share a last-level cache. Without one each core's own caches are its last.
    pub llc: bool,
    /// Whether there are clusters. Without them each core is its own.
    pub cluster: bool,
    /// Relative capacity of its CPUs, 1..=1024.
    pub capacity: u32,
}

impl Layout {
    /// `counts` packages, nodes of a package, LLCs of a node, clusters of an LLC, cores of a cluster and threads of a
    /// core, numbered from the outside in, with every level there and full capacity.
    pub fn new(counts: [usize; 6]) -> Layout {
        Layout { counts, numbering: Level::ALL, llc: true, cluster: true, capacity: 1024 }
    }

    /// Number of CPUs; `None` when a count is 0, there are more than [`MAX_CPUS`], or more nodes than a kernel can have.
    pub fn cpus(&self) -> Option<usize> {
        let cpus = self.counts.iter().try_fold(1usize, |product, &count| product.checked_mul(count))?;
        let nodes = self.counts[Level::Package as usize] * self.counts[Level::Node as usize];
        ((1..=MAX_CPUS).contains(&cpus) && nodes <= MAX_NODES).then_some(cpus)
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

    /// The level whose units stand for those of `level`: the core for an LLC or cluster that is not there.
    fn stand_in(&self, level: Level) -> Level {
        match level {
            Level::Llc if !self.llc => Level::Core,
            Level::Cluster if !self.cluster => Level::Core,
            _ => level,
        }
    }

    /// The running number of the unit at a level that holds this position, counted through the whole layout.
    fn unit(&self, position: &[usize; 6], level: Level) -> usize {
        (0..=level as usize).fold(0, |unit, at| unit * self.counts[at] + position[at])
    }
}

/// A CPU's place: the part that it belongs to and its position there.
struct Place<'a> {
    part: usize,
    layout: &'a Layout,
    position: [usize; 6],
}

impl Place<'_> {
    /// A number that CPUs of one unit at this level have in common. Units down to `shared` are common to all parts.
    fn unit(&self, level: Level, shared: Level) -> u64 {
        let level = self.layout.stand_in(level);
        let part = if level > shared { self.part as u64 } else { 0 };
        (part << 32) | self.layout.unit(&self.position, level) as u64
    }
}

impl Topology {
    /// The machine of that layout: all CPUs online, node numbers as the nodes nest, distance 10 in a node and 20 outside,
    /// no caches, no idle states. `None` when [`Layout::cpus`] is, or when the numbering misses a level.
    pub fn from_layout(arch: Arch, layout: &Layout) -> Option<Topology> {
        Topology::from_parts(arch, Level::Node, std::slice::from_ref(layout))
    }

    /// A machine of parts that differ: each counts all levels, those down to `shared` (the node at least) as the others
    /// do, because these units are common to all parts. CPU ids go through the parts one after the other. Otherwise as
    /// [`Topology::from_layout`]. `None` also when there is no part or the common counts differ.
    pub fn from_parts(arch: Arch, shared: Level, parts: &[Layout]) -> Option<Topology> {
        let shared = shared.max(Level::Node);
        let first = parts.first()?;
        let fits = |part: &Layout| {
            part.counts[..=shared as usize] == first.counts[..=shared as usize]
                && Level::ALL.iter().all(|level| part.numbering.contains(level))
        };
        let mut places = Vec::new();
        for (part, layout) in parts.iter().enumerate() {
            let cpus = layout.cpus().filter(|cpus| places.len() + cpus <= MAX_CPUS && fits(layout))?;
            places.extend((0..cpus).map(|cpu| Place { part, layout, position: layout.position(cpu) }));
        }
        let nr_cpus = places.len();
        let online = CpuSet::full(nr_cpus);
        let unit = |cpu: CpuId, level: Level| places[cpu.index()].unit(level, shared);
        let partition = |level: Level| Partition::from_ids(&online, |cpu| unit(cpu, level));
        let nr_nodes = first.counts[0] * first.counts[1];
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
        let clusters = parts.iter().any(|part| part.cluster);
        Some(Topology {
            arch,
            offline: CpuSet::new(nr_cpus),
            smt: partition(Level::Core),
            cluster: partition(Level::Cluster),
            cluster_source: if clusters { ClusterSource::Stated } else { ClusterSource::Smt },
            llc: partition(Level::Llc),
            package: partition(Level::Package),
            book: None,
            drawer: None,
            node: partition(Level::Node),
            nodes,
            capacity: places.iter().map(|place| place.layout.capacity).collect(),
            node_reclaim_distance: crate::NODE_RECLAIM_DISTANCE,
            hybrid: false,
            caches: Vec::new(),
            idle_states: Vec::new(),
            findings: Vec::new(),
            online,
        })
    }

    /// Adds a cache of `size` bytes to each unit of a level that lies within `cpus`, keeping caches by level then first
    /// CPU.
    pub fn add_caches(&mut self, cpus: &CpuSet, level: u32, kind: CacheKind, size: u64, shared_by: Level) {
        let sets: Vec<CpuSet> = match shared_by {
            Level::Package => self.package.sets().to_vec(),
            Level::Node => self.node.sets().to_vec(),
            Level::Llc => self.llc.sets().to_vec(),
            Level::Cluster => self.cluster.sets().to_vec(),
            Level::Core => self.smt.sets().to_vec(),
            Level::Thread => Partition::singletons(&self.online).sets().to_vec(),
        };
        let sets = sets.into_iter().filter(|set| set.is_subset(cpus));
        self.caches.extend(sets.map(|cpus| Cache { level, kind, size: Some(size), cpus }));
        self.caches.sort_by_key(|cache| (cache.level, cache.cpus.first(), cache.kind));
    }
}
