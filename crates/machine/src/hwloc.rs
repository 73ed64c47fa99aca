//! Reads hwloc's XML, as `lstopo machine.xml` writes it, into a [`Topology`].
//!
//! Objects nest as the hardware does, so that a set is the PUs inside an object; the `cpuset` that the object states must
//! agree. Versions differ in where things stand (hwloc 1 to 3, `hwloc/topology-xml.c`):
//!
//! | | version 1 | versions 2 and 3 |
//! |---|---|---|
//! | caches | `Cache` with depth and type | `L2Cache`, `L1iCache` |
//! | NUMA nodes | around the CPUs | beside them, with the CPUs that they are local to |
//! | distances | multiples of `latency_base`, of the objects at a depth | the system's numbers, by node number |
//! | offline CPUs | missing in `online_cpuset` | in `complete_cpuset` only, as those not allowed |
//!
//! hwloc gives each thread of a Bulldozer module a core of its own, where Linux calls them siblings.
//! hwloc names a cluster only where no other object has the same CPUs; where the level-2 cache has them, its sharers are
//! the clusters. Idle states are not part of an export.

mod xml;

use std::ops::Range;

use self::xml::{CpuKind, Export, Matrix, NumaNode, Unit};
use crate::assemble::{
    self, Caches, Findings, LOCAL_DISTANCE, amount, check_distances, check_nesting, cut, default_distance, differ,
    is_distance,
};
use crate::topology::{ZEN_FAMILY, reclaim_distance};
use crate::{Arch, ClusterSource, CpuId, CpuSet, MachineError, Node, Partition, Topology};

impl Topology {
    /// Reads the XML that hwloc exports (`lstopo machine.xml`), of format version 1, 2 or 3 and in UTF-8; `file` is what
    /// errors call it.
    ///
    /// # Errors
    /// What is not well-formed, no export of hwloc, or contradicts itself, with its line.
    pub fn parse_hwloc(file: &str, data: &[u8]) -> Result<Topology, MachineError> {
        let export = xml::parse(file, data)?;
        let (online, offline, findings) = cpus(file, &export)?;
        let mut reader = Reader { export: &export, online: &online, findings };

        let smt = reader.smt();
        let package = reader.package();
        let caches = reader.caches();
        let llc = caches.llc(&online, &smt, "L3Cache", &mut reader.findings);
        let (cluster, cluster_source) = reader.cluster(&caches, &smt);
        let (book, drawer) = (reader.stated(&export.books), reader.stated(&export.drawers));
        let (node, nodes) = reader.nodes();
        // Objects nest, so that only nodes can cross other sets.
        for levels in [&[("node", &node), ("llc", &llc)], &[("node", &node), ("package", &package)]] {
            check_nesting(levels, |_| "NUMANode".to_owned(), &mut reader.findings);
        }

        let capacity = reader.capacities();
        let arch = reader.arch();
        let hybrid = arch == Arch::X86_64 && reader.is_hybrid(&offline, &capacity, &caches);
        let node_reclaim_distance = reader.node_reclaim_distance();
        let findings = reader.findings.finish();
        Ok(Topology {
            arch,
            offline,
            smt,
            cluster,
            cluster_source,
            llc,
            package,
            book,
            drawer,
            node,
            nodes,
            capacity,
            node_reclaim_distance,
            hybrid,
            caches: caches.into_sorted(),
            idle_states: Vec::new(),
            findings,
            online,
        })
    }
}

