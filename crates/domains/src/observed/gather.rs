//! Collects what a system shows of its domains, and why it does not show the rest.

use std::collections::BTreeMap;

use huddle_machine::{Absence, Capture};

use super::files::FILES;
use super::{Observed, ObservedDomain, ObservedError, View, ViewSource, cpu_number, log, schedstat};

const DEBUGFS: &str = "sys/kernel/debug/sched/domains";
const SYSCTL: &str = "proc/sys/kernel/sched_domain";
const SCHEDSTAT: &str = "proc/schedstat";

/// What a system shows of its domains. `log` is the text of its kernel log with the name that errors call it, or the
/// reason why there is none.
///
/// # Errors
/// A file, or a line of the log, that a kernel would not write.
pub fn observe(capture: &Capture, log: Result<(&str, &str), String>) -> Result<Observed, ObservedError> {
    let mut observed = Observed { release: release(capture), ..Observed::default() };
    observed.command_line = capture.read("proc/cmdline").ok();
    add_folders(capture, &mut observed)?;
    add_schedstat(capture, &mut observed)?;
    add_log(log, &mut observed)?;
    // Where no CPU has domains there is nothing that the other sources could show.
    let mut chains = observed.views.iter().flat_map(|view| view.cpus.values());
    if !observed.views.is_empty() && chains.all(Vec::is_empty) {
        observed.absent.clear();
    }
    Ok(observed)
}

/// From `/proc/sys/kernel/osrelease`, else the third word of `/proc/version`.
fn release(capture: &Capture) -> Option<String> {
    let short = capture.read("proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned());
    let version = || Some(capture.read("proc/version").ok()?.split_whitespace().nth(2)?.to_owned());
    short.filter(|text| !text.is_empty()).or_else(version)
}

fn add_folders(capture: &Capture, observed: &mut Observed) -> Result<(), ObservedError> {
    for (folder, source) in [(DEBUGFS, ViewSource::Debugfs), (SYSCTL, ViewSource::Sysctl)] {
        let cpus = folders(capture, folder)?;
        if !cpus.is_empty() {
            observed.views.push(View { source, cpus });
            return Ok(());
        }
    }
    observed.absent.push(format!("names, levels, flags and numbers: {}", no_debugfs(capture)));
    Ok(())
}

fn folders(capture: &Capture, top: &str) -> Result<BTreeMap<u32, Vec<ObservedDomain>>, ObservedError> {
    let mut cpus = BTreeMap::new();
    for cpu in numbered(capture, top, "cpu") {
        let mut domains = Vec::new();
        for domain in numbered(capture, &format!("{top}/cpu{cpu}"), "domain") {
            let folder = format!("{top}/cpu{cpu}/domain{domain}");
            let mut read = ObservedDomain::default();
            for file in FILES {
                let path = format!("{folder}/{file}");
                if let Ok(text) = capture.read(&path) {
                    read.set(file, &text).map_err(|message| wrong(capture, &path, message))?;
                }
            }
            domains.push(read);
        }
        cpus.insert(cpu, domains);
    }
    Ok(cpus)
}

/// The numbers of the folders `{prefix}N`, ascending; no machine has more levels than CPUs.
fn numbered(capture: &Capture, folder: &str, prefix: &str) -> Vec<u32> {
    let names = capture.list(folder).unwrap_or_default();
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| cpu_number(name.strip_prefix(prefix)?).ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// Why there is no folder with domains, and what to do.
fn no_debugfs(capture: &Capture) -> String {
    let denied = |path: &str| capture.list(path) == Err(Absence::Denied);
    if denied("sys/kernel/debug") || denied(DEBUGFS) {
        return "debugfs may not be read; run as root".to_owned();
    }
    match capture.read("sys/kernel/debug/sched/verbose") {
        Ok(verbose) if verbose.trim() == "N" => {
            format!("{DEBUGFS} is made when asked for; write Y into sys/kernel/debug/sched/verbose")
        }
        _ if capture.list("sys/kernel/debug").is_ok_and(|names| !names.is_empty()) => {
            format!("there is no {DEBUGFS}; the kernel needs CONFIG_SCHED_DEBUG, and sched_verbose at boot")
        }
        _ => format!("there is no {DEBUGFS}; mount debugfs (mount -t debugfs none /sys/kernel/debug)"),
    }
}

fn add_schedstat(capture: &Capture, observed: &mut Observed) -> Result<(), ObservedError> {
    match capture.read(SCHEDSTAT) {
        Ok(text) => {
            let cpus = schedstat::parse(&text).map_err(|message| wrong(capture, SCHEDSTAT, message))?;
            observed.views.push(View { source: ViewSource::Schedstat, cpus });
        }
        Err(Absence::Missing) => {
            observed.absent.push(format!("spans: there is no {SCHEDSTAT}; the kernel needs CONFIG_SCHEDSTATS"));
        }
        Err(Absence::Denied) => observed.absent.push(format!("spans: {SCHEDSTAT} may not be read; run as root")),
        Err(Absence::TooLong) => observed.absent.push(format!("spans: {SCHEDSTAT} is longer than any kernel's")),
    }
    Ok(())
}

fn add_log(text: Result<(&str, &str), String>, observed: &mut Observed) -> Result<(), ObservedError> {
    let reason = match text {
        Ok((file, text)) => {
            let log = log::parse(text).map_err(|message| ObservedError { file: file.to_owned(), message })?;
            observed.kernel_errors = log.errors;
            if !log.cpus.is_empty() {
                observed.views.push(View { source: ViewSource::Log, cpus: log.cpus });
                observed.root_domains = log.root_domains;
                observed.complaints = Some(log.complaints);
                return Ok(());
            }
            // What the kernel complains of it says without being asked to be verbose.
            observed.complaints = Some(log.complaints).filter(|complaints| !complaints.is_empty());
            format!("{file} tells of no domains; boot with sched_verbose (before 5.13: sched_debug)")
        }
        Err(reason) => reason,
    };
    observed.absent.push(format!("groups: {reason}"));
    Ok(())
}

fn wrong(capture: &Capture, path: &str, message: String) -> ObservedError {
    ObservedError { file: format!("{}: {path}", capture.name()), message }
}
