//! Which verdicts of an experiment hang on figures that are assumed.

use std::fmt::Write as _;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use huddle_machine::{COST_KEYS, Confidence, CostKeyInfo, Machine, Value};
use serde::Serialize;

use crate::{Comparison, Experiment, LabError, Options, compare_on};

/// By what an assumed figure is multiplied.
const FACTORS: [f64; 2] = [0.5, 2.0];
/// Other seeds with which the experiment is run as stated.
const SEEDS: u64 = 4;

/// Schema of the JSON form.
pub const SENSITIVITY_SCHEMA: &str = "huddle-sensitivity/2";

/// An experiment's verdicts, and what becomes of them when assumed figures are halved and doubled one by one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// [`SENSITIVITY_SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// The experiment.
    pub experiment: String,
    /// The machine.
    pub machine: String,
    /// Runs of a cell.
    pub runs: u32,
    /// Least simulated time of a run, s.
    pub seconds: f64,
    /// With the machine's own figures.
    pub verdicts: Vec<Verdict>,
    /// What other seeds make of them.
    pub by_chance: Chance,
    /// One for each assumed figure and factor.
    pub figures: Vec<Varied>,
}

/// Verdicts that change with nothing but the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Chance {
    /// Verdicts that other seeds change.
    pub flips: usize,
    /// Verdicts with other seeds.
    pub verdicts: usize,
}

/// A verdict on a policy at a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Load.
    pub load: u32,
    /// Policy.
    pub policy: String,
    /// `better`, `worse`, `same` or `undecided`.
    pub verdict: &'static str,
}

/// What one figure with another value makes of the verdicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Varied {
    /// The figure.
    pub figure: &'static str,
    /// By what it was multiplied, as far as its range allows.
    pub factor: f64,
    /// The verdicts that it changes, as they then are.
    pub flips: Vec<Verdict>,
}

/// Runs the experiment with the machine's figures, then with each assumed one (confidence D, not 0) halved and doubled, and with
/// other seeds: how many verdicts those change is what chance does. The variations run on `options.jobs` threads (0: one per core);
/// the result does not depend on how many. `progress` is told how many are done, of how many, and the one that is.
///
/// # Errors
/// As [`crate::compare`]; of several the first in order.
pub fn sensitivity(
    experiment: &Experiment,
    options: Options,
    progress: &(dyn Fn(usize, usize, &str) + Sync),
) -> Result<Sensitivity, LabError> {
    let machine = Machine::load(&experiment.machine)?;
    let assumed = assumed(&machine);
    let mut variations = vec![Variation::Seed(options.seed)];
    variations.extend((1..=SEEDS).map(|more| Variation::Seed(options.seed.wrapping_add(more))));
    let factors = |&(info, value)| FACTORS.map(|factor| Variation::Figure(info, value, factor));
    variations.extend(assumed.iter().flat_map(factors));
    let run = |variation: &Variation| {
        let (machine, seed) = match *variation {
            Variation::Seed(seed) => (machine.clone(), seed),
            Variation::Figure(info, value, factor) => {
                (with_figure(&machine, info, multiplied(value, factor, info.most())), options.seed)
            }
        };
        let comparison = compare_on(machine, experiment, Options { jobs: 1, seed, ..options }, &|_| ())?;
        Ok(verdicts(&comparison))
    };
    let mut results = on_threads(options.jobs, &variations, run, progress)?.into_iter();
    let stated = results.next().unwrap_or_default();
    let flips = |then: Vec<Verdict>| -> Vec<Verdict> {
        then.into_iter().zip(&stated).filter(|(then, now)| then != *now).map(|(then, _)| then).collect()
    };
    let by_chance: usize = results.by_ref().take(SEEDS as usize).map(|then| flips(then).len()).sum();
    let figures =
        variations.iter().skip(1 + SEEDS as usize).zip(results).filter_map(|(variation, then)| match variation {
            Variation::Figure(info, _, factor) => {
                Some(Varied { figure: info.name, factor: *factor, flips: flips(then) })
            }
            Variation::Seed(_) => None,
        });
    Ok(Sensitivity {
        schema: SENSITIVITY_SCHEMA,
        version: options.version,
        experiment: experiment.name.clone(),
        machine: machine.name.clone(),
        runs: experiment.runs,
        seconds: experiment.seconds,
        figures: figures.collect(),
        by_chance: Chance { flips: by_chance, verdicts: SEEDS as usize * stated.len() },
        verdicts: stated,
    })
}

