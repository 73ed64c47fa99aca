//! Wake-ups of real kernels, recorded in guests for `huddle agree`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tempfile::NamedTempFile;

use crate::guest::{Guest, Kept, Streams};
use crate::guests;
use crate::matrix::write_whole;
use crate::packages::checked;
use crate::shape::Shape;

/// A load to record.
struct Case {
    name: &'static str,
    /// How long it is recorded, s.
    window: &'static str,
    /// After how long, s; 0: from its start on.
    before: &'static str,
    /// Arguments of `guest-load`.
    load: &'static str,
}

/// Few wake-ups on a machine nearly idle, hackbench below, at and beyond the number of CPUs beside hogs, and hogs alone.
const CASES: [Case; 8] = [
    Case { name: "pairs", window: "4", before: "2", load: "--pairs 6 --hogs 4 --work 200 --seconds 7" },
    Case { name: "crowd", window: "6", before: "2", load: "--pairs 14 --hogs 8 --work 300 --seconds 9" },
    Case { name: "mixed", window: "4", before: "2", load: "--pairs 10 --hogs 10 --work 50 --seconds 7" },
    Case { name: "hackbench", window: "1", before: "2", load: "--groups 1 --fds 6 --hogs 4 --seconds 3" },
    Case { name: "half", window: "1", before: "2", load: "--groups 1 --fds 8 --hogs 10 --seconds 3" },
    Case { name: "full", window: "0.7", before: "2", load: "--groups 2 --fds 8 --hogs 6 --seconds 3" },
    Case { name: "hogs6", window: "4", before: "0", load: "--hogs 6 --seconds 4" },
    Case { name: "hogs12", window: "4", before: "0", load: "--hogs 12 --seconds 4" },
];

/// A kernel to record, and the policies that its wake-ups are held against: its own first, then wrong ones.
struct Recorded {
    series: &'static str,
    policies: [&'static str; 3],
}

const RECORDED: [Recorded; 4] = [
    Recorded { series: "5.10", policies: ["linux-5.10", "linux-6.1", "linux-7.2"] },
    Recorded { series: "6.1", policies: ["linux-6.1", "linux-5.10", "linux-7.2"] },
    Recorded { series: "6.12", policies: ["linux-6.12", "linux-5.10", "linux-6.1"] },
    Recorded { series: "7.2.6", policies: ["linux-7.2", "linux-5.10", "linux-6.1"] },
];

/// The machine of the matrix that they run on.
pub const MACHINE: &str = "clusters";
/// Boot and loads, with a busy host.
const TIMEOUT: u64 = 1200;

/// What to record and compare.
pub struct Task {
    /// Series of kernels: only these; all when empty.
    pub series: Vec<String>,
    /// Where records are kept, and taken from when they are there.
    pub records: Option<PathBuf>,
    /// Where the tables are written; nowhere when `None`.
    pub output: Option<PathBuf>,
}

impl Task {
    /// Records, compares, prints the tables and writes them. The programs are of those names.
    ///
    /// # Errors
    /// A kernel that is none of ours, a guest that did not get to its end, a comparison that failed, a file that cannot be written.
    pub fn run(&self, cache: &Path, guest_load: &Path, huddle: &Path) -> Result<()> {
        let known = || RECORDED.iter().map(|recorded| recorded.series);
        if let Some(series) = self.series.iter().find(|series| !known().any(|known| known == *series)) {
            bail!("--kernel {series} is not recorded; there are {}", known().collect::<Vec<_>>().join(", "));
        }
        let mut text = include_str!("agreement.md").to_owned();
        for Recorded { series, policies } in &RECORDED {
            if !self.series.is_empty() && !self.series.iter().any(|asked| asked == series) {
                continue;
            }
            let (record, kept) = self.record(cache, series, guest_load)?;
            let compared =
                policies.iter().map(|policy| compare(huddle, &record, policy)).collect::<Result<Vec<_>>>()?;
            drop(kept);
            text.push_str(&table(&compared));
        }
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(output) = &self.output {
            write_whole(output, text.as_bytes())?;
        }
        printed.context("cannot print the tables")
    }

