//! A `/sys` tree, wherever it is: this machine's, a folder's or an archive's.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::MachineError;
use crate::archive::{Archive, CPUINFO_LIMIT, FORMATS, numbered};

/// How deep below a folder its `sys` may lie.
const SEARCH_DEPTH: usize = 4;
/// Folders looked into before giving up.
const SEARCH_LIMIT: usize = 20_000;
/// Longest file read.
const FILE_LIMIT: usize = 1 << 20;

/// A `/sys` tree. Paths given to it are relative to `/sys`.
pub(crate) enum Tree {
    /// The folder that is `sys`.
    Folder(PathBuf),
    /// An archive and the path of `sys` in it.
    Archive(Archive, String),
}

impl Tree {
    /// This machine's.
    pub(crate) fn live() -> Tree {
        Tree::Folder(PathBuf::from("/sys"))
    }

    /// The tree in a folder or an archive.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub(crate) fn open(path: &Path) -> Result<Tree, MachineError> {
        let name = path.display().to_string();
        if !path.is_dir() {
            return Tree::of(&name, Archive::open(path)?);
        }
        let mut found = match sys_above(path) {
            Some(sys) => Found { trees: vec![sys], cpus: Vec::new() },
            None => Found::below(path),
        };
        let only_cpus = found.trees.is_empty();
        let roots = if only_cpus { &mut found.cpus } else { &mut found.trees };
        match (roots.pop(), roots.is_empty()) {
            (None, _) => Err(nothing(&name)),
            (Some(cpus), true) if only_cpus => {
                let folders = [Some((cpus.clone(), "cpu")), cpus.parent().map(|above| (above.join("node"), "node"))];
                let folders = folders.into_iter().flatten().filter(|(folder, _)| folder.is_dir());
                let folders = folders.map(|(folder, at)| (folder, format!("sys/devices/system/{at}"))).collect();
                let fail = |error| MachineError::source(name.as_str(), format!("cannot be read: {error}"));
                Ok(Tree::Archive(Archive::of_folders(folders).map_err(fail)?, "sys".to_owned()))
            }
            (Some(root), true) => Ok(Tree::Folder(root)),
            (Some(root), false) => {
                let roots = roots.iter().chain([&root]).map(|root| root.display().to_string());
                Err(several(&name, roots, "give one of them"))
            }
        }
    }

    /// The tree in an archive; `name` is what errors call it.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub(crate) fn of(name: &str, archive: Archive) -> Result<Tree, MachineError> {
        let mut roots = archive.sys_roots();
        let unpack = "unpack it and give one of them";
        match (roots.pop_last(), roots.is_empty()) {
            (Some(root), true) => return Ok(Tree::Archive(archive, root)),
            (Some(root), false) => return Err(several(name, roots.into_iter().chain([root]), unpack)),
            (None, _) => {}
        }
        let mut folders = archive.cpu_folders();
        match (folders.pop_last(), folders.is_empty()) {
            (Some(folder), true) => Ok(Tree::Archive(archive.with_cpus_from(&folder), "sys".to_owned())),
            (Some(folder), false) => Err(several(name, folders.into_iter().chain([folder]), unpack)),
            (None, _) => Err(MachineError::source(name, format!("holds no sys/devices/system/cpu; give {FORMATS}"))),
        }
    }

    /// A file's content; `None` when it is missing or cannot be read.
    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        match self {
            Tree::Folder(sys) => read_file(&sys.join(path)),
            Tree::Archive(archive, sys) => archive.read(&join(sys, path)).map(<[u8]>::to_vec),
        }
    }

    /// The names in a folder, sorted; empty when there is none.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        match self {
            Tree::Folder(sys) => {
                let mut names: Vec<String> = fs::read_dir(sys.join(path))
                    .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
                    .unwrap_or_default();
                names.sort_unstable();
                names
            }
            Tree::Archive(archive, sys) => archive.list(&join(sys, path)).into_iter().collect(),
        }
    }

    /// The machine's `/proc/cpuinfo`.
    pub(crate) fn cpuinfo(&self) -> Option<String> {
        let data = match self {
            Tree::Folder(sys) => read_long(&beside_sys(sys)?.join("proc/cpuinfo"), CPUINFO_LIMIT),
            Tree::Archive(archive, sys) => {
                let top = beside_sys(Path::new(sys))?.to_string_lossy();
                archive.read(&join(&top, "proc/cpuinfo")).map(<[u8]>::to_vec)
            }
        };
        Some(String::from_utf8_lossy(&data?).into_owned())
    }
}

