//! Direct measurements of a machine, replayed in the simulator: one data file per machine in `calibrations/`, read strictly.
//!
//! Each row names CPUs and what was measured there. Its kind says which small program stands for it: a byte to and fro
//! between two bound tasks, memory-bound copies bound to a CPU each, threads that share a lock or a line, or hackbench on
//! those CPUs alone.

use huddle_domains::{DomainTree, Kernel, build};
use huddle_engine::{Conditions, Setup, SimError, simulate};
use huddle_machine::{CpuId, CpuSet, Machine};
use huddle_policy::{Plan, Policy};
use huddle_program::{
    ChannelId, ChannelSpec, GateId, MemoryProfile, MissCurve, Op, ProfileId, Program, Script, ScriptId, TaskId,
    TaskSpec,
};
use huddle_workload::Workload;
use include_dir::{Dir, include_dir};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::LabError;

static SHIPPED: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../calibrations");

/// Identifier of the JSON form.
pub const CALIBRATION_SCHEMA: &str = "huddle-calibration/2";
/// A simulated figure agrees when it is within this share of the measured one.
pub const TOLERANCE: f64 = 0.15;
/// Round trips of one pipe measurement.
const ROUNDS: u64 = 2000;
/// How often a lock is taken in all, or a line written.
const ITEMS: u64 = 200_000;
/// How often the measurements of locks took theirs.
const MEASURED_ITEMS: f64 = 1e8;
/// Lines that each copy moves: about 10 ms of a core alone.
const KILO_LINES: u64 = 1_000_000;
/// Simulated time after which a replay is given up, ns.
const LIMIT_NS: u64 = 100_000_000_000;

/// The measurements of one machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The machine, as `Machine::load` takes it.
    pub machine: String,
    /// Policy, and by it the kernel, under which all is replayed.
    pub policy: String,
    stream: Stream,
    lock: Lock,
    groups: Vec<Group>,
}

/// What a thread does with a lock beyond pulling lines.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    atomic_ns: u64,
}

/// What the copies of STREAM do per line moved.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    base_ns: f64,
    overlap: f64,
    bytes_per_miss: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    unit: String,
    kind: Kind,
    source: String,
    /// Loops of hackbench.
    loops: Option<u64>,
    /// Seeds of which the median is taken; 1 when absent.
    runs: Option<u64>,
    /// Nothing is ever fitted to it.
    #[serde(default)]
    held_out: bool,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Pipe,
    Stream,
    Spinlock,
    Mutex,
    Line,
    Hackbench,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    case: String,
    cpus: String,
    /// The figure is how many times as long it takes there as on these CPUs.
    over: Option<String>,
    measured: f64,
    #[serde(default)]
    fitted: bool,
}

/// What a machine's replay gave.
#[derive(Clone, Debug, Serialize)]
pub struct Calibrated {
    /// [`CALIBRATION_SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub machine: String,
    /// The policy under which all was replayed.
    pub policy: String,
    /// Share of deviation that still agrees.
    pub tolerance: f64,
    /// Figures that agree, of all.
    pub all: Share,
    /// Of those to which a figure of the model was fitted.
    pub fitted: Share,
    /// Of the others.
    pub unfitted: Share,
    /// The measurements.
    pub groups: Vec<CalibratedGroup>,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Figures that agree.
    pub agreeing: usize,
    /// Figures.
    pub figures: usize,
}

impl Share {
    fn of<'a>(rows: impl Iterator<Item = &'a CalibratedRow>) -> Share {
        let count = |share: Share, row: &CalibratedRow| Share {
            agreeing: share.agreeing + usize::from(row.agrees),
            figures: share.figures + 1,
        };
        rows.fold(Share { agreeing: 0, figures: 0 }, count)
    }

    fn percent(self) -> f64 {
        100.0 * self.agreeing as f64 / self.figures.max(1) as f64
    }
}

