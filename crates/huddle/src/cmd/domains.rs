//! `huddle domains`: the sched domains that a kernel makes of a machine, as its debugfs shows them.

mod check;

use std::collections::BTreeMap;
use std::io::{self, Write};

use huddle_domains::{Domain, DomainId, DomainTree, Flags, Kernel, build};
use huddle_machine::{CpuId, CpuSet, load_topology};
use serde_json::json;

use crate::failure::Failure;

/// Columns of the terminal that lists of groups fill.
const WIDTH: usize = 110;

/// The kernel generation whose domains are shown when none is named.
const DEFAULT_KERNEL: &str = "6.7";

/// Show the sched domains that a kernel makes of a machine, as its debugfs does, or compare them with a real kernel's
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// Folder or archive (.tar, .tar.gz, .tar.bz2, .tar.xz) with a /sys tree, machine file (.toml) or built-in machine,
    /// `:nodes=N` after it for the first N nodes; this machine when absent
    #[arg(conflicts_with = "check")]
    source: Option<String>,
    /// Kernel generation, or the path of a kernel record; 6.7 when absent, with --check the record for the release of
    /// the kernel that is checked
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Show this CPU's domains only
    #[arg(long, value_name = "N", conflicts_with = "check")]
    cpu: Option<u32>,
    /// List every difference between the domains that Huddle makes of this machine and those that its kernel has
    ///
    /// Read are debugfs (before 5.13 /proc/sys/kernel/sched_domain), /proc/schedstat and the kernel log of a boot with
    /// sched_verbose (before 5.13 sched_debug), as far as they are there. All online CPUs that are not isolated count
    /// as one partition; cpusets are not read. Exit status 1 when there are differences or nothing to compare with.
    #[arg(long)]
    check: bool,
    /// Check a captured system instead of this machine: a folder or archive with its /sys, /proc and, in a file
    /// `dmesg` beside them, its kernel log
    #[arg(long, value_name = "DIR|ARCHIVE", requires = "check")]
    from: Option<String>,
    /// Kernel log to check against, as dmesg prints it
    #[arg(long, value_name = "FILE", requires = "check")]
    log: Option<String>,
    /// Print JSON; without --check every CPU by itself
    #[arg(long)]
    json: bool,
}

fn load_kernel(name: &str) -> Result<Kernel, Failure> {
    Kernel::load(name).map_err(|error| match error.is_usage() {
        true => Failure::usage(error),
        false => Failure::work(error),
    })
}

/// Builds the domains and prints them, or checks a kernel.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.check {
        return check::run(&check::Check {
            from: args.from.as_deref(),
            log: args.log.as_deref(),
            kernel: args.kernel.as_deref(),
            json: args.json,
        });
    }
    let kernel = load_kernel(args.kernel.as_deref().unwrap_or(DEFAULT_KERNEL))?;
    let (name, topology) = load_topology(args.source.as_deref()).map_err(|error| match error.is_usage() {
        true => Failure::usage(error),
        false => Failure::work(error),
    })?;
    let shown = match args.cpu.map(CpuId) {
        None => topology.online.clone(),
        Some(cpu) if topology.online.contains(cpu) => CpuSet::from_cpus(topology.nr_cpus(), [cpu.index()]),
        Some(cpu) => {
            return Err(Failure::usage(format!(
                "--cpu {cpu}: {name} has no such CPU online, only {}",
                topology.online
            )));
        }
    };
    let tree = build(&topology, &kernel);
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.json {
        true => write_json(&mut out, &name, &kernel, &tree, &shown)?,
        false => write_text(&mut out, &name, &kernel, &tree, &shown)?,
    }
    out.flush()?;
    Ok(())
}

