//! A comparison as text: the field's table, then what it rests on.

use std::fmt::Write as _;

use crate::{Cell, Change, Comparison, Level, Load, Named};

/// The whole text. Lines keep to about 120 columns.
pub fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    head(&mut out, comparison);
    for index in 1..comparison.policies.len() {
        against(&mut out, comparison, index - 1);
    }
    levels(&mut out, comparison);
    if comparison.machine.nodes_used > 1 {
        states(&mut out, comparison);
    }
    time(&mut out, comparison);
    wakes(&mut out, comparison);
    steps(&mut out, comparison);
    migrations(&mut out, comparison);
    foot(&mut out, comparison);
    out
}

/// Appends a line. Writing to a string cannot fail.
macro_rules! line {
    ($out:expr) => { $out.push('\n') };
    ($out:expr, $($format:tt)*) => {{
        let _ = writeln!($out, $($format)*);
    }};
}

fn head(out: &mut String, comparison: &Comparison) {
    let Comparison { machine, metric, .. } = comparison;
    line!(out, "{}: {}", comparison.experiment, comparison.title);
    line!(out);
    line!(out, "  machine    {}: {}", machine.name, machine.title);
    let nodes = if machine.nodes_used > 1 { format!(", {} nodes", machine.nodes_used) } else { String::new() };
    line!(out, "  CPUs       {} ({} of {}{nodes})", machine.used, machine.cpus_used, machine.cpus);
    line!(out, "  workload   {}; {}", comparison.workload, metric.description);
    let length = match comparison.seconds {
        Some(seconds) => format!(", each at least {seconds} s of simulated time"),
        None => String::new(),
    };
    let runs = if comparison.runs == 1 { "run" } else { "runs" };
    line!(out, "  runs       {} {runs} a cell{length}, seed {}", comparison.runs, comparison.seed);
    changed(out, comparison);
    for (index, policy) in comparison.policies.iter().enumerate() {
        let label = if index == 0 { "baseline" } else { "policy" };
        line!(out, "  {label:<9}  {} on kernel {}", policy.name, policy.kernel);
    }
    if let Some(overrides) = &comparison.overrides {
        let parts: Vec<String> = overrides.0.iter().map(|(part, record)| format!("{part}={record}")).collect();
        line!(out, "  override   {} for all policies, in place of their own kernels' parts", parts.join(","));
    }
    if let Some(source) = &comparison.published_source {
        for (index, text) in wrapped(source, 105).iter().enumerate() {
            line!(out, "  {:<9}  {text}", if index == 0 { "published" } else { "" });
        }
    }
}

/// What is other than the machine and the kernels have it.
fn changed(out: &mut String, comparison: &Comparison) {
    let changed = &comparison.changed;
    if !changed.without.is_empty() {
        for (index, text) in wrapped(&changed.without.join(", "), 105).iter().enumerate() {
            line!(out, "  {:<9}  {text}", if index == 0 { "without" } else { "" });
        }
    }
    let (at_boot, after) = if changed.cluster == "off" { ("off", "on") } else { ("on", "off") };
    let text = match changed.switch_cluster_s {
        None if at_boot == "on" => return,
        None => "level off".to_owned(),
        Some(at) => format!("level {at_boot} at boot, switched {after} {at} s after a run's start"),
    };
    let having = comparison.policies.iter().filter(|policy| policy.has_cluster_level);
    let having: Vec<&str> = having.map(|policy| policy.name.as_str()).collect();
    line!(out, "  cluster    {text}, for {}", having.join(", "));
    let runs =
        || comparison.loads.iter().flat_map(|load| &load.cells).filter(|cell| having.contains(&cell.policy.as_str()));
    let over = runs().flat_map(|cell| &cell.runs).filter(|run| run.rebuilt_s.is_none()).count();
    if changed.switch_cluster_s.is_some() && over > 0 {
        line!(out, "             {over} of their runs ended before that");
    }
}

