//! An experiment as data: one TOML file per published table, read strictly.
//!
//! It says what to simulate (machine, CPUs, workload, loads, policies, length) and what was published, so that a table can
//! show both. Everything a writer of such a file may get wrong is refused with the file, the key and what would be right.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

use huddle_engine::Without;
use huddle_stats::{Better, change_percent, combined};
use huddle_workload::{WORK_KEYS, Workload};
use include_dir::{Dir, include_dir};
use serde::Deserialize;

use crate::bench::Bench;
use crate::{LabError, Override};

static SHIPPED: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// A table to produce.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its name (`rfc2-one-node`).
    pub name: String,
    /// One sentence.
    pub title: String,
    /// Source of the machine, as `Machine::load` takes it.
    pub machine: String,
    /// CPUs that the benchmark may use.
    pub affinity: Affinity,
    /// The benchmark; its work is replaced for each load unless [`Experiment::fixed_work`] is set.
    pub workload: Workload,
    /// Run exactly the workload's own work instead of work for [`Experiment::seconds`].
    pub fixed_work: bool,
    /// The work that published seconds belong to (loops of hackbench); simulated seconds are converted to it.
    pub published_work: Option<u64>,
    /// What is other than the machine and the kernels have it.
    pub conditions: Conditions,
    /// Loads, in the order of the table: groups, copies, hogs, pairs.
    pub loads: Vec<u32>,
    /// Policies; the first is the baseline.
    pub policies: Vec<String>,
    /// Parts of kernels that replace those of the policies' own; `None` to run each policy on its own kernel.
    pub overrides: Option<Override>,
    /// Runs of a cell; run k of every policy has the same seed.
    pub runs: u32,
    /// Least simulated time of a run's measured stretch, s.
    pub seconds: f64,
    /// Runs and seconds of the reduced version.
    pub reduced: Reduced,
    /// What is left of it where it is run a hundred times; `None` for the reduced version.
    pub sketch: Option<Sketch>,
    /// What was published; `None` for a table of one's own.
    pub published: Option<Published>,
}

/// What an experiment changes on purpose, for counterfactuals. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Mechanisms left out.
    pub without: Without,
    /// The kernels that have a cluster level boot without it.
    pub cluster_off: bool,
    /// The cluster level is switched over so long after the measured stretch begins, s.
    pub switch_cluster: Option<f64>,
}

impl Conditions {
    /// The first key whose value makes no sense, and what would be right.
    fn fault(&self) -> Option<(String, String)> {
        let at = self.switch_cluster.filter(|at| !(0.0..=MAX_SECONDS).contains(at))?;
        Some(("switch_cluster".to_owned(), format!("is {at}; must be from 0 to {MAX_SECONDS} seconds")))
    }
}

/// CPUs that a benchmark may use, as `numactl` or `taskset` set them; the machine keeps all of its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// All of them.
    All,
    /// The CPUs of these NUMA nodes.
    Nodes(Vec<u32>),
    /// A CPU list, `0-3,8`.
    Cpus(String),
}

/// A shorter version of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduced {
    /// Runs of a cell.
    pub runs: u32,
    /// Least simulated time of a run, s.
    pub seconds: f64,
}

/// A part of an experiment, small enough to be run a hundred times.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sketch {
    /// Some of the loads.
    pub loads: Vec<u32>,
    /// Some of the policies; the first is the baseline.
    pub policies: Vec<String>,
    /// Runs of a cell.
    pub runs: u32,
    /// Least simulated time of a run, s.
    pub seconds: f64,
}

/// Published numbers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where they were published, and how they were measured.
    pub source: String,
    /// Numbers by policy and load.
    pub rows: Vec<PublishedRow>,
    /// CPU use by load, as stated.
    #[serde(default)]
    pub utilisation: Vec<StatedUtilisation>,
}

/// What was published of one policy at one load: seconds, or else a change against the baseline.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// The policy.
    pub policy: String,
    /// The load.
    pub load: u32,
    /// Mean seconds for [`Experiment::published_work`].
    pub seconds: Option<f64>,
    /// Standard deviation in percent of the mean.
    pub std_percent: Option<f64>,
    /// Change against the experiment's baseline in percent, positive is better.
    pub change_percent: Option<f64>,
}

