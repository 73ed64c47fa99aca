//! Welch's t-test and the verdict that rests on it.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{Better, Spread, change_percent, mean, std};

/// Welch's unequal-variances t-test of two sets of runs, in percent of the baseline's mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Mean change in percent of the baseline's mean, positive is better.
    pub change: f64,
    /// Difference of the means by its standard error, positive is better; infinite when neither side varies.
    pub t: f64,
    /// Probability of so large a difference, either way, if there were none.
    pub p: f64,
    /// Lower end of the 95 % interval of the change, percent.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What the runs allow to be said of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The 95 % interval lies above 0.
    Better,
    /// The 95 % interval lies below 0.
    Worse,
    /// The 95 % interval holds 0 and lies within ±[`Verdict::SAME_PERCENT`], or all of it prints as 0.00 %: simulated runs
    /// can differ by nanoseconds and by that without spread.
    Same,
    /// The runs are too few or too scattered to say.
    Undecided,
}

impl Welch {
    /// Compares `runs` against `baseline`. The interval is the difference's, divided by the baseline's mean as a fixed
    /// scale, so it excludes 0 exactly when the test's p is below 0.05. `None` for fewer than two runs on a side, a zero
    /// baseline or a value that is not finite.
    pub fn test(better: Better, baseline: &[f64], runs: &[f64]) -> Option<Welch> {
        let (base_mean, run_mean) = (mean(baseline)?, mean(runs)?);
        let change = change_percent(better, base_mean, run_mean)?;
        let share = |values: &[f64]| Some(std(values, Spread::Sample)?.powi(2) / values.len() as f64);
        let (base_share, run_share) = (share(baseline)?, share(runs)?);
        let error = 100.0 * (base_share + run_share).sqrt() / base_mean.abs();
        if error == 0.0 {
            let (t, p) = if change == 0.0 { (0.0, 1.0) } else { (f64::INFINITY.copysign(change), 0.0) };
            return Some(Welch { change, t, p, low: change, high: change });
        }
        // The Welch-Satterthwaite degrees of freedom.
        let degrees = (base_share + run_share).powi(2)
            / (base_share.powi(2) / (baseline.len() - 1) as f64 + run_share.powi(2) / (runs.len() - 1) as f64);
        let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
        let t = change / error;
        let half = distribution.inverse_cdf(0.975) * error;
        Some(Welch { change, t, p: 2.0 * distribution.cdf(-t.abs()), low: change - half, high: change + half })
    }
}

impl Verdict {
    /// Half width, in percent, of what counts as no change.
    pub const SAME_PERCENT: f64 = 1.0;

    /// A change below this is printed as 0.00 %.
    pub const NOTHING_PERCENT: f64 = 0.005;

    /// The verdict on a test; undecided without one.
    pub fn of(test: Option<Welch>) -> Verdict {
        match test {
            Some(test) if test.low.abs().max(test.high.abs()) < Self::NOTHING_PERCENT => Verdict::Same,
            Some(test) if test.low > 0.0 => Verdict::Better,
            Some(test) if test.high < 0.0 => Verdict::Worse,
            Some(test) if test.low > -Self::SAME_PERCENT && test.high < Self::SAME_PERCENT => Verdict::Same,
            _ => Verdict::Undecided,
        }
    }

    /// The word used in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "same",
            Verdict::Undecided => "undecided",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kunpeng 920, one node, two groups, ten runs each side (seed message 000).
    const TWO_GROUPS_WITHOUT: [f64; 10] =
        [10.127, 10.119, 10.070, 10.196, 10.057, 10.111, 10.045, 10.164, 10.162, 9.955];
    const TWO_GROUPS_WITH: [f64; 10] = [9.694, 9.654, 9.612, 9.649, 9.686, 9.734, 9.607, 9.842, 9.690, 9.710];
    /// The same with three groups.
    const THREE_GROUPS_WITHOUT: [f64; 10] =
        [15.885, 15.254, 15.932, 15.647, 16.120, 15.878, 15.857, 15.759, 15.674, 15.721];
    const THREE_GROUPS_WITH: [f64; 10] =
        [14.974, 14.657, 13.969, 14.985, 14.728, 15.665, 15.191, 14.995, 14.946, 14.895];