/// Measurements of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct CalibratedGroup {
    /// What was measured.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Where it was published.
    pub source: String,
    /// Nothing is ever fitted to it.
    pub held_out: bool,
    /// How many of its figures agree.
    pub share: Share,
    /// The rows.
    pub rows: Vec<CalibratedRow>,
    /// Neighbours in the order of the measured values that the simulation puts the other way round, as cases.
    pub inverted: Vec<(String, String)>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct CalibratedRow {
    /// Which.
    pub case: String,
    /// The CPUs.
    pub cpus: String,
    /// Some figure was fitted to it.
    pub fitted: bool,
    /// Measured.
    pub measured: f64,
    /// Simulated.
    pub simulated: f64,
    /// Simulated over measured.
    pub ratio: f64,
    /// Within [`TOLERANCE`].
    pub agrees: bool,
}

impl CalibratedRow {
    fn new(row: &Row, simulated: f64) -> CalibratedRow {
        let ratio = simulated / row.measured;
        CalibratedRow {
            case: row.case.clone(),
            cpus: row.cpus.clone(),
            fitted: row.fitted,
            measured: row.measured,
            simulated,
            ratio,
            agrees: (ratio - 1.0).abs() <= TOLERANCE,
        }
    }
}

/// Neighbours by measured value that are the other way round when simulated; equal measured values have no order.
fn inverted(rows: &[CalibratedRow]) -> Vec<(String, String)> {
    let mut sorted: Vec<&CalibratedRow> = rows.iter().collect();
    sorted.sort_by(|a, b| a.measured.total_cmp(&b.measured));
    let wrong = |pair: &&[&CalibratedRow]| pair[0].measured < pair[1].measured && pair[0].simulated > pair[1].simulated;
    sorted.windows(2).filter(wrong).map(|pair| (pair[0].case.clone(), pair[1].case.clone())).collect()
}

impl Calibration {
    /// Names of the machines with measurements, sorted.
    pub fn names() -> Vec<String> {
        let name = |file: &include_dir::File| Some(file.path().to_str()?.strip_suffix(".toml")?.to_owned());
        let mut names: Vec<String> = SHIPPED.files().filter_map(name).collect();
        names.sort();
        names
    }

    /// The measurements of a machine.
    ///
    /// # Errors
    /// No such machine, or one without measurements.
    pub fn load(machine: &str) -> Result<Calibration, LabError> {
        let name = Machine::load(machine)?.name;
        let file = format!("{name}.toml");
        match SHIPPED.get_file(&file).and_then(|shipped| shipped.contents_utf8()) {
            Some(text) => {
                let mut calibration = Calibration::parse(&format!("calibrations/{file}"), text)?;
                machine.clone_into(&mut calibration.machine);
                Ok(calibration)
            }
            None => Err(LabError::NoCalibration { machine: name, known: Calibration::names().join(", ") }),
        }
    }

