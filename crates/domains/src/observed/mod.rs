//! The sched domains that a running or captured kernel shows of itself.
//!
//! ```text
//! files      one file per figure: debugfs, before 5.13 /proc/sys/kernel/sched_domain
//! schedstat  /proc/schedstat: spans
//! log        the kernel log of a boot with sched_verbose: spans and groups
//! gather     what of these a system has, and why it lacks the rest
//! ```

mod files;
mod gather;
mod log;
mod schedstat;

use std::collections::BTreeMap;
use std::fmt;

use huddle_machine::{CpuSet, MAX_CPUS, ParseCpuSetError};

pub use gather::observe;
pub use log::kmsg_text;

/// Where a kernel shows its domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViewSource {
    /// `/sys/kernel/debug/sched/domains` (5.13 on).
    Debugfs,
    /// `/proc/sys/kernel/sched_domain` (before).
    Sysctl,
    /// `/proc/schedstat`.
    Schedstat,
    /// The kernel log.
    Log,
}

impl fmt::Display for ViewSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViewSource::Debugfs => "debugfs",
            ViewSource::Sysctl => "sysctl",
            ViewSource::Schedstat => "schedstat",
            ViewSource::Log => "log",
        })
    }
}

/// A group as the log lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedGroup {
    /// The CPU that its `sched_group_capacity` is named after: the first that may balance for it.
    pub id: u32,
    /// Its CPUs.
    pub span: CpuSet,
    /// CPUs that may balance for it, where the log prints them: when they are not the span.
    pub balance_mask: Option<CpuSet>,
}

/// One domain of one CPU; a field that the view does not show is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedDomain {
    /// `MC`.
    pub name: Option<String>,
    /// Index in the kernel's level table.
    pub level: Option<u64>,
    /// Its CPUs.
    pub span: Option<CpuSet>,
    /// Names with `SD_`, in the kernel's order.
    pub flags: Option<Vec<String>>,
    /// The same of its first group.
    pub groups_flags: Option<Vec<String>>,
    /// ms.
    pub min_interval: Option<u64>,
    /// ms.
    pub max_interval: Option<u64>,
    /// Factor on the interval of a busy CPU.
    pub busy_factor: Option<u64>,
    /// Percent.
    pub imbalance_pct: Option<u64>,
    /// Failed attempts.
    pub cache_nice_tries: Option<u64>,
    /// Its groups in the order of the circular list.
    pub groups: Option<Vec<ObservedGroup>>,
}

/// What one source shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which source.
    pub source: ViewSource,
    /// By CPU number, narrowest first; empty without domains. A CPU that the source does not name is left out.
    pub cpus: BTreeMap<u32, Vec<ObservedDomain>>,
}

/// What a kernel shows of its domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// `6.18.15-amd64`, when the system tells.
    pub release: Option<String>,
    /// `/proc/cmdline`, when the system tells.
    pub command_line: Option<String>,
    /// What each source shows, the sources with anything in them only.
    pub views: Vec<View>,
    /// Spans of the root domains, from the log.
    pub root_domains: Vec<CpuSet>,
    /// `arch topology borken: …`, each text once; `None` without a log of the domains' making.
    pub complaints: Option<Vec<String>>,
    /// Errors that the kernel found in its own domains (`sched_domain_debug_one`), each text once.
    pub kernel_errors: Vec<String>,
    /// What a view that is not there would have shown, and why it is not there.
    pub absent: Vec<String>,
}

/// A file of a capture, or a log, that is not what a kernel writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct ObservedError {
    /// The file.
    pub file: String,
    /// What is wrong, with the line where there are several.
    pub message: String,
}

/// A CPU number, kept to what any machine has: it guards memory against garbage input.
fn cpu_number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(cpu) if (cpu as usize) < MAX_CPUS => Ok(cpu),
        Ok(_) => Err(beyond(text)),
        Err(_) => Err(format!("`{text}` is not a CPU number")),
    }
}

/// A list or mask that has been read, kept to the same.
fn cpu_set(parsed: Result<CpuSet, ParseCpuSetError>) -> Result<CpuSet, String> {
    let set = parsed.map_err(|error| error.to_string())?;
    match set.last() {
        Some(last) if last.index() >= MAX_CPUS => Err(beyond(&last.to_string())),
        _ => Ok(set),
    }
}

fn beyond(cpu: &str) -> String {
    format!("CPU {cpu} is named; machines of up to {MAX_CPUS} CPUs are supported")
}

impl Observed {
    /// The value of a boot parameter `name=value`, the last one when there are several.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let words = self.command_line.as_deref()?.split_whitespace();
        words.rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}
