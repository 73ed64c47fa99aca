//! What the targets of kernel, policy and experiment records run on each input, and that of the domains.

use huddle_domains::{Kernel, build, kernel_names};
use huddle_lab::Experiment;
use huddle_machine::{Arch, Layout, Topology};
use huddle_policy::Policy;

/// The name that errors call the input.
const FILE: &str = "input.toml";

/// A kernel record; one that is read builds the domains of a small machine.
pub fn kernel_toml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Kernel::parse(FILE, text) {
        Ok(kernel) => machines().for_each(|machine| drop(build(&machine, &kernel))),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A policy record; one that is read is compiled for a small machine.
pub fn policy_toml(data: &[u8]) {
    let Some(text) = std::str::from_utf8(data).ok().filter(|text| names_no_file(text)) else { return };
    match Policy::parse(FILE, text) {
        Ok(policy) => {
            let Ok(kernel) = Kernel::load(&policy.kernel) else { return };
            for machine in machines() {
                drop(policy.compile(&build(&machine, &kernel), &machine));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An experiment; nothing is run.
pub fn experiment_toml(data: &[u8]) {
    let Some(text) = std::str::from_utf8(data).ok().filter(|text| names_no_file(text)) else { return };
    if let Err(error) = Experiment::parse(FILE, text) {
        assert!(!error.to_string().is_empty());
    }
}

/// The domains of whatever machine hwloc's XML describes, under every kernel. Large ones take long and show no more.
pub fn domains(data: &[u8]) {
    let Ok(topology) = Topology::parse_hwloc(FILE, data) else { return };
    if topology.nr_cpus() <= 256 && topology.nodes.len() <= 32 {
        KERNELS.with(|kernels| kernels.iter().for_each(|kernel| drop(build(&topology, kernel))));
    }
}

thread_local! {
    static KERNELS: Vec<Kernel> =
        kernel_names().iter().filter_map(|name| Kernel::load(name).ok()).collect();
}

/// Machines, kernels and policies are named or given by path; a fuzzer is to read no files.
fn names_no_file(text: &str) -> bool {
    let Ok(table) = text.parse::<toml::Table>() else { return true };
    let list = table.get("policies").and_then(toml::Value::as_array).into_iter().flatten();
    let mut names = list.chain(table.get("machine")).chain(table.get("kernel")).filter_map(toml::Value::as_str);
    names.all(|name| !name.contains('/') && !name.ends_with(".toml"))
}

/// One with clusters and two nodes, one with threads.
fn machines() -> impl Iterator<Item = Topology> {
    let layouts = [(Arch::Arm64, [2, 1, 1, 2, 4, 1]), (Arch::X86_64, [1, 2, 2, 1, 2, 2])];
    layouts.into_iter().filter_map(|(arch, counts)| Topology::from_layout(arch, &Layout::new(counts)))
}
