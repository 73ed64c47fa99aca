//! `huddle run`: the cluster-aware scheduler on this machine's kernel.

use std::io::{self, Write};
use std::path::Path;

use huddle_domains::{DomainTree, Kernel, build};
use huddle_machine::{Topology, load_topology};
use huddle_policy::{Plan, Policy};
use huddle_scx::{Image, PlanImage, estimates};
use serde::Deserialize;

use crate::cmd::policies;
use crate::failure::Failure;

/// Read when there is no --config.
const CONFIG: &str = "/etc/huddle.toml";
/// Domains of kernels that have no record yet are taken from this one; the scheduler needs spans alone.
const NEWEST: &str = "7.2";
const GATHER: &str = "huddle-gather";
const SPREAD: &str = "huddle-spread";

/// Schedule this machine's tasks, cluster by cluster, until told to stop
///
/// Attaches to the running kernel through sched_ext (Linux 6.12 or later) and stays in the foreground. SIGINT, SIGTERM or `huddle stop`
/// give the CPUs back to the kernel's own scheduler; so does every error.
///
/// Exit status: 0 stopped as asked, 1 the kernel ended the scheduler or nothing was started, 2 wrong usage.
#[derive(clap::Args)]
pub struct Args {
    /// Wake-ups near the waker, or tasks far apart [default: gather]
    #[arg(long, value_name = "gather|spread", conflicts_with = "policy")]
    mode: Option<String>,
    /// One policy instead of the modes: a name or the path of a record (.toml)
    #[arg(long)]
    policy: Option<String>,
    /// Only tasks of policy SCHED_EXT; the kernel's own scheduler keeps the others
    #[arg(long)]
    partial: bool,
    /// Settings that the options do not give [default: /etc/huddle.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Print the topology, the plans, what is estimated and what the kernel lacks, and leave
    #[arg(long)]
    dry_run: bool,
}

/// Keys of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    mode: Option<String>,
    policy: Option<String>,
    partial: Option<bool>,
    slice_us: Option<u64>,
    least_slice_us: Option<u64>,
    preempt_us: Option<u64>,
    hog_us: Option<u64>,
}

/// The names of the modes.
const MODES: [&str; 2] = ["gather", "spread"];

impl Settings {
    fn read(path: Option<&str>) -> Result<Settings, Failure> {
        let file = path.unwrap_or(CONFIG);
        if path.is_none() && !Path::new(file).exists() {
            return Ok(Settings::default());
        }
        let text =
            std::fs::read_to_string(file).map_err(|error| Failure::work(format!("{file}: cannot be read: {error}")))?;
        let settings: Settings = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            Failure::work(format!("{file}: line {line}: {}", error.message().replace('\n', " ")))
        })?;
        let times = [
            ("slice_us", settings.slice_us),
            ("least_slice_us", settings.least_slice_us),
            ("preempt_us", settings.preempt_us),
            ("hog_us", settings.hog_us),
        ];
        for (key, value) in times {
            if value.is_some_and(|value| !(100..=1_000_000).contains(&value)) {
                return Err(Failure::work(format!("{file}: `{key}` must be from 100 to 1000000 microseconds")));
            }
        }
        if let Some(mode) = settings.mode.as_ref().filter(|mode| !MODES.contains(&mode.as_str())) {
            return Err(Failure::work(format!("{file}: `mode` is {mode:?}, must be \"gather\" or \"spread\"")));
        }
        Ok(settings)
    }
}

/// What is to run.
struct Choice {
    mode: String,
    policy: Option<String>,
    partial: bool,
    settings: Settings,
}

impl Choice {
    fn new(args: &Args) -> Result<Choice, Failure> {
        let settings = Settings::read(args.config.as_deref())?;
        let policy = match args.mode {
            Some(_) => None,
            None => args.policy.clone().or_else(|| settings.policy.clone()),
        };
        let mode = args.mode.clone().or_else(|| settings.mode.clone()).unwrap_or_else(|| "gather".to_owned());
        if !MODES.contains(&mode.as_str()) {
            return Err(Failure::usage(format!("unknown mode `{mode}`; the modes are gather, spread")));
        }
        let partial = args.partial || settings.partial.unwrap_or(false);
        Ok(Choice { mode, policy, partial, settings })
    }
}

/// The machine and what is made of it.
struct World {
    machine: String,
    topology: Topology,
    tree: DomainTree,
    /// Gathering, spreading, new tasks.
    plans: [Plan; 3],
}