/// Online and offline CPUs, over one number of ids. CPUs that the export knows without describing them, offline or not
/// allowed to the process that wrote it, count as offline; described ones that were not allowed are online all the same.
fn cpus(name: &str, export: &Export) -> Result<(CpuSet, CpuSet, Findings), MachineError> {
    let last = |set: &CpuSet| set.last().map_or(0, |last| last.index() + 1);
    let described = export.pus.iter().max().map_or(0, |&last| last as usize + 1);
    let ids = export.complete.as_ref().map_or(0, last).max(described);
    let mut online = CpuSet::from_cpus(ids, export.pus.iter().map(|&pu| pu as usize));
    let mut offline = online.clone();
    export.complete.iter().for_each(|complete| offline.union_with(complete));
    let mut unknown = offline.clone();
    unknown.subtract(&online);
    export.online.iter().for_each(|stated| online.intersect_with(stated));
    offline.subtract(&online);
    if online.is_empty() {
        return Err(MachineError::source(name, "no CPU is online: online_cpuset holds no CPU that has a PU object"));
    }
    let mut findings = Findings::default();
    if let Some(first) = unknown.first() {
        let message = format!("names CPUs without a PU object, offline or not allowed: {unknown}; taken to be offline");
        findings.warn("offline-or-disallowed", Some(first), "complete_cpuset".into(), message);
    }
    let mut disallowed = online.clone();
    export.allowed.iter().for_each(|allowed| disallowed.subtract(allowed));
    if export.allowed.is_some() && !disallowed.is_empty() {
        let message = format!("does not hold the CPUs {disallowed}, which are online all the same");
        findings.info("cpus-disallowed", "allowed_cpuset", message);
    }
    if let Some((kind, count)) = &export.unknown {
        let message = format!("`{kind}` is not known; {} of such types passed over", amount(*count, "object"));
        findings.warn("object-unknown", None, "object".into(), message);
    }
    Ok((online, offline, findings))
}

struct Reader<'a> {
    export: &'a Export,
    online: &'a CpuSet,
    findings: Findings,
}

impl<'a> Reader<'a> {
    /// The online PUs among those.
    fn online_pus(&self, pus: &Range<usize>) -> impl Iterator<Item = CpuId> {
        self.export.pus[pus.clone()].iter().map(|&pu| CpuId(pu)).filter(|&cpu| self.online.contains(cpu))
    }

    /// The first CPU of each CPU's unit; the innermost one, which comes first, counts.
    fn leaders(&self, units: &[Unit]) -> Vec<Option<CpuId>> {
        let mut leaders = vec![None; self.online.capacity()];
        for unit in units {
            let first = self.online_pus(&unit.pus).min();
            self.online_pus(&unit.pus).for_each(|cpu| leaders[cpu.index()] = leaders[cpu.index()].or(first));
        }
        leaders
    }

    fn without(&self, leaders: &[Option<CpuId>]) -> Vec<CpuId> {
        self.online.iter().filter(|cpu| leaders[cpu.index()].is_none()).collect()
    }

    fn smt(&mut self) -> Partition {
        let leaders = self.leaders(&self.export.cores);
        self.findings.missing("smt-missing", "Core", &self.without(&leaders), "each is taken to be a core of its own");
        Partition::from_ids(self.online, |cpu| leaders[cpu.index()].unwrap_or(cpu).0.into())
    }

    fn package(&mut self) -> Partition {
        let leaders = self.leaders(&self.export.packages);
        self.findings.missing(
            "package-missing",
            "Package",
            &self.without(&leaders),
            "such CPUs are taken to form one package",
        );
        Partition::from_ids(self.online, |cpu| leaders[cpu.index()].map_or(u64::MAX, |leader| leader.0.into()))
    }

    /// A level that most machines do not have; CPUs outside it form a set of their own.
    fn stated(&self, units: &[Unit]) -> Option<Partition> {
        let leaders = self.leaders(units);
        let id = |cpu: CpuId| leaders[cpu.index()].map_or(u64::MAX, |leader| leader.0.into());
        (!units.is_empty()).then(|| Partition::from_ids(self.online, id))
    }

    fn caches(&self) -> Caches {
        let mut caches = Caches::default();
        for (&(level, kind), units) in &self.export.caches {
            let mut sizes = vec![None; self.online.capacity()];
            for unit in units {
                self.online_pus(&unit.pus).for_each(|cpu| sizes[cpu.index()] = unit.size);
            }
            caches.add(level, kind, self.leaders(units), |first| sizes[first.index()]);
        }
        caches
    }

