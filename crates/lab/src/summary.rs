//! What comes of an experiment's runs: the numbers that tables show and JSON files carry.
//!
//! [`Comparison`] is complete: the text is rendered from it and nothing else, and it serialises as it is. Times are in
//! seconds or percent of the CPUs' time, changes in percent with positive better; `null` stands where there is no answer.

use huddle_engine::{Cause, Mechanism, Part, Report};
use huddle_machine::{COST_KEYS, Costs, Distance, Value};
use huddle_stats::{Better, Spread, Verdict, Welch, change_percent, mean, median, std_percent};
use huddle_workload::Workload;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::bench::Bench;
use crate::run::LoadRuns;
use crate::{Conditions, Experiment, Options};

/// Schema of the JSON form.
pub const SCHEMA: &str = "huddle-compare/1";

/// hackbench's length when none was published: the `-l 100000` of the field's tables.
const HACKBENCH_WORK: u64 = 100_000;

/// Values by name, in the order given; an object in JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(pub Vec<(String, T)>);

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A finished comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// One sentence.
    pub title: String,
    /// Where published numbers come from; `null` when there are none.
    pub published_source: Option<String>,
    /// The machine.
    pub machine: MachineInfo,
    /// The workload's name.
    pub workload: String,
    /// What is other than the machine and the kernels have it.
    pub changed: ChangedInfo,
    /// What a run's `value` is.
    pub metric: MetricInfo,
    /// The policies, baseline first.
    pub policies: Vec<PolicyInfo>,
    /// Kernel records by the part of every policy's kernel that they replace; `null` when each policy ran on its own kernel.
    #[serde(rename = "override")]
    pub overrides: Option<Named<String>>,
    /// Seed from which the runs' seeds are drawn.
    pub seed: u64,
    /// Runs of a cell.
    pub runs: u32,
    /// Least length of a measured stretch asked for, s; `null` when the work was given instead.
    pub seconds: Option<f64>,
    /// Which standard deviation `std_percent` is: `population` or `sample`.
    pub std: &'static str,
    /// Simulated time of all runs, pilots excluded, s.
    pub simulated_s: f64,
    /// How published and simulated signs agree.
    pub agreement: Agreement,
    /// Results by load.
    pub loads: Vec<Load>,
}

/// The machine and what of it was used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineInfo {
    /// Its name.
    pub name: String,
    /// One sentence.
    pub title: String,
    /// Number of its online CPUs.
    pub cpus: usize,
    /// List of the CPUs that the benchmark might use.
    pub used: String,
    /// Their number.
    pub cpus_used: usize,
    /// Number of NUMA nodes that they belong to.
    pub nodes_used: usize,
    /// Its cost figures by name, in the units of the machine file.
    pub costs: Named<Cost>,
}

/// What a comparison changed on purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChangedInfo {
    /// Mechanisms left out.
    pub without: Vec<&'static str>,
    /// The cluster level at boot, where the kernel has it: `on` or `off`.
    pub cluster: &'static str,
    /// When it was switched over, s after a run's measured stretch began; `null` for never.
    pub switch_cluster_s: Option<f64>,
}

impl ChangedInfo {
    fn of(conditions: Conditions) -> ChangedInfo {
        ChangedInfo {
            without: conditions.without.parts().map(Part::name).collect(),
            cluster: if conditions.cluster_off { "off" } else { "on" },
            switch_cluster_s: conditions.switch_cluster,
        }
    }
}

/// A cost figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cost {
    /// One number.
    Scalar(f64),
    /// A number for each distance that the machine has.
    ByDistance(Named<f64>),
}

/// A metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricInfo {
    /// Its unit.
    pub unit: &'static str,
    /// What it is, in words.
    pub description: String,
    /// `lower` or `higher`.
    pub better: &'static str,
    /// The work that seconds are converted to; `null` when they are as simulated.
    pub work: Option<u64>,
    /// What a load counts.
    pub load_unit: &'static str,
}

/// A policy as it was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyInfo {
    /// Its name.
    pub name: String,
    /// One sentence.
    pub title: String,
    /// The kernel it ran on.
    pub kernel: String,
    /// The kernel has a cluster level that can be switched.
    pub has_cluster_level: bool,
    /// Its steps in order; a name that occurs again carries its position.
    pub steps: Vec<String>,
    /// How it chooses the target, in words.
    pub entry_text: Vec<String>,
    /// Each of its steps in words, parameters included.
    pub steps_text: Vec<String>,
}

