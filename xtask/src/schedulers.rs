//! Schedulers × loads in one guest: where wake-ups land and hogs run under the kernel's own scheduler and under Huddle's.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::guest::{Guest, Kept, Streams};
use crate::guests;
use crate::load::{Load, Wakeups};
use crate::matrix::write_whole;
use crate::shape::Shape;

/// A scheduler to look at.
struct Scheduler {
    name: &'static str,
    /// The command that attaches it and stays, and the one that makes it leave; `None` for the kernel's own.
    commands: Option<[&'static str; 2]>,
}

/// The kernel's own, which the others are held against.
const KERNEL: &str = "kernel";

const SCHEDULERS: [Scheduler; 3] = [
    Scheduler { name: KERNEL, commands: None },
    Scheduler { name: "huddle-gather", commands: Some(["huddle run --mode gather", "huddle stop"]) },
    Scheduler { name: "huddle-spread", commands: Some(["huddle run --mode spread", "huddle stop"]) },
];

/// A load to look at.
struct Case {
    name: &'static str,
    title: &'static str,
    /// Arguments of `guest-load`.
    load: &'static str,
}

const CASES: [Case; 6] = [
    Case { name: "pairs10", title: "10 pairs", load: "--pairs 10" },
    Case { name: "pairs3", title: "3 pairs", load: "--pairs 3" },
    Case { name: "hogs6", title: "6 hogs", load: "--hogs 6" },
    Case { name: "mixed", title: "10 pairs and 4 hogs", load: "--pairs 10 --hogs 4" },
    Case { name: "hogs12", title: "12 hogs", load: "--hogs 12" },
    Case { name: "filled", title: "1 pair whose cluster is filled with bound hogs", load: "--pairs 1 --fill-cluster" },
];

/// The machine of the matrix that they run on.
const MACHINE: &str = "clusters";
/// Before a load is looked at.
const WARM_UP: u32 = 1;
/// Boot and attaching, with a busy host.
const BOOT: u64 = 900;
/// What a load takes beside its time, with a busy host.
const LOAD: u64 = 40;

/// What to compare.
pub struct Schedulers {
    /// Series of the kernel.
    pub series: String,
    /// How often each load runs under each scheduler.
    pub turns: u32,
    /// How long each load is looked at.
    pub seconds: u32,
    /// Names of schedulers and of loads: only these. All schedulers when no scheduler is named, all loads when no load is.
    pub only: Vec<String>,
    /// Where the table is written; nowhere when `None`.
    pub output: Option<PathBuf>,
}

impl Schedulers {
    /// Whether `huddle`, with its live scheduler, must be among the programs of the guest.
    ///
    /// # Errors
    /// A name that no scheduler and no load has.
    pub fn needs_huddle(&self) -> Result<bool> {
        let (schedulers, _) = self.asked()?;
        Ok(schedulers.iter().any(|scheduler| scheduler.commands.is_some()))
    }

    /// Boots the guest, runs all of it, prints the table and writes it; whether nothing failed. `programs` are `guest-load` and, where
    /// needed, `huddle`. What runs is told on standard error.
    ///
    /// # Errors
    /// A name that no scheduler and no load has, a guest that did not get to its end, a table that cannot be written.
    pub fn run(&self, cache: &Path, programs: Vec<PathBuf>) -> Result<bool> {
        let machine = guests::find(MACHINE).with_context(|| format!("no machine {MACHINE} in the matrix"))?;
        let topology = machine.topology().context("the machine has no topology")?;
        let guest = Guest {
            shape: &Shape::of(MACHINE, &topology)?,
            series: &self.series,
            command: self.script()?,
            programs,
            offline: Vec::new(),
            append: String::new(),
            timeout: self.timeout()?,
            console: None,
        };
        let out = Kept::default();
        let streams = Streams { out: Box::new(out.clone()), err: Box::new(std::io::stderr()) };
        let status = guest.run(cache, streams)?;
        ensure!(status == 0, "the guest's script left with {status}");
        let seen = Seen::parse(&String::from_utf8_lossy(&out.take()))?;
        let rows = self.rows(&seen)?;
        for failure in &seen.failures {
            eprintln!("xtask: {failure}");
        }
        // A reader that left early must not keep the table from being written.
        let printed = std::io::stdout().write_all(text(&rows).as_bytes());
        self.write(&seen, &rows)?;
        printed.context("cannot print the table")?;
        Ok(seen.failures.is_empty())
    }

