//! Huddle's development tasks: guests that boot real kernels, and the matrix of kernels and machines that judges our
//! sched domains.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use huddle_machine::{CpuSet, load_topology};

use xtask::guest::{Guest, Streams};
use xtask::matrix::Matrix;
use xtask::shape::Shape;
use xtask::{guests, packages};

#[derive(Parser)]
#[command(name = "./x", about = "Huddle's development tasks")]
enum Task {
    /// Boot a Debian kernel as a guest with a machine's topology, run a command in it, and leave with its status
    Vm(Vm),
    /// Check Huddle's sched domains against every kernel on every machine of the matrix, and write docs/kernel-matrix.md
    VmMatrix(VmMatrix),
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
    /// Another program for the guest, with its libraries (repeatable)
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
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

fn main() -> ExitCode {
    let result = match Task::parse() {
        Task::Vm(vm) => run_vm(&vm).map(ExitCode::from),
        Task::VmMatrix(matrix) => run_matrix(matrix),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_vm(vm: &Vm) -> Result<u8> {
    let (name, topology) = match guests::find(&vm.machine).and_then(guests::Machine::topology) {
        Some(topology) => (vm.machine.clone(), topology),
        None => load_topology(Some(&vm.machine))?,
    };
    let shape = Shape::of(&name, &topology)?;
    let mut programs = vm.with.clone();
    // Ours is built for this machine's architecture.
    if shape.arch == "amd64" {
        programs.push(huddle()?);
    }
    let guest = Guest {
        shape: &shape,
        series: &vm.kernel,
        command: shell(&vm.command),
        programs,
        offline: cpus(vm.offline.as_deref())?,
        append: vm.append.clone(),
        timeout: Duration::from_secs(vm.timeout),
        console: vm.console.clone(),
    };
    let streams = Streams { out: Box::new(std::io::stdout()), err: Box::new(std::io::stderr()) };
    guest.run(&packages::cache()?, streams)
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

/// Builds the release binary and gives its path.
fn huddle() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(&root)
        .args(["build", "--quiet", "--release", "--locked", "--package", "huddle"])
        .status()
        .context("cannot run cargo")?;
    if !built.success() {
        bail!("huddle does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/huddle"))
}
