//! Means, spreads, tests and verdicts: everything a table says about a set of runs.
//!
//! A function answers `None` where the numbers do not allow an answer (no runs, one run, a zero mean, a value that is not
//! finite); tables print it as `n/a`. Changes are signed so that **positive is better**, whichever way the metric points.

mod welch;

pub use welch::{Verdict, Welch};

/// Which way a metric points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less is better: seconds.
    Lower,
    /// More is better: a rate.
    Higher,
}

/// How a standard deviation divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// By n, as the field's tables do.
    Population,
    /// By n - 1, the unbiased one; tests use it.
    Sample,
}

/// Arithmetic mean; `None` without values or when it is not finite.
pub fn mean(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    mean.is_finite().then_some(mean)
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    match sorted.len() % 2 {
        1 => Some(upper),
        _ => Some((sorted[sorted.len() / 2 - 1] + upper) / 2.0),
    }
}

/// Standard deviation; `None` for fewer than two values, since one run says nothing about spread.
pub fn std(values: &[f64], spread: Spread) -> Option<f64> {
    let divisor = match spread {
        _ if values.len() < 2 => return None,
        Spread::Population => values.len(),
        Spread::Sample => values.len() - 1,
    };
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some((squares / divisor as f64).sqrt()).filter(|std| std.is_finite())
}

/// The coefficient of variation in percent, `std%` of the tables: standard deviation by the values' own mean.
pub fn std_percent(values: &[f64], spread: Spread) -> Option<f64> {
    ratio(std(values, spread)?, mean(values)?).map(|ratio| 100.0 * ratio.abs())
}

/// Change of `value` against `baseline` in percent, positive is better: `1 - value / baseline` where less is better,
/// `value / baseline - 1` where more is. `None` for a zero baseline.
pub fn change_percent(better: Better, baseline: f64, value: f64) -> Option<f64> {
    let grown = 100.0 * ratio(value - baseline, baseline)?;
    Some(match better {
        // Adding 0.0 turns a negative zero into a plain one.
        Better::Lower => 0.0 - grown,
        Better::Higher => grown + 0.0,
    })
}

/// Two spreads taken together: a change that exceeds twice this stands out (`sqrt(a² + b²)`).
pub fn combined(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

/// `a / b` where that is a number.
fn ratio(a: f64, b: f64) -> Option<f64> {
    Some(a / b).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_median_of_four() {
        let values = [4.0, 1.0, 2.0, 9.0];
        assert_eq!(mean(&values), Some(4.0));
        assert_eq!(median(&values), Some(3.0));
        assert_eq!(median(&values[..3]), Some(2.0));
    }

    #[test]
    fn both_standard_deviations() {
        // Squares about the mean 5: 9 1 1 1 0 0 4 16 = 32.
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(std(&values, Spread::Population), Some(2.0));
        assert_eq!(std(&values, Spread::Sample), Some((32.0_f64 / 7.0).sqrt()));
        assert_eq!(std_percent(&values, Spread::Population), Some(40.0));
    }

    #[test]
    fn positive_is_better_whichever_way_the_metric_points() {
        assert_eq!(change_percent(Better::Lower, 10.0, 8.0), Some(20.0));
        assert_eq!(change_percent(Better::Lower, 10.0, 12.5), Some(-25.0));
        assert_eq!(change_percent(Better::Higher, 10.0, 12.5), Some(25.0));
        assert_eq!(change_percent(Better::Lower, 10.0, 10.0).map(f64::is_sign_positive), Some(true));
    }

    #[test]
    fn nothing_is_claimed_of_no_run_one_run_or_a_zero_mean() {
        assert_eq!((mean(&[]), median(&[]), std(&[], Spread::Population)), (None, None, None));
        assert_eq!((mean(&[3.0]), median(&[3.0]), std(&[3.0], Spread::Population)), (Some(3.0), Some(3.0), None));
        assert_eq!(std_percent(&[-1.0, 1.0], Spread::Population), None);
        assert_eq!(change_percent(Better::Lower, 0.0, 1.0), None);
        assert_eq!(change_percent(Better::Higher, 0.0, 0.0), None);
    }

    #[test]
    fn a_value_that_is_not_a_number_spoils_the_set() {
        let values = [1.0, f64::NAN, 2.0];
        assert_eq!((mean(&values), median(&values), std(&values, Spread::Sample)), (None, None, None));
        assert_eq!(change_percent(Better::Lower, 1.0, f64::NAN), None);
        assert_eq!(mean(&[f64::INFINITY]), None);
    }
}
