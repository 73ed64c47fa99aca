//! `huddle topo`: a machine's topology as text, as JSON, or as a drawing.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use huddle_machine::{
    Arch, Cache, CacheKind, ClusterSource, CpuId, CpuSet, Finding, IdleState, Node, Partition, Severity, Topology,
    load_topology,
};
use serde_json::{Value, json};

use crate::failure::{Failure, escaped};
use crate::output::Output;
use crate::{draw, lists};

/// Columns of the terminal that the drawing fills, a count of what is left out excepted.
const WIDTH: usize = 100;
/// Lines that one row's CPU lists may take.
const LIST_LINES: usize = 3;

/// Widest table of distances, CPU lists excepted; a wider one is given as the distances that each node has.
const TABLE_WIDTH: usize = 120;
/// Findings of one code that are listed one by one; the rest is counted.
const FINDINGS_PER_CODE: usize = 3;
/// Longest CPU list that is printed whole.
const LIST_WIDTH: usize = 64;

/// The form of the JSON. 2: each set is there once and CPUs name it by its index; 1 repeated it for each of its CPUs.
const SCHEMA: u32 = 2;

/// Show a machine's topology: packages, nodes, caches, clusters, cores, and what is doubtful about it
#[derive(clap::Args)]
pub struct Args {
    /// Folder or archive (.tar, .tar.gz, .tar.bz2, .tar.xz) with a /sys tree, machine file (.toml) or built-in machine,
    /// `:nodes=N` after it for the first N nodes; this machine when absent
    source: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw the machine as SVG into a file in place of the text; - draws to stdout
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Reads the machine and prints or draws it.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.json && args.svg.is_some() {
        return Err(Failure::usage("--json and --svg: each takes the place of the text; give one of the two"));
    }
    let svg = args.svg.as_deref().map(|path| Output::new("--svg", path)).transpose()?;
    let (name, topology) = load_topology(args.source.as_deref()).map_err(|error| match error.is_usage() {
        true => Failure::usage(error),
        false => Failure::work(error),
    })?;
    if let Some(svg) = svg {
        return svg.write(|out| draw::write(out, &escaped(&name), &topology));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.json {
        true => write_json(&mut out, &name, &topology)?,
        false => write_text(&mut out, &name, &topology)?,
    }
    out.flush()?;
    Ok(())
}

fn write_text(out: &mut impl Write, name: &str, topology: &Topology) -> io::Result<()> {
    write_summary(out, name, topology)?;
    writeln!(out)?;
    write_rows(out, &drawing(topology))?;
    write_nodes(out, topology)?;
    write_idle_states(out, topology)?;
    write_findings(out, &topology.findings)
}

fn write_summary(out: &mut impl Write, name: &str, topology: &Topology) -> io::Result<()> {
    let arch = match topology.arch {
        Arch::Arm64 => "arm64",
        Arch::X86_64 => "x86-64",
        Arch::Riscv => "riscv",
        Arch::Other => "other architecture",
    };
    let clusters = match topology.cluster_source {
        ClusterSource::Stated => "clusters as stated",
        ClusterSource::L2 => "clusters from the level-2 caches",
        ClusterSource::Smt => "no clusters known, cores instead",
    };
    let online = topology.online.len();
    write!(out, "{}: {arch}, {online} CPU{} online, ", escaped(name), if online == 1 { "" } else { "s" })?;
    if !topology.offline.is_empty() {
        write!(out, "{} offline ({}), ", topology.offline.len(), topology.offline)?;
    }
    writeln!(out, "{}{clusters}", if topology.hybrid { "hybrid, " } else { "" })
}

/// One line of the drawing.
struct Row {
    indent: usize,
    level: String,
    each: usize,
    caches: String,
    sets: Vec<String>,
}

/// A package, node, LLC, cluster or core and what is in it.
struct Unit {
    level: usize,
    cpus: CpuSet,
    inside: Vec<Unit>,
    /// Equal for units that look alike all the way down.
    shape: usize,
}

/// Level, CPUs, caches and shapes inside, and whether it stands for no node.
type Shape = (usize, usize, String, Vec<usize>, bool);

/// Builds the units and tells their shapes apart.
struct Builder<'a> {
    levels: Vec<(&'static str, &'static str, &'a Partition)>,
    caches: BTreeMap<(Option<CpuId>, usize), Vec<&'a Cache>>,
    /// CPUs in no node although there are nodes.
    homeless: CpuSet,
    shapes: BTreeMap<Shape, usize>,
}

/// The nesting as rows: levels from the outside in, equal levels on one row, units that look alike on one row.
fn drawing(topology: &Topology) -> Vec<Row> {
    let books = [("drawer", "drawers", &topology.drawer), ("book", "books", &topology.book)];
    let mut levels: Vec<_> =
        books.into_iter().filter_map(|(one, many, partition)| Some((one, many, partition.as_ref()?))).collect();
    levels.push(("package", "packages", &topology.package));
    if !topology.nodes.is_empty() {
        levels.push(("node", "nodes", &topology.node));
    }
    levels.extend([
        ("LLC", "LLCs", &topology.llc),
        ("cluster", "clusters", &topology.cluster),
        ("core", "cores", &topology.smt),
    ]);
    // An LLC may span nodes or packages, a package be smaller than a cache: the level with fewer units is outside.
    levels.sort_by_key(|(_, _, partition)| partition.sets().len());
    let mut caches: BTreeMap<_, Vec<&Cache>> = BTreeMap::new();
    for cache in &topology.caches {
        caches.entry((cache.cpus.first(), cache.cpus.len())).or_default().push(cache);
    }
    let mut homeless = topology.online.clone();
    topology.nodes.iter().for_each(|node| homeless.subtract(&node.cpus));
    let mut builder = Builder { levels, caches, homeless, shapes: BTreeMap::new() };
    let units = builder.units(0, &topology.online);
    let mut rows = Vec::new();
    builder.rows(units, 0, &mut rows);
    rows
}

impl Builder<'_> {
    fn units(&mut self, level: usize, within: &CpuSet) -> Vec<Unit> {
        let Some(&(_, _, partition)) = self.levels.get(level) else { return Vec::new() };
        let mut sets: Vec<CpuSet> = Vec::new();
        let mut position = BTreeMap::new();
        for cpu in within.iter() {
            let at = *position.entry(partition.index_of(cpu)).or_insert_with(|| {
                sets.push(CpuSet::new(within.capacity()));
                sets.len() - 1
            });
            sets[at].insert(cpu);
        }
        let units = sets.into_iter().map(|cpus| {
            let inside = self.units(level + 1, &cpus);
            let shapes_inside = inside.iter().map(|unit| unit.shape).collect();
            let next = self.shapes.len();
            let homeless = cpus.intersects(&self.homeless);
            let key = (level, cpus.len(), self.caches_of(&cpus), shapes_inside, homeless);
            let shape = *self.shapes.entry(key).or_insert(next);
            Unit { level, cpus, inside, shape }
        });
        units.collect()
    }