/// Published changes that exceed twice their combined spread, and how many the simulation gives the same sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Rows whose published change exceeds twice its spread.
    pub clear: usize,
    /// Those of them that agree in sign.
    pub clear_agree: usize,
    /// Those of them where either change is too small to have a sign.
    pub clear_small: usize,
    /// Rows whose published change lies within twice its spread.
    pub unclear: usize,
    /// Rows published without spread.
    pub without_spread: usize,
    /// Those of them that agree in sign.
    pub without_spread_agree: usize,
    /// Those of them where either change is too small to have a sign.
    pub without_spread_small: usize,
}

/// Results of one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Groups, copies, hogs or pairs.
    pub load: u32,
    /// All parameters of the workload, the work included.
    pub parameters: String,
    /// Seed of each run, the same for all policies.
    pub seeds: Vec<u64>,
    /// One per policy, in their order.
    pub cells: Vec<Cell>,
    /// One per policy but the baseline, in their order.
    pub changes: Vec<Change>,
}

/// Published and stated numbers beside a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Level {
    /// Published seconds.
    pub seconds: Option<f64>,
    /// Their standard deviation in percent.
    pub std_percent: Option<f64>,
    /// Simulated by published seconds.
    pub ratio: Option<f64>,
    /// CPU use as stated, percent.
    pub utilisation_percent: Option<f64>,
}

/// A policy at a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The policy.
    pub policy: String,
    /// Mean of the runs' values.
    pub mean: Option<f64>,
    /// Standard deviation in percent of the mean; `null` for one run.
    pub std_percent: Option<f64>,
    /// Median of the runs' values.
    pub median: Option<f64>,
    /// Least value.
    pub min: Option<f64>,
    /// Greatest value.
    pub max: Option<f64>,
    /// Shortest measured stretch of the runs, s.
    pub shortest_s: f64,
    /// Share of the CPUs' time that was not idle, percent.
    pub utilisation_percent: Option<f64>,
    /// What was published.
    pub published: Level,
    /// Mean purity: share of a group's tasks on the node where most of them are.
    pub purity: Option<f64>,
    /// Runs that gathered their groups, judged by purity; `null` on one node.
    pub gathered: Option<usize>,
    /// Runs that spread their groups.
    pub spread: Option<usize>,
    /// CPU time by mechanism, percent.
    pub time_percent: Named<f64>,
    /// Wake-ups of all runs.
    pub wakes: Wakes,
    /// Migrations other than by wake-up per simulated second, by cause.
    pub migrations_per_s: Named<f64>,
    /// The runs.
    pub runs: Vec<Run>,
}

/// Wake-ups of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wakes {
    /// Per simulated second.
    pub per_s: f64,
    /// Queued without placement, where the wakee was still leaving or had not left the queue, percent of all.
    pub unplaced_percent: f64,
    /// Wide, percent of all.
    pub wide_percent: f64,
    /// Chosen CPU had something to run, percent of all.
    pub stacked_percent: f64,
    /// Chosen CPU was idle when chosen and taken by another waker, percent of all.
    pub collided_percent: f64,
    /// Scans that ran out of budget, percent of all wake-ups.
    pub exhausted_percent: f64,
    /// CPUs examined per wake-up.
    pub examined: f64,
    /// By distance from the waker to the chosen CPU, percent of all.
    pub waker_to_chosen_percent: Named<f64>,
    /// By step that chose, then distance from the wakee's previous CPU, percent of all.
    pub steps_percent: Named<Named<f64>>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// Its value in the metric.
    pub value: f64,
    /// Length of the measured stretch, s.
    pub measured_s: f64,
    /// Length of the whole simulation, s.
    pub simulated_s: f64,
    /// Share of the CPUs' time that was not idle, percent.
    pub utilisation_percent: f64,
    /// When the sched domains were rebuilt, s after the measured stretch began; `null` when they were not.
    pub rebuilt_s: Option<f64>,
    /// Mean purity of the groups.
    pub purity: Option<f64>,
    /// Mean number of clusters on which the program runs.
    pub clusters_used: Option<f64>,
    /// `gathered` or `spread`; `null` on one node.
    pub state: Option<&'static str>,
    /// Wide wake-ups, percent of all.
    pub wide_percent: f64,
    /// Wake-ups.
    pub wakeups: u64,
    /// Context switches.
    pub switches: u64,
    /// Messages of the whole simulation.
    pub messages: u64,
    /// Events of the whole simulation.
    pub events: u64,
    /// CPU time by mechanism, ns.
    pub cpu_ns: Named<u64>,
    /// Migrations by cause, wake-ups included.
    pub migrations: Named<u64>,
}