    fn cluster(&mut self, caches: &Caches, smt: &Partition) -> (Partition, ClusterSource) {
        if self.export.clusters.is_empty() {
            return caches.clusters(self.online, smt, "Group", &mut self.findings);
        }
        let leaders = self.leaders(&self.export.clusters);
        self.findings.missing(
            "cluster-missing",
            "Group",
            &self.without(&leaders),
            "the sharers of the level-2 cache, else the cores, are taken",
        );
        let rest = caches.sharers(self.online, Some(2), smt);
        let cluster = Partition::from_ids(self.online, |cpu| match leaders[cpu.index()] {
            Some(leader) => 1 << 32 | u64::from(leader.0),
            None => rest.index_of(cpu).into(),
        });
        (cluster, ClusterSource::Stated)
    }

    /// The node of each CPU and the nodes; CPUs in no node form a set of their own.
    fn nodes(&mut self) -> (Partition, Vec<Node>) {
        let mut stated: Vec<&NumaNode> = self.export.nodes.iter().collect();
        stated.sort_by_key(|node| node.id);
        let mut held = CpuSet::new(self.online.capacity());
        let stated = stated.into_iter().map(|node| (node.id, self.own_cpus(node, &mut held))).collect();
        let file = |id: u32| format!("NUMANode {id}");
        let (mut nodes, node_of) = assemble::nodes(self.online, stated, file, &mut self.findings);
        self.distances(&mut nodes);
        check_distances(&nodes, |_| "distances".to_owned(), &mut self.findings);
        let node = assemble::by_node(self.online, &nodes, &node_of, ["NUMANode", "NUMANode"], &mut self.findings);
        (node, nodes)
    }

    /// The node's CPUs, none when lower nodes have them all: memory without CPUs is given those that are near it, and
    /// Linux numbers the nodes of the CPUs first.
    fn own_cpus(&mut self, node: &NumaNode, held: &mut CpuSet) -> CpuSet {
        let cpus = node.cpus.intersection(self.online);
        if !cpus.is_empty() && cpus.is_subset(held) {
            let message = format!("is near the CPUs {cpus}, which lower nodes hold; taken to have memory only");
            self.findings.info("node-memory-only", &format!("NUMANode {}", node.id), message);
            return CpuSet::new(0);
        }
        held.union_with(&cpus);
        cpus
    }

    fn distances(&mut self, nodes: &mut [Node]) {
        let ids: Vec<u32> = nodes.iter().map(|node| node.id).collect();
        let matrix = self.matrix(&ids);
        for (row, node) in nodes.iter_mut().enumerate() {
            node.distance = (0..ids.len()).map(|at| self.distance(matrix.as_ref(), &ids, row, at)).collect();
        }
    }

