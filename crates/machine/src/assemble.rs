//! Steps that every reader of a topology takes, whatever its source: from stated sets to partitions that can be relied
//! on, with a finding for each repair and doubt.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::error::one_line;
use crate::{Cache, CacheKind, ClusterSource, CpuId, CpuSet, Finding, Node, Partition, Severity};

/// Distances that the kernel uses when firmware gives none (`include/linux/topology.h`).
pub(crate) const LOCAL_DISTANCE: u32 = 10;
pub(crate) const REMOTE_DISTANCE: u32 = 20;

/// Most nodes that a kernel can have (`CONFIG_NODES_SHIFT` of 10), and a level that no cache has: both guard memory
/// against garbage input.
pub(crate) const MAX_NODES: usize = 1 << 10;
pub(crate) const MAX_CACHE_LEVEL: u32 = 15;

/// Findings of one kind that are listed one by one; the rest is counted.
const FINDINGS_PER_CODE: usize = 16;

/// Findings in the order met, each kind bounded.
#[derive(Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    counts: BTreeMap<&'static str, usize>,
}

impl Findings {
    fn add(&mut self, finding: Finding) {
        let count = self.counts.entry(finding.code).or_default();
        *count += 1;
        if *count <= FINDINGS_PER_CODE {
            let (file, message) = (one_line(&finding.file), one_line(&finding.message));
            self.list.push(Finding { file, message, ..finding });
        }
    }

    pub(crate) fn warn(&mut self, code: &'static str, cpu: Option<CpuId>, file: String, message: impl Display) {
        self.add(Finding { code, severity: Severity::Warning, cpu, file, message: message.to_string(), counted: 0 });
    }

    pub(crate) fn info(&mut self, code: &'static str, file: &str, message: String) {
        self.add(Finding { code, severity: Severity::Info, cpu: None, file: file.to_owned(), message, counted: 0 });
    }

    /// One warning for all CPUs that lack something; none when there is no such CPU.
    pub(crate) fn missing(&mut self, code: &'static str, file: &str, cpus: &[CpuId], taken: &str) {
        let (Some(&first), count) = (cpus.first(), cpus.len()) else { return };
        let message = match count {
            1 => format!("missing for cpu{first}; {taken}"),
            _ => format!("missing for {count} CPUs; {taken}"),
        };
        self.warn(code, Some(first), file.to_owned(), message);
    }

    pub(crate) fn finish(mut self) -> Vec<Finding> {
        for (&code, &count) in self.counts.iter().filter(|&(_, &count)| count > FINDINGS_PER_CODE) {
            let counted = count - FINDINGS_PER_CODE;
            let message = format!("{counted} more of this kind are not listed");
            let file = String::new();
            self.list.push(Finding { code, severity: Severity::Warning, cpu: None, file, message, counted });
        }
        self.list
    }
}

/// Caches and, by level and kind, which of them each CPU has.
#[derive(Default)]
pub(crate) struct Caches {
    caches: Vec<Cache>,
    /// The first CPU of the cache by CPU id, for each level and kind met, ascending.
    leader: BTreeMap<(u32, CacheKind), Vec<Option<CpuId>>>,
}

impl Caches {
    /// Adds all caches of one level and kind: the first CPU of its cache by CPU id, and the size by first CPU.
    pub(crate) fn add(
        &mut self,
        level: u32,
        kind: CacheKind,
        leaders: Vec<Option<CpuId>>,
        size: impl Fn(CpuId) -> Option<u64>,
    ) {
        let mut members: BTreeMap<CpuId, Vec<usize>> = BTreeMap::new();
        for (cpu, leader) in leaders.iter().enumerate() {
            if let Some(leader) = leader {
                members.entry(*leader).or_default().push(cpu);
            }
        }
        self.caches.extend(members.into_iter().map(|(first, cpus)| Cache {
            level,
            kind,
            size: size(first),
            cpus: CpuSet::from_cpus(leaders.len(), cpus),
        }));
        self.leader.insert((level, kind), leaders);
    }

    /// All, by level, then first CPU, then kind.
    pub(crate) fn into_sorted(mut self) -> Vec<Cache> {
        self.caches.sort_by_key(|cache| (cache.level, cache.cpus.first(), cache.kind));
        self.caches
    }

    /// The level and first CPU of a CPU's cache of data, unified preferred, at the highest level, or at `level`.
    pub(crate) fn of(&self, cpu: CpuId, level: Option<u32>) -> Option<(u32, CpuId)> {
        self.leader
            .iter()
            .rev()
            .filter(|((at, kind), _)| *kind != CacheKind::Instruction && level.is_none_or(|level| level == *at))
            .find_map(|((at, _), leaders)| Some((*at, leaders[cpu.index()]?)))
    }

    /// CPUs with a cache of `level`, or of any level, by that cache; the others by core.
    pub(crate) fn sharers(&self, online: &CpuSet, level: Option<u32>, smt: &Partition) -> Partition {
        Partition::from_ids(online, |cpu| match self.of(cpu, level) {
            Some((level, leader)) => u64::from(level) << 32 | u64::from(leader.0),
            None => smt.index_of(cpu).into(),
        })
    }

    /// Each CPU's highest cache that holds data; low-power cores may have one level fewer than the rest.
    pub(crate) fn llc(&self, online: &CpuSet, smt: &Partition, file: &str, findings: &mut Findings) -> Partition {
        let without: Vec<CpuId> = online.iter().filter(|&cpu| self.of(cpu, None).is_none()).collect();
        findings.missing("no-llc", file, &without, "the threads of the core are taken to share the last level");
        self.sharers(online, None, smt)
    }