    /// The schedulers and loads that `only` names, in the order of the tables above.
    fn asked(&self) -> Result<(Vec<&'static Scheduler>, Vec<&'static Case>)> {
        let named = |name: &str| self.only.iter().any(|only| only == name);
        let known = SCHEDULERS.iter().map(|scheduler| scheduler.name).chain(CASES.iter().map(|case| case.name));
        let known: Vec<&str> = known.collect();
        if let Some(name) = self.only.iter().find(|name| !known.contains(&name.as_str())) {
            bail!("--only {name} is no scheduler and no load; there are {}", known.join(", "));
        }
        let every_scheduler = !SCHEDULERS.iter().any(|scheduler| named(scheduler.name));
        let every_case = !CASES.iter().any(|case| named(case.name));
        let schedulers = SCHEDULERS.iter().filter(|scheduler| every_scheduler || named(scheduler.name)).collect();
        let cases = CASES.iter().filter(|case| every_case || named(case.name)).collect();
        Ok((schedulers, cases))
    }

    /// The guest's command: turn by turn, each time another scheduler first.
    fn script(&self) -> Result<String> {
        let (schedulers, cases) = self.asked()?;
        let mut script = include_str!("schedulers.sh").to_owned();
        for turn in 1..=self.turns {
            let first = (turn - 1) as usize % schedulers.len();
            for Scheduler { name, commands } in schedulers[first..].iter().chain(&schedulers[..first]) {
                if let Some([attach, _]) = commands {
                    let _ = writeln!(script, "attach {turn} {name} {attach}");
                }
                for case in &cases {
                    let times = format!("--warm-up {WARM_UP} --seconds {}", self.seconds);
                    let _ = writeln!(script, "measure {turn} {name} {} {} {times}", case.name, case.load);
                }
                if let Some([_, detach]) = commands {
                    let _ = writeln!(script, "detach {turn} {name} {detach}");
                }
            }
        }
        // What failed is told in a line of its own.
        script.push_str("exit 0\n");
        Ok(script)
    }

    fn timeout(&self) -> Result<Duration> {
        let (schedulers, cases) = self.asked()?;
        let loads = u64::from(self.turns) * (schedulers.len() * cases.len()) as u64;
        Ok(Duration::from_secs(BOOT + loads * (u64::from(WARM_UP + self.seconds) + LOAD)))
    }

    /// A row for each load under each scheduler.
    fn rows(&self, seen: &Seen) -> Result<Vec<Row>> {
        let (schedulers, cases) = self.asked()?;
        let row = |case: &Case, scheduler: &Scheduler| {
            let own = seen.of(scheduler.name, case.name);
            Row::of(case, scheduler, &own, &seen.of(KERNEL, case.name))
        };
        Ok(cases.iter().flat_map(|case| schedulers.iter().map(move |scheduler| row(case, scheduler))).collect())
    }

    fn write(&self, seen: &Seen, rows: &[Row]) -> Result<()> {
        let Some(path) = &self.output else { return Ok(()) };
        write_whole(path, self.document(seen, rows).as_bytes())
    }

