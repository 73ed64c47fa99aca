//! `huddle policies`: the placement policies, or one of them in words.

use std::io::{self, BufWriter, Write};

use huddle_policy::{Policy, PolicyError, Step, policy_names};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Columns that sentences fill.
const WIDTH: usize = 100;

/// Version of the JSON.
pub(super) const SCHEMA: u32 = 1;

/// List the placement policies, or explain one step by step
#[derive(clap::Args)]
pub struct Args {
    /// A policy's name or alias, or the path of a record (.toml); all shipped policies when absent
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Loads the records and prints them.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    match &args.name {
        Some(name) => {
            let policy = Policy::load(name).map_err(failure)?;
            match args.json {
                true => writeln!(out, "{:#}", explained(&policy))?,
                false => write_policy(&mut out, &policy)?,
            }
        }
        None => {
            let policies =
                policy_names().iter().map(|name| Policy::load(name)).collect::<Result<Vec<_>, _>>().map_err(failure)?;
            match args.json {
                true => {
                    let policies = Value::from_iter(policies.iter().map(listed));
                    writeln!(out, "{:#}", json!({ "schema": SCHEMA, "policies": policies }))?;
                }
                false => write_list(&mut out, &policies)?,
            }
        }
    }
    Ok(out.flush()?)
}

/// A policy that cannot be had: asked wrongly, or a bad record.
pub fn failure(error: PolicyError) -> Failure {
    match error.is_usage() {
        true => Failure::usage(error),
        false => Failure::work(error),
    }
}

fn write_list(out: &mut impl Write, policies: &[Policy]) -> io::Result<()> {
    let width = |of: fn(&Policy) -> usize, head: &str| policies.iter().map(of).max().unwrap_or(0).max(head.len());
    let (name, kernel) = (width(|policy| policy.name.len(), "policy"), width(|policy| policy.kernel.len(), "kernel"));
    writeln!(out, "{:name$}  {:kernel$}  what it does", "policy", "kernel")?;
    for policy in policies {
        writeln!(out, "{:name$}  {:kernel$}  {}", policy.name, policy.kernel, policy.title)?;
    }
    Ok(())
}

fn write_policy(out: &mut impl Write, policy: &Policy) -> io::Result<()> {
    writeln!(out, "{}: {}", policy.name, policy.title)?;
    if !policy.aliases.is_empty() {
        writeln!(out, "Also known as {}.", policy.aliases.join(", "))?;
    }
    writeln!(out, "Kernel: {}", policy.kernel)?;
    writeln!(out, "\nTarget: this CPU (the one that wakes) or prev (the wakee's)")?;
    for line in policy.entry.describe() {
        write_wrapped(out, "  ", &line)?;
    }
    write_inputs(out, "  ", &policy.entry.inputs())?;
    writeln!(out, "\nSteps: the first that finds a CPU ends the search")?;
    write_steps(out, &policy.steps)?;
    if let Some(fork) = &policy.fork {
        writeln!(out, "\nFork and exec: target and prev are the CPU that forks")?;
        write_steps(out, fork)?;
    }
    Ok(())
}

fn write_steps(out: &mut impl Write, steps: &[Step]) -> io::Result<()> {
    for (index, step) in steps.iter().enumerate() {
        writeln!(out, "{:>3}. {}", index + 1, step.kind())?;
        write_wrapped(out, "     ", &step.describe())?;
        write_inputs(out, "     ", &step.inputs())?;
    }
    Ok(())
}

fn write_inputs(out: &mut impl Write, indent: &str, inputs: &[&str]) -> io::Result<()> {
    match inputs {
        [] => Ok(()),
        _ => write_wrapped(out, indent, &format!("Reads {}.", inputs.join(", "))),
    }
}

/// Writes a sentence in lines of at most [`WIDTH`] characters, broken at spaces.
fn write_wrapped(out: &mut impl Write, indent: &str, text: &str) -> io::Result<()> {
    write_filled(out, WIDTH, indent, text.split_inclusive(' '))
}

/// Writes pieces, which bring their spaces, behind `head` in lines of at most `width` characters; the next lines are indented by
/// the head's length.
pub(super) fn write_filled<'a>(
    out: &mut impl Write,
    width: usize,
    head: &str,
    pieces: impl Iterator<Item = &'a str>,
) -> io::Result<()> {
    let indent = head.chars().count();
    let mut line = head.to_owned();
    let mut length = indent;
    for piece in pieces {
        if length > indent && length + piece.trim_end().chars().count() > width {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(indent);
            length = indent;
        }
        line.push_str(piece);
        length += piece.chars().count();
    }
    writeln!(out, "{line}")
}

fn listed(policy: &Policy) -> Value {
    json!({ "name": policy.name, "title": policy.title, "aliases": policy.aliases, "kernel": policy.kernel })
}

fn explained(policy: &Policy) -> Value {
    let steps = |steps: &[Step]| {
        Value::from_iter(steps.iter().enumerate().map(
            |(index, step)| json!({ "number": index + 1, "step": step, "text": step.describe(), "inputs": step.inputs() }),
        ))
    };
    let mut value = listed(policy);
    value["schema"] = json!(SCHEMA);
    value["entry"] = json!({ "rule": policy.entry, "text": policy.entry.describe(), "inputs": policy.entry.inputs() });
    value["steps"] = steps(&policy.steps);
    if let Some(fork) = &policy.fork {
        value["fork"] = steps(fork);
    }
    value
}
