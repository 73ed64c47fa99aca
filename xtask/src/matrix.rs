//! Kernels × machines: whether each kernel shows the sched domains that Huddle makes of the machine for it.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use huddle_machine::CpuSet;
use tempfile::TempDir;

use crate::guest::{Guest, Kept, Streams};
use crate::guests::{MACHINES, Machine};
use crate::kernel::SERIES;
use crate::shape::Shape;

/// A kernel on a machine.
pub struct Cell {
    /// The kernel's release.
    pub release: String,
    /// The domains that the kernel shows for its first CPU, bottom-up: `CLS 4, MC 24`.
    pub chain: String,
    /// What `huddle domains --check` has to say against it; empty when it finds no difference.
    pub differences: Vec<String>,
    /// What it could not compare.
    pub not_compared: Vec<String>,
    /// What else it has to say.
    pub notes: Vec<String>,
}

/// Time for a guest, the boot included: emulated, and the host may be busy.
const TIMEOUT: Duration = Duration::from_secs(1500);
/// What a guest sends: its capture, with what `huddle domains --check` says inside as the files `check` and `status`.
const CHECK: &str = "sh /guest/capture /tmp/capture
if [ -x /bin/huddle ]; then
    huddle domains --check > /tmp/capture/check 2> /tmp/capture/complaint
    echo $? > /tmp/capture/status
fi
tar c -C /tmp/capture .";

/// Boots a guest of a machine under a kernel series and checks its domains, inside it and from a capture of it; where `huddle` cannot run,
/// from the capture only.
///
/// # Errors
/// The guest did not get that far, or the two checks contradict each other.
pub fn judge(cache: &Path, huddle: &Path, machine: &Machine, series: &str) -> Result<Cell> {
    judge_capture(huddle, &capture(cache, huddle, machine, series)?)
}

/// Boots the guest and gives its capture, a tar.
fn capture(cache: &Path, huddle: &Path, machine: &Machine, series: &str) -> Result<Vec<u8>> {
    let topology = machine.topology().context("the machine has no topology")?;
    let shape = Shape::of(machine.name, &topology)?;
    let guest = Guest {
        shape: &shape,
        series,
        command: CHECK.to_owned(),
        programs: if shape.arch == "amd64" { vec![huddle.to_path_buf()] } else { Vec::new() },
        offline: machine.offline.to_vec(),
        append: machine.append.to_owned(),
        timeout: TIMEOUT,
        console: None,
    };
    let [out, err] = [(); 2].map(|()| Kept::default());
    let streams = Streams { out: Box::new(out.clone()), err: Box::new(err.clone()) };
    let status = guest.run(cache, streams)?;
    let [archive, complaints] = [out, err].map(|kept| kept.take());
    ensure!(status == 0, "the guest's command left with {status}: {}", String::from_utf8_lossy(&complaints).trim());
    Ok(archive)
}

/// Checks a capture, and holds the result against what the check in the guest said.
fn judge_capture(huddle: &Path, archive: &[u8]) -> Result<Cell> {
    let folder = TempDir::with_prefix("huddle-capture-")?;
    let root = folder.path();
    tar::Archive::new(archive).unpack(root).context("the guest's capture is no tar")?;
    let checked = Command::new(huddle).args(["domains", "--check", "--from"]).arg(root).output()?;
    let complaint = String::from_utf8_lossy(&checked.stderr).into_owned();
    let outside = Checked::parse(&String::from_utf8_lossy(&checked.stdout), checked.status.success(), &complaint)?;
    let read = |name| fs::read_to_string(root.join(name));
    if let Ok(status) = read("status") {
        let inside = Checked::parse(&read("check")?, status.trim() == "0", &read("complaint")?)?;
        ensure!(
            inside.differences == outside.differences,
            "the check in the guest and the one of its capture disagree:\n{}\n---\n{}",
            inside.differences.join("\n"),
            outside.differences.join("\n")
        );
    }
    Ok(Cell {
        release: read("proc/sys/kernel/osrelease")?.trim().to_owned(),
        chain: chain(root),
        differences: outside.differences,
        not_compared: outside.not_compared,
        notes: outside.notes,
    })
}

/// What a check printed.
struct Checked {
    differences: Vec<String>,
    not_compared: Vec<String>,
    notes: Vec<String>,
}

