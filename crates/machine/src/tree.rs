//! A `/sys` tree, wherever it is: this machine's, a folder's or an archive's.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::MachineError;
use crate::archive::{Archive, CPUINFO_LIMIT, FORMATS};

/// How deep below a folder its `sys` may lie.
const SEARCH_DEPTH: usize = 4;
/// Folders looked into before giving up.
const SEARCH_LIMIT: usize = 20_000;
/// Longest file read.
const FILE_LIMIT: u64 = 1 << 20;

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
        let (archive, mut roots) = match path.is_dir() {
            true => (None, sys_folders(path)),
            false => {
                let archive = Archive::open(path)?;
                let roots = archive.sys_roots().into_iter().map(PathBuf::from).collect();
                (Some(archive), roots)
            }
        };
        match (roots.pop(), roots.is_empty()) {
            (None, _) => Err(MachineError::source(name, format!("holds no sys/devices/system/cpu; give {FORMATS}"))),
            (Some(root), true) => Ok(match archive {
                Some(archive) => Tree::Archive(archive, root.display().to_string()),
                None => Tree::Folder(root),
            }),
            (Some(root), false) => {
                let more = if roots.len() > 3 { ", …" } else { "" };
                let trees: Vec<String> = roots.iter().take(3).chain([&root]).map(|p| p.display().to_string()).collect();
                let message =
                    format!("holds {} /sys trees ({}{more}); give one of them", roots.len() + 1, trees.join(", "));
                Err(MachineError::source(name, message))
            }
        }
    }

    /// A file's content; `None` when it is missing or cannot be read.
    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        match self {
            Tree::Folder(sys) => read_file(&sys.join(path), FILE_LIMIT),
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
            Tree::Folder(sys) => read_file(&sys.parent()?.join("proc/cpuinfo"), CPUINFO_LIMIT),
            Tree::Archive(archive, sys) => {
                let top = sys.rsplit_once('/').map_or("", |(top, _)| top);
                archive.read(&join(top, "proc/cpuinfo")).map(<[u8]>::to_vec)
            }
        };
        Some(String::from_utf8_lossy(&data?).into_owned())
    }
}

fn join(folder: &str, path: &str) -> String {
    if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
}

fn read_file(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(256);
    File::open(path).ok()?.take(limit).read_to_end(&mut data).ok()?;
    Some(data)
}

/// The folder itself when it is a `/sys`, else every `sys` below it, nearest first; links are not followed.
fn sys_folders(root: &Path) -> Vec<PathBuf> {
    let is_sys = |folder: &Path| folder.join("devices/system/cpu").is_dir();
    let mut found = Vec::new();
    let mut queue = VecDeque::from([(root.to_owned(), 0)]);
    let mut seen = 0;
    while let Some((folder, depth)) = queue.pop_front() {
        if is_sys(&folder) {
            found.push(folder);
            continue;
        }
        // A whole root file system has its tree at `sys`; there is no need to walk the rest.
        if is_sys(&folder.join("sys")) {
            found.push(folder.join("sys"));
            continue;
        }
        seen += 1;
        if depth == SEARCH_DEPTH || seen > SEARCH_LIMIT {
            continue;
        }
        let mut below: Vec<PathBuf> = fs::read_dir(&folder)
            .map(|entries| {
                entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
            })
            .unwrap_or_default();
        below.sort_unstable();
        queue.extend(below.into_iter().map(|folder| (folder, depth + 1)));
    }
    found
}