/// A policy's change against the baseline at a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The policy.
    pub policy: String,
    /// Change of the means, percent.
    pub percent: Option<f64>,
    /// Lower end of its 95 % interval (Welch); `null` without spread to judge by.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Welch's p.
    pub p: Option<f64>,
    /// `better`, `worse`, `same` or `undecided`.
    pub verdict: &'static str,
    /// Published change, percent.
    pub published_percent: Option<f64>,
    /// Published change by its combined spread.
    pub published_over_spread: Option<f64>,
    /// Whether published and simulated change have one sign; `null` when either is 0.00.
    pub sign_agrees: Option<bool>,
}

/// How a workload's value comes from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// Seconds, converted to this work.
    Seconds(Option<u64>),
    /// The rate of the slowest copy times the copies.
    Copies,
    /// Round trips of all pairs by the time of the slowest.
    RoundTrips,
    /// Clusters on which the program runs.
    Clusters,
}

impl Metric {
    fn of(experiment: &Experiment) -> Metric {
        match experiment.workload {
            Workload::Hackbench(_) => Metric::Seconds(match experiment.published_work {
                None if experiment.fixed_work => None,
                published => Some(published.unwrap_or(HACKBENCH_WORK)),
            }),
            Workload::Mcf(_) => Metric::Copies,
            Workload::Pingpong(_) => Metric::RoundTrips,
            Workload::Hogs(_) => Metric::Clusters,
        }
    }

    fn better(self) -> Better {
        if matches!(self, Metric::Seconds(_)) { Better::Lower } else { Better::Higher }
    }

    /// The value of a run of `work` at a load.
    fn value(self, report: &Report, work: u64, load: u32) -> f64 {
        let seconds = report.measured_ns as f64 / 1e9;
        let all = f64::from(load) * work as f64;
        match self {
            Metric::Seconds(to) => seconds * to.map_or(1.0, |to| to as f64 / work as f64),
            Metric::Copies => all / 1000.0 / seconds,
            Metric::RoundTrips => all / seconds,
            // A hog lasts several ticks.
            Metric::Clusters => report.clusters_used.unwrap_or(0.0),
        }
    }

    fn info(self, experiment: &Experiment) -> MetricInfo {
        let (unit, description, work) = match self {
            Metric::Seconds(Some(work)) => {
                ("s", format!("seconds for {work} loops, converted from the simulated ones"), Some(work))
            }
            Metric::Seconds(None) => ("s", "seconds".to_owned(), None),
            Metric::Copies => {
                ("Gi/s", "10^9 instructions/s: copies x instructions / time of the slowest copy".to_owned(), None)
            }
            Metric::RoundTrips => {
                ("trips/s", "round trips/s: pairs x rounds / time of the slowest pair".to_owned(), None)
            }
            Metric::Clusters => {
                ("clusters", "clusters used: those with a hog that runs, mean over ticks".to_owned(), None)
            }
        };
        let better = match self.better() {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        MetricInfo { unit, description, better, work, load_unit: experiment.workload.load_unit() }
    }
}

impl Comparison {
    /// Puts together what the runs of an experiment on a bench gave.
    pub(crate) fn new(experiment: &Experiment, bench: &Bench, runs: &[LoadRuns], options: Options) -> Comparison {
        let machine = MachineInfo {
            name: bench.machine.name.clone(),
            title: bench.machine.title.clone(),
            cpus: bench.machine.topology.online.len(),
            used: bench.cpus.to_string(),
            cpus_used: bench.cpus.len(),
            nodes_used: bench.nodes_used(),
            costs: costs(&bench.machine.costs),
        };
        let policies = bench.contenders.iter().zip(&experiment.policies).map(|(contender, name)| PolicyInfo {
            name: name.clone(),
            title: contender.policy.title.clone(),
            kernel: contender.kernel.name.clone(),
            has_cluster_level: contender.has_cluster_level,
            steps: step_names(contender.policy.steps.iter().map(|step| step.kind())),
            entry_text: contender.policy.entry.describe(),
            steps_text: contender.policy.steps.iter().map(|step| step.describe()).collect(),
        });
        Comparison::of_parts(experiment, machine, policies.collect(), runs, options)
    }