impl Checked {
    /// The first line says what was compared, the last how many differences there are.
    fn parse(text: &str, success: bool, complaint: &str) -> Result<Checked> {
        let lines: Vec<&str> = text.lines().collect();
        let [_, middle @ .., verdict] = lines.as_slice() else {
            bail!("huddle domains --check failed: {}", complaint.trim());
        };
        let mut checked = Checked { differences: Vec::new(), not_compared: Vec::new(), notes: Vec::new() };
        for line in middle {
            if let Some(what) = line.strip_prefix("not compared: ") {
                checked.not_compared.push(what.to_owned());
            } else if let Some(note) = line.strip_prefix("note: ") {
                checked.notes.push(note.to_owned());
            } else {
                checked.differences.push((*line).to_owned());
            }
        }
        ensure!(
            success == (*verdict == "no difference") && success == checked.differences.is_empty(),
            "huddle domains --check contradicts itself: {verdict}"
        );
        Ok(checked)
    }
}

/// Names and weights of the first CPU's domains as the kernel shows them.
fn chain(root: &Path) -> String {
    let schedstat = fs::read_to_string(root.join("proc/schedstat")).unwrap_or_default();
    let lines = schedstat.lines().skip_while(|line| !line.starts_with("cpu0 ")).skip(1);
    let mut levels = Vec::new();
    for (index, line) in lines.take_while(|line| line.starts_with("domain")).enumerate() {
        // Version 17 has the name before the mask.
        let span = line.split(' ').skip(1).find_map(|word| CpuSet::parse_mask(word).ok());
        let weight = span.map_or(0, |span| span.len());
        let name = ["sys/kernel/debug/sched/domains", "proc/sys/kernel/sched_domain"]
            .iter()
            .find_map(|folder| fs::read_to_string(root.join(format!("{folder}/cpu0/domain{index}/name"))).ok())
            .unwrap_or_else(|| "?".to_owned());
        levels.push(format!("{} {weight}", name.trim()));
    }
    if levels.is_empty() { "no domain".to_owned() } else { levels.join(", ") }
}

/// What to run of the matrix.
pub struct Matrix {
    /// Kernel series; all when empty.
    pub series: Vec<String>,
    /// Machines by name; all when empty.
    pub machines: Vec<String>,
    /// Where the guests' captures are kept, a tar each. A guest whose capture is there already is not booted again.
    pub captures: Option<PathBuf>,
    /// Where the table is written; nowhere when `None`.
    pub output: Option<PathBuf>,
    /// Guests at a time.
    pub jobs: usize,
}

/// What became of each guest, machine by machine and by series within; `None` as long as it has not run.
type Cells = [Option<Result<Cell>>];

impl Matrix {
    /// Runs it; whether there was no difference and no failure. The table is written anew after every guest, so that a run that is
    /// cut short leaves what it found.
    ///
    /// # Errors
    /// An unknown machine, or a table that cannot be written. A guest that fails is told in the table.
    pub fn run(&self, cache: &Path, huddle: &Path) -> Result<bool> {
        let known = MACHINES.iter().map(|machine| machine.name).collect::<Vec<_>>();
        if let Some(name) = self.machines.iter().find(|name| !known.contains(&name.as_str())) {
            bail!("no machine {name} in the matrix; there are {}", known.join(", "));
        }
        let all: Vec<String> = SERIES.map(str::to_owned).to_vec();
        let series = if self.series.is_empty() { &all } else { &self.series };
        let wanted =
            |machine: &&Machine| self.machines.is_empty() || self.machines.iter().any(|name| name == machine.name);
        let machines: Vec<&Machine> = MACHINES.iter().filter(wanted).collect();
        let todo: Vec<(&Machine, &String)> =
            machines.iter().flat_map(|&machine| series.iter().map(move |series| (machine, series))).collect();
        let next = AtomicUsize::new(0);
        let cells: Mutex<Vec<Option<Result<Cell>>>> = Mutex::new(todo.iter().map(|_| None).collect());
        let work = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(machine, series_of_cell)) = todo.get(index) else { return Ok(()) };
                let cell = self.cell(cache, huddle, machine, series_of_cell);
                match &cell {
                    Ok(cell) => eprintln!("{} under {}: {}", machine.name, cell.release, verdict(cell)),
                    Err(error) => eprintln!("{} under {series_of_cell}: {error:#}", machine.name),
                }
                let Ok(mut cells) = cells.lock() else { return Ok(()) };
                cells[index] = Some(cell);
                self.write(&machines, series, &cells)?;
            }
        };
        let ended: Vec<thread::Result<Result<()>>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for result in ended {
            result.map_err(|_| anyhow!("a thread that runs guests stopped"))??;
        }
        let same = |cell: &Option<Result<Cell>>| matches!(cell, Some(Ok(cell)) if cell.differences.is_empty());
        Ok(cells.lock().is_ok_and(|cells| cells.iter().all(same)))
    }

    fn cell(&self, cache: &Path, huddle: &Path, machine: &Machine, series: &str) -> Result<Cell> {
        let Some(captures) = &self.captures else { return judge(cache, huddle, machine, series) };
        let path = captures.join(format!("{}-{series}.tar", machine.name));
        if let Ok(kept) = fs::read(&path) {
            return judge_capture(huddle, &kept);
        }
        let archive = capture(cache, huddle, machine, series)?;
        let cell = judge_capture(huddle, &archive)?;
        fs::create_dir_all(captures)?;
        write_whole(&path, &archive)?;
        Ok(cell)
    }

    fn write(&self, machines: &[&Machine], series: &[String], cells: &Cells) -> Result<()> {
        let Some(path) = &self.output else { return Ok(()) };
        write_whole(path, table(machines, series, cells).as_bytes())
    }
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder)?;
    std::io::Write::write_all(&mut file, content)?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn verdict(cell: &Cell) -> String {
    match cell.differences.len() {
        0 => format!("{} (no difference)", cell.chain),
        count => format!("{} ({count} differences)\n  {}", cell.chain, cell.differences.join("\n  ")),
    }
}

