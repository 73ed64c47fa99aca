//! Machine files: layout, caches, distances, idle states, the kernel's build and the cost figures, all checked.
//!
//! The layout is a chain of counts, from `packages` and `nodes_per_package` down to `threads_per_core`. A level that the
//! machine does not have is left out, and the next one is counted per the level above it: `cores_per_llc` without
//! clusters, `clusters_per_node` without a cache that cores share. Where cores are of several kinds the chain ends at
//! the last level that they have in common, and each `[[topology.part]]` goes on from there:
//!
//! ```toml
//! [topology]
//! packages = 1
//! nodes_per_package = 1
//! llcs_per_node = 1
//!
//! [[topology.part]]
//! kind = "P"
//! cores_per_llc = 4
//! threads_per_core = 2
//!
//! [[topology.part]]
//! kind = "E"
//! clusters_per_llc = 2
//! cores_per_cluster = 4
//! threads_per_core = 1
//! capacity = 580
//! ```
//!
//! All keys are in `docs/machines.md`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::assemble::MAX_NODES;
use crate::costs::{COST_KEYS, CostKeyInfo, Shape};
use crate::error::one_line;
use crate::sysfs::parse_size;
use crate::{
    Arch, CacheKind, Confidence, CostError, Costs, CpuSet, Distance, Figure, IdleState, KernelConfig, Layout, Level,
    MAX_CPUS, MachineError, Topology, Value,
};