/// A stated CPU use.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatedUtilisation {
    /// The load.
    pub load: u32,
    /// Percent of the CPUs' time.
    pub percent: f64,
}

/// A published change and how far it stands out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedChange {
    /// Percent, positive is better.
    pub percent: f64,
    /// The change by the combined spread of both sides, `change / sqrt(std1² + std2²)`; `None` when no spread was published.
    pub over_spread: Option<f64>,
}

impl Published {
    /// What was published of a policy at a load.
    pub fn row(&self, policy: &str, load: u32) -> Option<&PublishedRow> {
        self.rows.iter().find(|row| row.policy == policy && row.load == load)
    }

    /// The published change of a policy against a baseline: from the seconds of both, else the change as printed.
    pub fn change(&self, baseline: &str, policy: &str, load: u32) -> Option<PublishedChange> {
        let (base, row) = (self.row(baseline, load), self.row(policy, load)?);
        if let (Some(base), Some(seconds)) = (base, row.seconds)
            && let Some(percent) = change_percent(Better::Lower, base.seconds?, seconds)
        {
            let spread = base.std_percent.zip(row.std_percent).map(|(a, b)| combined(a, b));
            return Some(PublishedChange { percent, over_spread: spread.map(|spread| percent / spread) });
        }
        row.change_percent.map(|percent| PublishedChange { percent, over_spread: None })
    }

    /// The stated CPU use at a load, percent.
    pub fn utilisation(&self, load: u32) -> Option<f64> {
        self.utilisation.iter().find(|stated| stated.load == load).map(|stated| stated.percent)
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    title: String,
    machine: String,
    nodes: Option<Vec<u32>>,
    cpus: Option<String>,
    workload: String,
    published_work: Option<u64>,
    #[serde(default)]
    without: Vec<String>,
    cluster: Option<String>,
    switch_cluster: Option<f64>,
    loads: Vec<u32>,
    policies: Vec<String>,
    #[serde(rename = "override")]
    overrides: Option<String>,
    runs: u32,
    seconds: f64,
    reduced: Reduced,
    sketch: Option<Sketch>,
    published: Option<Published>,
}

impl Experiment {
    /// Names of the shipped experiments, sorted.
    pub fn names() -> Vec<String> {
        let name = |file: &include_dir::File| Some(file.path().to_str()?.strip_suffix(".toml")?.to_owned());
        let mut names: Vec<String> = SHIPPED.files().filter_map(name).collect();
        names.sort();
        names
    }

    /// Reads a shipped experiment by name, or a file by path (anything with a `/` or ending in `.toml`).
    ///
    /// # Errors
    /// An unknown name, an unreadable file, or the first key that is wrong.
    pub fn load(name: &str) -> Result<Experiment, LabError> {
        if name.contains('/') || name.ends_with(".toml") {
            let text = fs::read_to_string(Path::new(name))
                .map_err(|source| LabError::ReadExperiment { file: name.to_owned(), source })?;
            return Experiment::parse(name, &text);
        }
        let file = format!("{name}.toml");
        match SHIPPED.get_file(&file).and_then(|shipped| shipped.contents_utf8()) {
            Some(text) => Experiment::parse(&format!("experiments/{file}"), text),
            None => Err(LabError::UnknownExperiment { name: name.to_owned(), known: Experiment::names().join(", ") }),
        }
    }

