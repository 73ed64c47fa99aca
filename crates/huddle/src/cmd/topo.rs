//! `huddle topo`: a machine's topology as an engineer draws it, or as JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use huddle_machine::{
    Arch, Cache, CacheKind, ClusterSource, CpuId, CpuSet, Finding, Partition, Severity, Topology, load_topology,
};

use crate::failure::{Failure, escaped};

/// Columns of the terminal that the drawing fills, a count of what is left out excepted.
const WIDTH: usize = 100;
/// Lines that one row's CPU lists may take.
const LIST_LINES: usize = 3;

/// Widest table of distances, CPU lists excepted; a wider one is given as the distances that each node has.
const TABLE_WIDTH: usize = 120;
/// Findings of one code that are listed one by one; the rest is counted.
const FINDINGS_PER_CODE: usize = 3;

/// Show a machine's topology: packages, nodes, caches, clusters, cores, and what is doubtful about it
#[derive(clap::Args)]
pub struct Args {
    /// Folder or archive (.tar, .tar.gz, .tar.bz2, .tar.xz) with a /sys tree, machine file (.toml) or built-in machine,
    /// `:nodes=N` after it for the first N nodes; this machine when absent
    source: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reads the machine and prints it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (name, topology) = load_topology(args.source.as_deref()).map_err(|error| match error.is_usage() {
        true => Failure::usage(error),
        false => Failure::work(error),
    })?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.json {
        true => write_json(&mut out, &topology)?,
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
    let mut levels = vec![("package", "packages", &topology.package)];
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
        shared.map(|cache| format!("{}{}", cache_name(cache), size_text(cache.size))).collect::<Vec<_>>().join(", ")
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

/// The kernel's list format, with `0,2,…,86` for many CPUs at one step.
fn short_list(cpus: &CpuSet) -> String {
    let ids: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
    match ids.as_slice() {
        [first, second, .., last] if ids.len() > 5 && second - first > 1 => {
            let step = second - first;
            match ids.windows(2).all(|pair| pair[1] - pair[0] == step) {
                true => format!("{first},{second},…,{last}"),
                false => cpus.to_string(),
            }
        }
        _ => cpus.to_string(),
    }
}

fn cache_name(cache: &Cache) -> String {
    let kind = match cache.kind {
        CacheKind::Data => "d",
        CacheKind::Instruction => "i",
        CacheKind::Unified => "",
    };
    format!("L{}{kind}", cache.level)
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

/// Writes the JSON CPU by CPU: on a machine of thousands of CPUs the sets are far larger than the topology.
fn write_json(out: &mut impl Write, topology: &Topology) -> io::Result<()> {
    let [smt, cluster, llc, package] =
        [&topology.smt, &topology.cluster, &topology.llc, &topology.package].map(|partition| {
            let lists: Vec<String> = partition.sets().iter().map(id_list).collect();
            move |cpu: CpuId| lists[partition.index_of(cpu) as usize].clone()
        });
    let mut node_of = BTreeMap::new();
    for node in &topology.nodes {
        node_of.extend(node.cpus.iter().map(|cpu| (cpu, node.id)));
    }
    write!(out, "{{\n\"schema\": 1,\n\"cpus\": [")?;
    for (index, cpu) in topology.online.iter().enumerate() {
        let node = node_of.get(&cpu).map_or("null".to_owned(), u32::to_string);
        write!(
            out,
            "{}\n{{\"id\": {cpu}, \"smt\": {}, \"cluster\": {}, \"llc\": {}, \"package\": {}, \"node\": {node}}}",
            comma(index),
            smt(cpu),
            cluster(cpu),
            llc(cpu),
            package(cpu),
        )?;
    }
    write!(out, "\n],\n\"offline\": {},\n\"nodes\": [", id_list(&topology.offline))?;
    for (index, node) in topology.nodes.iter().enumerate() {
        let distances: Vec<String> = node.distance.iter().map(u32::to_string).collect();
        write!(
            out,
            "{}\n{{\"id\": {}, \"cpus\": {}, \"distances\": [{}]}}",
            comma(index),
            node.id,
            id_list(&node.cpus),
            distances.join(", "),
        )?;
    }
    write!(out, "\n],\n\"findings\": [")?;
    for (index, finding) in topology.findings.iter().enumerate() {
        let object = serde_json::json!({
            "code": finding.code,
            "severity": severity(finding.severity),
            "cpu": finding.cpu.map(|cpu| cpu.0),
            "file": finding.file,
            "message": finding.message,
        });
        write!(out, "{}\n{object}", comma(index))?;
    }
    writeln!(out, "\n]\n}}")
}

fn comma(index: usize) -> &'static str {
    if index == 0 { "" } else { "," }
}

fn id_list(cpus: &CpuSet) -> String {
    let ids: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
    format!("[{}]", ids.join(", "))
}