    /// Clusters where nothing states them: the sharers of the level-2 cache, else the cores.
    pub(crate) fn clusters(
        &self,
        online: &CpuSet,
        smt: &Partition,
        file: &str,
        findings: &mut Findings,
    ) -> (Partition, ClusterSource) {
        let with = online.iter().filter(|&cpu| self.of(cpu, Some(2)).is_some()).count();
        let (code, source, message) = match with {
            0 => (
                "cluster-from-smt",
                ClusterSource::Smt,
                "missing, and no level-2 cache is known; each core is a cluster",
            ),
            _ => ("cluster-from-l2", ClusterSource::L2, "missing; the sharers of the level-2 cache are taken"),
        };
        let rest = match (with, online.len() - with) {
            (0, _) | (_, 0) => String::new(),
            (_, rest) => format!(", the core for {} without one", amount(rest, "CPU")),
        };
        findings.info(code, file, format!("{message}{rest}"));
        (self.sharers(online, Some(2), smt), source)
    }
}

/// The nodes of the given ids and CPUs, distances still empty, and the node of each CPU by CPU id. A CPU stays in the
/// first node that holds it. `file` says where a node is stated.
pub(crate) fn nodes(
    online: &CpuSet,
    stated: Vec<(u32, CpuSet)>,
    file: impl Fn(u32) -> String,
    findings: &mut Findings,
) -> (Vec<Node>, Vec<Option<u32>>) {
    let mut node_of: Vec<Option<u32>> = vec![None; online.capacity()];
    let mut nodes: Vec<Node> = Vec::new();
    for (id, cpus) in stated {
        let mut cpus = cpus.resized(online.capacity());
        cpus.intersect_with(online);
        for cpu in cpus.clone().iter() {
            if let Some(other) = node_of[cpu.index()] {
                cpus.remove(cpu);
                let message = format!("holds cpu{cpu}, which node{other} holds too; node{other} keeps it");
                findings.warn("nodes-overlap", Some(cpu), file(id), message);
            } else {
                node_of[cpu.index()] = Some(id);
            }
        }
        nodes.push(Node { id, cpus, distance: Vec::new() });
    }
    (nodes, node_of)
}

/// The partition by node; CPUs in no node form a set of their own. `all` is where nodes are stated, `cpus` where their
/// CPUs are.
pub(crate) fn by_node(
    online: &CpuSet,
    nodes: &[Node],
    node_of: &[Option<u32>],
    [all, cpus]: [&str; 2],
    findings: &mut Findings,
) -> Partition {
    match nodes.is_empty() {
        true => {
            findings.info("no-nodes", all, "there are no NUMA nodes; all CPUs are taken to be in one".into());
        }
        false => {
            let homeless: Vec<CpuId> = online.iter().filter(|cpu| node_of[cpu.index()].is_none()).collect();
            findings.missing("node-missing", cpus, &homeless, "left in no node");
        }
    }
    Partition::from_ids(online, |cpu| node_of[cpu.index()].map_or(0, |id| u64::from(id) + 1))
}

/// The distance when nothing valid is stated.
pub(crate) fn default_distance(own: bool) -> u32 {
    if own { LOCAL_DISTANCE } else { REMOTE_DISTANCE }
}

/// Whether a stated distance can be one: below 10 is reserved and above 255 cannot be stated (ACPI SLIT); a node is at
/// 10 from itself.
pub(crate) fn is_distance(distance: u32, own: bool) -> bool {
    distance < 256 && if own { distance == LOCAL_DISTANCE } else { distance >= LOCAL_DISTANCE }
}

/// The kernel warns about unequal ways there and back and goes on (`kernel/sched/topology.c:sched_init_numa()`).
pub(crate) fn check_distances(nodes: &[Node], file: impl Fn(u32) -> String, findings: &mut Findings) {
    for (at, a) in nodes.iter().enumerate() {
        for (other, b) in nodes[..at].iter().enumerate() {
            let (there, back) = (b.distance[at], a.distance[other]);
            if there != back {
                let message = format!("node{} to node{} is {there} but back is {back}; both are kept", b.id, a.id);
                findings.warn("distance-asymmetric", None, file(a.id), message);
            }
        }
    }
}

/// Two sets of neighbouring levels must be equal, disjoint or one inside the other.
pub(crate) fn check_nesting(levels: &[(&str, &Partition)], file: impl Fn(CpuId) -> String, findings: &mut Findings) {
    for pair in levels.windows(2) {
        let [(inner_name, inner), (outer_name, outer)] = pair else { continue };
        for set in inner.sets() {
            let mut partial = set.iter().map(|cpu| outer.set_of(cpu)).filter(|wide| !set.is_subset(wide)).peekable();
            let Some(&narrow) = partial.peek() else { continue };
            let wide = partial.find(|wide| !wide.is_subset(set)).unwrap_or(narrow);
            let cpu = set.first();
            let (code, message) = match wide.is_subset(set) {
                false => (
                    "levels-cross",
                    format!("{inner_name} {set} and {outer_name} {wide} overlap without one holding the other"),
                ),
                true if *inner_name == "smt" => {
                    ("narrower-than-core", format!("{outer_name} {wide} is narrower than the core {set}"))
                }
                true => continue,
            };
            findings.warn(code, cpu, file(cpu.unwrap_or(CpuId(0))), message);
        }
    }
}

/// Whether two of the values differ.
pub(crate) fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    let first = values.next();
    values.any(|value| first.as_ref() != Some(&value))
}

/// `1 CPU`, `2 CPUs`.
pub(crate) fn amount(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The start of a text, for messages.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}
