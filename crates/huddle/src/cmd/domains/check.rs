//! `huddle domains --check`: the domains that Huddle makes of a machine against those that its kernel shows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use huddle_domains::{Comparison, Difference, Kernel, Observed, build_for, compare, kmsg_text, observe};
use huddle_machine::{Absence, Capture, CpuSet, Topology};
use serde_json::json;

use crate::cmd::domains::load_kernel;
use crate::failure::{Failure, escaped};

/// Where a capture has the kernel log, beside `sys`.
const LOG: &str = "dmesg";
const KMSG: &str = "/dev/kmsg";
/// Longest log read.
const LOG_LIMIT: u64 = 64 << 20;

/// What is checked and how it is told.
pub struct Check<'a> {
    /// A captured system; this machine when absent.
    pub from: Option<&'a str>,
    /// A file with its kernel log.
    pub log: Option<&'a str>,
    /// The kernel record; the one for the system's release when absent.
    pub kernel: Option<&'a str>,
    /// JSON instead of lines.
    pub json: bool,
}

/// Compares and prints; differences, and nothing to compare, are failures.
pub fn run(check: &Check<'_>) -> Result<(), Failure> {
    let capture = check.from.map_or_else(|| Ok(Capture::live()), Capture::open).map_err(Failure::work)?;
    let topology = capture.topology().map_err(Failure::work)?;
    let log = kernel_log(check, &capture)?;
    let log = log.as_ref().map(|(name, text)| (name.as_str(), text.as_str())).map_err(Clone::clone);
    let observed = observe(&capture, log).map_err(Failure::work)?;
    let kernel = kernel(check, &capture, &observed)?;
    let isolated = isolated(&capture, &observed, &topology)?;
    let mut partition = topology.online.clone();
    partition.subtract(&isolated);
    let tree = build_for(&topology, &kernel, &partition);
    let comparison = compare(&tree, &topology.offline, &kernel, &observed);
    let report = Report {
        machine: check.from.map_or("this machine", short_name),
        online: &topology.online,
        isolated: &isolated,
        kernel: &kernel,
        observed: &observed,
        comparison: &comparison,
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    match check.json {
        true => report.write_json(&mut out)?,
        false => report.write_text(&mut out)?,
    }
    out.flush()?;
    report.verdict()
}

/// The log's text and what errors call it, or why there is none.
fn kernel_log(check: &Check<'_>, capture: &Capture) -> Result<Result<(String, String), String>, Failure> {
    if let Some(path) = check.log {
        let text = fs::read(path).map_err(|error| Failure::work(format!("{path}: cannot be read: {error}")))?;
        return Ok(Ok((path.to_owned(), String::from_utf8_lossy(&text).into_owned())));
    }
    if check.from.is_none() {
        let why = |error: io::Error| format!("{KMSG} cannot be read ({error}); run as root or give --log FILE");
        return Ok(read_kmsg().map(|records| (KMSG.to_owned(), kmsg_text(&records))).map_err(why));
    }
    Ok(match capture.read(LOG) {
        Ok(text) => Ok((format!("{}: {LOG}", capture.name()), text)),
        Err(Absence::TooLong) => Err(format!("the file {LOG} of the capture is longer than any kernel log")),
        Err(_) => Err(format!("the capture has no file {LOG} beside sys; give --log FILE")),
    })
}

/// Every record that the kernel still holds.
fn read_kmsg() -> io::Result<String> {
    let mut file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(KMSG)?;
    let mut text = Vec::new();
    // A read gives one record; the kernel refuses buffers that it does not fit in.
    let mut record = vec![0; 1 << 14];
    while (text.len() as u64) < LOG_LIMIT {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&record[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // Overwritten before it was read, or interrupted: the next read goes on.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn kernel(check: &Check<'_>, capture: &Capture, observed: &Observed) -> Result<Kernel, Failure> {
    if let Some(name) = check.kernel {
        return load_kernel(name);
    }
    let unknown = || format!("{}: tells no kernel release (proc/sys/kernel/osrelease); give --kernel", capture.name());
    let release = observed.release.as_deref().ok_or_else(|| Failure::work(unknown()))?;
    let kernel = Kernel::for_release(release)
        .map_err(|error| Failure::work(format!("{}: {error} (--kernel)", capture.name())))?;
    // Distributions keep the build configuration there; without it the kernel counts as built with all levels.
    Ok(match capture.read(&format!("boot/config-{release}")) {
        Ok(config) => kernel.built_with(&config),
        Err(_) => kernel,
    })
}

/// CPUs kept out of every domain: `cpu/isolated`, where it is missing `isolcpus=` of the command line.
fn isolated(capture: &Capture, observed: &Observed, topology: &Topology) -> Result<CpuSet, Failure> {
    const FILE: &str = "sys/devices/system/cpu/isolated";
    let (from, list) = match capture.read(FILE) {
        Ok(text) => (FILE, text),
        Err(_) => ("isolcpus=", observed.parameter("isolcpus").map(isolcpus).unwrap_or_default()),
    };
    let set =
        CpuSet::parse_list(&list).map_err(|error| Failure::work(format!("{}: {from}: {error}", capture.name())))?;
    Ok(set.resized(topology.nr_cpus()))
}

/// The CPUs in `domain,managed_irq,2,8-11`; none when flags are given and `domain` is not among them.
fn isolcpus(value: &str) -> String {
    let is_flag = |part: &&str| part.starts_with(|char: char| char.is_ascii_alphabetic());
    let flags: Vec<&str> = value.split(',').take_while(is_flag).collect();
    if !flags.is_empty() && !flags.contains(&"domain") {
        return String::new();
    }
    value.split(',').skip(flags.len()).collect::<Vec<_>>().join(",")
}

fn short_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// All that is printed.
struct Report<'a> {
    machine: &'a str,
    online: &'a CpuSet,
    isolated: &'a CpuSet,
    kernel: &'a Kernel,
    observed: &'a Observed,
    comparison: &'a Comparison,
}

impl Report<'_> {
    fn sources(&self) -> Vec<String> {
        self.observed.views.iter().map(|view| view.source.to_string()).collect()
    }

    /// Whether any source shows a CPU.
    fn is_empty(&self) -> bool {
        self.observed.views.iter().all(|view| view.cpus.is_empty())
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let isolated = match self.isolated.intersection(self.online) {
            set if set.is_empty() => String::new(),
            set => format!(" ({set} isolated)"),
        };
        let release = self.observed.release.as_deref().unwrap_or("of unknown release");
        let cpus = if self.online.len() == 1 { "CPU" } else { "CPUs" };
        let sources = if self.is_empty() { "nothing".to_owned() } else { self.sources().join(", ") };
        let line = format!(
            "{}, {} {cpus}{isolated}, Linux {release}, record {}, compared with {sources}",
            self.machine,
            self.online.len(),
            self.kernel.name
        );
        writeln!(out, "{}", escaped(&line))?;
        for difference in &self.comparison.differences {
            writeln!(out, "{}", escaped(&difference.to_string()))?;
        }
        for what in &self.comparison.not_compared {
            writeln!(out, "not compared: {}", escaped(what))?;
        }
        for note in &self.comparison.notes {
            writeln!(out, "note: {}", escaped(note))?;
        }
        if self.is_empty() {
            return Ok(());
        }
        writeln!(out, "{}", count(self.comparison.differences.len()))
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let value = json!({
            "schema": 1,
            "machine": self.machine,
            "cpus": self.online.len(),
            "isolated": self.isolated.intersection(self.online).to_string(),
            "release": self.observed.release,
            "kernel": self.kernel.name,
            "sources": self.sources(),
            "differences": self.comparison.differences.iter().map(difference_json).collect::<Vec<_>>(),
            "not_compared": self.comparison.not_compared,
            "notes": self.comparison.notes,
        });
        serde_json::to_writer_pretty(&mut *out, &value)?;
        writeln!(out)
    }

    fn verdict(&self) -> Result<(), Failure> {
        let machine = self.machine;
        match self.comparison.differences.len() {
            _ if self.is_empty() => {
                Err(Failure::work(format!("{machine}: the kernel shows nothing of its domains to compare with")))
            }
            0 => Ok(()),
            differences => Err(Failure::work(format!(
                "{machine}: {} between the kernel and the record {}",
                count(differences),
                self.kernel.name
            ))),
        }
    }
}

fn count(differences: usize) -> String {
    match differences {
        0 => "no difference".to_owned(),
        1 => "1 difference".to_owned(),
        several => format!("{several} differences"),
    }
}

fn difference_json(difference: &Difference) -> serde_json::Value {
    json!({
        "cpus": difference.cpus.to_string(),
        "domain": difference.domain,
        "name": difference.name,
        "field": difference.field,
        "kernel": difference.kernel,
        "huddle": difference.huddle,
        "text": difference.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::isolcpus;

    #[test]
    fn isolcpus_takes_cpus_out_of_domains_unless_only_other_flags_are_given() {
        for (value, cpus) in [
            ("2,8-11", "2,8-11"),
            ("domain,2-3", "2-3"),
            ("nohz,domain,managed_irq,5,7", "5,7"),
            ("nohz,5", ""),
            ("managed_irq,5", ""),
            ("", ""),
        ] {
            assert_eq!(isolcpus(value), cpus, "{value}");
        }
    }
}
