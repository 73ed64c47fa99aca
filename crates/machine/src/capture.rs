//! What a system shows beside its topology: files of `/proc`, of debugfs, a kernel log.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::archive::LONG_FILE_LIMIT;
use crate::sysfs::read_topology;
use crate::tree::Tree;
use crate::{MachineError, Topology};

/// The running system, or one captured in a folder or archive with a `/sys` tree. Paths given to it are relative to the
/// folder that holds `sys`.
pub struct Capture {
    tree: Tree,
    name: String,
    live: bool,
}

/// Why something cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is not there, or no plain file (or folder).
    Missing,
    /// It may not be read.
    Denied,
    /// It is longer than any file of its kind.
    TooLong,
}

impl Capture {
    /// The running system.
    pub fn live() -> Capture {
        Capture { tree: Tree::live(), name: "this machine".to_owned(), live: true }
    }

    /// A captured one: a folder or a .tar, .tar.gz, .tar.bz2 or .tar.xz archive with one `/sys` tree in it.
    ///
    /// # Errors
    /// When there is nothing at the path, or it is not such a folder or archive.
    pub fn open(path: &str) -> Result<Capture, MachineError> {
        if !Path::new(path).exists() {
            return Err(MachineError::source(path, "no such file or folder"));
        }
        Ok(Capture { tree: Tree::open(Path::new(path))?, name: path.to_owned(), live: false })
    }

    /// The path it was opened with, `this machine` for the running system.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its topology.
    ///
    /// # Errors
    /// When the `/sys` tree describes none.
    pub fn topology(&self) -> Result<Topology, MachineError> {
        read_topology(&self.tree, &self.name, self.live)
    }

    /// A file's text (`proc/schedstat`), without the zero bytes that some tools pad copies of such files with.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(&self, path: &str) -> Result<String, Absence> {
        let data = match &self.tree {
            Tree::Folder(sys) => read_file(&beside(sys, path))?,
            Tree::Archive(archive, sys) => {
                archive.read(&beside(Path::new(sys), path).to_string_lossy()).ok_or(Absence::Missing)?.to_vec()
            }
        };
        let padding = data.iter().rev().take_while(|&&byte| byte == 0).count();
        Ok(String::from_utf8_lossy(&data[..data.len() - padding]).into_owned())
    }

    /// The names in a folder (`sys/kernel/debug/sched/domains`), sorted.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn list(&self, path: &str) -> Result<Vec<String>, Absence> {
        match &self.tree {
            Tree::Folder(sys) => {
                let entries = fs::read_dir(beside(sys, path)).map_err(|error| absence(&error))?;
                let mut names: Vec<String> =
                    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
                names.sort_unstable();
                Ok(names)
            }
            Tree::Archive(archive, sys) => {
                let names = archive.list(&beside(Path::new(sys), path).to_string_lossy());
                if names.is_empty() { Err(Absence::Missing) } else { Ok(names.into_iter().collect()) }
            }
        }
    }
}

/// The path taken from the folder that holds `sys`.
fn beside(sys: &Path, path: &str) -> PathBuf {
    match path.strip_prefix("sys/") {
        Some(below) => sys.join(below),
        None => sys.parent().unwrap_or(Path::new("")).join(path),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Absence> {
    let file = File::open(path).map_err(|error| absence(&error))?;
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Err(Absence::Missing);
    }
    let mut data = Vec::with_capacity(256);
    let length = file.take(LONG_FILE_LIMIT + 1).read_to_end(&mut data).map_err(|error| absence(&error))?;
    if length as u64 > LONG_FILE_LIMIT { Err(Absence::TooLong) } else { Ok(data) }
}

fn absence(error: &io::Error) -> Absence {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Absence::Denied,
        _ => Absence::Missing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn write(top: &Path, path: &str, content: &str) {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn folder_and_archive_give_the_same_files_beside_sys() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("box");
        write(&top, "sys/devices/system/cpu/online", "0\n");
        write(&top, "sys/kernel/debug/sched/domains/cpu0/domain0/name", "MC\n");
        write(&top, "proc/schedstat", "version 15\n\0\0\0");
        write(&top, "dmesg", "booted\n");
        let archive = folder.path().join("box.tar");
        let mut tar = tar::Builder::new(File::create(&archive).unwrap());
        tar.append_dir_all("some/box", &top).unwrap();
        tar.finish().unwrap();
        for path in [top, archive] {
            let capture = Capture::open(path.to_str().unwrap()).unwrap();
            assert_eq!(capture.read("proc/schedstat").as_deref(), Ok("version 15\n"), "{path:?}");
            assert_eq!(capture.read("dmesg").as_deref(), Ok("booted\n"), "{path:?}");
            let domains = "sys/kernel/debug/sched/domains";
            assert_eq!(capture.list(domains), Ok(vec!["cpu0".to_owned()]), "{path:?}");
            assert_eq!(capture.read(&format!("{domains}/cpu0/domain0/name")).as_deref(), Ok("MC\n"), "{path:?}");
            assert_eq!(capture.read("proc/version"), Err(Absence::Missing), "{path:?}");
            assert_eq!(capture.list("proc/sys"), Err(Absence::Missing), "{path:?}");
            // a folder is no file
            assert_eq!(capture.read("proc"), Err(Absence::Missing), "{path:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_no_capture() {
        let folder = tempfile::tempdir().unwrap();
        let message = |path: &Path| Capture::open(path.to_str().unwrap()).err().unwrap().to_string();
        assert!(message(&folder.path().join("nothing")).ends_with("nothing: no such file or folder"));
        assert!(message(folder.path()).contains("holds no sys/devices/system/cpu"));
    }
}
