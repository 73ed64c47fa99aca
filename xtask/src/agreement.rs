//! Wake-ups of real kernels, recorded in guests for `huddle agree`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{Guest, Kept, Streams};
use crate::guests;
use crate::shape::Shape;

/// A load to record.
struct Case {
    name: &'static str,
    /// How long it is recorded, s.
    window: &'static str,
    /// After how long, s; 0: from its start on.
    before: &'static str,
    /// Arguments of `guest-load`.
    load: &'static str,
}

/// Few wake-ups on a machine nearly idle, hackbench below, at and beyond the number of CPUs beside hogs, and hogs alone.
const CASES: [Case; 8] = [
    Case { name: "pairs", window: "1.5", before: "2", load: "--pairs 6 --hogs 4 --work 200 --seconds 4" },
    Case { name: "crowd", window: "2", before: "2", load: "--pairs 14 --hogs 8 --work 300 --seconds 4" },
    Case { name: "mixed", window: "1.5", before: "2", load: "--pairs 10 --hogs 10 --work 50 --seconds 4" },
    Case { name: "hackbench", window: "1", before: "2", load: "--groups 1 --fds 6 --hogs 4 --seconds 3" },
    Case { name: "half", window: "1", before: "2", load: "--groups 1 --fds 8 --hogs 10 --seconds 3" },
    Case { name: "full", window: "0.7", before: "2", load: "--groups 2 --fds 8 --hogs 6 --seconds 3" },
    Case { name: "hogs6", window: "4", before: "0", load: "--hogs 6 --seconds 4" },
    Case { name: "hogs12", window: "4", before: "0", load: "--hogs 12 --seconds 4" },
];

/// The machine of the matrix that they run on.
pub const MACHINE: &str = "clusters";
/// Boot and loads, with a busy host.
const TIMEOUT: u64 = 1200;

/// Boots a kernel, runs the loads, and gives the recorded text. `guest_load` is the program of that name.
///
/// # Errors
/// A guest that did not get to its end.
pub fn record(cache: &Path, series: &str, guest_load: &Path) -> Result<Vec<u8>> {
    let machine = guests::find(MACHINE).with_context(|| format!("no machine {MACHINE} in the matrix"))?;
    let topology = machine.topology().context("the machine has no topology")?;
    let mut script = include_str!("agreement.sh").to_owned();
    for Case { name, window, before, load } in CASES {
        let _ = writeln!(script, "record {name} {window} {before} {load}");
    }
    let guest = Guest {
        shape: &Shape::of(MACHINE, &topology)?,
        series,
        command: script,
        programs: vec![guest_load.to_owned()],
        offline: Vec::new(),
        append: String::new(),
        timeout: Duration::from_secs(TIMEOUT),
        console: None,
    };
    let out = Kept::default();
    let streams = Streams { out: Box::new(out.clone()), err: Box::new(std::io::stderr()) };
    let status = guest.run(cache, streams)?;
    ensure!(status == 0, "the guest's script left with {status}");
    Ok(out.take())
}