    /// The whole document.
    fn document(&self, seen: &Seen, rows: &[Row]) -> String {
        let mut document = String::from("# Schedulers in a guest\n\nWritten by `./x vm-schedulers`. ");
        let _ = write!(
            document,
            "One guest under QEMU, 24 CPUs in 6 clusters of 4, Linux {}; {} turns, in each every load under every scheduler, looked at \
             for {} s after {WARM_UP} s. Every figure is the median of the turns.\n\n\
             - same cluster: wake-ups whose waker and wakee ran in one cluster, or on one CPU.\n\
             - moved: wake-ups after which the wakee ran on another CPU than before its sleep.\n\
             - on hogs: wake-ups to the CPU of a bound hog.\n\
             - to kernel's: wake-ups in relation to those under the kernel's own scheduler in the same turn. A CPU of the guest is a \
             thread of the host, so their number says how seldom wakee and waker waited, not how fast a machine would be.\n\
             - clusters: how many the hogs used, the mean over samples every 10 ms; uneven: samples in which one cluster had at least two \
             hogs more than another; stayed: turns in which no hog changed its cluster.\n\n",
            seen.release, self.turns, self.seconds
        );
        document.push_str(&markdown(rows));
        document.push_str("\n## Loads\n\n");
        for case in &CASES {
            let _ = writeln!(document, "- {}: {} (`guest-load {}`)", case.name, case.title, case.load);
        }
        document.push_str("\n## Failures\n\n");
        if seen.failures.is_empty() {
            document.push_str("None.\n");
        }
        for failure in &seen.failures {
            let _ = writeln!(document, "- {failure}");
        }
        document
    }
}

/// A line of the guest's.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Kernel { release: String },
    Measured { turn: u32, scheduler: String, case: String, load: Load },
    Failed { turn: u32, scheduler: String, case: String, failed: String },
}

/// All that the guest said.
#[derive(Default)]
struct Seen {
    release: String,
    /// Turn, scheduler, load, and what was seen of it.
    loads: Vec<(u32, String, String, Load)>,
    failures: Vec<String>,
}

impl Seen {
    fn parse(text: &str) -> Result<Seen> {
        let mut seen = Seen::default();
        for line in text.lines() {
            match serde_json::from_str(line).with_context(|| format!("the guest said what it should not: {line}"))? {
                Line::Kernel { release } => seen.release = release,
                Line::Measured { turn, scheduler, case, load } => seen.loads.push((turn, scheduler, case, load)),
                Line::Failed { turn, scheduler, case, failed } => {
                    seen.failures.push(format!("turn {turn}, {scheduler}, {case}: {failed}"));
                }
            }
        }
        Ok(seen)
    }

    /// A load under a scheduler, with its turns.
    fn of(&self, scheduler: &str, case: &str) -> Vec<(u32, &Load)> {
        let wanted = self.loads.iter().filter(|(_, by, of, _)| by == scheduler && of == case);
        wanted.map(|(turn, _, _, load)| (*turn, load)).collect()
    }
}

/// A line of the table: load, scheduler, and the columns of [`HEADINGS`].
struct Row([String; HEADINGS.len()]);

const HEADINGS: [&str; 11] = [
    "load",
    "scheduler",
    "same cluster",
    "moved",
    "on hogs",
    "wake-ups",
    "to kernel's",
    "clusters",
    "uneven",
    "stayed",
    "longest delay",
];
/// Columns of words; the others are of numbers.
const WORDS: usize = 2;