    /// Reads the text of an experiment; `file` names it in errors.
    ///
    /// # Errors
    /// The first key that is missing, unknown or wrong, or names what cannot be had.
    pub fn parse(file: &str, text: &str) -> Result<Experiment, LabError> {
        let wrong = |key: &str, message: String| LabError::ExperimentKey {
            file: file.to_owned(),
            key: key.to_owned(),
            message,
        };
        let raw: Raw = toml::from_str(text).map_err(|error| LabError::ExperimentFormat {
            place: place(file, text, error.span()),
            message: error.message().replace('\n', " "),
        })?;
        let workload = Workload::parse(&raw.workload).map_err(|error| wrong("workload", error.to_string()))?;
        let overrides = raw.overrides.as_deref().map(Override::parse).transpose();
        let overrides = overrides.map_err(|error| wrong("override", error.to_string()))?;
        let affinity = match (raw.nodes, raw.cpus) {
            (None, None) => Affinity::All,
            (Some(nodes), None) => Affinity::Nodes(nodes),
            (None, Some(cpus)) => Affinity::Cpus(cpus),
            (Some(_), Some(_)) => return Err(wrong("cpus", "give `nodes` or `cpus`, not both".to_owned())),
        };
        let without = Without::parse(raw.without.iter().map(String::as_str));
        let conditions = Conditions {
            without: without.map_err(|error| wrong("without", error.to_string()))?,
            cluster_off: match raw.cluster.as_deref() {
                None | Some("on") => false,
                Some("off") => true,
                Some(other) => return Err(wrong("cluster", format!("is `{other}`; must be on or off"))),
            },
            switch_cluster: raw.switch_cluster,
        };
        let experiment = Experiment {
            name: raw.name,
            title: raw.title,
            machine: raw.machine,
            affinity,
            fixed_work: states_work(&raw.workload),
            workload,
            published_work: raw.published_work,
            conditions,
            loads: raw.loads,
            policies: raw.policies,
            overrides,
            runs: raw.runs,
            seconds: raw.seconds,
            reduced: raw.reduced,
            sketch: raw.sketch,
            published: raw.published,
        };
        if let Some((key, message)) = experiment.fault() {
            return Err(wrong(&key, message));
        }
        Bench::load(&experiment).map_err(|error| error.in_file(file))?;
        Ok(experiment)
    }

    /// A table of one's own: nothing published, ten runs of at least two seconds. A workload that states its length runs it.
    ///
    /// # Errors
    /// A workload that does not exist.
    pub fn own(
        machine: &str,
        affinity: Affinity,
        workload: &str,
        loads: Vec<u32>,
        policies: Vec<String>,
    ) -> Result<Experiment, LabError> {
        Ok(Experiment {
            name: "own".to_owned(),
            title: format!("{} on {machine}", without_work(workload)),
            machine: machine.to_owned(),
            affinity,
            workload: Workload::parse(workload)?,
            fixed_work: states_work(workload),
            published_work: None,
            conditions: Conditions::default(),
            loads,
            policies,
            overrides: None,
            runs: 10,
            seconds: 2.0,
            reduced: Reduced { runs: 3, seconds: 0.5 },
            sketch: None,
            published: None,
        })
    }

    /// The first key whose value makes no sense, and what would be right.
    pub fn fault(&self) -> Option<(String, String)> {
        let fault = |key: &str, message: &str| Some((key.to_owned(), message.to_owned()));
        if self.name.trim().is_empty() {
            return fault("name", "is empty; give the experiment a name");
        }
        if self.policies.is_empty() || self.policies.iter().any(|policy| policy.trim().is_empty()) {
            return fault("policies", "name at least one policy; the first is the baseline");
        }
        if let Some(policy) = repeated(&self.policies) {
            return fault("policies", &format!("`{policy}` is named twice"));
        }
        if self.loads.is_empty() {
            return fault("loads", "give at least one load, 1 or more");
        }
        if let Some(load) = repeated(&self.loads) {
            return fault("loads", &format!("{load} is given twice"));
        }
        if self.loads.contains(&0) {
            return fault("loads", "0 is no load; each must be 1 or more");
        }
        if let Some(error) = self.loads.iter().find_map(|&load| self.workload.check(load).err()) {
            return fault("loads", &error.to_string());
        }
        if let Affinity::Nodes(nodes) = &self.affinity {
            if nodes.is_empty() {
                return fault("nodes", "give at least one node");
            }
            if let Some(node) = repeated(nodes) {
                return fault("nodes", &format!("{node} is given twice"));
            }
        }
        if matches!(&self.affinity, Affinity::Cpus(cpus) if cpus.trim().is_empty()) {
            return fault("cpus", "give a CPU list like 0-3,8");
        }
        if self.published_work == Some(0) {
            return fault("published_work", "must be 1 or more");
        }
        if let Some(sketch) = &self.sketch {
            if sketch.loads.is_empty() || !sketch.loads.iter().all(|load| self.loads.contains(load)) {
                return fault("sketch.loads", "give some of `loads`");
            }
            if sketch.policies.len() < 2 || !sketch.policies.iter().all(|policy| self.policies.contains(policy)) {
                return fault("sketch.policies", "give two or more of `policies`");
            }
        }
        let sketch = self.sketch.as_ref().map(|sketch| ("sketch.", sketch.runs, sketch.seconds));
        for (prefix, runs, seconds) in
            [("", self.runs, self.seconds), ("reduced.", self.reduced.runs, self.reduced.seconds)]
                .into_iter()
                .chain(sketch)
        {
            if !(1..=MAX_RUNS).contains(&runs) {
                return fault(&format!("{prefix}runs"), &format!("is {runs}; must be from 1 to {MAX_RUNS}"));
            }
            let cells = self.loads.len() as u64 * self.policies.len() as u64;
            if cells * u64::from(runs) > MAX_ALL_RUNS {
                let message =
                    format!("{cells} cells of {runs} runs are too many; all runs must be at most {MAX_ALL_RUNS}");
                return fault(&format!("{prefix}runs"), &message);
            }
            if !(MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
                let message = format!("is {seconds}; must be from {MIN_SECONDS} to {MAX_SECONDS} seconds");
                return fault(&format!("{prefix}seconds"), &message);
            }
        }
        self.conditions
            .fault()
            .or_else(|| self.published.as_ref().and_then(|published| self.published_fault(published)))
    }