    /// The file of a kernel's record, and what keeps it there when nobody asked for it.
    fn record(&self, cache: &Path, series: &str, guest_load: &Path) -> Result<(PathBuf, Option<NamedTempFile>)> {
        let Some(folder) = &self.records else {
            let file = NamedTempFile::new()?;
            fs::write(file.path(), record(cache, series, guest_load)?)?;
            return Ok((file.path().to_owned(), Some(file)));
        };
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(series);
        if !path.exists() {
            write_whole(&path, &record(cache, series, guest_load)?)?;
        }
        Ok((path, None))
    }
}

/// What `huddle agree --json` says.
#[derive(Deserialize)]
struct Compared {
    release: String,
    policy: String,
    placements: u64,
    lost: Vec<String>,
    steps: Vec<Row>,
    entry: Vec<Row>,
    non_trivial: Row,
    hogs: Vec<Hogs>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    decisions: u64,
    agreed: u64,
    same_reads: u64,
    bracketed: u64,
    undecidable: u64,
}

#[derive(Deserialize)]
struct Hogs {
    load: String,
    recorded: Ends,
    simulated: Ends,
}

#[derive(Deserialize)]
struct Ends {
    first: Vec<u64>,
    last: Vec<u64>,
}

fn compare(huddle: &Path, record: &Path, policy: &str) -> Result<Compared> {
    let said = checked(Command::new(huddle).arg("agree").arg(record).args(["--policy", policy, "--json"]))?;
    serde_json::from_str(&said).with_context(|| format!("huddle agree --policy {policy}"))
}

/// A kernel's part of the page: the first policy is its own.
fn table(compared: &[Compared]) -> String {
    let Some((own, wrong)) = compared.split_first() else { return String::new() };
    let mut text = format!("\n## {} under {}\n\n{} placements", own.release, own.policy, own.placements);
    let lost = if own.lost.is_empty() { "; nothing was lost".to_owned() } else { format!("; {}", own.lost.join("; ")) };
    let _ = writeln!(text, "{lost}.\n");
    rows(&mut text, "step", own.steps.iter().chain([&own.non_trivial]));
    text.push('\n');
    rows(&mut text, "entry rule", own.entry.iter());
    text.push_str("\n| record | all but TargetIdle | agree | same reads |\n|---|---:|---:|---:|\n");
    for Compared { policy, non_trivial: row, .. } in [own].into_iter().chain(wrong) {
        let same = percent(row.same_reads, row.decisions);
        let _ = writeln!(text, "| {policy} | {} | {} | {same} |", row.decisions, percent(row.agreed, row.decisions));
    }
    if !own.hogs.is_empty() {
        text.push_str("\n| hogs by cluster | recorded: fork | end | simulated: fork | end |\n|---|---|---|---|---|\n");
    }
    for Hogs { load, recorded, simulated } in &own.hogs {
        let [a, b, c, d] =
            [&recorded.first, &recorded.last, &simulated.first, &simulated.last].map(|sizes| list(sizes));
        let _ = writeln!(text, "| {load} | {a} | {b} | {c} | {d} |");
    }
    text
}

fn rows<'a>(text: &mut String, head: &str, rows: impl Iterator<Item = &'a Row>) {
    let _ = writeln!(text, "| {head} | decisions | agree | same reads | bracketed | undecidable |");
    text.push_str("|---|---:|---:|---:|---:|---:|\n");
    for Row { name, decisions, agreed, same_reads, bracketed, undecidable } in rows {
        if decisions + undecidable > 0 {
            // Rules of the entry have no reads of their own.
            let of = if head == "step" { *decisions } else { 0 };
            let (agree, same) = (percent(*agreed, *decisions), percent(*same_reads, of));
            let _ = writeln!(text, "| {name} | {decisions} | {agree} | {same} | {bracketed} | {undecidable} |");
        }
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

fn list(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Boots a kernel, runs the loads, and gives the recorded text. `guest_load` is the program of that name.
///
/// # Errors
/// A guest that did not get to its end.
pub fn record(cache: &Path, series: &str, guest_load: &Path) -> Result<Vec<u8>> {
    let machine = guests::find(MACHINE).with_context(|| format!("no machine {MACHINE} in the matrix"))?;
    let topology = machine.topology().context("the machine has no topology")?;
    let mut script = include_str!("agreement.sh").to_owned();
    for Case { name, window, before, load } in CASES {
        let _ = writeln!(script, "record {name} {window} {before} {load}");
    }
    let guest = Guest {
        shape: &Shape::of(MACHINE, &topology)?,
        series,
        command: script,
        programs: vec![guest_load.to_owned()],
        offline: Vec::new(),
        append: String::new(),
        timeout: Duration::from_secs(TIMEOUT),
        console: None,
    };
    let out = Kept::default();
    let streams = Streams { out: Box::new(out.clone()), err: Box::new(std::io::stderr()) };
    let status = guest.run(cache, streams)?;
    ensure!(status == 0, "the guest's script left with {status}");
    Ok(out.take())
}