impl World {
    /// The machine as it is at this moment.
    fn new(choice: &Choice, release: Option<&str>) -> Result<World, Failure> {
        let (machine, topology) = load_topology(None).map_err(Failure::work)?;
        let kernel = release.and_then(|release| Kernel::for_release(release).ok());
        let kernel = kernel.map_or_else(|| Kernel::load(NEWEST), Ok).map_err(Failure::work)?;
        let tree = build(&topology, &kernel);
        let plan = |name: &str| {
            let policy = Policy::load(name).map_err(policies::failure)?;
            Ok::<Plan, Failure>(policy.compile(&tree, &topology))
        };
        let plans = match &choice.policy {
            Some(name) => {
                let chosen = plan(name)?;
                let fork = if chosen.fork_steps().is_some() { chosen.clone() } else { plan(GATHER)? };
                [chosen.clone(), chosen, fork]
            }
            None => [plan(GATHER)?, plan(SPREAD)?, plan(GATHER)?],
        };
        Ok(World { machine, topology, tree, plans })
    }
}

/// Runs the scheduler, or says what would run.
pub fn run(args: &Args) -> Result<(), Failure> {
    let choice = Choice::new(args)?;
    if args.dry_run {
        return dry_run(&choice);
    }
    start(&choice)
}

fn dry_run(choice: &Choice) -> Result<(), Failure> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let world = World::new(choice, Some(release.trim()))?;
    let [gather, spread, fork] = &world.plans;
    let image = Image::new(gather, &[spread, fork]).map_err(Failure::work)?;
    let clusters: Vec<String> = gather.clusters().iter().map(|mask| gather.set(mask).to_string()).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    writeln!(
        out,
        "{}: {} CPUs online, {} clusters, {} LLCs, {} nodes",
        world.machine,
        world.topology.online.len(),
        gather.online_clusters().len,
        world.tree.nr_llcs,
        world.topology.nodes.len()
    )?;
    writeln!(out, "clusters: {}", clusters.join("  "))?;
    for finding in &world.topology.findings {
        writeln!(out, "{}: {}", finding.file, finding.message)?;
    }
    let used: Vec<(&str, &Plan)> = match &choice.policy {
        Some(_) => vec![("every wake-up", gather)],
        None => vec![("mode gather", gather), ("mode spread", spread)],
    };
    for (what, plan) in used {
        let steps = PlanImage::new(plan).map_err(Failure::work)?.nr_steps;
        writeln!(out, "\n{what}: {}, {steps} steps", plan.policy())?;
        for (index, step) in plan.steps().iter().enumerate() {
            writeln!(out, "{:>4}  {}", index + 1, step.describe())?;
        }
        let estimates = estimates(plan);
        if estimates.is_empty() {
            writeln!(out, "      exact: every input exists for tasks of sched_ext")?;
        }
        for estimate in estimates {
            writeln!(out, "      estimated: {}: {}", estimate.input, estimate.by)?;
        }
    }
    writeln!(out, "\nnew tasks: fork steps of {}", fork.policy())?;
    for (index, step) in fork.fork_steps().unwrap_or_default().iter().enumerate() {
        writeln!(out, "{:>4}  {}", index + 1, step.describe())?;
    }
    writeln!(
        out,
        "\nsizes: {} CPUs, {} clusters, {} mask words, queues: {} of clusters and {} of CPUs",
        image.facts.len(),
        image.clusters.len(),
        image.pool.len(),
        image.clusters.len(),
        image.facts.len()
    )?;
    writeln!(out, "kernel: {}", kernel_line())?;
    Ok(out.flush()?)
}

#[cfg(not(feature = "live"))]
fn kernel_line() -> String {
    UNSUPPORTED.to_owned()
}

/// Without the feature.
#[cfg(not(feature = "live"))]
const UNSUPPORTED: &str = "this huddle was built without the scheduler (feature `live`): install clang-19, make, pkg-config, libelf-dev and \
                           zlib1g-dev and build it with `cargo build --release --features live`, or through ./x";

#[cfg(not(feature = "live"))]
fn start(choice: &Choice) -> Result<(), Failure> {
    // What does not load here would not load there.
    World::new(choice, None)?;
    let _ = (&choice.mode, choice.partial, &choice.settings);
    Err(Failure::work(UNSUPPORTED))
}

