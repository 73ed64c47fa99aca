//! `huddle mode`, `huddle status`, `huddle stop`: the scheduler that runs on this machine.

use std::io::{self, Write};

use huddle_scx::live::{Answer, Request, SOCKET, Status, ask};

use crate::failure::Failure;

/// Change the mode of the running scheduler; wake-ups from then on are placed by it
#[derive(clap::Args)]
pub struct ModeArgs {
    /// The mode
    #[arg(value_name = "gather|spread")]
    mode: String,
}

/// Show what the running scheduler does and has counted
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Stop the running scheduler; the kernel's own takes over
#[derive(clap::Args)]
pub struct StopArgs {}

fn exchange(request: &Request) -> Result<Answer, Failure> {
    match ask(SOCKET.as_ref(), request).map_err(Failure::work)? {
        Answer::Refused { message } => Err(Failure::work(message)),
        answer => Ok(answer),
    }
}

/// Changes the mode.
pub fn mode(args: &ModeArgs) -> Result<(), Failure> {
    if !["gather", "spread"].contains(&args.mode.as_str()) {
        return Err(Failure::usage(format!("unknown mode `{}`; the modes are gather, spread", args.mode)));
    }
    exchange(&Request::Mode { mode: args.mode.clone() }).map(|_| ())
}

/// Stops the scheduler.
pub fn stop(_args: &StopArgs) -> Result<(), Failure> {
    exchange(&Request::Stop).map(|_| ())
}

/// Prints the status.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let Answer::Status(status) = exchange(&Request::Status)? else {
        return Err(Failure::work("the running scheduler answered something else than its status"));
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.json {
        true => {
            let mut value = serde_json::to_value(&status).map_err(Failure::work)?;
            value["schema"] = 1.into();
            writeln!(out, "{value:#}")?;
        }
        false => write_text(&mut out, &status)?,
    }
    Ok(out.flush()?)
}

const DISTANCES: [&str; 7] = ["same CPU", "SMT", "cluster", "LLC", "node", "package", "beyond"];
const TAKEN: [&str; 5] = ["own CPU's queue", "own cluster", "LLC", "node", "farther"];
const PLANS: [&str; 3] = ["gather", "spread", "new tasks"];

fn write_text(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let partial = if status.partial { ", tasks of SCHED_EXT only" } else { "" };
    writeln!(out, "mode {}, process {}, {:.0} s{partial}", status.mode, status.pid, status.seconds)?;
    if status.reloads > 0 {
        let times = if status.reloads == 1 { "once".to_owned() } else { format!("{} times", status.reloads) };
        writeln!(out, "loaded again {times} since CPUs came or went")?;
    }
    for (plan, (placed, steps)) in status.placed.iter().zip(&status.steps).enumerate() {
        let total: u64 = placed.iter().sum();
        if total == 0 {
            continue;
        }
        writeln!(out, "\nplaced by {} ({}): {total}", status.policies[plan], PLANS[plan])?;
        for (index, &count) in placed.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let step = steps.get(index).map_or("core's rules", String::as_str);
            writeln!(out, "{:>4}  {step:<14} {count:>12}  {:5.1} %", index + 1, share(count, total))?;
        }
    }
    write_row(out, "\nwake-ups, waker to chosen CPU", &DISTANCES, &status.wake_distance)?;
    write_row(out, "wake-ups, previous to chosen CPU", &DISTANCES, &status.move_distance)?;
    write_row(out, "waiting tasks taken from", &TAKEN, &status.taken)?;
    writeln!(
        out,
        "straight to a CPU {}, queued in a cluster {}, without placement {}, pinned {}, preempted {}, balanced {}, moved on exec {}",
        status.direct,
        status.queued,
        status.unplaced,
        status.pinned,
        status.preempted,
        status.balanced,
        status.exec_moved
    )?;
    let waits: Vec<String> = status
        .wait_us
        .iter()
        .enumerate()
        .filter(|&(_, &count)| count > 0)
        .map(|(bucket, count)| format!("<{} us {count}", 1u64 << bucket))
        .collect();
    writeln!(out, "waits: {}", waits.join(", "))?;
    for cluster in &status.busy {
        writeln!(out, "cluster {:<12} {:5.1} % busy", cluster.cpus, f64::from(cluster.busy_per_mille) / 10.0)?;
    }
    Ok(())
}

fn write_row(out: &mut impl Write, title: &str, names: &[&str], counts: &[u64]) -> io::Result<()> {
    let total: u64 = counts.iter().sum();
    let parts: Vec<String> = names
        .iter()
        .zip(counts)
        .filter(|&(_, &count)| count > 0)
        .map(|(name, &count)| format!("{name} {count} ({:.1} %)", share(count, total)))
        .collect();
    writeln!(out, "{title}: {}", if parts.is_empty() { "none".to_owned() } else { parts.join(", ") })
}

fn share(count: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { 100.0 * count as f64 / total as f64 }
}