    fn of_parts(
        experiment: &Experiment,
        machine: MachineInfo,
        policies: Vec<PolicyInfo>,
        runs: &[LoadRuns],
        options: Options,
    ) -> Comparison {
        let Options { seed, std, version, .. } = options;
        let metric = Metric::of(experiment);
        let loads: Vec<Load> = runs
            .iter()
            .map(|runs| {
                let cell = |(policy, reports): (&PolicyInfo, &Vec<Report>)| {
                    cell(experiment, metric, &machine, policy, runs, reports, std)
                };
                let cells: Vec<Cell> = policies.iter().zip(&runs.reports).map(cell).collect();
                let changes = match cells.split_first() {
                    Some((base, rest)) => {
                        rest.iter().map(|cell| change(experiment, metric, runs.load, base, cell)).collect()
                    }
                    None => Vec::new(),
                };
                let parameters = experiment.workload.with_work(runs.work).parameters();
                Load { load: runs.load, parameters, seeds: runs.seeds.clone(), cells, changes }
            })
            .collect();
        let reports = runs.iter().flat_map(|runs| runs.reports.iter().flatten());
        Comparison {
            schema: SCHEMA,
            version,
            experiment: experiment.name.clone(),
            title: experiment.title.clone(),
            published_source: experiment.published.as_ref().map(|published| published.source.clone()),
            overrides: experiment.overrides.as_ref().map(|overrides| overrides.named()),
            workload: experiment.workload.name().to_owned(),
            changed: ChangedInfo::of(experiment.conditions),
            metric: metric.info(experiment),
            seed,
            runs: experiment.runs,
            seconds: (!experiment.fixed_work).then_some(experiment.seconds),
            std: match std {
                Spread::Population => "population",
                Spread::Sample => "sample",
            },
            simulated_s: reports.map(|report| report.simulated_ns).sum::<u64>() as f64 / 1e9,
            agreement: Agreement::of(&loads),
            machine,
            policies,
            loads,
        }
    }
}

impl Agreement {
    fn of(loads: &[Load]) -> Agreement {
        let mut agreement = Agreement::default();
        for change in loads.iter().flat_map(|load| &load.changes) {
            let agrees = usize::from(change.sign_agrees == Some(true));
            let small = usize::from(change.sign_agrees.is_none());
            match (change.published_percent, change.published_over_spread) {
                (Some(_), Some(over)) if over.abs() > 2.0 => {
                    agreement.clear += 1;
                    agreement.clear_agree += agrees;
                    agreement.clear_small += small;
                }
                (Some(_), Some(_)) => agreement.unclear += 1,
                (Some(_), None) => {
                    agreement.without_spread += 1;
                    agreement.without_spread_agree += agrees;
                    agreement.without_spread_small += small;
                }
                (None, _) => {}
            }
        }
        agreement
    }
}

fn cell(
    experiment: &Experiment,
    metric: Metric,
    machine: &MachineInfo,
    policy: &PolicyInfo,
    load: &LoadRuns,
    reports: &[Report],
    std: Spread,
) -> Cell {
    let run = |(report, &seed): (&Report, &u64)| run(metric, machine, load, report, seed);
    let runs: Vec<Run> = reports.iter().zip(&load.seeds).map(run).collect();
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let purities: Vec<f64> = runs.iter().filter_map(|run| run.purity).collect();
    let in_state = |state| runs.iter().filter(|run| run.state == Some(state)).count();
    let judged = runs.iter().any(|run| run.state.is_some());
    let mean_value = mean(&values);
    let published = experiment.published.as_ref().map_or_else(Level::default, |published| {
        let row = published.row(&policy.name, load.load);
        let seconds = row.and_then(|row| row.seconds);
        Level {
            seconds,
            std_percent: row.and_then(|row| row.std_percent),
            ratio: mean_value.zip(seconds).map(|(simulated, published)| simulated / published),
            utilisation_percent: published.utilisation(load.load),
        }
    });
    Cell {
        policy: policy.name.clone(),
        mean: mean_value,
        std_percent: std_percent(&values, std),
        median: median(&values),
        min: values.iter().copied().min_by(f64::total_cmp),
        max: values.iter().copied().max_by(f64::total_cmp),
        shortest_s: reports.iter().map(|report| report.measured_ns).min().unwrap_or(0) as f64 / 1e9,
        utilisation_percent: mean(&runs.iter().map(|run| run.utilisation_percent).collect::<Vec<_>>()),
        published,
        purity: mean(&purities),
        gathered: judged.then(|| in_state(GATHERED)),
        spread: judged.then(|| in_state(SPREAD)),
        time_percent: time(reports),
        wakes: wakes(policy, reports),
        migrations_per_s: migrations(reports),
        runs,
    }
}

const GATHERED: &str = "gathered";
const SPREAD: &str = "spread";

/// Which of the two stable states of spec/workloads §2.7 a run was in: purity nearer to 1 than to that of groups dealt
/// evenly over the nodes.
fn state(purity: Option<f64>, nodes: usize) -> Option<&'static str> {
    let purity = purity.filter(|_| nodes > 1)?;
    Some(if purity >= (1.0 + 1.0 / nodes as f64) / 2.0 { GATHERED } else { SPREAD })
}

