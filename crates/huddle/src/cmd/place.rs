//! `huddle place`: one placement decision on a frozen state, step by step.

use std::io::{self, BufWriter, Write};

use huddle_domains::{DomainTree, Kernel, build};
use huddle_machine::{CpuId, CpuSet, Distance, load_topology};
use huddle_policy::{AffineRule, Event, Frozen, Method, Placement, Plan, Policy, Step, Wakeup};
use serde_json::{Value, json};

use super::policies::{self, SCHEMA, write_filled};
use crate::failure::Failure;

/// Columns that the steps fill.
const WIDTH: usize = 120;

/// Show one placement decision step by step, on a machine that stands still
///
/// CPUs are idle unless --busy names them, the waking CPU too (then an interrupt wakes). A busy CPU runs one task of load
/// 1024, which is the waker's load on the waking CPU; the wakee's load is 0. Neither task has switched partners
/// (no wide wake-up), the wakee may run anywhere and has no recent CPU, no idle core is hinted, and no scan runs out of
/// its budget.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// Machine: a built-in name, machine file, folder or archive as for `huddle topo`
    #[arg(long)]
    machine: String,
    /// Policy: a name or the path of a record (.toml)
    #[arg(long)]
    policy: String,
    /// Kernel whose domains are used instead of the policy's own
    #[arg(long)]
    kernel: Option<String>,
    /// CPUs that run a task, like 5,7-9
    #[arg(long, value_name = "LIST", default_value = "")]
    busy: String,
    /// Busy CPUs that run only SCHED_IDLE tasks
    #[arg(long, value_name = "LIST", default_value = "")]
    sched_idle: String,
    /// The target, when the entry rule is to be left out
    #[arg(long, value_name = "CPU", required_unless_present = "this")]
    target: Option<u32>,
    /// The CPU that executes the wake-up [default: the target]
    #[arg(long, value_name = "CPU")]
    this: Option<u32>,
    /// The CPU on which the wakee ran last [default: the target]
    #[arg(long, value_name = "CPU", required_unless_present_any = ["target", "fork"])]
    prev: Option<u32>,
    /// The wake-up is a sync one: the waker is about to sleep and, where a policy asks, known to do so
    #[arg(long, conflicts_with = "target")]
    sync: bool,
    /// Place a task that the CPU --this forks, by the policy's steps for forks
    #[arg(long, conflicts_with_all = ["target", "prev", "sync", "recent", "budget"])]
    fork: bool,
    /// The wakee's recent CPU
    #[arg(long, value_name = "CPU")]
    recent: Option<u32>,
    /// CPUs that the wakee may use [default: all]
    #[arg(long, value_name = "LIST")]
    allowed: Option<String>,
    /// CPUs that scans may examine: nr_idle_scan of the LLCs or, for budgets in proportion to idle time, idle time and scan cost
    /// that come to it [default: more than the LLC has]
    #[arg(long, visible_alias = "nr-idle-scan", value_name = "N")]
    budget: Option<u32>,
    /// Each LLC's hint says that it has an idle core
    #[arg(long)]
    idle_cores: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Decides and prints how.
pub fn run(args: &Args) -> Result<(), Failure> {
    let either = |usage: bool, message: String| if usage { Failure::usage(message) } else { Failure::work(message) };
    let policy = Policy::load(&args.policy).map_err(policies::failure)?;
    let (machine, topology) =
        load_topology(Some(&args.machine)).map_err(|error| either(error.is_usage(), error.to_string()))?;
    let kernel = Kernel::load(args.kernel.as_ref().unwrap_or(&policy.kernel))
        .map_err(|error| either(error.is_usage(), error.to_string()))?;
    let tree = build(&topology, &kernel);
    let plan = policy.compile(&tree, &topology);
    let question = Question::new(args, &machine, &policy, &tree, &plan)?;
    let story = question.decide(&plan)?;
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => writeln!(out, "{:#}", story.json(&question, &policy, &kernel))?,
        false => story.write(&mut out, &question, &policy, &kernel)?,
    }
    Ok(out.flush()?)
}

/// What is to be placed.
enum Asked {
    WakeUp,
    /// A wake-up past the entry rule.
    OnTarget(CpuId),
    Fork,
}

/// A wake-up or a fork in a frozen state.
struct Question<'a> {
    machine: String,
    tree: &'a DomainTree,
    busy: CpuSet,
    state: Frozen,
    wakeup: Wakeup,
    asked: Asked,
}