/// One policy against the baseline: the table in the layout of the field's report script (spec/workloads §8), then the
/// same rows beside what was published.
fn against(out: &mut String, comparison: &Comparison, index: usize) {
    let (suite, case) = comparison.workload.split_once('/').unwrap_or((&comparison.workload, ""));
    let baseline = &comparison.policies[0].name;
    heading(out, &format!("{} against {baseline}", comparison.policies[index + 1].name));
    line!(out, "{suite}\n{}", "=".repeat(suite.len()));
    line!(out, "{:<16}\t{:<8}\t{}\t{}", "case", "load", "baseline(std%)", "compare%( std%)");
    let mut rows: Vec<(&Load, &Change)> =
        comparison.loads.iter().filter_map(|load| Some((load, load.changes.get(index)?))).collect();
    rows.sort_by_key(|(load, _)| load.load);
    for &(load, change) in &rows {
        let of_load = format!("{}-{}", load.load, comparison.metric.load_unit);
        let (base, cell) = (spread(&load.cells[0]), spread(&load.cells[index + 1]));
        let percent = format!("{:>6}", signed(change.percent, 2));
        line!(out, "{case:<16}\t{of_load:<8}\t{:5.2} ({base})\t{percent} ({cell})", 1.0);
    }
    line!(out);
    let mut table =
        Table::new(&["<load", "change%", "95% interval", "p", "<verdict", "published%", "/spread", "<sign"]);
    for &(load, change) in &rows {
        let interval = match (change.low, change.high) {
            (Some(_), Some(_)) => format!("{} .. {}", signed(change.low, 2), signed(change.high, 2)),
            _ => "n/a".to_owned(),
        };
        let sign = match change.sign_agrees {
            Some(true) => "agrees",
            Some(false) => "differs",
            None => "",
        };
        table.row([
            format!("{} {}", load.load, comparison.metric.load_unit),
            signed(change.percent, 2),
            interval,
            change
                .p
                .map_or_else(|| "n/a".to_owned(), |p| if p < 0.0001 { "<0.0001".into() } else { format!("{p:.4}") }),
            change.verdict.to_owned(),
            change.published_percent.map_or_else(String::new, |percent| signed(Some(percent), 2)),
            change.published_over_spread.map_or_else(String::new, |over| format!("{over:+.1}")),
            sign.to_owned(),
        ]);
    }
    table.print(out);
}

/// `%6.2f` of the standard deviation in percent.
fn spread(cell: &Cell) -> String {
    cell.std_percent.map_or_else(|| format!("{:>6}", "n/a"), |std| format!("{std:6.2}"))
}

fn levels(out: &mut String, comparison: &Comparison) {
    let unit = comparison.metric.unit;
    let mut cells = comparison.loads.iter().flat_map(|load| &load.cells);
    let beside = if cells.any(|cell| cell.published != Level::default()) { ", simulated beside published" } else { "" };
    heading(out, &format!("Level and utilisation{beside}"));
    let (mean, published) = (format!("mean {unit}"), format!("published {unit}"));
    let mut table = Table::new(&[
        "load",
        "<policy",
        &mean,
        "std%",
        &published,
        "std%",
        "ratio",
        "util%",
        "stated%",
        "shortest run s",
    ]);
    for_cells(comparison, &mut table, |cell| {
        let level = cell.published;
        vec![
            number(cell.mean, 3),
            number(cell.std_percent, 2),
            level.seconds.map_or_else(String::new, |seconds| format!("{seconds:.3}")),
            level.std_percent.map_or_else(String::new, |std| format!("{std:.2}")),
            level.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            number(cell.utilisation_percent, 1),
            level.utilisation_percent.map_or_else(String::new, |stated| format!("~{stated:.0}")),
            format!("{:.2}", cell.shortest_s),
        ]
    });
    table.print(out);
    let lengths = comparison.loads.iter().map(|load| format!("{}:{}", load.load, load.parameters));
    for text in wrapped(&format!("Parameters by load: {}", lengths.collect::<Vec<_>>().join(" ")), 116) {
        line!(out, "  {text}");
    }
}

/// Bins of a distribution's strip.
const BINS: usize = 24;

fn states(out: &mut String, comparison: &Comparison) {
    let unit = comparison.metric.unit;
    heading(out, &format!("Gathered or spread groups, and the distribution of the runs ({unit})"));
    let mut table = Table::new(&[
        "load",
        "<policy",
        "purity",
        "wide%",
        "gathered",
        "spread",
        "min",
        "median",
        "max",
        "<distribution",
    ]);
    for load in &comparison.loads {
        let values = || load.cells.iter().flat_map(|cell| &cell.runs).map(|run| run.value);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        for_load(load, &mut table, |cell| {
            vec![
                number(cell.purity, 2),
                format!("{:.1}", cell.wakes.wide_percent),
                cell.gathered.map_or_else(|| "n/a".to_owned(), |count| count.to_string()),
                cell.spread.map_or_else(|| "n/a".to_owned(), |count| count.to_string()),
                number(cell.min, 2),
                number(cell.median, 2),
                number(cell.max, 2),
                strip(cell, low, high),
            ]
        });
    }
    table.print(out);
    line!(
        out,
        "  Gathered: purity nearer to 1 than to that of groups dealt evenly over the nodes. Distribution: number of"
    );
    line!(out, "  runs by value, from the least to the greatest of the load.");
}