fn run(metric: Metric, machine: &MachineInfo, load: &LoadRuns, report: &Report, seed: u64) -> Run {
    let measured_s = report.measured_ns as f64 / 1e9;
    let wakeups = report.wakes.total();
    Run {
        seed,
        value: metric.value(report, load.work, load.load),
        measured_s,
        simulated_s: report.simulated_ns as f64 / 1e9,
        utilisation_percent: 100.0 * report.utilisation(),
        rebuilt_s: report.rebuilt_ns.map(|ns| ns as f64 / 1e9),
        purity: report.purity,
        clusters_used: report.clusters_used,
        state: state(report.purity, machine.nodes_used),
        wide_percent: percent(report.wakes.wide, wakeups),
        wakeups,
        switches: report.switches,
        messages: report.messages,
        events: report.events,
        cpu_ns: named(Mechanism::ALL, |mechanism| (mechanism.name(), report.cpu_ns[mechanism as usize])),
        migrations: named(Cause::ALL, |cause| (cause.name(), report.migrations[cause as usize].iter().sum())),
    }
}

fn change(experiment: &Experiment, metric: Metric, load: u32, base: &Cell, cell: &Cell) -> Change {
    let values = |cell: &Cell| cell.runs.iter().map(|run| run.value).collect::<Vec<f64>>();
    let welch = Welch::test(metric.better(), &values(base), &values(cell));
    let percent = base.mean.zip(cell.mean).and_then(|(base, mean)| change_percent(metric.better(), base, mean));
    let published =
        experiment.published.as_ref().and_then(|published| published.change(&base.policy, &cell.policy, load));
    let published_percent = published.map(|published| published.percent);
    // What prints as 0.00 has no sign.
    let sign = |percent: f64| (percent.abs() >= 0.005).then_some(percent > 0.0);
    // Rounded because the distribution rests on the platform's mathematics and files must not differ by machine.
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    Change {
        policy: cell.policy.clone(),
        percent,
        low: welch.map(|welch| rounded(welch.low)),
        high: welch.map(|welch| rounded(welch.high)),
        p: welch.map(|welch| rounded(welch.p)),
        verdict: Verdict::of(welch).name(),
        published_percent,
        published_over_spread: published.and_then(|published| published.over_spread),
        sign_agrees: percent.and_then(sign).zip(published_percent.and_then(sign)).map(|(a, b)| a == b),
    }
}

fn time(reports: &[Report]) -> Named<f64> {
    let sum = |mechanism: Mechanism| reports.iter().map(|report| report.cpu_ns[mechanism as usize]).sum::<u64>();
    let all = Mechanism::ALL.into_iter().map(sum).sum();
    named(Mechanism::ALL, |mechanism| (mechanism.name(), percent(sum(mechanism), all)))
}

