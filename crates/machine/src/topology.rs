//! A machine's topology: raw, validated facts. What a kernel generation makes of them is the business of
//! `huddle-domains`.

use crate::{CpuId, CpuSet, Distance, Finding};

/// Instruction set, where a kernel treats topology differently by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// arm64: `arch_topology` normalises cluster and LLC masks.
    Arm64,
    /// x86-64: masks are used as they are; hybrid rules.
    X86_64,
    /// riscv: as arm64.
    Riscv,
    /// Any other.
    Other,
}

/// Where the cluster sets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterSource {
    /// `cluster_cpus` files, or a machine file that states clusters.
    Stated,
    /// Sharers of the level-2 cache.
    L2,
    /// Neither: the SMT set.
    Smt,
}

/// Disjoint CPU sets covering the online CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    of: Vec<u32>,
    sets: Vec<CpuSet>,
}

/// The index of an offline CPU in [`Partition::index_of`].
pub const NO_SET: u32 = u32::MAX;

impl Partition {
    /// Sets in the order of their first CPU. Returns the pair of CPUs that shows it when two sets overlap without being equal.
    ///
    /// # Errors
    /// The CPU that belongs to two different sets.
    pub fn from_masks(online: &CpuSet, mask_of: impl Fn(CpuId) -> CpuSet) -> Result<Partition, CpuId> {
        let mut of = vec![NO_SET; online.capacity()];
        let mut sets: Vec<CpuSet> = Vec::new();
        for cpu in online.iter() {
            if of[cpu.index()] != NO_SET {
                continue;
            }
            let mut set = mask_of(cpu).resized(online.capacity());
            set.intersect_with(online);
            set.insert(cpu);
            for member in set.iter() {
                if of[member.index()] != NO_SET {
                    return Err(member);
                }
                of[member.index()] = sets.len() as u32;
            }
            sets.push(set);
        }
        Ok(Partition { of, sets })
    }

    /// One set per CPU.
    pub fn singletons(online: &CpuSet) -> Partition {
        Partition::from_ids(online, |cpu| cpu.0.into())
    }

    /// CPUs with equal id form a set; sets in the order of their first CPU.
    pub fn from_ids(online: &CpuSet, id_of: impl Fn(CpuId) -> u64) -> Partition {
        let mut of = vec![NO_SET; online.capacity()];
        let mut sets: Vec<CpuSet> = Vec::new();
        let mut index_of_id = std::collections::BTreeMap::new();
        for cpu in online.iter() {
            let index = *index_of_id.entry(id_of(cpu)).or_insert_with(|| {
                sets.push(CpuSet::new(online.capacity()));
                sets.len() - 1
            });
            of[cpu.index()] = index as u32;
            sets[index].insert(cpu);
        }
        Partition { of, sets }
    }

    /// The index of the CPU's set, [`NO_SET`] when it is offline.
    #[inline]
    pub fn index_of(&self, cpu: CpuId) -> u32 {
        self.of[cpu.index()]
    }

    /// The CPU's set.
    ///
    /// # Panics
    /// When the CPU is offline.
    #[inline]
    pub fn set_of(&self, cpu: CpuId) -> &CpuSet {
        &self.sets[self.of[cpu.index()] as usize]
    }

    /// All sets, in the order of their first CPU.
    pub fn sets(&self) -> &[CpuSet] {
        &self.sets
    }
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's node number (sparse).
    pub id: u32,
    /// Its online CPUs; empty for a memory-only node.
    pub cpus: CpuSet,
    /// Distance to every node of [`Topology::nodes`], in that order; 10 is local.
    pub distance: Vec<u32>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One cache and its sharers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1, 2, 3 …
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Bytes, when known.
    pub size: Option<u64>,
    /// Online CPUs sharing it.
    pub cpus: CpuSet,
}

impl Cache {
    /// `L1d`, `L3`.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        format!("L{}{kind}", self.level)
    }
}

/// An idle state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// Its name (`C1`).
    pub name: String,
    /// Exit latency in microseconds.
    pub exit_latency_us: u32,
    /// Least residency in microseconds for it to pay.
    pub residency_us: u32,
}

/// The kernel's `node_reclaim_distance` where no architecture raises it (`RECLAIM_DISTANCE`).
pub const NODE_RECLAIM_DISTANCE: u32 = 30;
/// First family of AMD's and Hygon's Zen processors.
pub(crate) const ZEN_FAMILY: u32 = 23;

/// [`Topology::node_reclaim_distance`] on Zen and elsewhere.
pub(crate) fn reclaim_distance(zen: bool) -> u32 {
    if zen { 32 } else { NODE_RECLAIM_DISTANCE }
}