    /// The matrix, when it is the kernel's: nodes at 10 from themselves.
    fn matrix(&mut self, ids: &[u32]) -> Option<Placed<'a>> {
        let defaults = "10 in the node and 20 outside are taken";
        if ids.len() < 2 {
            return None;
        }
        let Some(matrix) = &self.export.matrix else {
            let message = format!("no latencies of the NUMA nodes; {defaults}");
            self.findings.warn("distance-missing", None, DISTANCES.to_owned(), message);
            return None;
        };
        let at = |id: &u32| matrix.ids.iter().position(|stated| stated == id);
        let placed = Placed { matrix, positions: ids.iter().map(at).collect() };
        let far = (0..ids.len()).find(|&at| placed.value(at, at).is_some_and(|value| value != LOCAL_DISTANCE.into()));
        if let Some((id, value)) = far.and_then(|at| Some((ids[at], placed.value(at, at)?))) {
            let message = format!("node{id} is at {value} from itself, not 10 as in the kernel; {defaults}");
            self.findings.warn("distance-scale", None, DISTANCES.to_owned(), message);
            return None;
        }
        let silent = placed.positions.iter().filter(|position| position.is_none()).count();
        if silent > 0 {
            let message = format!("missing for {silent} of {} nodes; {defaults}", ids.len());
            self.findings.warn("distance-missing", None, DISTANCES.to_owned(), message);
        }
        Some(placed)
    }

    fn distance(&mut self, matrix: Option<&Placed>, ids: &[u32], row: usize, at: usize) -> u32 {
        let default = default_distance(row == at);
        let Some(value) = matrix.and_then(|matrix| matrix.value(row, at)) else { return default };
        whole(value).filter(|&distance| is_distance(distance, row == at)).unwrap_or_else(|| {
            let message =
                format!("node{} is at {value} from node{}, no distance; {default} is taken", ids[at], ids[row]);
            self.findings.warn("distance-invalid", None, DISTANCES.to_owned(), message);
            default
        })
    }

    fn capacities(&mut self) -> Vec<u32> {
        let mut capacity = vec![1024; self.online.capacity()];
        for CpuKind { cpus, capacity: stated, .. } in &self.export.kinds {
            let Some(text) = stated else { continue };
            let cpus = cpus.intersection(self.online);
            match text.trim().parse() {
                Ok(value @ 1..=1024) => cpus.iter().for_each(|cpu| capacity[cpu.index()] = value),
                _ => {
                    let message = format!("`{}` is not a capacity of 1 to 1024; 1024 is taken", cut(text));
                    self.findings.warn("capacity-invalid", cpus.first(), "cpukind LinuxCapacity".into(), message);
                }
            }
        }
        capacity
    }

    fn arch(&mut self) -> Arch {
        match self.export.architecture.as_deref() {
            Some("x86_64" | "amd64" | "i386" | "i486" | "i586" | "i686") => return Arch::X86_64,
            Some(name) if name.starts_with("arm") || name.starts_with("aarch64") => return Arch::Arm64,
            Some(name) if name.starts_with("riscv") => return Arch::Riscv,
            Some(_) => return Arch::Other,
            None => {}
        }
        let (arch, guess) = match (self.export.x86, self.export.arm) {
            (true, _) => (Arch::X86_64, "x86, because its CPUs are Intel's or AMD's"),
            (false, true) => (Arch::Arm64, "arm64, because its CPUs' implementer is stated"),
            (false, false) => (Arch::Other, "neither arm64, x86 nor riscv"),
        };
        self.findings.warn("arch-guessed", None, "Architecture".into(), format!("is missing; taken for {guess}"));
        arch
    }

    /// As the kernel of the machine has it.
    fn node_reclaim_distance(&self) -> u32 {
        reclaim_distance(self.export.amd && self.export.family >= ZEN_FAMILY)
    }

    /// Cores of more than one kind: different types or efficiencies, capacities, numbers of threads when no sibling can
    /// be offline, or cores with one cache level fewer. Kinds that differ in frequency only are favoured cores.
    fn is_hybrid(&self, offline: &CpuSet, capacity: &[u32], caches: &Caches) -> bool {
        let kinds = || self.export.kinds.iter().filter(|kind| kind.cpus.intersects(self.online));
        let known = offline.is_empty();
        differ(kinds().filter_map(|kind| kind.core_type.as_deref()))
            || differ(kinds().filter_map(|kind| kind.efficiency))
            || differ(self.online.iter().map(|cpu| capacity[cpu.index()]))
            || known && differ(self.export.cores.iter().map(|core| core.width))
            || differ(self.online.iter().filter_map(|cpu| caches.of(cpu, None).map(|(level, _)| level)))
    }
}

/// What findings about distances call them.
const DISTANCES: &str = "distances";

/// A matrix and where in it each node of the topology stands.
struct Placed<'a> {
    matrix: &'a Matrix,
    positions: Vec<Option<usize>>,
}

impl Placed<'_> {
    /// The value between two nodes of the topology, if the matrix has both.
    fn value(&self, row: usize, at: usize) -> Option<f64> {
        let index = self.positions[row]? * self.matrix.ids.len() + self.positions[at]?;
        Some(self.matrix.values.get(index)? * self.matrix.scale)
    }
}

/// The whole number that a value is up to the six decimals that hwloc writes.
fn whole(value: f64) -> Option<u32> {
    let rounded = value.round();
    ((0.0..=255.0).contains(&rounded) && (value - rounded).abs() < 1e-3).then_some(rounded as u32)
}