impl<'a> Question<'a> {
    fn new(args: &Args, machine: &str, policy: &Policy, tree: &'a DomainTree, plan: &Plan) -> Result<Self, Failure> {
        let check = Check { machine, tree };
        let mut state = Frozen::new(tree);
        let sched_idle = check.list("--sched-idle", &args.sched_idle)?;
        let busy = check.list("--busy", &args.busy)?.union(&sched_idle);
        busy.iter().for_each(|cpu| state.occupy(cpu));
        state.sched_idle = sched_idle;
        if let Some(allowed) = &args.allowed {
            state.allowed = check.list("--allowed", allowed)?;
            if state.allowed.is_empty() {
                return Err(Failure::usage("--allowed: names no CPU; the wakee needs at least one"));
            }
        }
        state.recent = args.recent.map(|cpu| check.cpu("--recent", cpu)).transpose()?;
        state.has_idle_cores.fill(args.idle_cores);
        let target = args.target.map(|cpu| check.cpu("--target", cpu)).transpose()?;
        let or_target = |option: &str, cpu: Option<u32>| match (cpu, target) {
            (Some(cpu), _) => check.cpu(option, cpu),
            (None, Some(target)) => Ok(target),
            (None, None) => Err(Failure::usage(format!("{option}: is missing; give it, or --target"))),
        };
        let prev = if args.fork { args.this } else { args.prev };
        let wakeup =
            Wakeup { this: or_target("--this", args.this)?, prev: or_target("--prev", prev)?, sync: args.sync };
        state.waker_load = state.load[wakeup.this.index()];
        state.waker_keeps_sync = Some(args.sync);
        let asked = match target {
            Some(target) => Asked::OnTarget(target),
            None if args.fork => Asked::Fork,
            None => Asked::WakeUp,
        };
        let mut question = Question { machine: machine.to_owned(), tree, busy, state, wakeup, asked };
        if let Some(budget) = args.budget {
            // The LLC that counts is the target's.
            let target = question.decide(plan)?.placement.target;
            let llc_size = tree.cached[target.index()].sd_llc_size;
            let threads = tree.span(tree.smt[target.index()]).len() as u32;
            set_budget(&mut question.state, budget, policy, llc_size, threads)?;
        }
        Ok(question)
    }

    fn decide(&self, plan: &Plan) -> Result<Story, Failure> {
        let mut state = self.state.clone();
        let mut events = Vec::new();
        let mut hear = |event| events.push(event);
        let mut scratch = plan.scratch();
        let wakeup = &self.wakeup;
        let (steps, placement) = match self.asked {
            Asked::WakeUp => (plan.steps(), plan.place_traced(&mut state, wakeup, &mut scratch, &mut hear)),
            Asked::OnTarget(target) => {
                (plan.steps(), plan.place_on_target_traced(&mut state, wakeup, target, &mut scratch, &mut hear))
            }
            Asked::Fork => {
                plan.fork_steps()
                    .zip(plan.place_fork_traced(&mut state, wakeup, &mut scratch, &mut hear))
                    .ok_or_else(|| Failure::usage(format!("--fork: {} leaves forks to the kernel", plan.policy())))?
            }
        };
        let placement = placement.map_err(Failure::work)?;
        let llc_size = self.tree.cached[placement.target.index()].sd_llc_size;
        Ok(Story::new(placement, &events, steps, llc_size))
    }

    /// What a CPU is at.
    fn at(&self, cpu: CpuId) -> &'static str {
        match (self.state.idle.contains(cpu), self.state.sched_idle.contains(cpu)) {
            (true, _) => "idle",
            (false, true) => "sched-idle",
            (false, false) => "busy",
        }
    }
}

/// Checks CPUs on the command line against the machine.
struct Check<'a> {
    machine: &'a str,
    tree: &'a DomainTree,
}

impl Check<'_> {
    fn cpu(&self, option: &str, cpu: u32) -> Result<CpuId, Failure> {
        match self.tree.online.contains(CpuId(cpu)) {
            true => Ok(CpuId(cpu)),
            false => Err(Failure::usage(format!(
                "{option}: CPU {cpu} is not online on {}, which has {}",
                self.machine, self.tree.online
            ))),
        }
    }

    fn list(&self, option: &str, text: &str) -> Result<CpuSet, Failure> {
        let set = CpuSet::parse_list(text).map_err(|error| Failure::usage(format!("{option}: {error}")))?;
        for cpu in set.iter() {
            self.cpu(option, cpu.0)?;
        }
        Ok(set.resized(self.tree.nr_cpus))
    }
}