/// A machine file as it was parsed, with the name that errors call it.
pub(crate) struct MachineFile {
    file: String,
    raw: Raw,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    title: String,
    arch: RawArch,
    topology: RawTopology,
    #[serde(default)]
    caches: BTreeMap<String, RawCache>,
    #[serde(default)]
    idle_states: Vec<RawIdleState>,
    config: RawConfig,
    costs: BTreeMap<String, RawFigure>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum RawArch {
    Arm64,
    #[serde(rename = "x86-64")]
    X86,
    Riscv,
    Other,
}

/// The counts below the node: key, the level counted per, the level counted. They form a chain from the node to the
/// thread; the keys that skip a level say that it is not there.
const STEPS: [(&str, Level, Level); 7] = [
    ("llcs_per_node", Level::Node, Level::Llc),
    ("clusters_per_node", Level::Node, Level::Cluster),
    ("cores_per_node", Level::Node, Level::Core),
    ("clusters_per_llc", Level::Llc, Level::Cluster),
    ("cores_per_llc", Level::Llc, Level::Core),
    ("cores_per_cluster", Level::Cluster, Level::Core),
    ("threads_per_core", Level::Core, Level::Thread),
];

/// A table with counts, in the order of [`STEPS`].
macro_rules! counts {
    ($table:ident) => {
        impl $table {
            fn counts(&self) -> [Option<usize>; STEPS.len()] {
                [
                    self.llcs_per_node,
                    self.clusters_per_node,
                    self.cores_per_node,
                    self.clusters_per_llc,
                    self.cores_per_llc,
                    self.cores_per_cluster,
                    self.threads_per_core,
                ]
            }
        }
    };
}

counts!(RawTopology);
counts!(RawPart);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTopology {
    packages: usize,
    nodes_per_package: usize,
    llcs_per_node: Option<usize>,
    clusters_per_node: Option<usize>,
    cores_per_node: Option<usize>,
    clusters_per_llc: Option<usize>,
    cores_per_llc: Option<usize>,
    cores_per_cluster: Option<usize>,
    threads_per_core: Option<usize>,
    /// Slowest first; a level of which there is one may be left out.
    numbering: Option<Vec<Level>>,
    /// Row by row; needed when there is more than one node.
    distances: Option<Vec<Vec<u32>>>,
    /// The kernel's own when absent.
    node_reclaim_distance: Option<u32>,
    /// Kinds of cores below the last level counted above.
    #[serde(default)]
    part: Vec<RawPart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPart {
    kind: String,
    llcs_per_node: Option<usize>,
    clusters_per_node: Option<usize>,
    cores_per_node: Option<usize>,
    clusters_per_llc: Option<usize>,
    cores_per_llc: Option<usize>,
    cores_per_cluster: Option<usize>,
    threads_per_core: Option<usize>,
    #[serde(default = "full_capacity")]
    capacity: u32,
    #[serde(default)]
    caches: BTreeMap<String, RawCache>,
}

/// Capacity of the fastest CPUs (`SCHED_CAPACITY_SCALE`).
const FULL_CAPACITY: u32 = 1024;

fn full_capacity() -> u32 {
    FULL_CAPACITY
}

impl RawPart {
    /// What errors call its table.
    fn table(&self) -> String {
        format!("topology.part {}", self.kind)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCache {
    size: String,
    shared_by: Level,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIdleState {
    name: String,
    exit_latency_us: u32,
    residency_us: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    hz: u32,
    preempt: bool,
    source: String,
    confidence: RawConfidence,
}

#[derive(Deserialize, Clone, Copy)]
enum RawConfidence {
    A,
    B,
    C,
    D,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFigure {
    value: Option<f64>,
    smt: Option<f64>,
    cluster: Option<f64>,
    llc: Option<f64>,
    node: Option<f64>,
    package: Option<f64>,
    beyond: Option<f64>,
    source: String,
    confidence: RawConfidence,
}

impl RawFigure {
    /// By [`Distance`]; same-cpu is not stated.
    fn by_distance(&self) -> [Option<f64>; Distance::COUNT] {
        [None, self.smt, self.cluster, self.llc, self.node, self.package, self.beyond]
    }
}

impl From<RawConfidence> for Confidence {
    fn from(raw: RawConfidence) -> Confidence {
        match raw {
            RawConfidence::A => Confidence::A,
            RawConfidence::B => Confidence::B,
            RawConfidence::C => Confidence::C,
            RawConfidence::D => Confidence::D,
        }
    }
}

impl MachineFile {
    /// Parses the text; `file` is what errors call it.
    ///
    /// # Errors
    /// The first key that is unknown, missing or of the wrong type, with its line.
    pub(crate) fn parse(file: &str, text: &str) -> Result<MachineFile, MachineError> {
        let raw: Raw = toml::from_str(text).map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let before = text.get(..at).unwrap_or_default();
            let line = before.matches('\n').count();
            let key = text.lines().nth(line).unwrap_or_default().split('=').next().unwrap_or_default().trim();
            let message = match key.strip_prefix("[[") {
                Some(_) if error.message().starts_with("invalid type") => {
                    "is a list of tables; write it as one table, `[…]`".to_owned()
                }
                _ => plain(error.message()),
            };
            let key = if key.is_empty() { format!("line {}", line + 1) } else { format!("line {}, {key}", line + 1) };
            MachineError::Key { file: file.to_owned(), key: one_line(&key), message: one_line(&message) }
        })?;
        let parsed = MachineFile { file: file.to_owned(), raw };
        let states = parsed.raw.idle_states.iter().map(|state| ("idle_states.name", &state.name));
        let parts = parsed.raw.topology.part.iter().map(|part| ("topology.part.kind", &part.kind));
        let names = [("name", &parsed.raw.name), ("title", &parsed.raw.title)].into_iter();
        for (key, name) in names.chain(states).chain(parts) {
            if name.trim().is_empty() || name.contains(char::is_control) {
                let message = format!("{name:?} must be one line of text, neither empty nor with control characters");
                return Err(parsed.error(key, message));
            }
        }
        Ok(parsed)
    }

    pub(crate) fn name(&self) -> &str {
        &self.raw.name
    }

    pub(crate) fn title(&self) -> &str {
        &self.raw.title
    }

    fn error(&self, key: impl Into<String>, message: impl Into<String>) -> MachineError {
        MachineError::Key { file: self.file.clone(), key: one_line(&key.into()), message: one_line(&message.into()) }
    }

    /// The topology.
    ///
    /// # Errors
    /// Counts that do not form a chain, a count of 0, too many CPUs, a numbering that misses a level, a capacity out of
    /// range, distances that are not a matrix of the nodes, an unreadable or misplaced cache.
    pub(crate) fn topology(&self) -> Result<Topology, MachineError> {
        let arch = match self.raw.arch {
            RawArch::Arm64 => Arch::Arm64,
            RawArch::X86 => Arch::X86_64,
            RawArch::Riscv => Arch::Riscv,
            RawArch::Other => Arch::Other,
        };
        let (shared, layouts) = self.layouts()?;
        let mut topology = Topology::from_parts(arch, shared, &layouts).ok_or_else(|| {
            let most = format!("{MAX_CPUS} CPUs and {MAX_NODES} nodes at most");
            self.error("topology", format!("every count must be 1 or more, and their products {most}"))
        })?;
        let kinds: BTreeSet<&str> = self.raw.topology.part.iter().map(|part| part.kind.as_str()).collect();
        // X86_FEATURE_HYBRID_CPU; other architectures tell kinds of cores apart by capacity.
        topology.hybrid = arch == Arch::X86_64 && kinds.len() > 1;
        self.set_distances(&mut topology)?;
        self.add_caches(&mut topology, shared, &layouts)?;
        topology.idle_states = self
            .raw
            .idle_states
            .iter()
            .map(|state| IdleState {
                name: state.name.clone(),
                exit_latency_us: state.exit_latency_us,
                residency_us: state.residency_us,
            })
            .collect();
        Ok(topology)
    }

    /// The layout of each part, a machine without parts being one, and the last level that they have in common.
    fn layouts(&self) -> Result<(Level, Vec<Layout>), MachineError> {
        let raw = &self.raw.topology;
        let mut common = Layout::new([raw.packages, raw.nodes_per_package, 1, 1, 1, 1]);
        (common.llc, common.cluster) = (false, false);
        let shared = self.descend("topology", Level::Node, raw.counts(), &mut common)?;
        if raw.part.is_empty() {
            self.check_complete("topology", shared)?;
            return Ok((shared, vec![self.numbered(common)?]));
        }
        if shared == Level::Thread {
            let message = "counts down to the threads, so that nothing is left to the parts; end the counts above the \
                           first level in which the parts differ";
            return Err(self.error("topology", message));
        }
        let mut layouts = Vec::new();
        for part in &raw.part {
            let mut layout = common.clone();
            let reached = self.descend(&part.table(), shared, part.counts(), &mut layout)?;
            self.check_complete(&part.table(), reached)?;
            if !(1..=FULL_CAPACITY).contains(&part.capacity) {
                let message = format!("{} is no capacity; give 1 to {FULL_CAPACITY}", part.capacity);
                return Err(self.error(format!("{}.capacity", part.table()), message));
            }
            layout.capacity = part.capacity;
            layouts.push(self.numbered(layout)?);
        }
        if raw.part.iter().all(|part| part.capacity != FULL_CAPACITY) {
            let message = format!(
                "no part has the full capacity of {FULL_CAPACITY}; capacities are relative to the fastest CPUs"
            );
            return Err(self.error("topology.part.capacity", message));
        }
        Ok((shared, layouts))
    }

    /// Follows a table's counts from the level `outer` inwards and enters them in the layout. Returns the level where
    /// they end.
    fn descend(
        &self,
        table: &str,
        mut outer: Level,
        counts: [Option<usize>; STEPS.len()],
        layout: &mut Layout,
    ) -> Result<Level, MachineError> {
        let mut left: Vec<_> = STEPS
            .iter()
            .zip(counts)
            .filter_map(|(&(key, per, level), count)| Some((key, per, level, count?)))
            .collect();
        while let Some(at) = left.iter().position(|&(_, per, ..)| per == outer) {
            let (key, _, level, count) = left.remove(at);
            if let Some((other, ..)) = left.iter().find(|&&(_, per, ..)| per == outer) {
                return Err(self.error(table, format!("states both {key} and {other}; only one can follow")));
            }
            layout.counts[level as usize] = count;
            layout.llc |= level == Level::Llc;
            layout.cluster |= level == Level::Cluster;
            outer = level;
        }
        match left.first() {
            None => Ok(outer),
            Some((key, ..)) => {
                let message = "no count leads there; each must follow another, as cores_per_cluster follows \
                               clusters_per_llc or clusters_per_node";
                Err(self.error(format!("{table}.{key}"), message))
            }
        }
    }

    fn check_complete(&self, table: &str, reached: Level) -> Result<(), MachineError> {
        match reached {
            Level::Thread => Ok(()),
            _ => Err(self.error(table, format!("a count is missing; give {}", steps_from(reached)))),
        }
    }

    /// The layout with the file's numbering.
    fn numbered(&self, mut layout: Layout) -> Result<Layout, MachineError> {
        let Some(stated) = &self.raw.topology.numbering else { return Ok(layout) };
        // Levels of which there is one do not count; they go first.
        let implied =
            Level::ALL.into_iter().filter(|level| layout.counts[*level as usize] == 1 && !stated.contains(level));
        layout.numbering = implied.chain(stated.iter().copied()).collect::<Vec<_>>().try_into().map_err(|_| {
            let message = "must name every level of which there is more than one, each once: package, node, llc, \
                           cluster, core, thread";
            self.error("topology.numbering", message)
        })?;
        match Level::ALL.iter().all(|level| layout.numbering.contains(level)) {
            true => Ok(layout),
            false => Err(self.error("topology.numbering", "names a level twice; each must be named once")),
        }
    }

    fn set_distances(&self, topology: &mut Topology) -> Result<(), MachineError> {
        let nr_nodes = topology.nodes.len();
        let Some(rows) = &self.raw.topology.distances else {
            if nr_nodes == 1 {
                return Ok(());
            }
            let message = format!("missing; give {nr_nodes} rows of {nr_nodes} NUMA distances");
            return Err(self.error("topology.distances", message));
        };
        let square = rows.len() == nr_nodes && rows.iter().all(|row| row.len() == nr_nodes);
        let valid = |(row, at): (usize, usize)| match rows[row][at] {
            distance if row == at => distance == 10,
            distance => (10..256).contains(&distance),
        };
        if !square || !(0..nr_nodes).flat_map(|row| (0..nr_nodes).map(move |at| (row, at))).all(valid) {
            let message = format!("must be {nr_nodes} rows of {nr_nodes}, 10 on the diagonal and 10 to 255 elsewhere");
            return Err(self.error("topology.distances", message));
        }
        for (node, row) in topology.nodes.iter_mut().zip(rows) {
            node.distance.clone_from(row);
        }
        match self.raw.topology.node_reclaim_distance {
            None => {}
            Some(distance @ 10..256) => topology.node_reclaim_distance = distance,
            Some(_) => return Err(self.error("topology.node_reclaim_distance", "must be 10 to 255")),
        }
        Ok(())
    }

    /// The caches of the whole machine, then those of each part.
    fn add_caches(&self, topology: &mut Topology, shared: Level, layouts: &[Layout]) -> Result<(), MachineError> {
        let all = topology.online.clone();
        for (name, cache) in &self.raw.caches {
            self.add_cache(topology, "caches", (name, cache), &all, layouts)?;
        }
        let mut first = 0;
        for (part, layout) in self.raw.topology.part.iter().zip(layouts) {
            let end = first + layout.counts.iter().product::<usize>();
            let cpus = CpuSet::from_cpus(topology.nr_cpus(), first..end);
            first = end;
            let table = format!("{}.caches", part.table());
            for (name, cache) in &part.caches {
                if self.raw.caches.contains_key(name) {
                    let message = "is stated for the whole machine too; delete one of the two";
                    return Err(self.error(format!("{table}.{name}"), message));
                }
                if cache.shared_by <= shared {
                    let message = "the parts have that level in common; state the cache in `[caches]`";
                    return Err(self.error(format!("{table}.{name}.shared_by"), message));
                }
                self.add_cache(topology, &table, (name, cache), &cpus, std::slice::from_ref(layout))?;
            }
        }
        Ok(())
    }

    fn add_cache(
        &self,
        topology: &mut Topology,
        table: &str,
        (name, cache): (&String, &RawCache),
        cpus: &CpuSet,
        layouts: &[Layout],
    ) -> Result<(), MachineError> {
        let (level, kind) = parse_cache_name(name).ok_or_else(|| {
            self.error(format!("{table}.{name}"), "unknown cache; the names are L1d, L1i, L2, L3, L4")
        })?;
        let size = parse_size(&cache.size).filter(|&size| size > 0).ok_or_else(|| {
            self.error(format!("{table}.{name}.size"), format!("`{}` is not a size like 512K or 24M", cache.size))
        })?;
        let absent = match cache.shared_by {
            Level::Llc => layouts.iter().any(|layout| !layout.llc),
            Level::Cluster => layouts.iter().any(|layout| !layout.cluster),
            _ => false,
        };
        if absent {
            let message = "not all the CPUs are in one of these; name the level that shares the cache, or state it in \
                           the part that has it";
            return Err(self.error(format!("{table}.{name}.shared_by"), message));
        }
        topology.add_caches(cpus, level, kind, size, cache.shared_by);
        Ok(())
    }

    /// The kernel's build.
    ///
    /// # Errors
    /// A tick rate that no kernel has.
    pub(crate) fn config(&self) -> Result<KernelConfig, MachineError> {
        let raw = &self.raw.config;
        if !(1..=10_000).contains(&raw.hz) {
            return Err(
                self.error("config.hz", format!("{} is no tick rate; kernels have 100, 250, 300 or 1000", raw.hz))
            );
        }
        if raw.source.trim().is_empty() {
            return Err(self.error("config.source", "is empty; say where the two come from"));
        }
        Ok(KernelConfig {
            hz: raw.hz,
            preempt: raw.preempt,
            source: raw.source.clone(),
            confidence: raw.confidence.into(),
        })
    }

    /// The cost figures for a topology of this file or a part of it; distances that the part does not have are dropped.
    ///
    /// # Errors
    /// A figure that is unknown, missing, out of range, or that does not state exactly the distances of the whole machine.
    pub(crate) fn costs(&self, part: &Topology) -> Result<Costs, MachineError> {
        if let Some(name) = self.raw.costs.keys().find(|name| COST_KEYS.iter().all(|info| info.name != name.as_str())) {
            let known: Vec<&str> = COST_KEYS.iter().map(|info| info.name).collect();
            return Err(
                self.error(format!("costs.{name}"), format!("unknown figure; the figures are {}", known.join(", ")))
            );
        }
        let whole = self.topology()?.distances();
        for info in COST_KEYS {
            if let Some(figure) = self.raw.costs.get(info.name) {
                self.check_figure(info, figure, &whole)?;
            }
        }
        let has = part.distances();
        let shape_of = |name: &str| COST_KEYS.iter().find(|info| info.name == name).map(|info| info.shape);
        Costs::from_lookup(|name| {
            let figure = self.raw.costs.get(name)?;
            let value = match (shape_of(name)?, figure.value) {
                (Shape::Scalar, Some(value)) => Value::Scalar(value),
                (Shape::Scalar, None) => return None,
                (Shape::ByDistance, _) => {
                    let mut values = figure.by_distance();
                    values.iter_mut().zip(has).filter(|(_, has)| !has).for_each(|(value, _)| *value = None);
                    values[Distance::SameCpu as usize] = Some(0.0);
                    Value::ByDistance(values)
                }
            };
            Some(Figure { value, source: figure.source.clone(), confidence: figure.confidence.into() })
        })
        .map_err(|error: CostError| MachineError::Costs { file: self.file.clone(), error })
    }

    fn check_figure(
        &self,
        info: &CostKeyInfo,
        figure: &RawFigure,
        has: &[bool; Distance::COUNT],
    ) -> Result<(), MachineError> {
        let key = format!("costs.{}", info.name);
        if figure.source.trim().is_empty() {
            return Err(self.error(key, "`source` is empty; say where the figure comes from"));
        }
        let distances = figure.by_distance();
        let names = |which: &dyn Fn(usize) -> bool| {
            let names = Distance::ALL.iter().filter(|&&d| d != Distance::SameCpu && which(d as usize));
            names.map(|d| d.name()).collect::<Vec<_>>().join(", ")
        };
        match info.shape {
            Shape::Scalar if figure.value.is_none() || distances.iter().any(Option::is_some) => {
                return Err(self.error(key, format!("must be one number, `value`, in {}", info.unit)));
            }
            Shape::ByDistance if figure.value.is_some() => {
                let wanted = names(&|d| has[d]);
                return Err(self.error(key, format!("must be one number of {} per distance: {wanted}", info.unit)));
            }
            Shape::ByDistance => {
                let missing = names(&|d| has[d] && distances[d].is_none());
                if !missing.is_empty() {
                    let message =
                        format!("no number of {} for the distance {missing}, which the machine has", info.unit);
                    return Err(self.error(key, message));
                }
                let extra = names(&|d| !has[d] && distances[d].is_some());
                if !extra.is_empty() {
                    return Err(self.error(key, format!("no two CPUs are at the distance {extra}; delete it")));
                }
            }
            Shape::Scalar => {}
        }
        let stated = Distance::ALL.iter().map(|d| d.name()).zip(distances).chain([("value", figure.value)]);
        for (name, value) in stated.filter_map(|(name, value)| Some((name, value?))) {
            let (fits, wanted) = match info.unit {
                "fraction" => ((0.0..=1.0).contains(&value), "a number from 0 to 1".to_owned()),
                "0 or 1" => (value == 0.0 || value == 1.0, "0 or 1".to_owned()),
                unit => {
                    let most = info.most();
                    ((0.0..=most).contains(&value), format!("a number of {unit}, zero or more, {most} at most"))
                }
            };
            if !fits {
                return Err(self.error(format!("{key}.{name}"), format!("{value:?} is not {wanted}")));
            }
        }
        Ok(())
    }
}

/// The TOML reader's message on one line, with the words of the file instead of Rust's types.
fn plain(message: &str) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if message == "wanted string or table" {
        return "must be a text in quotes".to_owned();
    }
    let typed = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    // A text that is quoted in the message may hold the separator itself.
    let Some((found, wanted)) = typed.and_then(|rest| rest.rsplit_once(", expected ")) else { return message };
    let wanted = match wanted {
        "usize" | "u64" => "a whole number, 0 or more",
        "u32" => "a whole number, 0 or more and less than 4294967296",
        "f64" => "a number",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        _ => "a table",
    };
    let found = match found.split_once(' ') {
        None if found == "map" => "a table",
        None if found == "sequence" => "a list",
        Some(("string", text)) => text,
        Some(_) => found.split('`').nth(1).unwrap_or(found),
        None => found,
    };
    format!("must be {wanted}, not {found}")
}

/// The counts that can follow a level, `cores_per_cluster` or `clusters_per_llc or cores_per_llc`.
fn steps_from(level: Level) -> String {
    let keys: Vec<&str> = STEPS.iter().filter(|&&(_, per, _)| per == level).map(|&(key, ..)| key).collect();
    keys.join(" or ")
}

/// `L1d` is level 1, data.
fn parse_cache_name(name: &str) -> Option<(u32, CacheKind)> {
    match name {
        "L1d" => Some((1, CacheKind::Data)),
        "L1i" => Some((1, CacheKind::Instruction)),
        "L2" => Some((2, CacheKind::Unified)),
        "L3" => Some((3, CacheKind::Unified)),
        "L4" => Some((4, CacheKind::Unified)),
        _ => None,
    }
}