    /// Reads the text of a file; `file` names it in errors.
    ///
    /// # Errors
    /// The first key that is missing, unknown or wrong.
    pub fn parse(file: &str, text: &str) -> Result<Calibration, LabError> {
        let calibration: Calibration = toml::from_str(text).map_err(|error| LabError::ExperimentFormat {
            place: file.to_owned(),
            message: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        let wrong = |key: String, message: String| Err(LabError::ExperimentKey { file: file.to_owned(), key, message });
        for (g, group) in calibration.groups.iter().enumerate() {
            if (group.kind == Kind::Hackbench) != group.loops.is_some() {
                return wrong(format!("groups[{g}].loops"), "belongs to kind `hackbench`, and only there".to_owned());
            }
            if group.held_out && group.rows.iter().any(|row| row.fitted) {
                return wrong(format!("groups[{g}].held_out"), "has a row with `fitted`".to_owned());
            }
            if group.runs.is_some_and(|runs| !(1..=99).contains(&runs)) {
                return wrong(format!("groups[{g}].runs"), "must be from 1 to 99".to_owned());
            }
            for (r, row) in group.rows.iter().enumerate() {
                let key = |key: &str| format!("groups[{g}].rows[{r}].{key}");
                if !(row.measured.is_finite() && row.measured > 0.0) {
                    return wrong(key("measured"), format!("is {}; must be more than 0", row.measured));
                }
                for (name, cpus) in [("cpus", Some(&row.cpus)), ("over", row.over.as_ref())] {
                    let Some(cpus) = cpus else { continue };
                    match cpu_list(cpus) {
                        Ok(list) if group.kind == Kind::Pipe && list.len() != 2 => {
                            return wrong(key(name), format!("`{cpus}`: a pipe has two ends, as in 0,1"));
                        }
                        Ok(_) => {}
                        Err(message) => return wrong(key(name), message),
                    }
                }
            }
        }
        Ok(calibration)
    }

    /// Replays every measurement, in parallel; the result does not depend on how many at once.
    ///
    /// # Errors
    /// The machine or policy cannot be had, or the first replay that fails.
    pub fn replay(&self) -> Result<Calibrated, LabError> {
        let machine = Machine::load(&self.machine)?;
        let policy = Policy::load(&self.policy)?;
        let kernel =
            Kernel::load(&policy.kernel).map_err(|source| LabError::Kernel { policy: policy.name.clone(), source })?;
        let tree = build(&machine.topology, &kernel);
        let plan = policy.compile(&tree, &machine.topology);
        let (stream, lock) = (self.stream, self.lock);
        let bench = Replay { machine: &machine, kernel: &kernel, tree: &tree, plan: &plan, stream, lock };
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let replayed: Vec<Result<CalibratedRow, LabError>> = group
                .rows
                .par_iter()
                .with_max_len(1)
                .map(|row| Ok(CalibratedRow::new(row, bench.median(group, row)?)))
                .collect();
            let rows = replayed.into_iter().collect::<Result<Vec<_>, LabError>>()?;
            groups.push(CalibratedGroup {
                name: group.name.clone(),
                unit: group.unit.clone(),
                source: group.source.clone(),
                held_out: group.held_out,
                share: Share::of(rows.iter()),
                inverted: inverted(&rows),
                rows,
            });
        }
        let rows = || groups.iter().flat_map(|group| &group.rows);
        Ok(Calibrated {
            schema: CALIBRATION_SCHEMA,
            machine: machine.name.clone(),
            policy: policy.name.clone(),
            tolerance: TOLERANCE,
            all: Share::of(rows()),
            fitted: Share::of(rows().filter(|row| row.fitted)),
            unfitted: Share::of(rows().filter(|row| !row.fitted)),
            groups,
        })
    }
}

/// CPUs in the order written, one of them perhaps twice (`0,0`).
fn cpu_list(text: &str) -> Result<Vec<CpuId>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let set = CpuSet::parse_list(part).map_err(|error| format!("`{text}`: {error}"))?;
        cpus.extend(set.iter());
    }
    match cpus.is_empty() {
        true => Err(format!("`{text}`: names no CPU")),
        false => Ok(cpus),
    }
}

struct Replay<'a> {
    machine: &'a Machine,
    kernel: &'a Kernel,
    tree: &'a DomainTree,
    plan: &'a Plan,
    stream: Stream,
    lock: Lock,
}