fn wakes(policy: &PolicyInfo, reports: &[Report]) -> Wakes {
    let sum = |count: &dyn Fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    let all = sum(&|report| report.wakes.total());
    let share = |count: &dyn Fn(&Report) -> u64| percent(sum(count), all);
    let placed = |report: &Report, step: usize, distance: Distance| {
        report.wakes.placed.get(step).map_or(0, |by_distance| by_distance[distance as usize])
    };
    let steps = policy.steps.iter().enumerate().map(|(step, name)| {
        let shares =
            named(Distance::ALL, |distance| (distance.name(), share(&|report| placed(report, step, distance))));
        (name.clone(), shares)
    });
    Wakes {
        per_s: per_second(all, reports),
        unplaced_percent: share(&|report| report.wakes.unplaced + report.wakes.requeued),
        wide_percent: share(&|report| report.wakes.wide),
        stacked_percent: share(&|report| report.wakes.stacked),
        collided_percent: share(&|report| report.wakes.collided),
        exhausted_percent: share(&|report| report.wakes.exhausted),
        examined: share(&|report| report.wakes.examined) / 100.0,
        waker_to_chosen_percent: named(Distance::ALL, |distance| {
            (distance.name(), share(&|report| report.wakes.waker_to_chosen[distance as usize]))
        }),
        steps_percent: Named(steps.collect()),
    }
}

fn migrations(reports: &[Report]) -> Named<f64> {
    let causes = Cause::ALL.into_iter().filter(|&cause| cause != Cause::WakeUp);
    named(causes, |cause| {
        let count = reports.iter().map(|report| report.migrations[cause as usize].iter().sum::<u64>()).sum();
        (cause.name(), per_second(count, reports))
    })
}

/// Every cost figure by its name.
fn costs(costs: &Costs) -> Named<Cost> {
    named(COST_KEYS, |info| {
        let cost = match costs.figure(info.key).value {
            Value::Scalar(value) => Cost::Scalar(value),
            Value::ByDistance(values) => {
                let known = Distance::ALL.into_iter().zip(values);
                let known = known.filter_map(|(distance, value)| Some((distance.name().to_owned(), value?)));
                Cost::ByDistance(Named(known.collect()))
            }
        };
        (info.name, cost)
    })
}

/// Names of a policy's steps; kinds that occur more than once carry their position, counted from 1.
fn step_names<'a>(kinds: impl Iterator<Item = &'a str>) -> Vec<String> {
    let kinds: Vec<&str> = kinds.collect();
    let name = |(index, kind): (usize, &&str)| match kinds.iter().filter(|other| other == &kind).count() {
        1 => (*kind).to_owned(),
        _ => format!("{kind}#{}", index + 1),
    };
    kinds.iter().enumerate().map(name).collect()
}

fn named<K, T>(keys: impl IntoIterator<Item = K>, entry: impl Fn(K) -> (&'static str, T)) -> Named<T> {
    Named(keys.into_iter().map(entry).map(|(name, value)| (name.to_owned(), value)).collect())
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 }
}

fn per_second(count: u64, reports: &[Report]) -> f64 {
    let measured: u64 = reports.iter().map(|report| report.measured_ns).sum();
    if measured == 0 { 0.0 } else { count as f64 * 1e9 / measured as f64 }
}

#[cfg(test)]
pub(crate) mod tests {
    use huddle_engine::WakeCounts;

    use super::*;
    use crate::{Affinity, Published, PublishedRow, Reduced, StatedUtilisation};

    /// Two policies, two loads, three runs.
    pub fn small() -> Experiment {
        let row = |policy: &str, load, seconds, std_percent| PublishedRow {
            policy: policy.to_owned(),
            load,
            seconds: Some(seconds),
            std_percent,
            change_percent: None,
        };
        Experiment {
            name: "small".to_owned(),
            title: "Two policies at two loads".to_owned(),
            machine: "kunpeng920".to_owned(),
            affinity: Affinity::Nodes(vec![0, 1]),
            workload: Workload::parse("hackbench/threads-pipe").unwrap(),
            fixed_work: false,
            published_work: Some(1000),
            conditions: Conditions::default(),
            loads: vec![1, 2],
            policies: vec!["linux-5.9".to_owned(), "rfc2-cluster".to_owned()],
            overrides: None,
            runs: 3,
            seconds: 0.01,
            reduced: Reduced { runs: 1, seconds: 0.01 },
            sketch: None,
            published: Some(Published {
                source: "nowhere".to_owned(),
                rows: vec![
                    row("linux-5.9", 1, 10.0, Some(0.6)),
                    row("rfc2-cluster", 1, 9.0, Some(0.8)),
                    row("linux-5.9", 2, 20.0, Some(3.0)),
                    row("rfc2-cluster", 2, 20.4, None),
                ],
                utilisation: vec![StatedUtilisation { load: 1, percent: 50.0 }],
            }),
        }
    }