/// Makes the policy's budget come to `budget` CPUs.
fn set_budget(state: &mut Frozen, budget: u32, policy: &Policy, llc_size: u32, threads: u32) -> Result<(), Failure> {
    let found = policy.steps.iter().find_map(|step| match *step {
        Step::Budget { method, div, floor, floor_threads, cap_floors, .. } => {
            Some((method, div, if floor_threads { floor.max(threads) } else { floor }, cap_floors))
        }
        _ => None,
    });
    let wrong = |why: String| Err(Failure::usage(format!("--budget: {budget} cannot be: {} {why}", policy.name)));
    match found {
        None | Some((Method::None, ..)) => wrong("has no budget".to_owned()),
        Some((Method::Util, ..)) => {
            state.nr_idle_scan.fill(Some(budget));
            Ok(())
        }
        Some((method, div, floor, cap_floors)) => {
            if budget.saturating_add(1) < floor {
                return wrong(format!("examines at least {} CPUs", floor - 1));
            }
            let cap = cap_floors.saturating_mul(floor);
            if method == Method::PropLimit && budget >= cap {
                return wrong(format!("examines at most {} CPUs", cap.saturating_sub(1)));
            }
            // LLC size × (idle time / div) / (cost + 1) is one more than the scan examines.
            let idle_time = (u64::from(budget) + 1).saturating_mul(u64::from(div));
            state.avg_idle.fill(idle_time);
            state.aged_idle.fill(idle_time);
            state.avg_scan_cost.fill(u64::from(llc_size) - 1);
            Ok(())
        }
    }
}

/// What happened, by step.
struct Story {
    placement: Placement,
    entry: Vec<Event>,
    steps: Vec<Chapter>,
    /// The core put another CPU in the steps' place.
    overruled: bool,
    /// The budget was set but not felt: it covers the LLC.
    roomy: bool,
}

/// What one step did.
struct Chapter {
    number: usize,
    kind: &'static str,
    events: Vec<Event>,
}

impl Story {
    fn new(placement: Placement, events: &[Event], steps: &[Step], llc_size: u32) -> Story {
        let covers = |event: &Event| matches!(*event, Event::Budget(Some(budget)) if budget >= llc_size);
        let roomy = !placement.exhausted && events.iter().any(covers);
        let mut story = Story { placement, entry: Vec::new(), steps: Vec::new(), overruled: false, roomy };
        for &event in events {
            match (event, story.steps.last_mut()) {
                (Event::Overruled(_), _) => story.overruled = true,
                (Event::Step(index), _) => {
                    story.steps.push(Chapter { number: index + 1, kind: steps[index].kind(), events: Vec::new() });
                }
                (event, None) => story.entry.push(event),
                (event, Some(chapter)) => chapter.events.push(event),
            }
        }
        story
    }

    fn write(&self, out: &mut impl Write, question: &Question, policy: &Policy, kernel: &Kernel) -> io::Result<()> {
        let Wakeup { this, prev, sync } = question.wakeup;
        writeln!(out, "{} on {}, domains of kernel {}", policy.name, question.machine, kernel.name)?;
        let busy = if question.busy.is_empty() { "none".to_owned() } else { question.busy.to_string() };
        match question.asked {
            Asked::Fork => writeln!(out, "fork on {this}, busy {busy}\n")?,
            _ => writeln!(out, "this {this}, prev {prev}{}, busy {busy}\n", if sync { ", sync" } else { "" })?,
        }
        match question.asked {
            Asked::OnTarget(target) => writeln!(out, "target {target}, as given")?,
            _ => self.entry.iter().filter_map(entry_line).try_for_each(|line| writeln!(out, "{line}"))?,
        }
        let width = self.steps.iter().map(|chapter| chapter.kind.len()).max().unwrap_or(0);
        for chapter in &self.steps {
            let head = format!("{:>3}. {:width$}  ", chapter.number, chapter.kind);
            write_filled(out, WIDTH, &head, chapter.words(question, self.roomy).split_inclusive(", "))?;
        }
        writeln!(out, "\nCPU {}: {}", self.placement.cpu, self.decided_by())?;
        let counts = self.examined().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>();
        let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        writeln!(out, "CPUs examined in scans, by distance from CPU {this}: {counts}")
    }