/// A histogram in one line: how many runs fall into each of [`BINS`] equal bins from `low` to `high`.
fn strip(cell: &Cell, low: f64, high: f64) -> String {
    let mut counts = [0_u32; BINS];
    for run in &cell.runs {
        let bin = (run.value - low) / (high - low) * BINS as f64;
        counts[(bin as usize).min(BINS - 1)] += 1;
    }
    let mark = |count| match count {
        0 => '.',
        10.. => '+',
        _ => char::from_digit(count, 10).unwrap_or('+'),
    };
    counts.into_iter().map(mark).collect()
}

fn time(out: &mut String, comparison: &Comparison) {
    heading(out, "Where the time goes (percent of the CPUs' time)");
    shares(out, comparison, |cell| &cell.time_percent);
}

fn wakes(out: &mut String, comparison: &Comparison) {
    heading(out, "Wake-ups (percent of all)");
    let mut table = Table::new(&[
        "load",
        "<policy",
        "wake-ups/s",
        "unplaced",
        "wide",
        "stacked",
        "collided",
        "exhausted",
        "CPUs examined each",
    ]);
    for_cells(comparison, &mut table, |cell| {
        let wakes = &cell.wakes;
        vec![
            format!("{:.0}", wakes.per_s),
            format!("{:.1}", wakes.unplaced_percent),
            format!("{:.1}", wakes.wide_percent),
            format!("{:.1}", wakes.stacked_percent),
            format!("{:.1}", wakes.collided_percent),
            format!("{:.1}", wakes.exhausted_percent),
            format!("{:.1}", wakes.examined),
        ]
    });
    table.print(out);
    line!(
        out,
        "  Unplaced: not yet asleep; wide: many partners; stacked: busy CPU; collided: idle CPU taken; exhausted: scan cut off"
    );
}

/// Shares below this are left out of lists, percent.
const SHOWN_PERCENT: f64 = 0.5;

/// Steps named in a line, most used first.
const STEPS: usize = 5;

fn steps(out: &mut String, comparison: &Comparison) {
    heading(out, "Which step placed them, and how far away (percent of all)");
    let mut table = Table::new(&["load", "<policy", "<steps"]);
    for_cells(comparison, &mut table, |cell| {
        let total = |(name, shares): &(String, Named<f64>)| {
            (name.clone(), shares.0.iter().map(|(_, share)| share).sum::<f64>())
        };
        let mut sums: Vec<(String, f64)> = cell.wakes.steps_percent.0.iter().map(total).collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        vec![list(&sums[..sums.len().min(STEPS)], ", ")]
    });
    table.print(out);
    line!(out);
    let mut table = Table::new(&["load", "<policy", "<from previous CPU", "<from waker"]);
    for_cells(comparison, &mut table, |cell| {
        let mut distances: Vec<(String, f64)> = Vec::new();
        let by_step = cell.wakes.steps_percent.0.iter();
        for (index, (name, share)) in by_step.flat_map(|(_, shares)| shares.0.iter().enumerate()) {
            match distances.get_mut(index) {
                Some(sum) => sum.1 += share,
                None => distances.push((name.clone(), *share)),
            }
        }
        vec![list(&distances, " "), list(&cell.wakes.waker_to_chosen_percent.0, " ")]
    });
    table.print(out);
}

/// `TargetIdle 41, ScanLlc 30`, small shares left out.
fn list(shares: &[(String, f64)], separator: &str) -> String {
    let shown = shares.iter().filter(|(_, share)| *share >= SHOWN_PERCENT);
    shown.map(|(name, share)| format!("{name} {share:.0}")).collect::<Vec<_>>().join(separator)
}

fn migrations(out: &mut String, comparison: &Comparison) {
    heading(out, "Migrations other than by wake-up (per simulated second)");
    let all: &dyn Fn(&Cell) -> &Named<f64> = &|cell| &cell.migrations_per_s;
    if comparison.loads.iter().flat_map(|load| &load.cells).all(|cell| all(cell).0.iter().all(|(_, rate)| *rate == 0.0))
    {
        line!(out, "  none");
        return;
    }
    shares(out, comparison, all);
}