/// The whole document.
fn table(machines: &[&Machine], series: &[String], cells: &Cells) -> String {
    let mut text = String::from(
        "# Real kernels against Huddle's sched domains\n\n\
         Written by `./x vm-matrix`. Each cell is a guest under QEMU: the domains that the kernel shows for its first CPU \
         (name and number of CPUs, bottom-up), and whether `huddle domains --check` found a difference in the names, spans, flags, \
         levels, intervals, groups or groups' flags of any CPU. On x86-64 the check runs in the guest and again on the host from what \
         was captured in it; on arm64 from the capture.\n\n",
    );
    let mut releases: Vec<&str> = cells.iter().flatten().flatten().map(|cell| cell.release.as_str()).collect();
    releases.sort_unstable();
    releases.dedup();
    let _ = writeln!(text, "Releases: {}.\n", releases.join(", "));
    let _ = writeln!(text, "| machine | {} |\n|---|{}", series.join(" | "), "---|".repeat(series.len()));
    let mut notes: [(&str, Vec<String>); 4] =
        ["Differences", "Not run", "Not compared", "Notes"].map(|heading| (heading, Vec::new()));
    for (machine, cells) in machines.iter().zip(cells.chunks(series.len().max(1))) {
        let _ = write!(text, "| `{}`: {} |", machine.name, machine.title);
        for (series, cell) in series.iter().zip(cells) {
            let line = |what: &str| format!("{} under {series}: {what}", machine.name);
            let shown = match cell {
                None => "not run".to_owned(),
                Some(Err(error)) => {
                    notes[1].1.push(line(format!("{error:#}").lines().next().unwrap_or_default()));
                    "**failed**".to_owned()
                }
                Some(Ok(cell)) => {
                    for (note, lines) in [(0, &cell.differences), (2, &cell.not_compared), (3, &cell.notes)] {
                        notes[note].1.extend(lines.iter().map(|what| line(what)));
                    }
                    match cell.differences.len() {
                        0 => format!("{}: same", cell.chain),
                        count => format!("{}: **{count} differences**", cell.chain),
                    }
                }
            };
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
    for (heading, lines) in notes {
        let _ = writeln!(text, "\n## {heading}\n");
        if lines.is_empty() {
            text.push_str("None.\n");
        }
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Checked;

    #[test]
    fn the_lines_of_a_check_are_told_apart() {
        let text = "this machine, 4 CPUs, Linux 6.18, record 6.17, compared with debugfs\n\
                    cpu0-3 domain1 MC: kernel says max_interval 48, Huddle says 96\n\
                    not compared: groups: no log\nnote: the kernel complains\n1 difference\n";
        let checked = Checked::parse(text, false, "").expect("parsed");
        assert_eq!((checked.differences.len(), checked.not_compared.len(), checked.notes.len()), (1, 1, 1));
        assert!(Checked::parse(text, true, "").is_err());
        assert!(Checked::parse("", false, "huddle: no debugfs").is_err());
    }
}