    fn decided_by(&self) -> String {
        match self.steps.last() {
            Some(last) if !self.overruled => format!("step {}, {}", last.number, last.kind),
            Some(_) => "the steps' choice is outside the affinity; the core takes the first allowed CPU".to_owned(),
            None if self.overruled => "the wakee may use no other".to_owned(),
            None => "the wake-up asked for it".to_owned(),
        }
    }

    fn examined(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let counts = self.placement.examined;
        Distance::ALL.into_iter().zip(counts).filter(|&(_, count)| count > 0).map(|(distance, n)| (distance.name(), n))
    }

    fn json(&self, question: &Question, policy: &Policy, kernel: &Kernel) -> Value {
        let steps = self.steps.iter().map(|chapter| chapter.json(question, self.roomy));
        json!({
            "schema": SCHEMA,
            "machine": question.machine,
            "kernel": kernel.name,
            "policy": policy.name,
            "this": question.wakeup.this.0,
            "prev": question.wakeup.prev.0,
            "sync": question.wakeup.sync,
            "fork": matches!(question.asked, Asked::Fork),
            "target": self.placement.target.0,
            "target_rule": self.entry.iter().filter_map(entry_line).collect::<Vec<_>>(),
            "cpu": self.placement.cpu.0,
            "decided_by": self.decided_by(),
            "step": self.steps.last().filter(|_| !self.overruled).map(|last| last.number),
            "wide": self.placement.wide,
            "exhausted": self.placement.exhausted,
            "examined": self.examined().map(|(name, count)| (name.to_owned(), count.into())).collect::<serde_json::Map<_, Value>>(),
            "steps": Value::from_iter(steps),
        })
    }
}

impl Chapter {
    /// What the step did, in one line.
    fn words(&self, question: &Question, roomy: bool) -> String {
        let mut words = Vec::new();
        let claimed = self.claimed();
        for event in &self.events {
            words.push(match *event {
                Event::Skipped(why) => format!("skipped: {why}"),
                Event::Tested { cpu, good } => {
                    let outside = if question.state.allowed.contains(cpu) { "" } else { ", outside the affinity" };
                    format!("{cpu} {}{outside}{}", question.at(cpu), if good { "" } else { ": no" })
                }
                Event::Hint(true) => "an idle core is hinted".to_owned(),
                Event::Hint(false) => "no idle core is hinted".to_owned(),
                Event::Budget(Some(_)) if roomy => "no limit in this state".to_owned(),
                Event::Left(_) if roomy => continue,
                Event::Budget(Some(left)) => format!("{left} CPUs may be examined"),
                Event::Budget(None) => "no limit".to_owned(),
                Event::Left(left) => format!("budget left {left}"),
                Event::Kept(cpu) => format!("{cpu} kept as second chance"),
                Event::Cluster { first, busy, size } => format!("cluster of {first}: {busy} of {size} busy"),
                Event::Claimed { cpu, won: true } => format!("claimed {cpu}"),
                Event::Claimed { cpu, won: false } => format!("{cpu} lost to another claim"),
                Event::HintCleared => "no idle core: hint cleared".to_owned(),
                Event::Exhausted => "budget exhausted".to_owned(),
                Event::Decided(_) if claimed.is_some() => continue,
                Event::Decided(cpu) => format!("found {cpu}"),
                Event::Examined { .. }
                | Event::Step(_)
                | Event::Overruled(_)
                | Event::Wide { .. }
                | Event::Target { .. } => {
                    continue;
                }
            });
        }
        let examined = self.examined();
        if !examined.is_empty() {
            words.insert(0, format!("examined {}", runs(&examined, question)));
        }
        if words.is_empty() { "continue".to_owned() } else { words.join("; ") }
    }

    /// The CPU that the step has claimed.
    fn claimed(&self) -> Option<CpuId> {
        self.events.iter().find_map(|event| match *event {
            Event::Claimed { cpu, won: true } => Some(cpu),
            _ => None,
        })
    }

    /// The CPUs that the step's scan examined, in order.
    fn examined(&self) -> Vec<CpuId> {
        let mut cpus = Vec::new();
        for event in &self.events {
            if let Event::Examined { word, bits } = *event {
                cpus.extend((0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| CpuId::from(64 * word + bit)));
            }
        }
        cpus
    }