fn foot(out: &mut String, comparison: &Comparison) {
    line!(out);
    line!(
        out,
        "Simulated {:.1} s in {} runs.",
        comparison.simulated_s,
        comparison.loads.iter().flat_map(|load| &load.cells).map(|cell| cell.runs.len()).sum::<usize>()
    );
    if let Some(seconds) = comparison.seconds {
        let cells = comparison.loads.iter().flat_map(|load| &load.cells);
        let short = cells.filter(|cell| cell.shortest_s < seconds).count();
        if short > 0 {
            let cells = if short == 1 { "cell has" } else { "cells have" };
            line!(out, "{short} {cells} a run shorter than the {seconds} s asked for: it went faster than its pilot.");
        }
    }
    if comparison.published_source.is_none() {
        return;
    }
    let agreement = comparison.agreement;
    if agreement.clear > 0 {
        let (agree, small) = signs(agreement.clear, agreement.clear_agree, agreement.clear_small);
        line!(
            out,
            "Published changes beyond twice their spread: {}, of which the simulation gives {agree} the same sign{small}.",
            agreement.clear
        );
    }
    if agreement.unclear > 0 {
        line!(
            out,
            "Published changes within twice their spread, where no sign can be expected: {}.",
            agreement.unclear
        );
    }
    if agreement.without_spread > 0 {
        let (agree, small) =
            signs(agreement.without_spread, agreement.without_spread_agree, agreement.without_spread_small);
        line!(
            out,
            "Changes published without spread: {}, of which {agree} have the same sign{small}.",
            agreement.without_spread
        );
    }
}

/// `2`; or, when some of the changes are too small to have a sign, `2 of 2` and a clause that says so.
fn signs(all: usize, agree: usize, small: usize) -> (String, String) {
    match small {
        0 => (agree.to_string(), String::new()),
        _ => (format!("{agree} of {}", all - small), format!("; {small} too small to have a sign")),
    }
}

/// A table with a row per load and policy and a column for each name that is 0.05 or more somewhere.
fn shares<'a>(out: &mut String, comparison: &'a Comparison, of: impl Fn(&'a Cell) -> &'a Named<f64>) {
    let cells: Vec<&Cell> = comparison.loads.iter().flat_map(|load| &load.cells).collect();
    let Some(first) = cells.first() else { return };
    let names: Vec<&str> = of(first).0.iter().map(|(name, _)| name.as_str()).collect();
    let shown: Vec<usize> =
        (0..names.len()).filter(|&index| cells.iter().any(|cell| of(cell).0[index].1 >= 0.05)).collect();
    let mut header = vec!["load", "<policy"];
    header.extend(shown.iter().map(|&index| names[index]));
    let mut table = Table::new(&header);
    for_cells(comparison, &mut table, |cell| {
        shown.iter().map(|&index| format!("{:.1}", of(cell).0[index].1)).collect()
    });
    table.print(out);
}

/// A row per load and policy, starting with the two.
fn for_cells<'a>(comparison: &'a Comparison, table: &mut Table, values: impl Fn(&'a Cell) -> Vec<String>) {
    for load in &comparison.loads {
        for_load(load, table, &values);
    }
}

/// A row per policy of a load.
fn for_load<'a>(load: &'a Load, table: &mut Table, values: impl Fn(&'a Cell) -> Vec<String>) {
    for (index, cell) in load.cells.iter().enumerate() {
        let of_load = if index == 0 { load.load.to_string() } else { String::new() };
        let mut row = vec![of_load, cell.policy.clone()];
        row.extend(values(cell));
        table.row(row);
    }
}

fn heading(out: &mut String, text: &str) {
    line!(out, "\n{text}\n{}\n", "-".repeat(text.chars().count()));
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.digits$}"))
}

fn signed(value: Option<f64>, digits: usize) -> String {
    // Adding 0.0 to what rounds to zero keeps it from printing as -0.00.
    let scale = 10_f64.powi(digits as i32);
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{:+.digits$}", (value * scale).round() / scale + 0.0))
}

/// Breaks a text into lines of at most `width` characters, at spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Columns of text to keep to.
const WIDTH: usize = 120;

/// Aligned columns; a header that starts with `<` aligns left. The last word of a header stands on the line above the
/// values, the words before it above that, so that columns need not be wider than a word. Columns without a value are left out.
struct Table {
    left: Vec<bool>,
    /// Lines of the header.
    header: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(header: &[&str]) -> Table {
        let left: Vec<bool> = header.iter().map(|name| name.starts_with('<')).collect();
        let split = |name: &&str| match name.strip_prefix('<') {
            Some(name) => (String::new(), name.to_owned()),
            None => match name.rfind([' ', '-']) {
                Some(at) => (name[..=at].trim_end().to_owned(), name[at + 1..].to_owned()),
                None => (String::new(), (*name).to_owned()),
            },
        };
        let (above, names): (Vec<String>, Vec<String>) = header.iter().map(split).unzip();
        let rows = if above.iter().all(String::is_empty) { vec![names] } else { vec![above, names] };
        Table { left, header: rows.len(), rows }
    }

