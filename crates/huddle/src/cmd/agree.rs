//! `huddle agree`: wake-ups that a real kernel placed, replayed through a policy.

use std::fs;
use std::io::{self, BufWriter, Read, Write};

use flate2::read::GzDecoder;
use huddle_domains::{DomainTree, Kernel, build};
use huddle_engine::{Cause, Observer, Setup, simulate_with};
use huddle_machine::{CpuId, Machine, MachineError, Partition};
use huddle_policy::{Plan, Policy};
use huddle_program::{Op, Program, Script, ScriptId, TaskId, TaskSpec};
use huddle_trace::{Agreement, Decision, Disagreement, Hogs, Judge, Row, Section, decisions, ftrace, hogs};
use serde_json::{Value, json};

use super::policies::{self, SCHEMA};
use crate::failure::Failure;

/// Hold wake-ups that a real kernel placed against a policy, decision by decision
///
/// The trace is the text of tracefs' `trace` file with the scheduler's events and probes, as `./x vm-agreement` records it, plain or
/// packed by gzip. A decision agrees when the kernel's choice is one that the policy allows for some value of what the trace does not show:
/// limits of scans, loads, wakers' switches of partner.
#[derive(clap::Args)]
pub struct Args {
    /// The trace
    trace: String,
    /// Policy: a name or the path of a record (.toml)
    #[arg(long)]
    policy: String,
    /// Machine on which it was recorded: a built-in name or machine file; CPUs by the numbers that the trace uses
    #[arg(long, default_value = "jacobsville")]
    machine: String,
    /// Kernel whose domains are used instead of the policy's own
    #[arg(long)]
    kernel: Option<String>,
    /// Show so many decisions in which kernel and policy differ
    #[arg(long, value_name = "N", default_value_t = 0)]
    differences: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The name under which tasks that never sleep run in a recorded load; the name of a load of nothing else begins with it.
const HOG: &str = "hog";
/// How long the simulated hogs run, ns, give or take the machine's jitter.
const HOGS_NS: u64 = 4_000_000_000;
/// How long they are looked at: until none can have ended.
const WATCHED_NS: u64 = 3_000_000_000;
/// Largest trace, bytes unpacked.
const LARGEST: u64 = 1 << 30;

/// Judges and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let policy = Policy::load(&args.policy).map_err(policies::failure)?;
    let machine = Machine::load(&args.machine).map_err(wrong_machine)?;
    let kernel = Kernel::load(args.kernel.as_ref().unwrap_or(&policy.kernel))
        .map_err(|error| if error.is_usage() { Failure::usage(error) } else { Failure::work(error) })?;
    let text = read(&args.trace)?;
    let sections = ftrace::parse(&text).map_err(|error| Failure::work(format!("{}: {error}", args.trace)))?;
    let world = World { tree: build(&machine.topology, &kernel), machine, kernel };
    let plan = policy.compile(&world.tree, &world.machine.topology);
    let mut judge = Judge::new(&plan, &world.tree);
    let mut placements = 0;
    for section in &sections {
        let all = decisions(&section.records, world.tree.nr_cpus);
        placements += all.len();
        all.iter().for_each(|decision| judge.judge(decision));
    }
    let report = Report {
        args,
        policy: &policy,
        world: &world,
        sections: &sections,
        placements,
        agreement: judge.finish(),
        spreads: spreads(&world, &plan, &sections)?,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => writeln!(out, "{:#}", report.json())?,
        false => report.write(&mut out)?,
    }
    Ok(out.flush()?)
}

fn wrong_machine(error: MachineError) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::work(error) }
}

/// The trace's text, unpacked if it is packed.
fn read(path: &str) -> Result<String, Failure> {
    let wrong = |error: io::Error| Failure::work(format!("{path}: cannot be read: {error}"));
    let bytes = fs::read(path).map_err(wrong)?;
    let mut text = String::new();
    let from: Box<dyn Read> = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => Box::new(GzDecoder::new(bytes.as_slice())),
        false => Box::new(bytes.as_slice()),
    };
    let mut limited = from.take(LARGEST + 1);
    limited.read_to_string(&mut text).map_err(wrong)?;
    if text.len() as u64 > LARGEST {
        return Err(Failure::work(format!("{path}: is larger than {LARGEST} bytes; cut it into loads")));
    }
    Ok(text)
}