impl Replay<'_> {
    /// The measurement in the group's unit: the median of its runs.
    fn median(&self, group: &Group, row: &Row) -> Result<f64, LabError> {
        let once = |seed| {
            let there = self.once(group, row, &row.cpus, seed)?;
            Ok(match &row.over {
                Some(cpus) => there / self.once(group, row, cpus, seed)?,
                None => there,
            })
        };
        let mut values = (1..=group.runs.unwrap_or(1)).map(once).collect::<Result<Vec<f64>, LabError>>()?;
        values.sort_by(f64::total_cmp);
        Ok(values[values.len() / 2])
    }

    fn once(&self, group: &Group, row: &Row, cpus: &str, seed: u64) -> Result<f64, LabError> {
        let failed = |source| LabError::Replay { group: group.name.clone(), case: row.case.clone(), source };
        let cpus = cpu_list(cpus).unwrap_or_default();
        let pins: Vec<(TaskId, CpuId)> = (1..).map(TaskId).zip(cpus.iter().copied()).collect();
        let all = &self.machine.topology.online;
        Ok(match group.kind {
            Kind::Pipe => {
                let ns = self.run(&ping_pong(), all, &pins, seed).map_err(failed)?;
                ns as f64 / ROUNDS as f64 / 1e3
            }
            Kind::Stream => {
                let ns = self.run(&copies(cpus.len() as u32, self.stream), all, &pins, seed).map_err(failed)?;
                (cpus.len() as u64 * KILO_LINES) as f64 * self.stream.bytes_per_miss / ns as f64
            }
            Kind::Spinlock | Kind::Mutex => {
                let lock = if group.kind == Kind::Spinlock { ChannelSpec::Spinlock } else { ChannelSpec::Mutex };
                let program = contenders(cpus.len() as u32, lock, self.lock);
                let ns = self.run(&program, all, &pins, seed).map_err(failed)?;
                let items = (ITEMS / cpus.len() as u64).max(1) * cpus.len() as u64;
                ns as f64 / items as f64 * MEASURED_ITEMS / 1e9
            }
            Kind::Line => self.run(&writers(cpus.len() as u32), all, &pins, seed).map_err(failed)? as f64,
            Kind::Hackbench => {
                let loops = group.loops.unwrap_or(1);
                let program = Workload::parse(&format!("hackbench/threads-pipe,loops={loops}"))?.program(1)?;
                let mut allowed = CpuSet::new(self.machine.topology.nr_cpus());
                cpus.iter().filter(|&&cpu| all.contains(cpu)).for_each(|&cpu| allowed.insert(cpu));
                self.run(&program, &allowed, &[], seed).map_err(failed)? as f64 / 1e9
            }
        })
    }

    fn run(&self, program: &Program, cpus: &CpuSet, pins: &[(TaskId, CpuId)], seed: u64) -> Result<u64, SimError> {
        let &Replay { machine, kernel, tree, plan, .. } = self;
        let conditions = Conditions::default();
        let setup = Setup { machine, tree, kernel, plan, program, cpus, pins, seed, limit_ns: LIMIT_NS, conditions };
        Ok(simulate(&setup)?.measured_ns)
    }
}

fn script(ops: Vec<Op>) -> Script {
    Script { ops }
}

/// Two tasks that pass a byte to and fro over two pipes, as lat_pipe does.
fn ping_pong() -> Program {
    let (there, back) = (ChannelId(0), ChannelId(1));
    let repeat = |to| Op::Repeat { to, times: ROUNDS, counter: 0 };
    let (send, receive) = (|channel| Op::Send { channel }, |channel| Op::Receive { channel });
    Program {
        tasks: (0..3).map(|script| TaskSpec { script: ScriptId(script), group: None }).collect(),
        scripts: vec![
            script(vec![
                Op::Spawn { task: TaskId(1) },
                Op::Spawn { task: TaskId(2) },
                Op::Join { task: TaskId(1) },
                Op::Join { task: TaskId(2) },
            ]),
            script(vec![Op::Start, send(there), receive(back), repeat(1), Op::Stop]),
            script(vec![receive(there), send(back), repeat(0)]),
        ],
        channels: vec![ChannelSpec::Pipe { message_bytes: 1 }; 2],
        gates: 0,
        profiles: Vec::new(),
    }
}

/// Tasks that do the same, all let go at once.
fn together(count: u32, mut work: Vec<Op>) -> Program {
    let gate = GateId(0);
    let mut main: Vec<Op> = (1..=count).map(|task| Op::Spawn { task: TaskId(task) }).collect();
    main.extend([Op::Start, Op::Open { gate }]);
    main.extend((1..=count).map(|task| Op::Join { task: TaskId(task) }));
    main.push(Op::Stop);
    work.insert(0, Op::Wait { gate });
    Program {
        tasks: (0..=count).map(|task| TaskSpec { script: ScriptId(task.min(1)), group: None }).collect(),
        scripts: vec![script(main), script(work)],
        channels: Vec::new(),
        gates: 1,
        profiles: Vec::new(),
    }
}

