//! The live scheduler on kernels and machines: attached in each mode, loaded, stopped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{Guest, Kept, Streams};
use crate::guests::{self, Machine};
use crate::matrix::write_whole;
use crate::shape::Shape;

/// A build of Debian's whose type information is whole (docs/kernels.md).
pub const WHOLE: &str = "7.2.6";
/// Builds for the machine of six clusters; every other machine runs [`WHOLE`].
const KERNELS: [&str; 8] = ["6.16", "6.17", "6.18", "6.19", "7.0", "7.1.8", WHOLE, "7.3"];
const CLUSTERS: &str = "clusters";
const MACHINES: [&str; 8] = ["one", "flat", "smt", "smt-clusters", "cluster-llc", "two-llcs", "two-nodes", "offline"];

/// Which cells to run.
pub struct Live {
    /// Only these kernels; all when empty.
    pub kernels: Vec<String>,
    /// Only these machines; all when empty.
    pub machines: Vec<String>,
    /// Where the table is written; nowhere when `None`.
    pub output: Option<PathBuf>,
}

/// What became of one guest.
struct Cell {
    machine: &'static Machine,
    kernel: String,
    /// By mode.
    results: Vec<String>,
    verified: u64,
}

impl Live {
    /// Boots a guest for each cell, prints what becomes of it and writes the table; whether all were well. `programs` are `huddle` with its
    /// live scheduler and `guest-load`.
    ///
    /// # Errors
    /// No cell of that name, a table that cannot be written.
    pub fn run(&self, cache: &Path, programs: &[PathBuf]) -> Result<bool> {
        let asked = self.cells();
        ensure!(
            !asked.is_empty(),
            "no such cell; machines are {CLUSTERS}, {}; kernels {}",
            MACHINES.join(", "),
            KERNELS.join(", ")
        );
        let mut cells = Vec::new();
        for (name, kernel) in asked {
            let machine = guests::find(name).with_context(|| format!("no machine {name} in the matrix"))?;
            let cell = Cell::boot(machine, kernel, cache, programs)?;
            println!("{:<14} {:<8} {}", machine.name, cell.kernel, cell.results.join("; "));
            cells.push(cell);
        }
        if let Some(path) = &self.output {
            write_whole(path, document(&cells).as_bytes())?;
        }
        Ok(cells.iter().all(Cell::is_well))
    }

    /// Machine and kernel.
    fn cells(&self) -> Vec<(&'static str, &str)> {
        let listed = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one == name);
        let on_clusters = KERNELS.iter().map(|&kernel| (CLUSTERS, kernel));
        let others = MACHINES.iter().map(|&machine| (machine, WHOLE));
        on_clusters
            .chain(others)
            .filter(|(machine, kernel)| listed(&self.machines, machine) && listed(&self.kernels, kernel))
            .collect()
    }
}

impl Cell {
    fn boot(machine: &'static Machine, kernel: &str, cache: &Path, programs: &[PathBuf]) -> Result<Cell> {
        let topology = machine.topology().context("the machine has no topology")?;
        let guest = Guest {
            shape: &Shape::of(machine.name, &topology)?,
            series: kernel,
            command: include_str!("live.sh").to_owned(),
            programs: programs.to_vec(),
            offline: machine.offline.to_vec(),
            append: machine.append.to_owned(),
            timeout: Duration::from_secs(900),
            console: None,
        };
        let out = Kept::default();
        let streams = Streams { out: Box::new(out.clone()), err: Box::new(std::io::stderr()) };
        match guest.run(cache, streams) {
            Ok(_) => Ok(Cell::parse(machine, kernel, &String::from_utf8_lossy(&out.take()))),
            Err(error) => {
                let results = vec![format!("{error:#}")];
                Ok(Cell { machine, kernel: kernel.to_owned(), results, verified: 0 })
            }
        }
    }

    fn parse(machine: &'static Machine, kernel: &str, text: &str) -> Cell {
        let mut cell = Cell { machine, kernel: kernel.to_owned(), results: Vec::new(), verified: 0 };
        for line in text.lines() {
            let mut fields = line.split('|');
            let (mode, result) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            cell.results.push(format!("{mode} {result}"));
            let verified = fields.next().and_then(|number| number.trim().parse().ok());
            cell.verified = cell.verified.max(verified.unwrap_or_default());
        }
        cell
    }

    fn is_well(&self) -> bool {
        self.results == ["gather ok", "spread ok"]
    }
}

fn document(cells: &[Cell]) -> String {
    let mut document = String::from(
        "# The live scheduler on kernels and machines\n\n\
         Written by `./x vm-live`. In each guest Huddle is attached in both modes, loaded with pairs, hogs and forks, looked at by `huddle \
         status` and stopped; \"ok\": it stayed attached and left with status 0. Verified: the most instructions that the kernel's verifier \
         followed for one of the programs; a million is what it allows.\n\n\
         | machine | kernel | gather and spread | verified |\n|---|---|---|---:|\n",
    );
    for cell in cells {
        let title = cell.machine.title;
        let _ = writeln!(
            document,
            "| {}: {title} | {} | {} | {} |",
            cell.machine.name,
            cell.kernel,
            cell.results.join("; "),
            cell.verified
        );
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kernels: &[&str], machines: &[&str]) -> Vec<(&'static str, String)> {
        let own = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        let live = Live { kernels: own(kernels), machines: own(machines), output: None };
        live.cells().into_iter().map(|(machine, kernel)| (machine, kernel.to_owned())).collect()
    }

    #[test]
    fn every_machine_of_the_cells_is_one_of_the_matrix() {
        for (machine, _) in asked(&[], &[]) {
            assert!(guests::find(machine).is_some(), "{machine}");
        }
        assert_eq!(asked(&[], &[]).len(), KERNELS.len() + MACHINES.len());
        assert_eq!(asked(&["7.3"], &[]), [("clusters", "7.3".to_owned())]);
        assert_eq!(asked(&[], &["smt"]), [("smt", WHOLE.to_owned())]);
        assert!(asked(&["7.3"], &["smt"]).is_empty());
    }

    #[test]
    fn a_guest_is_well_when_both_modes_are() {
        let machine = guests::find("smt").unwrap();
        let cell = Cell::parse(machine, WHOLE, "gather|ok|1200\nspread|ok|900\n");
        assert!(cell.is_well());
        assert_eq!(cell.verified, 1200);
        for text in ["gather|ok|1\n", "gather|ok|1\nspread|not attached: no|0\n", ""] {
            assert!(!Cell::parse(machine, WHOLE, text).is_well(), "{text}");
        }
        assert!(
            document(&[cell])
                .contains("| smt: 8 cores of 2 threads, cluster = core | 7.2.6 | gather ok; spread ok | 1200 |")
        );
    }
}
