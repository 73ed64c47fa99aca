//! Files, links and folders held in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::numbered;

/// Links followed before a chain counts as a loop, as many as the kernel follows.
const LINK_LIMIT: usize = 40;

/// What an entry takes beside its path.
const ENTRY_BYTES: usize = 128;

/// What an archive holds of a machine, by path without leading slash.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    /// What is in each folder, by its path; a folder that has something in it is in the one above.
    folders: HashMap<String, BTreeMap<String, Entry>>,
    /// How many links there are: without any, none need be looked for on the way to a file.
    links: usize,
}

#[derive(Debug)]
pub(super) enum Entry {
    /// Its content; the CPUs of a core, cluster and package have many files with the same, which is then held once.
    File(Arc<[u8]>),
    /// Its target, after `//` when that is a path from the archive's top.
    Link(String),
    Folder,
}

impl Archive {
    /// Adds what is at a path; what comes later replaces what was there. Returns about how many bytes that takes beside
    /// a file's content: each folder on the way to it is held as well.
    pub(super) fn insert(&mut self, path: &str, entry: Entry) -> usize {
        let mut bytes = path.len() + ENTRY_BYTES;
        if let Entry::Link(target) = &entry {
            self.links += 1;
            bytes += target.len();
        }
        let (folder, name) = split(path);
        if let Some(names) = self.folders.get_mut(folder) {
            names.insert(name.to_owned(), entry);
            return bytes;
        }
        self.folders.insert(folder.to_owned(), BTreeMap::from([(name.to_owned(), entry)]));
        if !folder.is_empty() && self.get(folder).is_none() {
            bytes += self.insert(folder, Entry::Folder);
        }
        bytes
    }

    /// Whether anything is known of the path.
    pub(super) fn holds(&self, path: &str) -> bool {
        self.get(path).is_some()
    }

    fn get(&self, path: &str) -> Option<&Entry> {
        let (folder, name) = split(path);
        self.folders.get(folder)?.get(name)
    }

    /// The folders that hold `devices/system/cpu`, `sys` included.
    pub(crate) fn sys_roots(&self) -> BTreeSet<String> {
        let root = |(folder, names): (&String, &BTreeMap<String, Entry>)| {
            let above = folder.strip_suffix("devices/system")?;
            let is_whole_name = above.is_empty() || above.ends_with('/');
            let has_cpus = names.get("cpu").is_some_and(|entry| !matches!(entry, Entry::File(_)));
            (is_whole_name && has_cpus).then(|| above.trim_end_matches('/').to_owned())
        };
        self.folders.iter().filter_map(root).collect()
    }

    /// The folders that hold CPU folders with something of a topology, for an archive without any `/sys`: somebody kept
    /// no more than `/sys/devices/system/cpu` and gave it another name.
    pub(crate) fn cpu_folders(&self) -> BTreeSet<String> {
        let above = |folder: &String| {
            let (cpu, name) = split(folder);
            let (above, cpu) = split(cpu);
            let is_cpu = matches!(name, "topology" | "cache") && numbered(cpu, "cpu").is_some();
            // A node's folder holds links to its CPUs, which may have been followed.
            (is_cpu && numbered(split(above).1, "node").is_none()).then(|| above.to_owned())
        };
        self.folders.keys().filter_map(above).collect()
    }

    /// The archive with a folder of CPUs, and one of nodes beside it, where `/sys` has them.
    pub(crate) fn with_cpus_from(self, cpus: &str) -> Archive {
        let nodes = match split(cpus).0 {
            "" => "node".to_owned(),
            above => format!("{above}/node"),
        };
        let moved = |folder: &str| {
            let below = |from: &str, to: &str| match (from, folder.strip_prefix(from)?) {
                (_, "") => Some(to.to_owned()),
                ("", below) => Some(format!("{to}/{below}")),
                (_, below) => below.starts_with('/').then(|| format!("{to}{below}")),
            };
            below(cpus, "sys/devices/system/cpu").or_else(|| below(&nodes, "sys/devices/system/node"))
        };
        let mut archive = Archive::default();
        for (folder, names) in self.folders {
            let Some(folder) = moved(&folder) else { continue };
            for (name, entry) in names {
                archive.insert(&format!("{folder}/{name}"), entry);
            }
        }
        archive
    }

    /// A file's content.
    pub(crate) fn read(&self, path: &str) -> Option<&[u8]> {
        let content = |path: &str| match self.get(path) {
            Some(Entry::File(data)) => Some(&data[..]),
            _ => None,
        };
        content(path).or_else(|| content(&self.resolve(path)?))
    }

    /// The names in a folder, sorted; empty when there is none.
    pub(crate) fn list(&self, folder: &str) -> BTreeSet<String> {
        let names = |folder: &str| self.folders.get(folder).into_iter().flat_map(|names| names.keys().cloned());
        match self.resolve(folder) {
            Some(target) => names(folder).chain(names(&target)).collect(),
            None => names(folder).collect(),
        }
    }

    /// The path with every link on the way replaced; `None` when there is none, or a chain of them does not end.
    fn resolve(&self, path: &str) -> Option<String> {
        if self.links == 0 {
            return None;
        }
        let link = |path: &str| match self.get(path) {
            Some(Entry::Link(target)) => Some(target),
            _ => None,
        };
        let mut path = path.to_owned();
        for hop in 0..LINK_LIMIT {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let Some((end, target)) = ends.into_iter().find_map(|end| Some((end, link(&path[..end])?))) else {
                return (hop > 0).then_some(path);
            };
            let rest = &path[end..];
            let folder = split(&path[..end]).0;
            let joined = match (target.strip_prefix("//"), target.strip_prefix('/')) {
                (Some(target), _) => format!("{target}{rest}"),
                // Absolute in the archived machine: below whatever holds its `sys`.
                (None, Some(target)) => {
                    let top = path.find("sys/devices/").map_or("", |at| &path[..at]);
                    format!("{top}{target}{rest}")
                }
                (None, None) => format!("{folder}/{target}{rest}"),
            };
            path = without_dots(&joined)?;
        }
        None
    }
}

/// The folder and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// A link's path with `..` applied; `None` when it leaves the archive.
fn without_dots(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}