/// Threads that share the work of counting up a line under a lock.
fn contenders(count: u32, lock: ChannelSpec, Lock { atomic_ns }: Lock) -> Program {
    let (held, line) = (ChannelId(0), ChannelId(1));
    let atomic = Op::Compute { ns: atomic_ns };
    let take = [atomic, Op::Receive { channel: held }, Op::Write { line }, atomic, Op::Send { channel: held }];
    let times = (ITEMS / u64::from(count.max(1))).max(1);
    let work = take.into_iter().chain([Op::Repeat { to: 1, times, counter: 0 }]).collect();
    Program { channels: vec![lock, ChannelSpec::Line], ..together(count, work) }
}

/// Threads that write one line.
fn writers(count: u32) -> Program {
    let times = (ITEMS / u64::from(count.max(1))).max(1);
    let work = vec![Op::Write { line: ChannelId(0) }, Op::Repeat { to: 1, times, counter: 0 }];
    Program { channels: vec![ChannelSpec::Line], ..together(count, work) }
}

/// Copies that stream through memory: every access misses every cache.
fn copies(count: u32, stream: Stream) -> Program {
    let misses = MissCurve { min: 1.0, max: 1.0, scale: 1.0, exponent: 1.0 };
    let run = Op::Memory { profile: ProfileId(0), kilo_instructions: KILO_LINES };
    Program {
        profiles: vec![MemoryProfile {
            base_ns: stream.base_ns,
            l2_accesses: 1.0,
            l2_misses: misses,
            llc_misses: misses,
            overlap: stream.overlap,
            bytes_per_miss: stream.bytes_per_miss,
        }],
        ..together(count, vec![run])
    }
}