    fn row(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    fn print(&self, out: &mut String) {
        let rows = &self.rows[self.header..];
        let shown: Vec<usize> =
            (0..self.left.len()).filter(|&column| rows.iter().any(|row| !row[column].is_empty())).collect();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = shown.iter().map(|&column| width(column)).collect();
        let wide = widths.iter().map(|width| width + 2).sum::<usize>() > WIDTH;
        let gap = if wide { " " } else { "  " };
        for row in &self.rows {
            let mut text = String::from("  ");
            for (index, (&column, &width)) in shown.iter().zip(&widths).enumerate() {
                text += if index == 0 { "" } else { gap };
                let cell = &row[column];
                let _ = if self.left[column] { write!(text, "{cell:<width$}") } else { write!(text, "{cell:>width$}") };
            }
            line!(out, "{}", text.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::comparison;

    #[test]
    fn two_policies_on_two_nodes() {
        insta::assert_snapshot!(render(&comparison()));
    }

    #[test]
    fn the_fields_table_has_its_tabs_and_widths() {
        let text = render(&comparison());
        let rows: Vec<&str> = text.lines().skip_while(|line| *line != "hackbench").take(5).collect();
        assert_eq!(
            rows,
            [
                "hackbench",
                "=========",
                "case            \tload    \tbaseline(std%)\tcompare%( std%)",
                "threads-pipe    \t1-groups\t 1.00 (  0.82)\t +9.50 (  0.45)",
                "threads-pipe    \t2-groups\t 1.00 (  3.02)\t -1.21 (  2.25)",
            ]
        );
    }

    #[test]
    fn one_run_has_no_spread_and_no_verdict() {
        let mut comparison = comparison();
        for load in &mut comparison.loads {
            load.cells.iter_mut().for_each(|cell| cell.std_percent = None);
            load.changes.iter_mut().for_each(|change| (change.low, change.high, change.p) = (None, None, None));
        }
        let text = render(&comparison);
        assert!(text.contains(" 1.00 (   n/a)\t +9.50 (   n/a)"), "{text}");
    }

    #[test]
    fn a_strip_counts_runs_from_least_to_greatest() {
        let mut comparison = comparison();
        for run in &mut comparison.loads[1].cells[0].runs {
            run.value = 20.0;
        }
        // All runs alike: no width to divide.
        assert_eq!(super::strip(&comparison.loads[1].cells[0], 20.0, 20.0), format!("3{}", ".".repeat(23)));
        let strip = |cell: usize, low, high| strip(&comparison.loads[0].cells[cell], low, high);
        assert_eq!(strip(0, 9.0, 10.1), format!("{}1.1.1", ".".repeat(19)));
        assert_eq!(strip(1, 9.0, 10.1), format!("111{}", ".".repeat(21)));
    }

    #[test]
    fn changes_too_small_for_a_sign_are_told_apart() {
        let mut comparison = comparison();
        comparison.agreement.without_spread = 4;
        comparison.agreement.without_spread_agree = 2;
        comparison.agreement.without_spread_small = 2;
        let text = render(&comparison);
        let said = "without spread: 4, of which 2 of 2 have the same sign; 2 too small to have a sign.";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn nothing_is_beside_published_numbers_when_there_are_none() {
        let mut comparison = comparison();
        for load in &mut comparison.loads {
            load.cells.iter_mut().for_each(|cell| cell.published = Level::default());
        }
        assert!(render(&comparison).contains("\nLevel and utilisation\n---------------------\n"));
    }

    #[test]
    fn lines_fit() {
        let mut comparison = comparison();
        for load in &mut comparison.loads {
            for cell in &mut load.cells {
                cell.policy = "rfc2-no-select-idle-cluster".to_owned();
                // All mechanisms that hackbench knows, which does not compute.
                cell.time_percent
                    .0
                    .iter_mut()
                    .filter(|(name, _)| name != "compute")
                    .for_each(|(_, share)| *share = 9.9);
            }
        }
        let text = render(&comparison);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn long_texts_break_at_spaces() {
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }
}