    /// The caches that exactly these CPUs share.
    fn caches_of(&self, cpus: &CpuSet) -> String {
        let candidates = self.caches.get(&(cpus.first(), cpus.len())).map_or(&[][..], Vec::as_slice);
        let shared = candidates.iter().filter(|cache| cache.cpus == *cpus);
        shared.map(|cache| format!("{}{}", cache.name(), size_text(cache.size))).collect::<Vec<_>>().join(", ")
    }

    fn rows(&self, units: Vec<Unit>, indent: usize, rows: &mut Vec<Row>) {
        let mut alike: Vec<Vec<Unit>> = Vec::new();
        let mut position = BTreeMap::new();
        for unit in units {
            let at = *position.entry(unit.shape).or_insert_with(|| {
                alike.push(Vec::new());
                alike.len() - 1
            });
            alike[at].push(unit);
        }
        for mut units in alike {
            let mut names = vec![self.name(&units)];
            // A unit that holds one other and nothing else is the same set of CPUs: one row for both.
            while units.iter().all(|unit| unit.inside.len() == 1) {
                units = units.into_iter().flat_map(|unit| unit.inside).collect();
                names.push(self.name(&units));
            }
            let count = units.len();
            let names = names.join(" = ");
            rows.push(Row {
                indent,
                level: if count == 1 { names } else { format!("{count} {names}") },
                each: units[0].cpus.len(),
                caches: self.caches_of(&units[0].cpus),
                sets: match units[0].cpus.len() {
                    1 if count > 1 => Vec::new(),
                    _ => units.iter().map(|unit| short_list(&unit.cpus)).collect(),
                },
            });
            self.rows(units.into_iter().flat_map(|unit| unit.inside).collect(), indent + 1, rows);
        }
    }