fn nothing(name: &str) -> MachineError {
    MachineError::source(name, format!("holds no sys/devices/system/cpu; give {FORMATS}"))
}

fn several(name: &str, trees: impl Iterator<Item = String>, advice: &str) -> MachineError {
    let trees: Vec<String> = trees.collect();
    let more = if trees.len() > 4 { ", …" } else { "" };
    let first = trees[..trees.len().min(4)].join(", ");
    MachineError::source(name, format!("holds {} /sys trees ({first}{more}); {advice}", trees.len()))
}

fn join(folder: &str, path: &str) -> String {
    if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
}

/// The folder whose `proc` is of the same machine: that of a tree which is not called `sys` is in it, if anywhere.
fn beside_sys(sys: &Path) -> Option<&Path> {
    if sys.file_name().is_some_and(|name| name == "sys") { sys.parent() } else { Some(sys) }
}

/// Opens a file without waiting for somebody to write to it, should it be a pipe.
fn open_file(path: &Path) -> Option<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()
}

fn read_long(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    open_file(path)?.take(limit).read_to_end(&mut data).ok()?;
    Some(data)
}

/// A file of `/sys`.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let mut file = open_file(path)?;
    let mut buffer = [0; 4096];
    let mut data = Vec::new();
    loop {
        let count = file.read(&mut buffer).ok()?;
        data.extend_from_slice(&buffer[..count]);
        // A read that leaves room has met the end, on disk as in sysfs; asking again would make each file dearer.
        if count < buffer.len() || data.len() >= FILE_LIMIT {
            data.truncate(FILE_LIMIT);
            return Some(data);
        }
    }
}

fn is_sys(folder: &Path) -> bool {
    folder.join("devices/system/cpu").is_dir()
}

/// The `/sys` that a folder inside it belongs to: `sys/devices/system/cpu` or one on the way there.
fn sys_above(folder: &Path) -> Option<PathBuf> {
    if is_sys(folder) || is_sys(&folder.join("sys")) {
        return None;
    }
    let folder = folder.canonicalize().ok()?;
    let steps = ["devices/system/cpu", "devices/system", "devices"].into_iter().find(|end| folder.ends_with(end))?;
    let sys = folder.ancestors().nth(steps.split('/').count())?;
    is_sys(sys).then(|| sys.to_owned())
}

/// What a folder holds.
#[derive(Default)]
struct Found {
    /// The folder itself when it is a `/sys`, else every `sys` below it, nearest first; links are not followed.
    trees: Vec<PathBuf>,
    /// Folders of CPUs that are in no such tree: somebody kept no more than `/sys/devices/system/cpu`.
    cpus: Vec<PathBuf>,
}

impl Found {
    fn below(root: &Path) -> Found {
        let mut found = Found::default();
        let mut queue = VecDeque::from([(root.to_owned(), 0)]);
        let mut seen = 0;
        while let Some((folder, depth)) = queue.pop_front() {
            if is_sys(&folder) {
                found.trees.push(folder);
                continue;
            }
            // A whole root file system has its tree at `sys`; there is no need to walk the rest.
            if is_sys(&folder.join("sys")) {
                found.trees.push(folder.join("sys"));
                continue;
            }
            seen += 1;
            let mut below: Vec<PathBuf> = fs::read_dir(&folder)
                .map(|entries| {
                    entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
                })
                .unwrap_or_default();
            below.sort_unstable();
            if below.iter().any(|folder| is_cpu(folder)) {
                found.cpus.push(folder);
            } else if depth < SEARCH_DEPTH && seen <= SEARCH_LIMIT {
                queue.extend(below.into_iter().map(|folder| (folder, depth + 1)));
            }
        }
        found
    }
}

/// Whether this is a CPU's folder, with something of a topology.
fn is_cpu(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| numbered(&name.to_string_lossy(), "cpu").is_some())
        && ["topology", "cache"].iter().any(|name| folder.join(name).is_dir())
}