/// The table as text.
pub fn render_calibration(calibrated: &Calibrated) -> String {
    let mut text = format!("{} under {}\n", calibrated.machine, calibrated.policy);
    for group in &calibrated.groups {
        text += &format!("\n{}, {}\n    {}\n", group.name, group.unit, group.source);
        if group.held_out {
            text += "    held out: never fitted to\n";
        }
        text += &format!("{:37} {:>9} {:>9} {:>6}\n", "", "measured", "simulated", "ratio");
        for row in &group.rows {
            let verdict = match (row.agrees, row.ratio > 1.0) {
                (true, _) => "agrees",
                (false, true) => "too high",
                (false, false) => "too low",
            };
            let fitted = if row.fitted { ", fitted" } else { "" };
            text += &format!(
                "{:37} {:>9.2} {:>9.2} {:>6.2}  {verdict}{fitted}\n",
                row.case, row.measured, row.simulated, row.ratio
            );
        }
        text += &format!("{} of {} agree\n", group.share.agreeing, group.share.figures);
        match group.inverted.is_empty() {
            true => text += "order as measured\n",
            false => {
                for (first, second) in &group.inverted {
                    text += &format!("order: `{first}` is above `{second}`, measured below it\n");
                }
            }
        }
    }
    text += &format!("\nwithin {:.0} %:\n", calibrated.tolerance * 100.0);
    for (name, share) in [("fitted", calibrated.fitted), ("unfitted", calibrated.unfitted), ("all", calibrated.all)] {
        text +=
            &format!("  {name:8} {:>3} of {:>3} figures, {:>3.0} %\n", share.agreeing, share.figures, share.percent());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "machine = \"kunpeng920\"\npolicy = \"linux-5.10\"\n\
                        [stream]\nbase_ns = 0.0\noverlap = 16.0\nbytes_per_miss = 128.0\n\
                        [lock]\natomic_ns = 8\n";

    fn group(kind: &str, row: &str) -> String {
        format!("{HEAD}[[groups]]\nname = \"x\"\nunit = \"us\"\nkind = \"{kind}\"\nsource = \"s\"\nrows = [{row}]\n")
    }

    fn row(case: &str, measured: f64, simulated: f64) -> CalibratedRow {
        let row = Row { case: case.to_owned(), cpus: "0".to_owned(), over: None, measured, fitted: false };
        CalibratedRow::new(&row, simulated)
    }

    #[test]
    fn every_shipped_calibration_is_read_and_named_after_its_machine() {
        assert_eq!(Calibration::names(), ["kunpeng920"]);
        for name in Calibration::names() {
            assert_eq!(Calibration::load(&name).unwrap().machine, name);
        }
    }

    #[test]
    fn wrong_files_are_refused_in_one_line_with_the_key() {
        for (text, line) in [
            (
                group("pipe", "{ case = \"a\", cpus = \"0,1,2\", measured = 1.0 }"),
                "f.toml: groups[0].rows[0].cpus: `0,1,2`: a pipe has two ends, as in 0,1",
            ),
            (
                group("stream", "{ case = \"a\", cpus = \"0\", measured = 0.0 }"),
                "f.toml: groups[0].rows[0].measured: is 0; must be more than 0",
            ),
            (
                group("hackbench", "{ case = \"a\", cpus = \"0\", measured = 1.0 }"),
                "f.toml: groups[0].loops: belongs to kind `hackbench`, and only there",
            ),
        ] {
            assert_eq!(Calibration::parse("f.toml", &text).unwrap_err().to_string(), line);
        }
        let held_out = group("line", "{ case = \"a\", cpus = \"0,4\", measured = 1.0, fitted = true }");
        let held_out = held_out.replace("source =", "held_out = true\nsource =");
        let line = "f.toml: groups[0].held_out: has a row with `fitted`";
        assert_eq!(Calibration::parse("f.toml", &held_out).unwrap_err().to_string(), line);
        let unknown = Calibration::parse("f.toml", &format!("colour = 1\n{HEAD}groups = []\n")).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `colour`"), "{unknown}");
        assert_eq!(unknown.to_string().lines().count(), 1);
    }

    #[test]
    fn a_figure_agrees_up_to_15_percent_either_way() {
        assert!(row("a", 100.0, 114.9).agrees && row("a", 100.0, 85.1).agrees);
        assert!(!row("a", 100.0, 115.1).agrees && !row("a", 100.0, 84.9).agrees);
        assert_eq!(row("a", 8.0, 4.0).ratio, 0.5);
    }

    #[test]
    fn neighbours_in_the_wrong_order_are_named_and_equals_are_not() {
        let rows = [row("far", 3.0, 2.0), row("near", 1.0, 1.0), row("middle", 2.0, 2.5), row("twin", 3.0, 1.9)];
        assert_eq!(inverted(&rows), [("middle".to_owned(), "far".to_owned())]);
    }

    #[test]
    fn a_machine_without_measurements_is_told_which_have_some() {
        let error = Calibration::load("rome").unwrap_err();
        assert!(error.is_usage());
        assert_eq!(error.to_string(), "machine `rome` has no direct measurements; those that have: kunpeng920");
    }

    #[test]
    fn kunpeng920_pipes_are_slower_the_farther_their_ends_and_within_15_percent() {
        let mut calibration = Calibration::load("kunpeng920").unwrap();
        calibration.groups.retain(|group| group.kind == Kind::Pipe);
        let calibrated = calibration.replay().unwrap();
        let trips: Vec<&CalibratedRow> = calibrated.groups[0].rows.iter().skip(1).collect();
        assert_eq!(trips.len(), 4);
        assert!(trips.windows(2).all(|pair| pair[0].simulated < pair[1].simulated), "{trips:?}");
        assert!(trips.iter().all(|row| row.agrees), "{trips:?}");
    }

    #[test]
    fn kunpeng920_four_copies_draw_more_from_four_clusters_than_from_one() {
        let mut calibration = Calibration::load("kunpeng920").unwrap();
        calibration.groups.retain(|group| group.kind == Kind::Stream);
        calibration.groups[0].rows.retain(|row| ["0-3", "0,4,8,12"].contains(&row.cpus.as_str()));
        let calibrated = calibration.replay().unwrap();
        let [packed, spread] = &calibrated.groups[0].rows[..] else { panic!("two rows") };
        assert!(spread.simulated > 1.2 * packed.simulated, "{packed:?} {spread:?}");
    }
}