    fn name(&self, units: &[Unit]) -> &'static str {
        let (one, many, _) = self.levels[units[0].level];
        if one == "node" && units[0].cpus.intersects(&self.homeless) {
            return "no node";
        }
        if units.len() == 1 { one } else { many }
    }
}

/// The CPU list; one that is long and follows no pattern ends in `…` and the number of CPUs. The JSON has it whole.
fn short_list(cpus: &CpuSet) -> String {
    let mut list = String::new();
    for part in lists::parts(cpus) {
        if list.chars().count() + part.chars().count() > LIST_WIDTH {
            return format!("{list},…({} CPUs)", cpus.len());
        }
        list = if list.is_empty() { part } else { format!("{list},{part}") };
    }
    list
}

/// ` 512K`, ` 22.5M`; nothing when it is not known.
fn size_text(size: Option<u64>) -> String {
    match size {
        None => String::new(),
        Some(bytes) if bytes >= 1 << 20 => format!(" {}M", bytes as f64 / f64::from(1 << 20)),
        Some(bytes) => format!(" {}K", bytes as f64 / 1024.0),
    }
}

fn write_rows(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let stems = stems(rows);
    let width = |texts: &mut dyn Iterator<Item = String>| texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let trees = || rows.iter().zip(&stems).map(|(row, (stem, _))| format!("{stem}{}", row.level));
    let level = width(&mut trees()).max(5);
    let caches = width(&mut rows.iter().map(|row| row.caches.clone())).max(6);
    writeln!(out, "{:level$}  {:>4}  {:caches$}  cpus", "level", "each", "caches")?;
    for ((row, tree), (_, below)) in rows.iter().zip(trees()).zip(&stems) {
        let left = format!("{tree:level$}  {:>4}  {:caches$}  ", row.each, row.caches);
        let lines = wrap(&row.sets, WIDTH.saturating_sub(left.chars().count()).max(20));
        writeln!(out, "{}", format!("{left}{}", lines.first().map_or("", String::as_str)).trim_end())?;
        for line in lines.iter().skip(1) {
            writeln!(out, "{below:indent$}{line}", indent = left.chars().count())?;
        }
    }
    Ok(())
}

/// What each row's name stands behind, and what stands there in the row's further lines: `├` and `│` where a sibling
/// follows, `└` where none does.
fn stems(rows: &[Row]) -> Vec<(String, String)> {
    // By level, whether a row below belongs to the same parent.
    let mut follows: Vec<bool> = Vec::new();
    let mut stems: Vec<(String, String)> = Vec::with_capacity(rows.len());
    for row in rows.iter().rev() {
        follows.resize(row.indent + 1, false);
        let above: String =
            follows.iter().take(row.indent).skip(1).map(|&more| if more { "│ " } else { "  " }).collect();
        stems.push(match (row.indent, follows[row.indent]) {
            (0, _) => (String::new(), String::new()),
            (_, true) => (format!("{above}├ "), format!("{above}│ ")),
            (_, false) => (format!("{above}└ "), above),
        });
        follows[row.indent] = true;
    }
    stems.reverse();
    stems
}