/// What differs from the experiment as stated.
enum Variation {
    /// Nothing but the seed.
    Seed(u64),
    /// A figure, its value as stated, by what it is multiplied.
    Figure(&'static CostKeyInfo, Value, f64),
}

impl Variation {
    fn name(&self) -> String {
        match self {
            Variation::Seed(seed) => format!("as stated, seed {seed}"),
            Variation::Figure(info, _, factor) => format!("{} x {factor}", info.name),
        }
    }
}

/// The results of all variations in order, or the first error in order.
fn on_threads(
    jobs: usize,
    variations: &[Variation],
    run: impl Fn(&Variation) -> Result<Vec<Verdict>, LabError> + Sync,
    progress: &(dyn Fn(usize, usize, &str) + Sync),
) -> Result<Vec<Vec<Verdict>>, LabError> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    let threads = if jobs == 0 { cores() } else { jobs }.min(variations.len());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::with_capacity(variations.len()));
    progress(0, variations.len(), "");
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(variation) = variations.get(index) else { return };
            let result = run(variation);
            if result.is_err() {
                // Those before have been begun, those after need not be.
                next.store(variations.len(), Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, variations.len(), &variation.name());
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|&(index, _)| index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn verdicts(comparison: &Comparison) -> Vec<Verdict> {
    let of_load = |load: &crate::Load| {
        let number = load.load;
        load.changes
            .iter()
            .map(move |change| Verdict { load: number, policy: change.policy.clone(), verdict: change.verdict })
            .collect::<Vec<_>>()
    };
    comparison.loads.iter().flat_map(of_load).collect()
}

/// The machine's assumed figures that are not 0.
fn assumed(machine: &Machine) -> Vec<(&'static CostKeyInfo, Value)> {
    let zero = |value: &Value| match value {
        Value::Scalar(value) => *value == 0.0,
        Value::ByDistance(values) => values.iter().flatten().all(|&value| value == 0.0),
    };
    COST_KEYS
        .iter()
        .map(|info| (info, machine.costs.figure(info.key)))
        .filter(|(_, figure)| figure.confidence == Confidence::D && !zero(&figure.value))
        .map(|(info, figure)| (info, figure.value))
        .collect()
}

/// A figure's value multiplied, but not beyond what it may be.
fn multiplied(value: Value, factor: f64, most: f64) -> Value {
    let one = |value: f64| (value * factor).min(most);
    match value {
        Value::Scalar(value) => Value::Scalar(one(value)),
        Value::ByDistance(values) => Value::ByDistance(values.map(|value| value.map(one))),
    }
}

fn with_figure(machine: &Machine, info: &CostKeyInfo, value: Value) -> Machine {
    let mut changed = machine.clone();
    changed.costs.set_value(info.key, value);
    changed
}

/// The table: verdicts as stated, then the figures that change one.
pub fn render_sensitivity(sensitivity: &Sensitivity) -> String {
    let Sensitivity { experiment, machine, runs, seconds, verdicts, figures, by_chance, .. } = sensitivity;
    let mut text = format!(
        "{experiment} on {machine}, {runs} runs a cell, each at least {seconds} s of simulated time: verdicts with the figures \
         as stated\n\n"
    );
    for Verdict { load, policy, verdict } in verdicts {
        let _ = writeln!(text, "  {load:>4}  {policy:<28}  {verdict}");
    }
    let flipping: Vec<&Varied> = figures.iter().filter(|varied| !varied.flips.is_empty()).collect();
    let _ = writeln!(
        text,
        "\nby chance: {} other seeds change {} of {} verdicts\n\
         {} assumed figures (D), each x {} and x {}: {} of {} variations change a verdict, {} of {} verdicts",
        SEEDS,
        by_chance.flips,
        by_chance.verdicts,
        figures.len() / FACTORS.len(),
        FACTORS[0],
        FACTORS[1],
        flipping.len(),
        figures.len(),
        flipping.iter().map(|varied| varied.flips.len()).sum::<usize>(),
        figures.len() * verdicts.len(),
    );
    for Varied { figure, factor, flips } in flipping {
        for Verdict { load, policy, verdict } in flips {
            let _ = writeln!(text, "  {figure:<20} x {factor:<4}  {load:>4}  {policy:<28}  {verdict}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use huddle_machine::Distance;

    use super::*;
    use crate::Spread;

    #[test]
    fn a_value_is_multiplied_up_to_what_it_may_be() {
        assert_eq!(multiplied(Value::Scalar(3.0), 0.5, 10.0), Value::Scalar(1.5));
        assert_eq!(multiplied(Value::Scalar(0.625), 2.0, 1.0), Value::Scalar(1.0));
        let mut values = [None; Distance::COUNT];
        values[2] = Some(4.0);
        let mut doubled = values;
        doubled[2] = Some(8.0);
        assert_eq!(multiplied(Value::ByDistance(values), 2.0, 100.0), Value::ByDistance(doubled));
    }

    #[test]
    fn kunpeng_only_assumed_figures_are_varied() {
        let machine = Machine::load("kunpeng920").unwrap();
        let varied = assumed(&machine);
        assert!(!varied.is_empty() && varied.len() < COST_KEYS.len());
        for (info, _) in &varied {
            assert_eq!(machine.costs.figure(info.key).confidence, Confidence::D, "{}", info.name);
        }
        let (info, value) = varied[0];
        let changed = with_figure(&machine, info, multiplied(value, 2.0, f64::MAX));
        assert_ne!(changed.costs.figure(info.key).value, value);
        assert_eq!(changed.costs.figure(info.key).confidence, Confidence::D);
    }

    #[test]
    fn each_assumed_figure_is_run_twice_and_flips_are_those_that_differ() {
        let mut experiment = Experiment::load("jacobsville-mcf").unwrap();
        experiment.reduce();
        experiment.last(0.2);
        experiment.runs = 1;
        experiment.restrict(experiment.policies.clone(), vec![6]);
        let options = Options { seed: 1, jobs: 1, std: Spread::Sample, version: "test" };
        let told = AtomicUsize::new(0);
        let progress = |done: usize, _: usize, _: &str| {
            told.fetch_max(done, Ordering::Relaxed);
        };
        let result = sensitivity(&experiment, options, &progress).unwrap();
        let more = Options { jobs: 3, ..options };
        assert_eq!(sensitivity(&experiment, more, &progress).unwrap(), result);
        let assumed = assumed(&Machine::load("jacobsville").unwrap()).len();
        assert_eq!((told.into_inner(), result.figures.len()), (1 + SEEDS as usize + 2 * assumed, 2 * assumed));
        assert_eq!(result.by_chance.verdicts, SEEDS as usize);
        assert_eq!(result.verdicts.len(), 1);
        for flip in result.figures.iter().flat_map(|varied| &varied.flips) {
            assert_ne!(flip.verdict, result.verdicts[0].verdict);
        }
        assert!(render_sensitivity(&result).contains(&format!("{assumed} assumed figures (D), each x 0.5 and x 2")));
    }
}
