//! `huddle compare`: simulate a published table, or one of one's own, and print it beside the published numbers.

use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use huddle_lab::{
    Affinity, Conditions, Experiment, LabError, MAX_RUNS, MAX_SECONDS, MIN_SECONDS, Options, Override, Part, Progress,
    Spread, Without,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// Simulate a benchmark under several placement policies and compare them.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    huddle compare rfc2-one-node --reduced\n  \
    huddle compare --machine kunpeng920 --nodes 0 --workload hackbench/threads-pipe --load 1,2,4 \\\n      \
    --policies linux-5.9,rfc2-cluster --runs 5 --json result.json\n  \
    huddle compare --machine kunpeng920 --nodes 0 --workload hackbench/processes-socket,size=1000 --load 4 \\\n      \
    --policies linux-5.10,linux-6.7 --override kernel=6.7,queue=5.10")]
pub struct Args {
    /// A shipped experiment (see --list), or the path of an experiment's .toml file
    experiment: Option<String>,
    /// Machine of a table of one's own: a built-in name or a machine file
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Its workload, as suite/case,key=value; a stated length (loops=, minstr=, ms=, rounds=) is run as it is
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// Loads, comma-separated: groups, copies, hogs, pairs
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    load: Option<String>,
    /// Policies, comma-separated; the first is the baseline
    #[arg(long, value_name = "LIST")]
    policies: Option<String>,
    /// Parts of kernel records for all policies in place of their own kernels': kernel (all of it), domains, balance, queue
    #[arg(long = "override", value_name = "PART=KERNEL,…")]
    overrides: Option<String>,
    /// NUMA nodes that the benchmark may use, comma-separated, as numactl -N sets them
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// CPUs that the benchmark may use, as taskset -c sets them
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Runs of each policy at each load
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    runs: Option<String>,
    /// Least simulated time of a run, in seconds
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    seconds: Option<String>,
    /// Seed from which the runs' seeds are drawn
    #[arg(long, value_name = "SEED", default_value = "1", allow_hyphen_values = true)]
    seed: String,
    /// Simulations at once; all cores when not given. The result does not depend on it
    #[arg(long, value_name = "JOBS", allow_hyphen_values = true)]
    jobs: Option<String>,
    /// Mechanisms to leave out, comma-separated, to see what hangs on them; `help` lists them
    #[arg(long, value_name = "LIST")]
    without: Option<String>,
    /// The cluster level at boot, for the kernels that have it: on or off
    #[arg(long, value_name = "STATE")]
    cluster: Option<String>,
    /// Switch the cluster level over so many simulated seconds after a run's start; the domains are rebuilt
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    switch_cluster: Option<String>,
    /// Fewer and shorter runs, as the experiment states them
    #[arg(long)]
    reduced: bool,
    /// Standard deviation shown: population (as the field's tables) or sample
    #[arg(long, value_name = "KIND", default_value = "population")]
    std: String,
    /// List the shipped experiments
    #[arg(long)]
    list: bool,
    /// Also write everything as JSON to a file; - writes it to stdout in place of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let json = args.json.as_deref().map(|path| Output::new("--json", path)).transpose()?;
    if args.list {
        return list(args, json);
    }
    if args.without.as_deref() == Some("help") {
        return mechanisms(json);
    }
    let experiment = experiment(args)?;
    let options = Options {
        seed: number("--seed", &args.seed, "a whole number, 0 or more", |_| true)?,
        jobs: match &args.jobs {
            Some(jobs) => number("--jobs", jobs, "a whole number, 1 or more", |&jobs| jobs > 0)?,
            None => 0,
        },
        std: match args.std.as_str() {
            "population" => Spread::Population,
            "sample" => Spread::Sample,
            other => return Err(Failure::usage(format!("--std {other}: must be population or sample"))),
        },
        version: env!("CARGO_PKG_VERSION"),
    };
    let bar = bar();
    let compared = huddle_lab::compare(&experiment, options, &|progress| show(&bar, progress));
    bar.finish_and_clear();
    let comparison = compared.map_err(failure)?;
    let text = huddle_lab::render(&comparison);
    output(json, &text, || serde_json::to_string_pretty(&comparison))
}

/// Writes the text to stdout, and the JSON to its file first; `--json -` puts the JSON in the text's place.
fn output(
    json: Option<Output>,
    text: &str,
    document: impl FnOnce() -> Result<String, serde_json::Error>,
) -> Result<(), Failure> {
    if let Some(json) = json {
        let document = document().map_err(|error| Failure::work(format!("cannot form the JSON: {error}")))?;
        let alone = json.is_stdout();
        json.write(|out| writeln!(out, "{document}"))?;
        if alone {
            return Ok(());
        }
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The experiment that the arguments name or make up.
fn experiment(args: &Args) -> Result<Experiment, Failure> {
    let loads = args.load.as_deref().map(|text| numbers("--load", text)).transpose()?;
    if loads.as_ref().is_some_and(|loads| loads.contains(&0)) {
        return Err(Failure::usage("--load: 0 is no load; each must be 1 or more"));
    }
    let policies = args.policies.as_deref().map(names).transpose()?;
    let mut experiment = match &args.experiment {
        Some(name) => {
            let mut experiment = Experiment::load(name).map_err(failure)?;
            for (flag, given) in [
                ("--machine", args.machine.is_some()),
                ("--workload", args.workload.is_some()),
                ("--nodes", args.nodes.is_some()),
                ("--cpus", args.cpus.is_some()),
            ] {
                if given {
                    let message = format!("{flag} cannot change the experiment `{name}`; leave one of the two out");
                    return Err(Failure::usage(message));
                }
            }
            if policies.is_some() || loads.is_some() {
                let policies = policies.unwrap_or_else(|| experiment.policies.clone());
                let loads = loads.unwrap_or_else(|| experiment.loads.clone());
                experiment.restrict(policies, loads);
            }
            experiment
        }
        None => own(args, loads, policies)?,
    };
    if let Some(overrides) = &args.overrides {
        experiment.overrides = Some(Override::parse(overrides).map_err(|error| Failure::usage(format!("--{error}")))?);
    }
    if args.reduced {
        experiment.reduce();
    }
    if let Some(runs) = &args.runs {
        let wanted = format!("a whole number from 1 to {MAX_RUNS}");
        experiment.runs = number("--runs", runs, &wanted, |runs| (1..=MAX_RUNS).contains(runs))?;
    }
    if let Some(seconds) = &args.seconds {
        let wanted = format!("from {MIN_SECONDS} to {MAX_SECONDS}");
        let fit = |seconds: &f64| (MIN_SECONDS..=MAX_SECONDS).contains(seconds);
        experiment.last(number("--seconds", seconds, &wanted, fit)?);
    }
    change(&mut experiment.conditions, args)?;
    match experiment.fault() {
        Some((key, message)) => Err(Failure::usage(format!("{key}: {message}"))),
        None => Ok(experiment),
    }
}

/// Changes of the command line, over those of the experiment.
fn change(conditions: &mut Conditions, args: &Args) -> Result<(), Failure> {
    if let Some(list) = &args.without {
        let parsed = Without::parse(list.split(',').map(str::trim));
        conditions.without = parsed.map_err(|error| Failure::usage(format!("--without `{list}`: {error}")))?;
    }
    match args.cluster.as_deref() {
        None => {}
        Some("on") => conditions.cluster_off = false,
        Some("off") => conditions.cluster_off = true,
        Some(other) => return Err(Failure::usage(format!("--cluster {other}: must be on or off"))),
    }
    if let Some(seconds) = &args.switch_cluster {
        let wanted = format!("from 0 to {MAX_SECONDS}");
        let fit = |seconds: &f64| (0.0..=MAX_SECONDS).contains(seconds);
        conditions.switch_cluster = Some(number("--switch-cluster", seconds, &wanted, fit)?);
    }
    Ok(())
}

/// The mechanisms that can be left out.
fn mechanisms(json: Option<Output>) -> Result<(), Failure> {
    let text: String = Part::ALL.iter().map(|part| format!("{:<13} {}\n", part.name(), part.meaning())).collect();
    output(json, &text, || {
        let entries: Vec<serde_json::Value> =
            Part::ALL.iter().map(|part| json!({ "name": part.name(), "without": part.meaning() })).collect();
        serde_json::to_string_pretty(&json!({
            "schema": "huddle-mechanisms/1",
            "version": env!("CARGO_PKG_VERSION"),
            "mechanisms": entries,
        }))
    })
}

/// A table of one's own.
fn own(args: &Args, loads: Option<Vec<u32>>, policies: Option<Vec<String>>) -> Result<Experiment, Failure> {
    let (Some(machine), Some(workload), Some(loads), Some(policies)) = (&args.machine, &args.workload, loads, policies)
    else {
        return Err(Failure::usage(format!(
            "name an experiment ({}), or give all of --machine, --workload, --load and --policies",
            Experiment::names().join(", ")
        )));
    };
    let affinity = match (&args.nodes, &args.cpus) {
        (None, None) => Affinity::All,
        (Some(nodes), None) => Affinity::Nodes(numbers("--nodes", nodes)?),
        (None, Some(cpus)) => Affinity::Cpus(cpus.clone()),
        (Some(_), Some(_)) => return Err(Failure::usage("give --nodes or --cpus, not both")),
    };
    Experiment::own(machine, affinity, workload, loads, policies).map_err(failure)
}

fn failure(error: LabError) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::work(error) }
}

/// A number that is fit for its flag.
fn number<T: FromStr>(flag: &str, text: &str, wanted: &str, fit: impl Fn(&T) -> bool) -> Result<T, Failure> {
    let number = text.trim().parse().ok().filter(fit);
    number.ok_or_else(|| Failure::usage(format!("{flag} `{text}`: must be {wanted}")))
}

/// `1,2,4`.
fn numbers(flag: &str, text: &str) -> Result<Vec<u32>, Failure> {
    let number = |token: &str| {
        let wrong = || Failure::usage(format!("{flag} `{text}`: `{token}` must be a whole number, as in 1,2,4"));
        token.trim().parse().map_err(|_| wrong())
    };
    text.split(',').map(number).collect()
}

/// `linux-5.9,rfc2-cluster`.
fn names(text: &str) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().any(String::is_empty) {
        true => Err(Failure::usage(format!("--policies `{text}`: names at least one policy, with no empty name"))),
        false => Ok(names),
    }
}