    fn published_fault(&self, published: &Published) -> Option<(String, String)> {
        if published.source.trim().is_empty() {
            return Some(("published.source".to_owned(), "is empty; say where it was published".to_owned()));
        }
        let mut seen = BTreeSet::new();
        for (index, row) in published.rows.iter().enumerate() {
            let fault = |key: &str, message: String| Some((format!("published.rows[{index}].{key}"), message));
            if !self.policies.contains(&row.policy) {
                return fault("policy", format!("`{}` is not one of `policies`", row.policy));
            }
            if !self.loads.contains(&row.load) {
                return fault("load", format!("{} is not one of `loads`", row.load));
            }
            if !seen.insert((&row.policy, row.load)) {
                return fault("load", format!("`{}` at load {} is given twice", row.policy, row.load));
            }
            if row.seconds.is_some() == row.change_percent.is_some() {
                return fault("seconds", "give either `seconds` or `change_percent`".to_owned());
            }
            if row.seconds.is_some() && self.published_work.is_none() {
                return fault("seconds", "needs `published_work`, the work that took them".to_owned());
            }
            for (key, value) in [("seconds", row.seconds), ("std_percent", row.std_percent)] {
                if value.is_some_and(|value| !(value.is_finite() && value > 0.0)) {
                    return fault(key, "must be more than 0".to_owned());
                }
            }
            if row.change_percent.is_some_and(|value| !value.is_finite()) {
                return fault("change_percent", "must be a finite number".to_owned());
            }
        }
        let mut seen = BTreeSet::new();
        for (index, stated) in published.utilisation.iter().enumerate() {
            let fault = |key: &str, message: String| Some((format!("published.utilisation[{index}].{key}"), message));
            if !self.loads.contains(&stated.load) {
                return fault("load", format!("{} is not one of `loads`", stated.load));
            }
            if !seen.insert(stated.load) {
                return fault("load", format!("{} is given twice", stated.load));
            }
            if !(0.0..=100.0).contains(&stated.percent) {
                return fault("percent", format!("is {}; must be from 0 to 100", stated.percent));
            }
        }
        None
    }

    /// Sets the least simulated time of a run, in place of any work stated.
    pub fn last(&mut self, seconds: f64) {
        (self.seconds, self.fixed_work) = (seconds, false);
    }

    /// Sets runs and seconds to those of the reduced version.
    pub fn reduce(&mut self) {
        (self.runs, self.seconds) = (self.reduced.runs, self.reduced.seconds);
    }