/// Words in lines of at most `width` columns; what does not fit into [`LIST_LINES`] lines is only counted.
fn wrap(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (done, word) in words.iter().enumerate() {
        let full = lines.len() == LIST_LINES;
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) if full => {
                line.push_str(&format!(" … {} more", words.len() - done));
                break;
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

fn write_nodes(out: &mut impl Write, topology: &Topology) -> io::Result<()> {
    if topology.nodes.is_empty() {
        return Ok(());
    }
    let list = |cpus: &CpuSet| if cpus.is_empty() { "none".to_owned() } else { short_list(cpus) };
    let column =
        topology.nodes.iter().flat_map(|node| &node.distance).chain(topology.nodes.iter().map(|node| &node.id));
    let column = column.map(|number| number.to_string().len()).max().unwrap_or(1);
    writeln!(out, "\nNUMA distances")?;
    if "node".len() + topology.nodes.len() * (column + 2) + "  cpus".len() > TABLE_WIDTH {
        let distances: Vec<String> = topology.nodes.iter().map(|node| distinct(&node.distance)).collect();
        let width = distances.iter().map(String::len).chain(["distances, xN at N nodes".len()]).max().unwrap_or(0);
        writeln!(out, "node  {:width$}  cpus", "distances, xN at N nodes")?;
        for (node, distances) in topology.nodes.iter().zip(distances) {
            writeln!(out, "{:>4}  {distances:width$}  {}", node.id, list(&node.cpus))?;
        }
        return Ok(());
    }
    write!(out, "node")?;
    for node in &topology.nodes {
        write!(out, "  {:>column$}", node.id)?;
    }
    writeln!(out, "  cpus")?;
    for node in &topology.nodes {
        write!(out, "{:>4}", node.id)?;
        for distance in &node.distance {
            write!(out, "  {distance:>column$}")?;
        }
        writeln!(out, "  {}", list(&node.cpus))?;
    }
    Ok(())
}

/// `10 16x3 22x60`: each distance once, with the number of nodes at it where there is more than one.
fn distinct(row: &[u32]) -> String {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    row.iter().for_each(|&distance| *counts.entry(distance).or_default() += 1);
    let words = counts.iter().map(|(distance, &count)| match count {
        1 => distance.to_string(),
        _ => format!("{distance}x{count}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn write_idle_states(out: &mut impl Write, topology: &Topology) -> io::Result<()> {
    if topology.idle_states.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = topology.idle_states.iter().map(|state| escaped(&state.name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(10);
    writeln!(out, "\n{:width$}  {:>8}  {:>13}", "idle state", "exit, us", "residency, us")?;
    for (name, state) in names.iter().zip(&topology.idle_states) {
        writeln!(out, "{name:width$}  {:>8}  {:>13}", state.exit_latency_us, state.residency_us)?;
    }
    Ok(())
}

fn write_findings(out: &mut impl Write, findings: &[Finding]) -> io::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let width = findings.iter().map(|finding| finding.code.len()).max().unwrap_or(0);
    writeln!(out, "\nfindings")?;
    // By code, how many are listed, and of what severity and how many are not.
    let mut codes: BTreeMap<&str, (usize, Severity, usize)> = BTreeMap::new();
    for finding in findings {
        let Finding { code, file, message, .. } = finding;
        let (listed, _, rest) = codes.entry(code).or_insert((0, finding.severity, 0));
        if finding.counted > 0 || *listed == FINDINGS_PER_CODE {
            *rest += finding.counted.max(1);
            continue;
        }
        *listed += 1;
        let (file, message) = (escaped(file), escaped(message));
        let separator = if file.is_empty() { "" } else { ": " };
        writeln!(out, "{:7}  {code:width$}  {file}{separator}{message}", severity(finding.severity))?;
    }
    for (code, (_, of, rest)) in codes.into_iter().filter(|(_, (_, _, rest))| *rest > 0) {
        writeln!(out, "{:7}  {code:width$}  {rest} more of this kind", severity(of))?;
    }
    Ok(())
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
    }
}

/// Writes the JSON with one set, CPU, cache, node, idle state or finding a line. Everything in the topology is there
/// once, so that its length grows with the machine and not with its square.
///
/// A set of CPUs is `{"list": "0-3,8", "cpus": [0, 1, 2, 3, 8]}`; nodes and caches have the same two keys beside their
/// own. `smt`, `cluster`, `llc`, `package`, `book` and `drawer` are arrays of sets by first CPU, the last two `null`
/// where nothing states them. Under the same keys an element of `cpus` has the index of its set, and under `node` the
/// number of its node, `null` when it is in none. A size is in bytes, `null` when it is not known.
fn write_json(out: &mut impl Write, name: &str, topology: &Topology) -> io::Result<()> {
    write!(out, "{{\n\"schema\": {SCHEMA}")?;
    let arch = match topology.arch {
        Arch::Arm64 => "arm64",
        Arch::X86_64 => "x86-64",
        Arch::Riscv => "riscv",
        Arch::Other => "other",
    };
    let cluster_source = match topology.cluster_source {
        ClusterSource::Stated => "stated",
        ClusterSource::L2 => "l2",
        ClusterSource::Smt => "smt",
    };
    for (key, value) in [
        ("machine", json!(name)),
        ("arch", json!(arch)),
        ("hybrid", json!(topology.hybrid)),
        ("cluster_source", json!(cluster_source)),
        ("online", set(&topology.online)),
        ("offline", set(&topology.offline)),
    ] {
        write!(out, ",\n\"{key}\": {value}")?;
    }
    for (key, partition) in levels(topology) {
        match partition {
            Some(partition) => write_list(out, key, partition.sets().iter().map(set))?,
            None => write!(out, ",\n\"{key}\": null")?,
        }
    }
    write_list(
        out,
        "nodes",
        topology.nodes.iter().map(|node| {
            let Node { id, cpus, distance } = node;
            with(set(cpus), [("id", json!(id)), ("distances", json!(distance))])
        }),
    )?;
    write_list(out, "cpus", cpus(topology))?;
    write_list(
        out,
        "caches",
        topology.caches.iter().map(|cache| {
            let kind = match cache.kind {
                CacheKind::Data => "data",
                CacheKind::Instruction => "instruction",
                CacheKind::Unified => "unified",
            };
            with(set(&cache.cpus), [("level", json!(cache.level)), ("kind", json!(kind)), ("size", json!(cache.size))])
        }),
    )?;
    write_list(
        out,
        "idle_states",
        topology.idle_states.iter().map(|state| {
            let IdleState { name, exit_latency_us, residency_us } = state;
            json!({ "name": name, "exit_latency_us": exit_latency_us, "residency_us": residency_us })
        }),
    )?;
    write_list(
        out,
        "findings",
        topology.findings.iter().map(|finding| {
            json!({
                "code": finding.code,
                "severity": severity(finding.severity),
                "cpu": finding.cpu.map(|cpu| cpu.0),
                "file": finding.file,
                "message": finding.message,
                "counted": finding.counted,
            })
        }),
    )?;
    writeln!(out, "\n}}")
}

/// The levels that are partitions of the online CPUs, by their JSON name; books and drawers where there are any.
fn levels(topology: &Topology) -> [(&'static str, Option<&Partition>); 6] {
    [
        ("smt", Some(&topology.smt)),
        ("cluster", Some(&topology.cluster)),
        ("llc", Some(&topology.llc)),
        ("package", Some(&topology.package)),
        ("book", topology.book.as_ref()),
        ("drawer", topology.drawer.as_ref()),
    ]
}

/// The online CPUs, each with the index of its set of every level, the number of its node, and its capacity.
fn cpus(topology: &Topology) -> impl Iterator<Item = Value> {
    let mut node_of = vec![None; topology.nr_cpus()];
    for node in &topology.nodes {
        node.cpus.iter().for_each(|cpu| node_of[cpu.index()] = Some(node.id));
    }
    topology.online.iter().map(move |cpu| {
        let index = |partition: &Partition| partition.index_of(cpu);
        let indexes = levels(topology).map(|(key, partition)| (key, json!(partition.map(index))));
        let own = [
            ("id", json!(cpu.0)),
            ("node", json!(node_of[cpu.index()])),
            ("capacity", json!(topology.capacity[cpu.index()])),
        ];
        own.into_iter().chain(indexes).collect()
    })
}

/// A set as its list, `0-3,8`, and its CPUs one by one.
fn set(cpus: &CpuSet) -> Value {
    let ids: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
    json!({ "list": cpus.to_string(), "cpus": ids })
}

fn with<const N: usize>(mut object: Value, more: [(&str, Value); N]) -> Value {
    for (key, value) in more {
        object[key] = value;
    }
    object
}

/// An array of the document, one element a line.
fn write_list(out: &mut impl Write, key: &str, elements: impl Iterator<Item = Value>) -> io::Result<()> {
    write!(out, ",\n\"{key}\": [")?;
    for (index, element) in elements.enumerate() {
        write!(out, "{}\n{element}", if index == 0 { "" } else { "," })?;
    }
    write!(out, "\n]")
}