    fn close(value: f64, expected: f64, within: f64) {
        assert!((value - expected).abs() < within, "{value} is not {expected}");
    }

    #[test]
    fn kunpeng_one_node_two_groups_gains_4_09_percent_at_t_13_31() {
        let test = Welch::test(Better::Lower, &TWO_GROUPS_WITHOUT, &TWO_GROUPS_WITH).unwrap();
        close(test.change, 4.0869, 0.0001);
        close(test.t, 13.3126, 0.0001);
        // 17.97 degrees of freedom: t(0.975) = 2.1012 of an error of 0.3070 percent.
        close(test.high - test.low, 2.0 * 2.1012 * 0.30699, 0.0005);
        assert!(test.p < 1e-9);
        assert_eq!(Verdict::of(Some(test)), Verdict::Better);
    }

    #[test]
    fn kunpeng_one_node_three_groups_gains_5_53_percent_at_t_5_68() {
        let test = Welch::test(Better::Lower, &THREE_GROUPS_WITHOUT, &THREE_GROUPS_WITH).unwrap();
        close(test.change, 5.5298, 0.0001);
        close(test.t, 5.678, 0.001);
    }

    #[test]
    fn t_of_student_with_four_degrees() {
        // Equal sizes and variances: n = 3, variance 1, difference 2, error sqrt(2/3), 4 degrees, t(0.975) = 2.7764.
        let test = Welch::test(Better::Higher, &[9.0, 10.0, 11.0], &[11.0, 12.0, 13.0]).unwrap();
        close(test.t, 2.449_49, 1e-5);
        close(test.p, 0.0705, 0.0001);
        close(test.low, 20.0 - 2.7764 * 8.1650, 0.001);
        assert_eq!(Verdict::of(Some(test)), Verdict::Undecided);
    }

    #[test]
    fn a_loss_is_worse_and_no_change_is_the_same() {
        let loss = Welch::test(Better::Lower, &TWO_GROUPS_WITH, &TWO_GROUPS_WITHOUT);
        assert_eq!(Verdict::of(loss), Verdict::Worse);
        let none = Welch::test(Better::Lower, &TWO_GROUPS_WITH, &TWO_GROUPS_WITH);
        assert_eq!(Verdict::of(none), Verdict::Same);
    }

    #[test]
    fn runs_without_spread_are_decided_by_their_difference_alone() {
        let equal = Welch::test(Better::Lower, &[2.0, 2.0], &[2.0, 2.0]).unwrap();
        assert_eq!((equal.t, equal.p, Verdict::of(Some(equal))), (0.0, 1.0, Verdict::Same));
        let worse = Welch::test(Better::Lower, &[2.0, 2.0], &[3.0, 3.0]).unwrap();
        assert_eq!((worse.t, worse.p, Verdict::of(Some(worse))), (f64::NEG_INFINITY, 0.0, Verdict::Worse));
    }

    #[test]
    fn a_difference_that_prints_as_nothing_is_the_same_however_sure_it_is() {
        let test = Welch::test(Better::Lower, &[1.0, 1.0, 1.0], &[1.000_01, 1.000_01, 1.000_01]).unwrap();
        assert!(test.high < 0.0);
        assert_eq!(Verdict::of(Some(test)), Verdict::Same);
    }

    #[test]
    fn one_run_is_undecided() {
        assert_eq!(Welch::test(Better::Lower, &[2.0], &[1.0, 1.1]), None);
        assert_eq!(Welch::test(Better::Lower, &[2.0, f64::NAN], &[1.0, 1.1]), None);
        assert_eq!(Verdict::of(None), Verdict::Undecided);
    }
}