    /// Leaves what the sketch keeps; the reduced version of an experiment without one.
    pub fn sketch(&mut self) {
        match self.sketch.take() {
            Some(sketch) => {
                (self.runs, self.seconds) = (sketch.runs, sketch.seconds);
                self.restrict(sketch.policies, sketch.loads);
            }
            None => self.reduce(),
        }
    }

    /// Keeps only these policies and loads, published numbers included. A change that was published against another
    /// baseline goes with it, and so does the sketch, which was cut out of all of them.
    pub fn restrict(&mut self, policies: Vec<String>, loads: Vec<u32>) {
        let same_baseline = policies.first() == self.policies.first();
        if let Some(published) = &mut self.published {
            published.rows.retain(|row| {
                policies.contains(&row.policy)
                    && loads.contains(&row.load)
                    && (same_baseline || row.change_percent.is_none())
            });
            published.utilisation.retain(|stated| loads.contains(&stated.load));
        }
        (self.policies, self.loads, self.sketch) = (policies, loads, None);
    }
}

/// Longest measured stretch that may be asked for, s.
pub const MAX_SECONDS: f64 = 3600.0;

/// Shortest measured stretch that may be asked for, s: about one message.
pub const MIN_SECONDS: f64 = 1e-6;

/// Most runs of a cell.
pub const MAX_RUNS: u32 = 10_000;

/// Most runs of all cells; their reports are kept until the table is made.
const MAX_ALL_RUNS: u64 = 100_000;

/// Whether a workload string states its own length.
fn states_work(workload: &str) -> bool {
    workload.split(',').skip(1).any(is_work)
}

/// A workload string without its length, which [`Experiment::last`] may replace.
fn without_work(workload: &str) -> String {
    workload.split(',').filter(|parameter| !is_work(parameter)).collect::<Vec<_>>().join(",")
}

/// Whether `key=value` is a workload's length.
fn is_work(parameter: &str) -> bool {
    let key = parameter.split('=').next().unwrap_or_default().trim();
    WORK_KEYS.contains(&key)
}

fn repeated<T: Ord>(values: &[T]) -> Option<&T> {
    let mut seen = BTreeSet::new();
    values.iter().find(|value| !seen.insert(*value))
}

/// `file:line: key`, as far as they are known, of a span in a TOML text.
fn place(file: &str, text: &str, span: Option<Range<usize>>) -> String {
    let Some((before, line)) = span.and_then(|span| {
        let before = text.get(..span.start)?;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Some((before, text[start..].lines().next()?))
    }) else {
        return file.to_owned();
    };
    let number = before.matches('\n').count() + 1;
    match line.split_once('=') {
        Some((key, _)) if key.trim().chars().all(|c| c.is_alphanumeric() || "_-.".contains(c)) => {
            format!("{file}:{number}: `{}`", key.trim())
        }
        _ => format!("{file}:{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
name = "small"
title = "Two policies"
machine = "kunpeng920"
nodes = [0]
workload = "hackbench/threads-pipe"
published_work = 100000
loads = [1, 2]
policies = ["linux-5.9", "rfc2-cluster"]
runs = 2
seconds = 1.0
reduced = { runs = 1, seconds = 0.1 }
[published]
source = "nowhere"
rows = [
  { policy = "linux-5.9", load = 2, seconds = 10.0, std_percent = 0.6 },
  { policy = "rfc2-cluster", load = 2, seconds = 9.0, std_percent = 0.8 },
]
utilisation = [{ load = 1, percent = 50.0 }]
"#;

    fn refusal(from: &str, to: &str) -> String {
        assert!(SMALL.contains(from), "the test's own text has no {from}");
        Experiment::parse("small.toml", &SMALL.replace(from, to)).unwrap_err().to_string()
    }

    #[test]
    fn shipped_experiments_are_read_and_named_after_their_files() {
        assert_eq!(Experiment::names(), ["jacobsville-mcf", "rfc2-one-node", "rfc2-two-nodes"]);
        for name in Experiment::names() {
            assert_eq!(Experiment::load(&name).unwrap().name, name);
        }
    }

    #[test]
    fn published_changes_are_the_recomputed_ones() {
        let published = |name: &str| Experiment::load(name).unwrap().published.unwrap();
        let percent = |published: &Published, policy: &str, load: u32| {
            let change = published.change("linux-5.9", policy, load).unwrap();
            (format!("{:.2}", change.percent), change.over_spread.map(|over| format!("{over:.1}")))
        };
        let one = published("rfc2-one-node");
        assert_eq!(percent(&one, "rfc2-cluster", 1), ("-1.11".into(), Some("-0.3".into())));
        assert_eq!(percent(&one, "rfc2-cluster", 2), ("4.09".into(), Some("4.1".into())));
        assert_eq!(percent(&one, "rfc2-no-select-idle-cluster", 4), ("2.82".into(), Some("1.0".into())));
        let two = published("rfc2-two-nodes");
        assert_eq!(percent(&two, "rfc2-cluster", 5), ("49.07".into(), Some("6.0".into())));
        assert_eq!(percent(&two, "rfc2-no-select-idle-cluster", 4), ("15.04".into(), None));
        assert_eq!(two.change("linux-5.9", "rfc2-no-select-idle-cluster", 3), None);
        let mcf = published("jacobsville-mcf").change("linux-5.14", "linux-5.14-cluster", 6);
        assert_eq!(mcf, Some(PublishedChange { percent: 25.1, over_spread: None }));
    }

    #[test]
    fn the_kunpeng_numbers_are_those_of_the_seed_tables() {
        let shared = std::env::var("HUDDLE_SHARED")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
        let Ok(table) = fs::read_to_string(format!("{shared}/seeds/kunpeng920_hackbench_summary.csv")) else {
            println!("skipped: no seed tables in {shared}");
            return;
        };
        let policy = |variant: &str| match variant {
            "without_patch" => "linux-5.9",
            "with_patch" => "rfc2-cluster",
            _ => "rfc2-no-select-idle-cluster",
        };
        let mut compared = 0;
        for line in table.lines().skip(1) {
            let field: Vec<&str> = line.split(',').collect();
            if field[19] != "valid" {
                continue;
            }
            let name = if field[4] == "1" { "rfc2-one-node" } else { "rfc2-two-nodes" };
            let published = Experiment::load(name).unwrap().published.unwrap();
            let row = published.row(policy(field[8]), field[7].parse().unwrap()).unwrap();
            let mean = if field[11].is_empty() { field[10] } else { field[11] };
            assert_eq!(row.seconds, mean.parse().ok(), "{line}");
            assert_eq!(row.std_percent, field[13].parse().ok(), "{line}");
            compared += 1;
        }
        assert_eq!(compared, 12 + 11);
    }

    #[test]
    fn wrong_keys_are_named_with_file_and_line() {
        assert_eq!(
            refusal("runs = 2", "runs = \"two\""),
            "small.toml:10: `runs`: invalid type: string \"two\", expected u32"
        );
        assert!(refusal("runs = 2", "rnus = 2").starts_with("small.toml:10: `rnus`: unknown field `rnus`, expected"));
        assert!(refusal("seconds = 1.0", "").contains("missing field `seconds`"));
        assert!(refusal("loads = [1, 2]", "loads = [1, -2]").starts_with("small.toml:8: `loads`: invalid value"));
        assert!(!refusal("seconds = 1.0", "seconds = = 1").contains('\n'));
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_what_would_be_right() {
        assert_eq!(refusal("runs = 2", "runs = 0"), "small.toml: runs: is 0; must be from 1 to 10000");
        assert_eq!(
            refusal("seconds = 0.1", "seconds = -1.0"),
            "small.toml: reduced.seconds: is -1; must be from 0.000001 to 3600 seconds"
        );
        assert!(refusal("seconds = 1.0", "seconds = nan").contains(" seconds: is NaN"));
        let sketch = |loads: &str, policies: &str| {
            let key = format!("sketch = {{ loads = [{loads}], policies = [{policies}], runs = 1, seconds = 0.1 }}");
            refusal("seconds = 1.0", &format!("seconds = 1.0\n{key}"))
        };
        assert_eq!(sketch("3", "\"linux-5.9\", \"rfc2-cluster\""), "small.toml: sketch.loads: give some of `loads`");
        assert_eq!(sketch("2", "\"linux-5.9\""), "small.toml: sketch.policies: give two or more of `policies`");
        assert!(refusal("loads = [1, 2]", "loads = []").contains(" loads: give at least one"));
        assert!(refusal("loads = [1, 2]", "loads = [1, 2, 0]").contains(" loads: 0 is no load"));
        assert!(refusal("loads = [1, 2]", "loads = [1, 2, 2]").contains(" loads: 2 is given twice"));
        assert!(
            refusal("policies = [\"linux-5.9\", \"rfc2-cluster\"]", "policies = []").contains(" policies: name at")
        );
        assert!(refusal("threads-pipe", "threads-pip").contains(" workload: unknown workload"));
        assert!(refusal("nodes = [0]", "nodes = [0]\ncpus = \"0-3\"").contains("not both"));
        assert!(refusal("nodes = [0]", "nodes = []").contains(" nodes: give at least one node"));
        assert!(refusal("published_work = 100000\n", "").contains("rows[0].seconds: needs `published_work`"));
        assert!(refusal("load = 2, seconds = 9.0", "load = 3, seconds = 9.0").contains("rows[1].load: 3 is not"));
        assert!(refusal("percent = 50.0", "percent = 150.0").contains("utilisation[0].percent: is 150"));
        assert!(refusal("seconds = 9.0,", "").contains("rows[1].seconds: give either"));
        let refused = |from: &str, to: &str, said: &str| {
            let line = refusal(from, to);
            assert_eq!(line, format!("small.toml: {said}"));
        };
        refused("runs = 2", "runs = 2\nswitch_cluster = -1.0", "switch_cluster: is -1; must be from 0 to 3600 seconds");
        refused("runs = 2", "runs = 2\ncluster = \"maybe\"", "cluster: is `maybe`; must be on or off");
        assert!(
            refusal("runs = 2", "runs = 2\nwithout = [\"clocks\"]")
                .contains(" without: there is no mechanism `clocks`")
        );
        refused("name = \"small\"", "name = \" \"", "name: is empty; give the experiment a name");
        refused("nodes = [0]", "nodes = [0, 1, 0]", "nodes: 0 is given twice");
        refused("source = \"nowhere\"", "source = \"\"", "published.source: is empty; say where it was published");
        refused(
            "utilisation = [{ load = 1, percent = 50.0 }]",
            "utilisation = [{ load = 1, percent = 50.0 }, { load = 1, percent = 60.0 }]",
            "published.utilisation[1].load: 1 is given twice",
        );
        refused("runs = 2", "runs = 10001", "runs: is 10001; must be from 1 to 10000");
        let mut experiment = Experiment::parse("small.toml", SMALL).unwrap();
        (experiment.loads, experiment.runs) = ((1..=50).collect(), 1001);
        let (key, message) = experiment.fault().unwrap();
        assert_eq!(key, "runs");
        assert_eq!(message, "100 cells of 1001 runs are too many; all runs must be at most 100000");
    }

    #[test]
    fn what_a_file_names_and_does_not_exist_is_told_with_file_and_key_and_is_no_usage() {
        for (from, to, said) in [
            ("\"kunpeng920\"", "\"pdp11\"", "machine: no machine `pdp11`"),
            ("nodes = [0]", "nodes = [9]", "nodes: machine `kunpeng920` has no node 9"),
            ("nodes = [0]", "cpus = \"0-999\"", "cpus: cpus `0-999`: CPU 96 is not online"),
            ("loads = [1, 2]", "loads = [1, 2, 99999]", "loads: load 99999 of `hackbench/threads-pipe` must be"),
            ("\"rfc2-cluster\"]", "\"rfc2-cluster\", \"nonsense\"]", "policies: unknown policy `nonsense`"),
            (
                "runs = 2",
                "runs = 2\noverride = \"balance=1.0\"",
                "override: override `balance=1.0`: unknown kernel `1.0`",
            ),
        ] {
            let error = Experiment::parse("small.toml", &SMALL.replace(from, to)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("small.toml: {said}")), "{error}");
            assert!(!error.is_usage(), "{error}");
        }
    }

    #[test]
    fn unknown_names_list_the_known_ones_and_are_usage() {
        let error = Experiment::load("rfc3").unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("jacobsville-mcf, rfc2-one-node"));
        let error = Experiment::load("./no-such.toml").unwrap_err();
        assert!(!error.is_usage() && error.to_string().contains("./no-such.toml"));
    }

    #[test]
    fn a_file_may_state_an_override_and_a_workload_of_any_mode_and_size() {
        let text = SMALL
            .replace("runs = 2", "runs = 2\noverride = \"queue=5.10\"")
            .replace("threads-pipe", "processes-socket,fds=3,size=1000");
        let experiment = Experiment::parse("small.toml", &text).unwrap();
        assert_eq!(experiment.overrides.as_ref().map(ToString::to_string).as_deref(), Some("queue=5.10"));
        assert_eq!(experiment.workload.name(), "hackbench/processes-socket");
        assert!(experiment.workload.parameters().starts_with("fds=3,size=1000,loops=") && !experiment.fixed_work);
        let kernels = Bench::load(&experiment).unwrap().contenders;
        let names: Vec<&str> = kernels.iter().map(|contender| contender.kernel.name.as_str()).collect();
        assert_eq!(names, ["5.9 with queue=5.10", "5.9+rfc2 with queue=5.10"]);
    }

    #[test]
    fn lengths_are_told_from_other_parameters() {
        for (workload, stated) in
            [("hogs/forked,ms=50", true), ("pingpong/pairs,run_ns=5", false), ("pingpong/pairs,rounds=5", true)]
        {
            assert_eq!(states_work(workload), stated, "{workload}");
        }
    }

    #[test]
    fn a_restriction_drops_numbers_that_belong_to_another_baseline() {
        let mut mcf = Experiment::load("jacobsville-mcf").unwrap();
        mcf.restrict(vec!["linux-5.14-cluster".into(), "linux-5.14".into()], vec![6, 12]);
        assert_eq!(mcf.published.as_ref().unwrap().rows, []);
        let mut one = Experiment::load("rfc2-one-node").unwrap();
        one.restrict(vec!["rfc2-cluster".into(), "linux-5.9".into()], vec![2]);
        let published = one.published.as_ref().unwrap();
        let change = published.change("rfc2-cluster", "linux-5.9", 2).unwrap();
        assert_eq!((format!("{:.2}", change.percent), published.utilisation.len()), ("-4.26".into(), 1));
        assert_eq!(one.fault(), None);
    }

    #[test]
    fn a_file_says_what_is_left_out_and_when_the_cluster_level_changes() {
        let more = "runs = 2\nwithout = [\"hand-over\", \"scan-cost\"]\ncluster = \"off\"\nswitch_cluster = 0.5";
        let read = Experiment::parse("small.toml", &SMALL.replace("runs = 2", more)).unwrap();
        let without = Without::parse(["scan-cost", "hand-over"]).unwrap();
        assert_eq!(read.conditions, Conditions { without, cluster_off: true, switch_cluster: Some(0.5) });
        assert_eq!(Experiment::parse("small.toml", SMALL).unwrap().conditions, Conditions::default());
        // Of the two kernels only that of the RFC has the level; alone the other has nothing to switch.
        let alone = SMALL.replace("runs = 2", more).replace(", \"rfc2-cluster\"]", "]");
        let alone = alone.replace("  { policy = \"rfc2-cluster\", load = 2, seconds = 9.0, std_percent = 0.8 },\n", "");
        assert_eq!(
            Experiment::parse("small.toml", &alone).unwrap_err().to_string(),
            "small.toml: cluster: none of the kernels 5.9 has a cluster level to switch; compare a policy of 5.16 or later, \
             or of the RFC"
        );
    }

    #[test]
    fn a_stated_length_is_noticed() {
        assert!(states_work("hackbench/threads-pipe,fds=3,loops=10") && states_work("mcf/copies,minstr=5"));
        assert!(!states_work("hackbench/threads-pipe,fds=3"));
        assert_eq!(without_work("hackbench/threads-pipe,loops=10,fds=3"), "hackbench/threads-pipe,fds=3");
    }
}