/// The machine under its kernel.
struct World {
    machine: Machine,
    kernel: Kernel,
    tree: DomainTree,
}

/// Hogs of a load in the trace and simulated: how many each cluster has.
struct Spread {
    load: String,
    recorded: [Vec<usize>; 2],
    simulated: [Vec<usize>; 2],
}

/// The loads in which hogs were started under the tracer's eyes, and the same hogs simulated.
fn spreads(world: &World, plan: &Plan, sections: &[Section]) -> Result<Vec<Spread>, Failure> {
    let clusters = &world.machine.topology.cluster;
    let mut spreads = Vec::new();
    for section in sections.iter().filter(|section| section.load.starts_with(HOG)) {
        let recorded = hogs(&section.records, HOG);
        if recorded.first.is_empty() {
            continue;
        }
        let simulated = simulate_hogs(world, plan, recorded.first.len())?;
        let [recorded, simulated] =
            [recorded, simulated].map(|Hogs { first, last }| [sizes(&first, clusters), sizes(&last, clusters)]);
        spreads.push(Spread { load: section.load.clone(), recorded, simulated });
    }
    Ok(spreads)
}

/// How many of these CPUs each cluster has, the fullest first.
fn sizes(cpus: &[CpuId], clusters: &Partition) -> Vec<usize> {
    let mut sizes = vec![0; clusters.sets().len()];
    for &cpu in cpus.iter().filter(|&&cpu| clusters.sets().iter().any(|set| set.contains(cpu))) {
        sizes[clusters.index_of(cpu) as usize] += 1;
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// Notes the first CPU of every task of the program, and the last before any hog can have ended.
struct Places(Vec<Option<(CpuId, CpuId)>>);

impl Places {
    fn at(&mut self, now: u64, task: u32, cpu: CpuId) {
        if let Some(place) = self.0.get_mut(task as usize).filter(|_| now < WATCHED_NS) {
            *place = Some((place.map_or(cpu, |(first, _)| first), cpu));
        }
    }
}

impl Observer for Places {
    fn switch(&mut self, now: u64, cpu: CpuId, _: u32, next: u32) {
        self.at(now, next, cpu);
    }

    fn migrate(&mut self, now: u64, task: u32, _: usize, to: usize, _: Cause) {
        // A task that is moved before it ran was not forked there.
        if self.0.get(task as usize).is_some_and(Option::is_some) {
            self.at(now, task, CpuId::from(to));
        }
    }
}

/// A parent that starts so many tasks, which only compute, and where they are.
fn simulate_hogs(world: &World, plan: &Plan, count: usize) -> Result<Hogs, Failure> {
    let tasks = 1..=count as u32;
    let mut parent = vec![Op::Start];
    parent.extend(tasks.clone().map(|task| Op::Spawn { task: TaskId(task) }));
    parent.extend(tasks.clone().map(|task| Op::Join { task: TaskId(task) }));
    parent.push(Op::Stop);
    let script = |task: u32| TaskSpec { script: ScriptId(u32::from(task > 0)), group: None };
    let program = Program {
        tasks: (0..=count as u32).map(script).collect(),
        scripts: vec![Script { ops: parent }, Script { ops: vec![Op::Compute { ns: HOGS_NS }] }],
        channels: Vec::new(),
        gates: 0,
        profiles: Vec::new(),
    };
    let setup = Setup {
        conditions: huddle_engine::Conditions::default(),
        machine: &world.machine,
        tree: &world.tree,
        kernel: &world.kernel,
        plan,
        program: &program,
        cpus: &world.tree.online,
        pins: &[],
        seed: 1,
        limit_ns: HOGS_NS * (count as u64 + 2),
    };
    let mut places = Places(vec![None; count + 1]);
    simulate_with(&setup, &mut places).map_err(|error| Failure::work(format!("simulated hogs: {error}")))?;
    let (first, last) = places.0.into_iter().skip(1).flatten().unzip();
    Ok(Hogs { first, last })
}

/// All that is printed.
struct Report<'a> {
    args: &'a Args,
    policy: &'a Policy,
    world: &'a World,
    sections: &'a [Section],
    placements: usize,
    agreement: Agreement,
    spreads: Vec<Spread>,
}

impl Report<'_> {
    /// The kernel's release, as the trace's headings say.
    fn release(&self) -> &str {
        self.sections.first().map(|section| section.kernel.as_str()).filter(|kernel| !kernel.is_empty()).unwrap_or("?")
    }

    fn lost(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().flat_map(|section| section.lost.iter().map(String::as_str))
    }

    fn shown(&self) -> impl Iterator<Item = &Disagreement> {
        self.agreement.disagreements.iter().take(self.args.differences)
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "name": row.name, "decisions": row.decisions, "agreed": row.agreed, "same_reads": row.same_reads,
                "bracketed": row.bracketed, "undecidable": row.undecidable,
            })
        };
        let ends = |[first, last]: &[Vec<usize>; 2]| json!({ "first": first, "last": last });
        let spread = |spread: &Spread| {
            json!({
                "load": spread.load, "recorded": ends(&spread.recorded), "simulated": ends(&spread.simulated),
            })
        };
        json!({
            "schema": SCHEMA,
            "release": self.release(),
            "policy": self.policy.name,
            "kernel": self.world.kernel.name,
            "machine": self.args.machine,
            "placements": self.placements,
            "lost": self.lost().collect::<Vec<_>>(),
            "steps": Value::from_iter(self.agreement.steps.iter().map(row)),
            "entry": Value::from_iter(self.agreement.entry.iter().map(row)),
            "non_trivial": row(&self.agreement.non_trivial()),
            "hogs": Value::from_iter(self.spreads.iter().map(spread)),
            "differences": Value::from_iter(self.shown().map(sentence)),
        })
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (release, policy, kernel) = (self.release(), &self.policy.name, &self.world.kernel.name);
        let placements = self.placements;
        writeln!(out, "{release}: {placements} placements, held against {policy} with the domains of {kernel}")?;
        for lost in self.lost() {
            writeln!(out, "Not in the trace: {lost}")?;
        }
        let decided = |row: &&Row| row.decisions + row.undecidable > 0;
        writeln!(out)?;
        write_rows(out, "step", self.agreement.steps.iter().filter(decided).chain([&self.agreement.non_trivial()]))?;
        writeln!(out)?;
        write_rows(out, "entry rule", self.agreement.entry.iter().filter(decided))?;
        for Spread { load, recorded, simulated } in &self.spreads {
            let line =
                |[first, last]: &[Vec<usize>; 2]| format!("{} after the fork, {} at the end", list(first), list(last));
            writeln!(out, "\n{load}: hogs by cluster\n  recorded   {}", line(recorded))?;
            writeln!(out, "  simulated  {}", line(simulated))?;
        }
        for difference in self.shown() {
            writeln!(out, "\n{}", sentence(difference))?;
        }
        Ok(())
    }
}