/// The validated topology. Sets hold online CPUs only; ids run over `0..nr_cpus`, with holes for offline CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Instruction set.
    pub arch: Arch,
    /// Online CPUs. Its capacity is the number of CPU ids.
    pub online: CpuSet,
    /// Present CPUs that are offline.
    pub offline: CpuSet,
    /// Threads of a core.
    pub smt: Partition,
    /// Raw clusters: what firmware or the level-2 cache says, else the cores. Not cut or widened.
    pub cluster: Partition,
    /// Where [`Topology::cluster`] comes from.
    pub cluster_source: ClusterSource,
    /// Sharers of the last-level cache (single CPUs or cores when there is none).
    pub llc: Partition,
    /// Packages (on s390 sockets).
    pub package: Partition,
    /// Books, sets of s390 sockets; `None` where nothing states them (all other architectures).
    pub book: Option<Partition>,
    /// Drawers, sets of s390 books; `None` as for books.
    pub drawer: Option<Partition>,
    /// NUMA nodes as a partition of the online CPUs; the set index is the order of first CPUs, not the node number.
    pub node: Partition,
    /// NUMA nodes, memory-only ones included, ascending by number.
    pub nodes: Vec<Node>,
    /// Nodes farther than this are far: nothing is pulled there on fork, exec or wake-up (`node_reclaim_distance`: 30, and
    /// 32 where Linux raises it, on AMD and Hygon from Zen on: `arch/x86/kernel/cpu/{amd,hygon}.c` since 5.4).
    pub node_reclaim_distance: u32,
    /// Relative capacity 1..=1024 by CPU id.
    pub capacity: Vec<u32>,
    /// Cores of more than one kind (x86 P and E).
    pub hybrid: bool,
    /// Caches, by level then first CPU.
    pub caches: Vec<Cache>,
    /// Idle states of the first CPU that has any.
    pub idle_states: Vec<IdleState>,
    /// Every repair and doubt.
    pub findings: Vec<Finding>,
}

impl Topology {
    /// Number of CPU ids: one more than the highest.
    #[inline]
    pub fn nr_cpus(&self) -> usize {
        self.online.capacity()
    }

    /// The classification of two online CPUs. A cluster that is no narrower than a real LLC does not count as one.
    pub fn distance(&self, a: CpuId, b: CpuId) -> Distance {
        let same = |partition: &Partition| partition.index_of(a) == partition.index_of(b);
        if a == b {
            Distance::SameCpu
        } else if same(&self.smt) {
            Distance::Smt
        } else if same(&self.cluster) && self.cluster_is_narrow(a) {
            Distance::Cluster
        } else if same(&self.llc) {
            Distance::Llc
        } else if same(&self.node) {
            Distance::Node
        } else if same(&self.package) {
            Distance::Package
        } else {
            Distance::Beyond
        }
    }

    fn cluster_is_narrow(&self, cpu: CpuId) -> bool {
        let (cluster, llc) = (self.cluster.set_of(cpu), self.llc.set_of(cpu));
        // Caches of one core are no LLC to measure clusters by.
        llc.is_subset(self.smt.set_of(cpu)) || !llc.is_subset(cluster)
    }

    /// NUMA distance between the nodes of two online CPUs; 10 without nodes.
    pub fn numa_distance(&self, a: CpuId, b: CpuId) -> u32 {
        let position = |cpu: CpuId| self.nodes.iter().position(|node| node.cpus.contains(cpu));
        match (position(a), position(b)) {
            (Some(a), Some(b)) => self.nodes[a].distance.get(b).copied().unwrap_or(10),
            _ => 10,
        }
    }

    /// The distances that two CPUs of this machine can be apart, by [`Distance`].
    pub fn distances(&self) -> [bool; Distance::COUNT] {
        let mut has = [false; Distance::COUNT];
        has[Distance::SameCpu as usize] = true;
        for cpu in self.online.iter() {
            // A wider level adds its distance when it holds a CPU that no nearer level holds.
            let mut near = CpuSet::new(self.nr_cpus());
            near.insert(cpu);
            let narrow = self.cluster_is_narrow(cpu).then(|| self.cluster.set_of(cpu));
            for (distance, set) in [
                (Distance::Smt, Some(self.smt.set_of(cpu))),
                (Distance::Cluster, narrow),
                (Distance::Llc, Some(self.llc.set_of(cpu))),
                (Distance::Node, Some(self.node.set_of(cpu))),
                (Distance::Package, Some(self.package.set_of(cpu))),
                (Distance::Beyond, Some(&self.online)),
            ] {
                let Some(set) = set else { continue };
                has[distance as usize] |= !set.is_subset(&near);
                near.union_with(set);
            }
        }
        has
    }

    /// The machine cut to the given number of NUMA nodes, lowest numbers first. CPU ids stay as they are; the CPUs of
    /// the other nodes are gone, not offline. `None` when there are fewer nodes or those hold no online CPU.
    pub fn first_nodes(&self, count: usize) -> Option<Topology> {
        let nodes = self.nodes.get(..count)?;
        let mut kept = CpuSet::new(self.nr_cpus());
        nodes.iter().for_each(|node| kept.union_with(&node.cpus));
        let nr_cpus = kept.last()?.index() + 1;
        let online = kept.resized(nr_cpus);
        let cut = |set: &CpuSet| {
            let mut set = set.resized(nr_cpus);
            set.intersect_with(&online);
            set
        };
        let partition = |old: &Partition| Partition::from_ids(&online, |cpu| old.index_of(cpu).into());
        Some(Topology {
            arch: self.arch,
            offline: CpuSet::new(nr_cpus),
            smt: partition(&self.smt),
            cluster: partition(&self.cluster),
            cluster_source: self.cluster_source,
            llc: partition(&self.llc),
            package: partition(&self.package),
            book: self.book.as_ref().map(partition),
            drawer: self.drawer.as_ref().map(partition),
            node: partition(&self.node),
            nodes: nodes
                .iter()
                .map(|node| Node { id: node.id, cpus: cut(&node.cpus), distance: node.distance[..count].to_vec() })
                .collect(),
            capacity: self.capacity[..nr_cpus].to_vec(),
            node_reclaim_distance: self.node_reclaim_distance,
            hybrid: self.hybrid,
            caches: self
                .caches
                .iter()
                .map(|cache| Cache { cpus: cut(&cache.cpus), ..cache.clone() })
                .filter(|cache| !cache.cpus.is_empty())
                .collect(),
            idle_states: self.idle_states.clone(),
            findings: self.findings.clone(),
            online,
        })
    }
}