impl Row {
    fn of(case: &Case, scheduler: &Scheduler, own: &[(u32, &Load)], kernel: &[(u32, &Load)]) -> Row {
        let each = |value: &dyn Fn(&Load) -> Option<f64>| median(own.iter().filter_map(|(_, load)| value(load)));
        let share = |of: fn(&Wakeups) -> Option<f64>| percent(each(&|load| of(&load.wakeups)));
        let ratios = own.iter().filter_map(|(turn, load)| {
            let (_, base) = kernel.iter().find(|(other, _)| other == turn)?;
            (base.wakeups.all() > 0).then(|| load.wakeups.all() as f64 / base.wakeups.all() as f64)
        });
        let paired = |load: &Load| load.pairs > 0;
        let hogs = own.iter().any(|(_, load)| load.hogs > 0);
        let stayed = own.iter().filter(|(_, load)| load.spread.cluster_changes == 0).count();
        Row([
            case.name.to_owned(),
            scheduler.name.to_owned(),
            share(Wakeups::near),
            share(Wakeups::moves),
            percent(each(&|load| load.wakeups.beside_hogs().filter(|_| load.bound_hogs > 0))),
            number(each(&|load| paired(load).then(|| load.wakeups.all() as f64)), 0),
            number(median(ratios), 2),
            number(each(&|load| load.spread.mean_used()), 2),
            percent(each(&|load| load.spread.unevenness())),
            if hogs { format!("{stayed} of {}", own.len()) } else { "-".to_owned() },
            match each(&|load| paired(load).then(|| load.delay_max_ns as f64 / 1e6)) {
                Some(milliseconds) => format!("{milliseconds:.0} ms"),
                None => "-".to_owned(),
            },
        ])
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// The middle of the values, between the two in the middle of an even number; `None` without any.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (left, right) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((left + right) / 2.0)
}

/// The table with aligned columns.
fn text(rows: &[Row]) -> String {
    let headings = HEADINGS.map(str::to_owned);
    let lines = || std::iter::once(&headings).chain(rows.iter().map(|Row(cells)| cells));
    let widths: Vec<usize> =
        (0..HEADINGS.len()).map(|column| lines().map(|cells| cells[column].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for cells in lines() {
        for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                1..WORDS => write!(text, "  {cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// The table as Markdown.
fn markdown(rows: &[Row]) -> String {
    let mut text = format!("| {} |\n", HEADINGS.join(" | "));
    let _ = writeln!(text, "|{}{}", "---|".repeat(WORDS), "---:|".repeat(HEADINGS.len() - WORDS));
    for Row(cells) in rows {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Schedulers, Seen, markdown, median, text};
    use crate::load::{Load, Spread, Wakeups};

    fn asked(only: &[&str], turns: u32) -> Schedulers {
        let only = only.iter().map(|&name| name.to_owned()).collect();
        Schedulers { series: "7.2".to_owned(), turns, seconds: 5, only, output: None }
    }

    fn line(turn: u32, scheduler: &str, case: &str, load: &Load) -> String {
        let load = serde_json::to_string(load).expect("JSON");
        format!("{{\"turn\":{turn},\"scheduler\":\"{scheduler}\",\"case\":\"{case}\",\"load\":{load}}}\n")
    }

    fn ten_pairs(same_cpu: u64, cluster: u64, llc: u64, moved: u64) -> Load {
        let wakeups = Wakeups { same_cpu, cluster, llc, moved, ..Wakeups::default() };
        Load { pairs: 10, wakeups, delay_max_ns: 7_400_000, ..Load::default() }
    }

    #[test]
    fn ratios_are_taken_within_a_turn_before_their_median() {
        let text = [
            "{\"release\":\"7.2.12\"}\n".to_owned(),
            line(1, "kernel", "pairs10", &ten_pairs(0, 100, 0, 0)),
            line(1, "huddle-gather", "pairs10", &ten_pairs(50, 150, 0, 20)),
            line(2, "huddle-gather", "pairs10", &ten_pairs(0, 50, 50, 10)),
            line(2, "kernel", "pairs10", &ten_pairs(0, 200, 0, 0)),
            line(3, "kernel", "pairs10", &ten_pairs(0, 400, 0, 0)),
            line(3, "huddle-gather", "pairs10", &ten_pairs(0, 270, 30, 150)),
        ]
        .concat();
        let seen = Seen::parse(&text).expect("parsed");
        let rows = asked(&["pairs10", "kernel", "huddle-gather"], 3).rows(&seen).expect("rows");
        // Turns 1, 2, 3: ratios 2, 0.5, 0.75, where the medians' ratio is 1; in the cluster 100, 50, 90 %; moved 10, 10, 50 %.
        let expected = ["pairs10", "huddle-gather", "90.0 %", "10.0 %", "-", "200", "0.75", "-", "-", "-", "7 ms"];
        assert_eq!(rows[1].0, expected.map(str::to_owned));
        assert_eq!(rows[0].0[5..7], ["200".to_owned(), "1.00".to_owned()]);
    }

    #[test]
    fn hogs_that_change_clusters_in_one_of_two_turns_stayed_in_the_other() {
        let spread =
            |used, cluster_changes| Spread { samples: 100, used, uneven: 25, cluster_changes, ..Spread::default() };
        let hogs = |used, changes| Load { hogs: 6, spread: spread(used, changes), ..Load::default() };
        let lines = [line(1, "kernel", "hogs6", &hogs(600, 0)), line(2, "kernel", "hogs6", &hogs(500, 3))].concat();
        let seen = Seen::parse(&lines).expect("parsed");
        let rows = asked(&["hogs6", "kernel"], 2).rows(&seen).expect("rows");
        let expected = ["hogs6", "kernel", "-", "-", "-", "-", "-", "5.50", "25.0 %", "1 of 2", "-"];
        assert_eq!(rows[0].0, expected.map(str::to_owned));
    }

    #[test]
    fn a_load_that_failed_is_told_and_leaves_its_cells_empty() {
        let said = "{\"turn\":2,\"scheduler\":\"huddle-spread\",\"case\":\"mixed\",\"failed\":\"sched_ext is disabled; stall\"}\n";
        let seen = Seen::parse(said).expect("parsed");
        assert_eq!(seen.failures, ["turn 2, huddle-spread, mixed: sched_ext is disabled; stall"]);
        let asked = asked(&["mixed", "huddle-spread"], 2);
        let rows = asked.rows(&seen).expect("rows");
        assert_eq!(rows[0].0[2..9].iter().filter(|cell| *cell == "-").count(), 7);
        assert!(asked.document(&seen, &rows).contains("- turn 2, huddle-spread, mixed:"));
        assert!(Seen::parse("huddle: not JSON").is_err());
    }

    #[test]
    fn turns_interleave_the_schedulers_and_begin_with_another_each_time() {
        let script = asked(&["pairs3"], 2).script().expect("a script");
        let calls: Vec<&str> = script.lines().filter(|line| line.contains(" 1 ") || line.contains(" 2 ")).collect();
        let calls: Vec<&str> = calls.into_iter().skip_while(|line| !line.starts_with("measure")).collect();
        assert_eq!(
            calls,
            [
                "measure 1 kernel pairs3 --pairs 3 --warm-up 1 --seconds 5",
                "attach 1 huddle-gather huddle run --mode gather",
                "measure 1 huddle-gather pairs3 --pairs 3 --warm-up 1 --seconds 5",
                "detach 1 huddle-gather huddle stop",
                "attach 1 huddle-spread huddle run --mode spread",
                "measure 1 huddle-spread pairs3 --pairs 3 --warm-up 1 --seconds 5",
                "detach 1 huddle-spread huddle stop",
                "attach 2 huddle-gather huddle run --mode gather",
                "measure 2 huddle-gather pairs3 --pairs 3 --warm-up 1 --seconds 5",
                "detach 2 huddle-gather huddle stop",
                "attach 2 huddle-spread huddle run --mode spread",
                "measure 2 huddle-spread pairs3 --pairs 3 --warm-up 1 --seconds 5",
                "detach 2 huddle-spread huddle stop",
                "measure 2 kernel pairs3 --pairs 3 --warm-up 1 --seconds 5",
            ]
        );
    }

    #[test]
    fn only_the_kernel_needs_no_huddle_and_an_unknown_name_is_refused() {
        assert!(!asked(&["kernel"], 1).needs_huddle().expect("known"));
        assert!(asked(&["pairs3"], 1).needs_huddle().expect("known"));
        let error = asked(&["kernal"], 1).needs_huddle().expect_err("refused").to_string();
        assert!(error.starts_with("--only kernal is no scheduler and no load; there are kernel, "), "{error}");
    }

    #[test]
    fn the_middle_of_an_even_number_of_values_lies_between_two() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn both_forms_of_the_table_have_a_line_for_each_row_and_one_width() {
        let rows = asked(&[], 1).rows(&Seen::default()).expect("rows");
        assert_eq!(rows.len(), 18);
        let lines: Vec<String> = text(&rows).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 19);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
        assert_eq!(markdown(&rows).lines().count(), 20);
    }
}