    fn json(&self, question: &Question, roomy: bool) -> Value {
        let find = |wanted: fn(&Event) -> Option<Value>| self.events.iter().find_map(wanted);
        let examined = self.examined().into_iter().map(|cpu| json!({ "cpu": cpu.0, "state": question.at(cpu) }));
        let clusters = self.events.iter().filter_map(|event| match *event {
            Event::Cluster { first, busy, size } => Some(json!({ "first": first.0, "busy": busy, "size": size })),
            _ => None,
        });
        let tested = self.events.iter().find_map(|event| match *event {
            Event::Tested { cpu, good } => Some(json!({ "cpu": cpu.0, "state": question.at(cpu), "good": good })),
            _ => None,
        });
        json!({
            "number": self.number,
            "kind": self.kind,
            "text": self.words(question, roomy),
            "skipped": find(|event| if let Event::Skipped(why) = event { Some(json!(why)) } else { None }),
            "tested": tested,
            "examined": Value::from_iter(examined),
            "clusters": Value::from_iter(clusters),
            "claimed": self.claimed().map(|cpu| cpu.0),
            "kept": find(|event| if let Event::Kept(cpu) = event { Some(json!(cpu.0)) } else { None }),
            "budget": find(|event| if let Event::Budget(budget) = event { Some(json!(budget)) } else { None }),
            "left": find(|event| if let Event::Left(left) = event { Some(json!(left)) } else { None }),
            "found": find(|event| if let Event::Decided(cpu) = event { Some(json!(cpu.0)) } else { None }),
        })
    }
}

/// CPUs in the order examined, those in one state at even distances together: `6 idle`, `8-23 busy`, `4,6,…,40 busy`.
fn runs(cpus: &[CpuId], question: &Question) -> String {
    let mut texts = Vec::new();
    let mut rest = cpus;
    while let Some(&from) = rest.first() {
        let at = question.at(from);
        let step = rest.get(1).map_or(0, |next| next.0.saturating_sub(from.0));
        let even =
            |pair: &&[CpuId]| step > 0 && pair[0].0.checked_add(step) == Some(pair[1].0) && question.at(pair[1]) == at;
        let count = 1 + rest.windows(2).take_while(even).count();
        // Two CPUs at a distance make no row.
        let count = if step > 1 && count < 3 { 1 } else { count };
        let (run, behind) = rest.split_at(count);
        texts.push(match (step, run) {
            (1, &[from, .., to]) => format!("{from}-{to} {at}"),
            (_, &[first, second, third]) => format!("{first},{second},{third} {at}"),
            (_, &[first, second, .., last]) => format!("{first},{second},…,{last} {at}"),
            _ => format!("{from} {at}"),
        });
        rest = behind;
    }
    texts.join(", ")
}

fn entry_line(event: &Event) -> Option<String> {
    match *event {
        Event::Wide { waker_flips, wakee_flips, factor, wide } => Some(format!(
            "{}wide: the waker switched partners {waker_flips} times, the wakee {wakee_flips} times, the LLC has {factor} CPUs",
            if wide { "" } else { "not " }
        )),
        Event::Target { rule, target } => Some(format!("target {target}: {}", rule_words(rule))),
        _ => None,
    }
}

fn rule_words(rule: AffineRule) -> String {
    match rule {
        AffineRule::CurrentCpu => "the wake-up asks for this CPU".to_owned(),
        AffineRule::Wide => "a wide wake-up stays with prev".to_owned(),
        AffineRule::ThisNotAllowed => "this CPU is outside the affinity".to_owned(),
        AffineRule::NoDomain => "no domain of this CPU that pulls wake-ups has prev".to_owned(),
        AffineRule::SameCpu => "this CPU is prev".to_owned(),
        AffineRule::BothIdle => "this CPU and prev are idle under one LLC: prev".to_owned(),
        AffineRule::ThisIdle => "this CPU is idle and shares prev's LLC".to_owned(),
        AffineRule::ThisNear => "this CPU shares prev's LLC".to_owned(),
        AffineRule::PrevFar => "prev is in another LLC, and the waker does not give way".to_owned(),
        AffineRule::AlwaysPrev => "always prev".to_owned(),
        AffineRule::SyncAlone => "a sync wake-up, and the waker is alone on this CPU".to_owned(),
        AffineRule::PrevIdle => "prev is idle".to_owned(),
        AffineRule::SyncLoad => "a sync wake-up, and the waker is all the load here".to_owned(),
        AffineRule::Weight { this, prev } => {
            let (sign, which) = if this < prev { ("<", "this CPU") } else { (">=", "prev") };
            format!("weighted load of this CPU {this} {sign} {prev} of prev: {which}")
        }
    }
}
