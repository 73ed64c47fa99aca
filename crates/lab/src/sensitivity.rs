//! Which verdicts of an experiment hang on figures that are assumed.

use std::fmt::Write as _;

use huddle_machine::{COST_KEYS, Confidence, CostKeyInfo, Machine, Value};
use serde::Serialize;

use crate::{Comparison, Experiment, LabError, Options, Progress, compare_on};

/// By what an assumed figure is multiplied.
const FACTORS: [f64; 2] = [0.5, 2.0];

/// Schema of the JSON form.
pub const SENSITIVITY_SCHEMA: &str = "huddle-sensitivity/1";

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
    /// With the machine's own figures.
    pub verdicts: Vec<Verdict>,
    /// One for each assumed figure and factor.
    pub figures: Vec<Varied>,
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

/// Runs the experiment with the machine's figures, then with each assumed one (confidence D, not 0) halved and doubled. `varied` is told the figure
/// before its runs, `progress` of the runs as in [`crate::compare`].
///
/// # Errors
/// As [`crate::compare`].
pub fn sensitivity(
    experiment: &Experiment,
    options: Options,
    varied: &dyn Fn(&str),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Sensitivity, LabError> {
    let machine = Machine::load(&experiment.machine)?;
    varied("as stated");
    let verdicts = verdicts(&compare_on(machine.clone(), experiment, options, progress)?);
    let mut figures = Vec::new();
    for (info, value) in assumed(&machine) {
        for factor in FACTORS {
            varied(&format!("{} x {factor}", info.name));
            let changed = with_figure(&machine, info, multiplied(value, factor, info.most()));
            let then = self::verdicts(&compare_on(changed, experiment, options, progress)?);
            let flips = then.into_iter().zip(&verdicts).filter(|(then, now)| then != *now).map(|(then, _)| then);
            figures.push(Varied { figure: info.name, factor, flips: flips.collect() });
        }
    }
    Ok(Sensitivity {
        schema: SENSITIVITY_SCHEMA,
        version: options.version,
        experiment: experiment.name.clone(),
        machine: machine.name,
        verdicts,
        figures,
    })
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
    let Sensitivity { experiment, machine, verdicts, figures, .. } = sensitivity;
    let mut text = format!("{experiment} on {machine}: verdicts with the figures as stated\n\n");
    for Verdict { load, policy, verdict } in verdicts {
        let _ = writeln!(text, "  {load:>4}  {policy:<28}  {verdict}");
    }
    let flipping: Vec<&Varied> = figures.iter().filter(|varied| !varied.flips.is_empty()).collect();
    let _ = writeln!(
        text,
        "\n{} assumed figures (D), each x {} and x {}: {} of {} variations change a verdict",
        figures.len() / FACTORS.len(),
        FACTORS[0],
        FACTORS[1],
        flipping.len(),
        figures.len()
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
        let told = std::cell::RefCell::new(Vec::new());
        let result =
            sensitivity(&experiment, options, &|name| told.borrow_mut().push(name.to_owned()), &|_| ()).unwrap();
        let assumed = assumed(&Machine::load("jacobsville").unwrap()).len();
        assert_eq!((told.borrow().len(), result.figures.len()), (1 + 2 * assumed, 2 * assumed));
        assert_eq!(result.verdicts.len(), 1);
        for flip in result.figures.iter().flat_map(|varied| &varied.flips) {
            assert_ne!(flip.verdict, result.verdicts[0].verdict);
        }
        assert!(render_sensitivity(&result).contains(&format!("{assumed} assumed figures (D), each x 0.5 and x 2")));
    }
}