    /// A report of a measured stretch on two CPUs, a quarter idle, six tenths kernel.
    pub fn report(measured_ns: u64) -> Report {
        let mut cpu_ns = [0; Mechanism::COUNT];
        cpu_ns[Mechanism::Idle as usize] = measured_ns / 2;
        cpu_ns[Mechanism::Kernel as usize] = measured_ns * 6 / 5;
        cpu_ns[Mechanism::Search as usize] = 2 * measured_ns - measured_ns / 2 - measured_ns * 6 / 5;
        let mut migrations = [[0; Distance::COUNT]; Cause::COUNT];
        migrations[Cause::NewIdle as usize][Distance::Llc as usize] = 5;
        migrations[Cause::WakeUp as usize][Distance::Cluster as usize] = 70;
        Report {
            measured_ns,
            simulated_ns: measured_ns + 1_000_000,
            cpus: 2,
            cpu_ns,
            messages: 4000,
            wakes: WakeCounts {
                placed: vec![[30, 0, 10, 0, 0, 0, 0], [0, 0, 5, 45, 0, 0, 0]],
                unplaced: 10,
                requeued: 0,
                waker_to_chosen: [10, 0, 20, 70, 0, 0, 0],
                wide: 25,
                stacked: 4,
                collided: 1,
                exhausted: 2,
                examined: 350,
            },
            migrations,
            switches: 123,
            rebuilt_ns: None,
            purity: Some(0.9),
            clusters_used: Some(3.5),
            finished_ns: vec![measured_ns],
            events: 99_999,
        }
    }

    /// A comparison made of reports by hand: at one group the second policy gains, at two it loses a little.
    pub fn comparison() -> Comparison {
        let runs = |load: u32, base: [u64; 3], other: [u64; 3]| {
            let reports = |values: [u64; 3], purity: f64| {
                values
                    .map(|value| Report { purity: Some(purity), ..report(value * 1_000_000) })
                    .into_iter()
                    .collect::<Vec<_>>()
            };
            LoadRuns { load, work: 20, seeds: vec![7, 8, 9], reports: vec![reports(base, 0.6), reports(other, 0.97)] }
        };
        let loads = [runs(1, [200, 202, 198], [180, 181, 182]), runs(2, [400, 430, 410], [405, 425, 425])];
        let machine = MachineInfo {
            name: "kunpeng920".to_owned(),
            title: "Kunpeng 920, four nodes of 24".to_owned(),
            cpus: 96,
            used: "0-47".to_owned(),
            cpus_used: 48,
            nodes_used: 2,
            costs: Named(Vec::new()),
        };
        let policy = |name: &str, kernel: &str| PolicyInfo {
            name: name.to_owned(),
            title: "A policy".to_owned(),
            kernel: kernel.to_owned(),
            has_cluster_level: kernel != "5.9",
            steps: vec!["TargetIdle".to_owned(), "ScanLlc".to_owned()],
            entry_text: Vec::new(),
            steps_text: Vec::new(),
        };
        let options = Options { seed: 1, jobs: 1, std: Spread::Population, version: "0.0.0" };
        let policies = vec![policy("linux-5.9", "5.9"), policy("rfc2-cluster", "5.9+rfc2")];
        Comparison::of_parts(&small(), machine, policies, &loads, options)
    }

    #[test]
    fn seconds_are_converted_to_the_published_work() {
        let comparison = comparison();
        let cell = &comparison.loads[0].cells[0];
        // 0.2 s for 20 loops are 10 s for 1000.
        assert!((cell.mean.unwrap() - 10.0).abs() < 1e-9);
        assert!((cell.published.ratio.unwrap() - 1.0).abs() < 1e-9);
        assert_eq!((cell.published.utilisation_percent, cell.utilisation_percent), (Some(50.0), Some(75.0)));
        assert_eq!(cell.runs.iter().map(|run| run.seed).collect::<Vec<_>>(), [7, 8, 9]);
    }

