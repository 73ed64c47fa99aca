//! Huddle's development tasks: guests that boot real kernels, the matrix of kernels and machines that judges our sched domains,
//! and the comparison of schedulers.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use huddle_machine::{CpuSet, load_topology};

use xtask::guest::{Guest, Streams};
use xtask::live::{Live, WHOLE};
use xtask::matrix::Matrix;
use xtask::schedulers::Schedulers;
use xtask::shape::Shape;
use xtask::{guests, packages, stress};

#[derive(Parser)]
#[command(name = "./x", about = "Huddle's development tasks")]
enum Task {
    /// Boot a Debian kernel as a guest with a machine's topology, run a command in it, and leave with its status
    Vm(Vm),
    /// Check Huddle's sched domains against every kernel on every machine of the matrix, and write docs/kernel-matrix.md
    VmMatrix(VmMatrix),
    /// Attach, load and stop the live scheduler on kernels and machines, and write docs/live-matrix.md
    VmLive(VmLive),
    /// Compare schedulers in a guest: where wake-ups land and hogs run under each, and write docs/schedulers.md
    VmSchedulers(VmSchedulers),
    /// Record wake-ups of real kernels in guests, replay them through the policies, and write docs/agreement.md
    VmAgreement(VmAgreement),
}

/// The guest has busybox, `huddle` and its kernel's configuration; the command's output comes back as it is written.
#[derive(clap::Args)]
struct Vm {
    /// Built-in machine or machine file (.toml) that QEMU can express, `:nodes=N` after it for the first N nodes; or a machine of
    /// the matrix
    #[arg(long, default_value = "jacobsville", value_name = "NAME|TOML")]
    machine: String,
    /// Series of Debian's cloud kernel
    #[arg(long, default_value = "6.18", value_name = "SERIES")]
    kernel: String,
    /// CPUs to take offline before the command
    #[arg(long, value_name = "LIST")]
    offline: Option<String>,
    /// Words for the kernel's command line
    #[arg(long, default_value = "", value_name = "WORDS", allow_hyphen_values = true)]
    append: String,
    /// Another program for the guest, with its libraries, or a folder whose files it gets (repeatable)
    #[arg(long, value_name = "FILE|FOLDER")]
    with: Vec<PathBuf>,
    /// Give the guest stress-ng
    #[arg(long)]
    stress_ng: bool,
    /// Seconds until the guest is killed, the boot included
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    timeout: u64,
    /// Where to keep the console's text
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
    /// The command and its arguments; one argument is taken as a shell command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(clap::Args)]
struct VmMatrix {
    /// Run this kernel series (repeatable; all when absent)
    #[arg(long, value_name = "SERIES")]
    kernel: Vec<String>,
    /// Run this machine of the matrix (repeatable; all when absent)
    #[arg(long, value_name = "NAME")]
    machine: Vec<String>,
    /// Keep each guest's capture as a tar in this folder, and boot no guest whose capture is there already
    #[arg(long, value_name = "FOLDER")]
    captures: Option<PathBuf>,
    /// Where to write the table; docs/kernel-matrix.md for the whole matrix, nowhere for a part
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Guests at a time
    #[arg(long, default_value_t = 2, value_name = "N")]
    jobs: usize,
}

#[derive(clap::Args)]
struct VmLive {
    /// Run this kernel (repeatable; all when absent)
    #[arg(long, value_name = "RELEASE")]
    kernel: Vec<String>,
    /// Run this machine of the matrix (repeatable; all when absent)
    #[arg(long, value_name = "NAME")]
    machine: Vec<String>,
    /// Where to write the table; docs/live-matrix.md for all, nowhere for a part
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
struct VmSchedulers {
    /// Series or release of Debian's cloud kernel with sched_ext, whose type information is whole (docs/kernels.md)
    #[arg(long, default_value = WHOLE, value_name = "SERIES")]
    kernel: String,
    /// How often each load runs under each scheduler
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// How long each load is looked at
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Only these schedulers, or these loads
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Where to write the table; docs/schedulers.md for all schedulers and loads, nowhere for a part
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
struct VmAgreement {
    /// Record this kernel (repeatable; all when absent)
    #[arg(long, value_name = "SERIES")]
    kernel: Vec<String>,
    /// Keep each kernel's record in this folder, and boot no guest whose record is there already
    #[arg(long, value_name = "FOLDER")]
    records: Option<PathBuf>,
    /// Where to write the tables; docs/agreement.md for all kernels, nowhere for a part
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Task::parse() {
        Task::Vm(vm) => run_vm(&vm).map(ExitCode::from),
        Task::VmMatrix(matrix) => run_matrix(matrix),
        Task::VmLive(live) => run_live(live),
        Task::VmSchedulers(schedulers) => run_schedulers(schedulers),
        Task::VmAgreement(agreement) => run_agreement(agreement),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_vm(vm: &Vm) -> Result<u8> {
    let of_matrix = guests::find(&vm.machine);
    let (name, topology) = match of_matrix.and_then(guests::Machine::topology) {
        Some(topology) => (vm.machine.clone(), topology),
        None => load_topology(Some(&vm.machine))?,
    };
    let shape = Shape::of(&name, &topology)?;
    let mut programs = vm.with.clone();
    // Ours is built for this machine's architecture.
    if shape.arch == "amd64" {
        programs.push(huddle()?);
    }
    let cache = packages::cache()?;
    if vm.stress_ng {
        ensure!(shape.arch == "amd64", "--stress-ng is for guests of x86-64 machines; {name} is none");
        programs.push(stress::program(&cache)?);
    }
    let guest = Guest {
        shape: &shape,
        series: &vm.kernel,
        command: shell(&vm.command),
        programs,
        offline: match (vm.offline.as_deref(), of_matrix) {
            (None, Some(machine)) => machine.offline.to_vec(),
            (list, _) => cpus(list)?,
        },
        append: match of_matrix {
            Some(machine) => format!("{} {}", machine.append, vm.append),
            None => vm.append.clone(),
        },
        timeout: Duration::from_secs(vm.timeout),
        console: vm.console.clone(),
    };
    let streams = Streams { out: Box::new(std::io::stdout()), err: Box::new(std::io::stderr()) };
    guest.run(&cache, streams)
}

fn run_matrix(asked: VmMatrix) -> Result<ExitCode> {
    let whole = asked.kernel.is_empty() && asked.machine.is_empty();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/kernel-matrix.md");
    let matrix = Matrix {
        series: asked.kernel,
        machines: asked.machine,
        captures: asked.captures,
        // A part must not replace the whole.
        output: asked.output.or_else(|| whole.then_some(shipped)),
        jobs: asked.jobs,
    };
    let same = matrix.run(&packages::cache()?, &huddle()?)?;
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_live(asked: VmLive) -> Result<ExitCode> {
    let whole = asked.kernel.is_empty() && asked.machine.is_empty();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/live-matrix.md");
    let output = asked.output.or_else(|| whole.then_some(shipped));
    let live = Live { kernels: asked.kernel, machines: asked.machine, output };
    let well = live.run(&packages::cache()?, &[live_huddle()?, guest_load()?])?;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_schedulers(asked: VmSchedulers) -> Result<ExitCode> {
    let whole = asked.only.is_empty();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schedulers.md");
    let schedulers = Schedulers {
        series: asked.kernel,
        turns: asked.turns,
        seconds: asked.seconds,
        only: asked.only,
        // A part must not replace the whole.
        output: asked.output.or_else(|| whole.then_some(shipped)),
    };
    let with_huddle = schedulers.needs_huddle()?;
    let mut programs = vec![guest_load()?];
    if with_huddle {
        programs.push(live_huddle()?);
    }
    let complete = schedulers.run(&packages::cache()?, programs)?;
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_agreement(asked: VmAgreement) -> Result<ExitCode> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/agreement.md");
    // A part must not replace the whole.
    let output = asked.output.or_else(|| asked.kernel.is_empty().then_some(shipped));
    let guest_load = build(&["--package", "xtask", "--bin", "guest-load"], "guest-load")?;
    let task = xtask::agreement::Task { series: asked.kernel, records: asked.records, output };
    task.run(&packages::cache()?, &guest_load, &huddle()?)?;
    Ok(ExitCode::SUCCESS)
}

fn cpus(list: Option<&str>) -> Result<Vec<usize>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    let set = CpuSet::parse_list(list).with_context(|| format!("--offline {list}"))?;
    ensure!(!set.iter().any(|cpu| cpu.0 == 0), "--offline {list}: CPU 0 runs the guest's first process");
    Ok(set.iter().map(|cpu| cpu.index()).collect())
}

/// One argument is a command line; several are the words of a command.
fn shell(command: &[String]) -> String {
    match command {
        [line] => line.clone(),
        words => {
            let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

fn guest_load() -> Result<PathBuf> {
    build(&["--package", "xtask", "--bin", "guest-load"], "guest-load")
}

fn live_huddle() -> Result<PathBuf> {
    build(&["--package", "huddle", "--features", "live"], "huddle")
}

fn huddle() -> Result<PathBuf> {
    // `./x` says whether the tools for the scheduler are there.
    let live: &[&str] = if std::env::var_os("HUDDLE_LIVE").is_some() { &["--features", "live"] } else { &[] };
    build(&[&["--package", "huddle"], live].concat(), "huddle")
}

/// Builds a release binary, which `what` tells cargo, and gives its path.
fn build(what: &[&str], name: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(&root)
        .args(["build", "--quiet", "--release", "--locked"])
        .args(what)
        .status()
        .context("cannot run cargo")?;
    if !built.success() {
        bail!("{name} does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release").join(name))
}