fn write_rows<'a>(out: &mut impl Write, head: &str, rows: impl Iterator<Item = &'a Row>) -> io::Result<()> {
    writeln!(out, "{head:22}  decisions    agree       %  same reads  bracketed  undecidable")?;
    for row in rows {
        let Row { name, decisions, agreed, same_reads, bracketed, undecidable } = row;
        let share = row.share().map_or_else(|| "-".to_owned(), |share| format!("{:.1}", 100.0 * share));
        let numbers =
            format!("{decisions:9}  {agreed:7}  {share:>6}  {same_reads:10}  {bracketed:9}  {undecidable:11}");
        writeln!(out, "{name:22}  {numbers}")?;
    }
    Ok(())
}

fn list(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

/// A decision in words.
fn sentence(difference: &Disagreement) -> String {
    let Disagreement { decision, target, policy, step } = difference;
    let Decision { time_us, this, prev, sync, wakee, wakee_comm, recent, reads, idle, cpu, .. } = decision;
    let reads: Vec<String> =
        reads.iter().map(|read| format!("{}{}", read.cpu, if read.idle { " idle" } else { "" })).collect();
    let recent = recent.map_or_else(|| "unknown".to_owned(), |cpu| cpu.to_string());
    format!(
        "{}.{:06}: CPU {this} wakes {wakee_comm} {wakee}{} of CPU {prev}, recent {recent}: the kernel looked at {} and took {cpu}; the \
         policy, from target {target}, takes {policy} ({step}); idle by events: {idle}",
        time_us / 1_000_000,
        time_us % 1_000_000,
        if *sync { " (sync)" } else { "" },
        reads.join(", "),
    )
}