fn write_text(out: &mut impl Write, name: &str, kernel: &Kernel, tree: &DomainTree, shown: &CpuSet) -> io::Result<()> {
    writeln!(out, "{name}, {} CPUs, kernel {} ({})", tree.online.len(), kernel.name, kernel.title)?;
    let classes = classes(tree, shown);
    let rows: Vec<Vec<Vec<String>>> = classes.iter().map(|(first, _)| rows(kernel, tree, *first)).collect();
    let header = header(kernel);
    let width = |column: usize| {
        let cells = rows.iter().flatten().map(|row| row[column].len());
        cells.chain([header[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    for ((first, cpus), rows) in classes.iter().zip(&rows) {
        writeln!(out, "\ncpu{cpus}")?;
        if rows.is_empty() {
            writeln!(out, "  no domains")?;
            continue;
        }
        write_row(out, &header, &widths)?;
        for (id, row) in tree.chain(*first).zip(rows) {
            write_row(out, row, &widths)?;
            let indent = " ".repeat(widths[0] + 4);
            writeln!(out, "{indent}flags: {}", tree.domain(id).flags.printed(kernel).join(" "))?;
            if kernel.domains.shows_groups_flags {
                let flags = tree.first_group(id).flags;
                let names = if flags == Flags::default() { "none".to_owned() } else { flags.printed(kernel).join(" ") };
                writeln!(out, "{indent}groups_flags: {names}")?;
            }
            write_groups(out, &indent, &group_spans(tree, id))?;
        }
    }
    write_complaints(out, tree)
}

/// CPUs that differ in nothing but where their lists of groups start, with the first CPU of each class.
fn classes(tree: &DomainTree, shown: &CpuSet) -> Vec<(CpuId, CpuSet)> {
    let mut known: BTreeMap<Vec<[u32; 6]>, usize> = BTreeMap::new();
    let mut classes: Vec<(CpuId, CpuSet)> = Vec::new();
    for cpu in shown.iter() {
        let key = |id: DomainId| {
            let domain = tree.domain(id);
            let first_flags = tree.first_group(id).flags;
            [domain.level, domain.span.0, domain.flags.0, domain.min_interval, domain.group_list, first_flags.0]
        };
        let index = *known.entry(tree.chain(cpu).map(key).collect()).or_insert_with(|| {
            classes.push((cpu, CpuSet::new(tree.nr_cpus)));
            classes.len() - 1
        });
        classes[index].1.insert(cpu);
    }
    classes
}

fn header(kernel: &Kernel) -> Vec<String> {
    let mut names = vec!["domain", "name"];
    if kernel.domains.shows_level {
        names.push("level");
    }
    names.extend(["min_interval", "max_interval", "busy_factor", "imbalance_pct", "cache_nice_tries", "span"]);
    names.into_iter().map(str::to_owned).collect()
}

fn rows(kernel: &Kernel, tree: &DomainTree, cpu: CpuId) -> Vec<Vec<String>> {
    let row = |(index, id): (usize, DomainId)| {
        let Domain { name, level, min_interval, max_interval, busy_factor, imbalance_pct, cache_nice_tries, .. } =
            tree.domain(id);
        let mut cells = vec![format!("domain{index}"), (*name).to_owned()];
        if kernel.domains.shows_level {
            cells.push(level.to_string());
        }
        cells.extend([min_interval, max_interval, busy_factor, imbalance_pct, cache_nice_tries].map(u32::to_string));
        cells.push(tree.span(tree.domain(id).span).to_string());
        cells
    };
    tree.chain(cpu).enumerate().map(row).collect()
}

/// Two names left, numbers right, the span left and unpadded.
fn write_row(out: &mut impl Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    for (index, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        match index {
            0 | 1 => write!(out, "  {cell:<width$}")?,
            _ if index + 1 == cells.len() => writeln!(out, "  {cell}")?,
            _ => write!(out, "  {cell:>width$}")?,
        }
    }
    Ok(())
}

fn group_spans(tree: &DomainTree, id: DomainId) -> Vec<String> {
    tree.groups_of(id).map(|group| tree.span(tree.group(group).span).to_string()).collect()
}

fn write_groups(out: &mut impl Write, indent: &str, groups: &[String]) -> io::Result<()> {
    let mut line = format!("{indent}groups:");
    for group in groups {
        if line.len() + group.len() + 3 > WIDTH && !line.ends_with(':') {
            writeln!(out, "{line}")?;
            line = format!("{indent}       ");
        }
        line.push_str(&format!(" {{{group}}}"));
    }
    writeln!(out, "{line}")
}

/// Complaints come once per CPU: equal ones are one line.
fn write_complaints(out: &mut impl Write, tree: &DomainTree) -> io::Result<()> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for complaint in &tree.complaints {
        match counts.iter_mut().find(|(known, _)| known == complaint) {
            Some((_, count)) => *count += 1,
            None => counts.push((complaint, 1)),
        }
    }
    if !counts.is_empty() {
        writeln!(out)?;
    }
    for (complaint, count) in counts {
        let times = if count == 1 { String::new() } else { format!(" ({count} times)") };
        writeln!(out, "complaint: {complaint}{times}")?;
    }
    Ok(())
}

/// One line per CPU, written as it is made: a machine of thousands of CPUs must not be held as one value.
fn write_json(out: &mut impl Write, name: &str, kernel: &Kernel, tree: &DomainTree, shown: &CpuSet) -> io::Result<()> {
    write!(out, "{{\n\"schema\": 1,\n\"machine\": {},\n\"kernel\": {},", json!(name), json!(kernel.name))?;
    write!(out, "\n\"cluster_active\": {},\n\"cpus\": [", tree.cluster_active)?;
    for (index, cpu) in shown.iter().enumerate() {
        let domains: Vec<_> = tree.chain(cpu).map(|id| domain_json(kernel, tree, id)).collect();
        let cached = tree.cached[cpu.index()];
        let value = json!({
            "id": cpu.0,
            "sd_llc_id": cached.sd_llc_id,
            "sd_llc_size": cached.sd_llc_size,
            "sd_share_id": cached.sd_share_id,
            "domains": domains,
        });
        write!(out, "{}\n{value}", if index == 0 { "" } else { "," })?;
    }
    writeln!(out, "\n],\n\"complaints\": {}\n}}", json!(tree.complaints))
}

fn domain_json(kernel: &Kernel, tree: &DomainTree, id: DomainId) -> serde_json::Value {
    let domain = tree.domain(id);
    let mut value = json!({
        "name": domain.name,
        "level": domain.level,
        "span": tree.span(domain.span).to_string(),
        "min_interval": domain.min_interval,
        "max_interval": domain.max_interval,
        "busy_factor": domain.busy_factor,
        "imbalance_pct": domain.imbalance_pct,
        "cache_nice_tries": domain.cache_nice_tries,
        "imb_numa_nr": domain.imb_numa_nr,
        "flags": domain.flags.printed(kernel),
        "groups": group_spans(tree, id),
    });
    if kernel.domains.shows_groups_flags {
        value["groups_flags"] = json!(tree.first_group(id).flags.printed(kernel));
    }
    value
}
