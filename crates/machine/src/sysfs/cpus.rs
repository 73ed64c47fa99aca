//! Which CPUs there are and which of them are online.

use rayon::prelude::*;

use super::cpuinfo::CpuInfo;
use super::masks::PLACES_COMPARED;
use super::{CPU, read_text};
use crate::archive::numbered;
use crate::assemble::{Findings, amount, cut};
use crate::tree::Tree;
use crate::{CpuId, CpuSet, MAX_CPUS, MachineError};

/// A CPU and what its own `online` file says.
type State = (CpuId, Option<bool>);

/// Online and offline CPUs, over one number of ids.
pub(super) fn read(
    tree: &Tree,
    name: &str,
    info: &CpuInfo,
    findings: &mut Findings,
) -> Result<(CpuSet, CpuSet), MachineError> {
    let folders = folders(tree, name)?;
    let known = if folders.is_empty() { in_cpuinfo(name, info)? } else { folders.clone() };
    let listed =
        list(tree, "online").map_err(|message| MachineError::source(format!("{name}: sys/{CPU}/online"), message))?;
    let online = match listed {
        Some(online) => {
            check_states(&states(tree, folders.iter().take(PLACES_COMPARED)), &online, findings);
            online
        }
        None if folders.is_empty() => known.clone(),
        None => online_by_folders(tree, name, info, &states(tree, folders.iter()), findings)?,
    };
    if !online.intersects(&known) {
        let message = format!("none of the CPUs {} has a cpuN folder; at least one must", cut(&online.to_string()));
        return Err(MachineError::source(format!("{name}: sys/{CPU}/online"), message));
    }
    let present = list(tree, "present").unwrap_or_else(|message| {
        findings.warn("present-unreadable", None, format!("{CPU}/present"), format!("{message}; the file is ignored"));
        None
    });
    let mut offline = present.unwrap_or(known);
    offline.subtract(&online);
    for cpu in online.iter().filter(|&cpu| !folders.contains(cpu)) {
        let message = match folders.is_empty() {
            true => "is missing; what proc/cpuinfo says of the CPU is taken",
            false => "is missing although the CPU is online; the CPU is taken to share nothing",
        };
        findings.warn("cpu-folder-missing", Some(cpu), format!("{CPU}/cpu{cpu}"), message);
    }
    let ids = [online.last(), offline.last()].into_iter().flatten().max().map_or(0, |last| last.index() + 1);
    Ok((online.resized(ids), offline.resized(ids)))
}

fn too_many(cpu: u32) -> String {
    format!("names CPU {cpu}; machines of up to {MAX_CPUS} CPUs are supported")
}

/// The CPUs with a folder, over [`MAX_CPUS`] ids.
fn folders(tree: &Tree, name: &str) -> Result<CpuSet, MachineError> {
    let mut folders = CpuSet::new(MAX_CPUS);
    for cpu in tree.list(CPU).iter().filter_map(|entry| numbered(entry, "cpu")) {
        if cpu as usize >= MAX_CPUS {
            return Err(MachineError::source(format!("{name}: sys/{CPU}/cpu{cpu}"), too_many(cpu)));
        }
        folders.insert(CpuId(cpu));
    }
    Ok(folders)
}

/// The CPUs of a tree without any CPU folder.
fn in_cpuinfo(name: &str, info: &CpuInfo) -> Result<CpuSet, MachineError> {
    match info.cpus().keys().next_back() {
        None => Err(MachineError::source(name, "holds no sys/devices/system/cpu/cpuN folder")),
        Some(&last) if last as usize >= MAX_CPUS => {
            Err(MachineError::source(format!("{name}: proc/cpuinfo"), too_many(last)))
        }
        Some(_) => Ok(CpuSet::from_cpus(MAX_CPUS, info.cpus().keys().map(|&cpu| cpu as usize))),
    }
}

/// A list of CPUs beside their folders; `None` when the file is missing.
fn list(tree: &Tree, file: &str) -> Result<Option<CpuSet>, String> {
    let Some(text) = read_text(tree, &format!("{CPU}/{file}")) else { return Ok(None) };
    let set = CpuSet::parse_list(&text).map_err(|error| error.to_string())?;
    match set.last() {
        None if file == "online" => Err("the list is empty; at least one CPU must be online".to_owned()),
        Some(last) if last.index() >= MAX_CPUS => Err(too_many(last.0)),
        _ => Ok(Some(set)),
    }
}

fn states(tree: &Tree, cpus: impl Iterator<Item = CpuId>) -> Vec<State> {
    let cpus: Vec<CpuId> = cpus.collect();
    let state = |&cpu: &CpuId| {
        let text = read_text(tree, &format!("{CPU}/cpu{cpu}/online")).filter(|text| !text.is_empty());
        (cpu, text.map(|text| text != "0"))
    };
    cpus.par_iter().with_min_len(64).map(state).collect()
}

fn check_states(states: &[State], online: &CpuSet, findings: &mut Findings) {
    for &(cpu, state) in states {
        let listed = online.contains(cpu);
        if state.is_some_and(|state| state != listed) {
            let says = if listed { "says offline" } else { "says online" };
            findings.warn(
                "online-conflict",
                Some(cpu),
                format!("{CPU}/cpu{cpu}/online"),
                format!("{says} but cpu/online does not; the list is taken"),
            );
        }
    }
}

/// Without a list: a kernel shows a topology folder and a `/proc/cpuinfo` entry of online CPUs only.
fn online_by_folders(
    tree: &Tree,
    name: &str,
    info: &CpuInfo,
    states: &[State],
    findings: &mut Findings,
) -> Result<CpuSet, MachineError> {
    let has_topology = |&(cpu, _): &State| !tree.list(&format!("{CPU}/cpu{cpu}/topology")).is_empty();
    let has_topology: Vec<bool> = states.par_iter().with_min_len(64).map(has_topology).collect();
    let any_topology = has_topology.contains(&true);
    let mut online = CpuSet::new(MAX_CPUS);
    for (&(cpu, state), has_topology) in states.iter().zip(has_topology) {
        if state != Some(false) && (has_topology || !any_topology || info.cpus().contains_key(&cpu.0)) {
            online.insert(cpu);
        }
    }
    let cpus = amount(online.len(), "CPU");
    let message = format!("is missing; {cpus} with a topology folder or in proc/cpuinfo, and not switched off, taken");
    findings.warn("online-missing", None, format!("{CPU}/online"), message);
    match online.is_empty() {
        true => Err(MachineError::source(name, "no CPU is online: every sys/devices/system/cpu/cpuN/online is 0")),
        false => Ok(online),
    }
}
