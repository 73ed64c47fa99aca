//! stress-ng for guests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::packages::{Apt, cached, checked};

/// A minute of forks, changes of affinity, nice values and policies, signals, pipes, futexes and timers, few enough workers for 24
/// emulated CPUs on two. It leaves with 0 if every worker did what it should. No worker that only yields: one keeps every CPU busy.
pub const COMMAND: &str = "stress-ng --timeout 60 --no-rand-seed --fork 2 --affinity 2 --nice 2 --schedpolicy 2 \
    --kill 1 --sigq 1 --pipe 2 --switch 2 --futex 1 --timer 1 --cpu 2 --cpu-load 50 --metrics-brief";

/// The package's loader and libraries lie there in a guest, away from those of programs that were built here.
const HOME: &str = "opt/stress-ng";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// A folder of files for an x86-64 guest (see [`crate::guest::Guest::programs`]) with stress-ng as `bin/stress-ng`, out of the cache
/// or, the first time, the archive.
///
/// # Errors
/// The package or a library of it is missing.
pub fn program(cache: &Path) -> Result<PathBuf> {
    cached(cache, "stress-ng-amd64", |folder| {
        let unpacked = TempDir::new_in(cache)?;
        Apt::new(cache, "amd64")?.unpack_closure("stress-ng", "bookworm", unpacked.path())?;
        arrange(unpacked.path(), folder)
    })
}

/// Copies what the program needs of the unpacked packages.
fn arrange(unpacked: &Path, folder: &Path) -> Result<()> {
    let home = folder.join(HOME);
    fs::create_dir_all(&home)?;
    fs::create_dir_all(folder.join("bin"))?;
    let found = |candidates: &[&str]| {
        let paths = candidates.iter().map(|path| unpacked.join(path)).find(|path| path.exists());
        paths.with_context(|| format!("the packages of stress-ng hold no {}", candidates[0]))
    };
    let program = found(&["usr/bin/stress-ng"])?;
    let loader = found(&[&format!("lib64/{LOADER}"), &format!("usr/lib64/{LOADER}")])?;
    let folders = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(|path| unpacked.join(path));
    let path = folders.each_ref().map(|folder| folder.display().to_string()).join(":");
    let listed = checked(Command::new(&loader).args(["--library-path", &path, "--list"]).arg(&program))?;
    // A line is `libz.so.1 => /path (0x…)`, or has no path of a file: the vDSO, the loader.
    let libraries = listed.lines().filter_map(|line| line.split_once(" => ")?.1.split(" (").next());
    for library in libraries.map(Path::new).filter(|path| path.starts_with(unpacked)) {
        fs::copy(library, home.join(library.file_name().unwrap_or_default()))?;
    }
    fs::copy(&loader, home.join(LOADER))?;
    fs::copy(&program, home.join("stress-ng"))?;
    let start = folder.join("bin/stress-ng");
    let text = format!("#!/bin/sh\nexec /{HOME}/{LOADER} --library-path /{HOME} /{HOME}/stress-ng \"$@\"\n");
    fs::write(&start, text)?;
    fs::set_permissions(&start, Permissions::from_mode(0o755))?;
    Ok(())
}