    #[test]
    fn only_changes_beyond_twice_their_spread_count_as_clear() {
        let comparison = comparison();
        let gain = &comparison.loads[0].changes[0];
        // 1 - 9/10 by sqrt(0.6² + 0.8²) = 1.
        assert!((gain.published_over_spread.unwrap() - 10.0).abs() < 1e-9);
        assert_eq!((gain.verdict, gain.sign_agrees), ("better", Some(true)));
        let loss = &comparison.loads[1].changes[0];
        assert_eq!((loss.verdict, loss.published_over_spread, loss.sign_agrees), ("undecided", None, Some(true)));
        let expected =
            Agreement { clear: 1, clear_agree: 1, without_spread: 1, without_spread_agree: 1, ..Agreement::default() };
        assert_eq!(comparison.agreement, expected);
        let mut loads = comparison.loads;
        loads.iter_mut().for_each(|load| load.changes[0].sign_agrees = None);
        let expected =
            Agreement { clear: 1, clear_small: 1, without_spread: 1, without_spread_small: 1, ..Agreement::default() };
        assert_eq!(Agreement::of(&loads), expected);
    }

    #[test]
    fn two_nodes_are_gathered_from_three_quarters_purity() {
        assert_eq!(state(Some(0.76), 2), Some(GATHERED));
        assert_eq!(state(Some(0.74), 2), Some(SPREAD));
        assert_eq!((state(Some(1.0), 1), state(None, 2)), (None, None));
        let cells = &comparison().loads[0].cells;
        assert_eq!((cells[0].spread, cells[1].gathered, cells[1].spread), (Some(3), Some(3), Some(0)));
    }

    #[test]
    fn the_rate_of_copies_is_that_of_the_slowest_and_more_is_better() {
        let experiment = Experiment { workload: Workload::parse("mcf/copies").unwrap(), ..small() };
        let metric = Metric::of(&experiment);
        // 6 copies of 2000 million instructions in 4 s.
        assert_eq!((metric.value(&report(4_000_000_000), 2000, 6), metric.better()), (3.0, Better::Higher));
    }

    #[test]
    fn pairs_are_judged_by_round_trips_and_hogs_by_the_clusters_that_they_use() {
        let metric = |workload: &str| {
            let experiment = Experiment {
                workload: Workload::parse(workload).unwrap(),
                published_work: None,
                published: None,
                ..small()
            };
            Metric::of(&experiment)
        };
        // 6 pairs of 2000 rounds in 4 s; the report's 3.5 clusters.
        let (pairs, hogs) = (metric("pingpong/pairs"), metric("hogs/forked"));
        assert_eq!((pairs.value(&report(4_000_000_000), 2000, 6), pairs.better()), (3000.0, Better::Higher));
        assert_eq!((hogs.value(&report(4_000_000_000), 2000, 6), hogs.better()), (3.5, Better::Higher));
    }

    #[test]
    fn explicit_work_without_published_seconds_is_not_converted() {
        let own = Experiment { published_work: None, fixed_work: true, published: None, ..small() };
        assert_eq!(Metric::of(&own).value(&report(4_000_000_000), 20, 1), 4.0);
        let own = Experiment { fixed_work: false, ..own };
        assert_eq!(Metric::of(&own).value(&report(4_000_000_000), 1000, 1), 400.0);
    }

    #[test]
    fn wake_ups_are_shared_out_by_step_and_distance() {
        let wakes = &comparison().loads[0].cells[0].wakes;
        assert_eq!((wakes.unplaced_percent, wakes.wide_percent, wakes.examined), (10.0, 25.0, 3.5));
        let (step, shares) = &wakes.steps_percent.0[1];
        assert_eq!((step.as_str(), &shares.0[3]), ("ScanLlc", &("llc".to_owned(), 45.0)));
        // 300 wake-ups in 0.6 s.
        assert!((wakes.per_s - 500.0).abs() < 1e-9);
    }

    #[test]
    fn repeated_steps_carry_their_position() {
        assert_eq!(step_names(["IdleSmt", "ScanLlc", "IdleSmt"].into_iter()), ["IdleSmt#1", "ScanLlc", "IdleSmt#3"]);
    }
}