#[cfg(feature = "live")]
fn kernel_line() -> String {
    match huddle_scx::live::Kernel::running() {
        Ok(kernel) => format!("Linux {} can run it", kernel.release),
        Err(missing) => missing.to_string(),
    }
}

#[cfg(feature = "live")]
fn start(choice: &Choice) -> Result<(), Failure> {
    live::start(choice)
}

#[cfg(feature = "live")]
mod live {
    use huddle_machine::CpuSet;
    use huddle_policy::{Plan, Step};
    use huddle_scx::live::{Kernel, Mode, Plans, Reason, SOCKET, Scheduler, Server, Status, Timing};

    use super::{Choice, Settings, World};
    use crate::failure::Failure;

    /// Loads again after CPUs came or went, until something else ends it.
    pub fn start(choice: &Choice) -> Result<(), Failure> {
        let mut mode = Mode::of(&choice.mode).unwrap_or(Mode::Gather);
        let mut reloads = 0;
        let mut kernel = Kernel::running().map_err(Failure::work)?;
        let server = Server::new(SOCKET.as_ref()).map_err(Failure::work)?;
        loop {
            let world = World::new(choice, Some(&kernel.release))?;
            let [gather, spread, fork] = &world.plans;
            let plans = Plans { gather, spread, fork };
            let timing = timing(&choice.settings);
            let mut scheduler =
                Scheduler::start(&kernel, &plans, mode, &timing, choice.partial).map_err(Failure::work)?;
            let mut status = status(choice, &world, mode, reloads);
            let clusters: Vec<CpuSet> = gather.clusters().iter().map(|mask| gather.set(mask)).collect();
            eprintln!(
                "huddle: {} schedules {} CPUs in {} clusters",
                status.mode,
                world.topology.online.len(),
                gather.online_clusters().len
            );
            let reason = server.serve(&mut scheduler, &mut status, &clusters).map_err(Failure::work)?;
            mode = scheduler.mode();
            drop(scheduler);
            match reason {
                Reason::Stopped => {
                    eprintln!("huddle: stopped; the kernel's scheduler has the CPUs");
                    return Ok(());
                }
                Reason::Signal(number) => {
                    eprintln!("huddle: signal {number}; the kernel's scheduler has the CPUs");
                    return Ok(());
                }
                Reason::Ended(ending) if ending.restart && !ending.is_error() => {
                    eprintln!("huddle: CPUs came or went; loading again");
                    reloads += 1;
                }
                Reason::Ended(ending) => {
                    let message =
                        if ending.message.is_empty() { String::new() } else { format!(": {}", ending.message) };
                    let line = format!(
                        "the kernel ended the scheduler (kind {}, {}{message}); its own has the CPUs",
                        ending.kind, ending.reason
                    );
                    return Err(Failure::work(line));
                }
            }
            kernel = settled()?;
        }
    }

    /// The kernel once the scheduler before is gone.
    fn settled() -> Result<Kernel, Failure> {
        let mut tries = 0;
        loop {
            match Kernel::running() {
                Ok(kernel) => return Ok(kernel),
                Err(missing) if tries == 100 => return Err(Failure::work(missing)),
                Err(_) => tries += 1,
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    fn timing(settings: &Settings) -> Timing {
        let default = Timing::default();
        let ns = |us: Option<u64>, default: u64| us.map_or(default, |us| us * 1000);
        Timing {
            slice_ns: ns(settings.slice_us, default.slice_ns),
            least_slice_ns: ns(settings.least_slice_us, default.least_slice_ns),
            preempt_ns: ns(settings.preempt_us, default.preempt_ns),
            hog_ns: ns(settings.hog_us, default.hog_ns),
        }
    }

    fn status(choice: &Choice, world: &World, mode: Mode, reloads: u32) -> Status {
        let kinds = |steps: &[Step]| steps.iter().map(|step| step.kind().to_owned()).collect();
        let [gather, spread, fork]: &[Plan; 3] = &world.plans;
        Status {
            pid: std::process::id(),
            mode: choice.policy.clone().unwrap_or_else(|| mode.name().to_owned()),
            policies: [gather, spread, fork].map(|plan| plan.policy().to_owned()),
            steps: [kinds(gather.steps()), kinds(spread.steps()), kinds(fork.fork_steps().unwrap_or_default())],
            partial: choice.partial,
            reloads,
            ..Status::default()
        }
    }
}