/// The shipped experiments.
fn list(args: &Args, json: Option<Output>) -> Result<(), Failure> {
    if args.experiment.is_some() {
        return Err(Failure::usage("--list lists all experiments; leave the experiment's name out"));
    }
    let names = Experiment::names();
    let experiments: Vec<Experiment> =
        names.iter().map(|name| Experiment::load(name)).collect::<Result<_, _>>().map_err(failure)?;
    let mut text = String::new();
    for experiment in &experiments {
        let loads: Vec<String> = experiment.loads.iter().map(u32::to_string).collect();
        text += &format!(
            "{}\n    {}\n    {} at {} {} on {}; {}\n    {} runs of {} s a cell, reduced {} of {} s\n",
            experiment.name,
            experiment.title,
            experiment.workload.name(),
            loads.join(", "),
            experiment.workload.load_unit(),
            experiment.machine,
            experiment.policies.join(", "),
            experiment.runs,
            experiment.seconds,
            experiment.reduced.runs,
            experiment.reduced.seconds,
        );
    }
    output(json, &text, || {
        let entries: Vec<serde_json::Value> = experiments
            .iter()
            .map(|experiment| {
                json!({
                    "name": experiment.name,
                    "title": experiment.title,
                    "machine": experiment.machine,
                    "workload": experiment.workload.name(),
                    "loads": experiment.loads,
                    "policies": experiment.policies,
                    "runs": experiment.runs,
                    "seconds": experiment.seconds,
                    "reduced": { "runs": experiment.reduced.runs, "seconds": experiment.reduced.seconds },
                })
            })
            .collect();
        serde_json::to_string_pretty(&json!({
            "schema": "huddle-experiments/1",
            "version": env!("CARGO_PKG_VERSION"),
            "experiments": entries,
        }))
    })
}

/// A bar on stderr; indicatif hides it when stderr is no terminal.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<6} {wide_bar} {pos}/{len} {elapsed}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: Progress) {
    if progress.done == 0 {
        bar.set_message(progress.stage);
        bar.set_position(0);
        bar.set_length(progress.total as u64);
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
    } else {
        bar.inc(1);
    }
}
