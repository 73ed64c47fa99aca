//! The part of a tar archive that describes a machine, held in memory.
//!
//! An archive may come from anywhere, so nothing in it is trusted: only paths that a topology can need are kept, every
//! entry and the sum of all are bounded, and links are followed inside the archive only, a bounded number of times.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::rc::Rc;

use crate::MachineError;

/// Longest file kept: a CPU mask of a machine at the limit is far shorter.
const FILE_LIMIT: u64 = 1 << 20;
/// Longest `proc/cpuinfo` kept: some 2 kB per CPU.
pub(crate) const CPUINFO_LIMIT: u64 = 64 << 20;
/// Everything kept, names included.
const KEPT_LIMIT: usize = 512 << 20;
/// Unpacked length of the whole archive.
const UNPACKED_LIMIT: u64 = 8 << 30;
/// What the headers and long names of one entry may take.
const HEADER_LIMIT: u64 = 1 << 20;
/// Memory that an xz stream may ask for.
const XZ_MEMORY_LIMIT: u64 = 256 << 20;
/// Links followed before a chain counts as a loop, as many as the kernel follows.
const LINK_LIMIT: usize = 40;

/// Files and links of an archive by path, without leading slash.
#[derive(Debug)]
pub(crate) struct Archive {
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
}

/// What the formats are, for error messages.
pub(crate) const FORMATS: &str =
    "a folder or a .tar, .tar.gz, .tar.bz2 or .tar.xz archive with a /sys tree, or a machine file (.toml)";

impl Archive {
    /// Reads an archive, its compression told by its first bytes.
    pub(crate) fn open(path: &Path) -> Result<Archive, MachineError> {
        let name = path.display().to_string();
        let fail = |message: String| MachineError::source(name.as_str(), message);
        let mut file = File::open(path).map_err(|error| fail(format!("cannot be opened: {error}")))?;
        let mut magic = Vec::new();
        (&mut file)
            .take(512)
            .read_to_end(&mut magic)
            .and_then(|_| file.seek(SeekFrom::Start(0)))
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        let file = BufReader::new(file);
        let unpacked: Box<dyn Read> = match magic.as_slice() {
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(file)),
            [b'B', b'Z', b'h', ..] => Box::new(bzip2::read::MultiBzDecoder::new(file)),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
                let stream =
                    liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_LIMIT, liblzma::stream::CONCATENATED)
                        .map_err(|error| fail(format!("cannot be unpacked: {error}")))?;
                Box::new(liblzma::read::XzDecoder::new_stream(file, stream))
            }
            _ if magic.trim_ascii_start().starts_with(b"<") => {
                return Err(fail(format!("XML (hwloc) is not supported; give {FORMATS}")));
            }
            _ if magic.get(257..262) == Some(b"ustar") || path.extension().is_some_and(|ext| ext == "tar") => {
                Box::new(file)
            }
            _ => return Err(fail(format!("the format is not known; give {FORMATS}"))),
        };
        Archive::unpack(unpacked)
            .map_err(|error| fail(format!("the archive is damaged, truncated or not a tar archive: {error}")))
    }

    fn unpack(unpacked: Box<dyn Read>) -> io::Result<Archive> {
        let budget = Rc::new(Cell::new(HEADER_LIMIT));
        let zeros = Rc::new(Cell::new(0));
        let mut left = UNPACKED_LIMIT;
        let mut kept = 0;
        let mut archive = Archive { files: BTreeMap::new(), links: BTreeMap::new() };
        let mut tar = tar::Archive::new(Metered { inner: unpacked, budget: budget.clone(), zeros: zeros.clone() });
        for entry in tar.entries()? {
            let mut entry = entry?;
            let size = entry.size();
            left = left.checked_sub(size.saturating_add(1024)).ok_or_else(|| too_large("it"))?;
            budget.set(size.saturating_add(HEADER_LIMIT));
            if let Some(path) = clean(&String::from_utf8_lossy(&entry.path_bytes())).filter(|path| is_wanted(path)) {
                kept += path.len() + 128;
                let kind = entry.header().entry_type();
                if let (true, Some(target)) = (kind.is_symlink() || kind.is_hard_link(), entry.link_name_bytes()) {
                    let target = String::from_utf8_lossy(&target).into_owned();
                    // A hard link names its target from the archive's top.
                    let target = if kind.is_hard_link() { format!("//{target}") } else { target };
                    kept += target.len();
                    archive.links.insert(path, target);
                } else if kind.is_file() {
                    let limit = if path.ends_with("proc/cpuinfo") { CPUINFO_LIMIT } else { FILE_LIMIT };
                    if size > limit {
                        return Err(too_large(&path));
                    }
                    let mut data = Vec::new();
                    entry.read_to_end(&mut data)?;
                    if data.len() as u64 != size {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("`{path}` ends early")));
                    }
                    kept += data.len();
                    archive.files.insert(path, data);
                }
                if kept > KEPT_LIMIT {
                    return Err(too_large("the machine description in it"));
                }
            }
            // What is left of the entry is drained here so that the next header can be held to a small budget: long
            // names would otherwise be read into memory whole.
            io::copy(&mut entry, &mut io::sink())?;
            budget.set(HEADER_LIMIT);
            zeros.set(0);
        }
        // Only the padding of the last entry, less than a block, and the end mark, a block of zeros, can follow.
        match zeros.get() {
            512.. => Ok(archive),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends without an end mark")),
        }
    }

    /// The folders that hold `devices/system/cpu`, `sys` included.
    pub(crate) fn sys_roots(&self) -> BTreeSet<String> {
        self.files
            .keys()
            .chain(self.links.keys())
            .filter_map(|path| {
                let at = path.find("devices/system/cpu/")?;
                (at == 0 || path.as_bytes()[at - 1] == b'/').then(|| path[..at].trim_end_matches('/').to_owned())
            })
            .collect()
    }

    /// A file's content.
    pub(crate) fn read(&self, path: &str) -> Option<&[u8]> {
        match self.files.get(path) {
            Some(data) => Some(data),
            None => self.files.get(&self.resolve(path)?).map(Vec::as_slice),
        }
    }

    /// The names in a folder, sorted; empty when there is none.
    pub(crate) fn list(&self, folder: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for folder in [Some(folder.to_owned()), self.resolve(folder)].into_iter().flatten() {
            children(&self.files, &folder, &mut names);
            children(&self.links, &folder, &mut names);
        }
        names
    }

    /// The path with every link on the way replaced; `None` when there is none, or a chain of them does not end.
    fn resolve(&self, path: &str) -> Option<String> {
        let mut path = path.to_owned();
        for hop in 0..LINK_LIMIT {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let Some((end, target)) = ends.into_iter().find_map(|end| Some((end, self.links.get(&path[..end])?)))
            else {
                return (hop > 0).then_some(path);
            };
            let rest = &path[end..];
            let folder = path[..end].rsplit_once('/').map_or("", |(folder, _)| folder);
            let joined = match (target.strip_prefix("//"), target.strip_prefix('/')) {
                (Some(target), _) => format!("{target}{rest}"),
                // Absolute in the archived machine: below whatever holds its `sys`.
                (None, Some(target)) => {
                    let top = path.find("sys/devices/").map_or("", |at| &path[..at]);
                    format!("{top}{target}{rest}")
                }
                (None, None) => format!("{folder}/{target}{rest}"),
            };
            path = clean_link(&joined)?;
        }
        None
    }
}

fn too_large(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("{what} is larger than any machine description"))
}

/// Adds the names directly below a folder, skipping over what lies deeper.
fn children<T>(map: &BTreeMap<String, T>, folder: &str, names: &mut BTreeSet<String>) {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let mut cursor = prefix.clone();
    while let Some((path, _)) = map.range(cursor.clone()..).next() {
        let Some(rest) = path.strip_prefix(&prefix) else { break };
        let name = rest.split('/').next().unwrap_or(rest);
        names.insert(name.to_owned());
        // '0' follows '/': the first path after everything below `name/`.
        cursor = if name.len() < rest.len() { format!("{prefix}{name}0") } else { format!("{path}\0") };
    }
}

/// Whether a topology can need the path: CPU and node folders, wherever a CPU folder may be linked to, core types, cpuinfo.
fn is_wanted(path: &str) -> bool {
    if path == "proc/cpuinfo" || path.ends_with("/proc/cpuinfo") {
        return true;
    }
    path.contains("devices/system/cpu/")
        || path.contains("devices/system/node/")
        || path.contains("devices/")
            && path.split('/').any(|part| numbered(part, "cpu").is_some() || part.starts_with("cpu_"))
}

/// `cpu12` with prefix `cpu` is 12.
pub(crate) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A plain path without `.`; `None` when it climbs out with `..`.
fn clean(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.contains(&"..")).then(|| parts.join("/"))
}

/// A link's path with `..` applied; `None` when it leaves the archive.
fn clean_link(path: &str) -> Option<String> {
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

/// Counts what is read against a budget, and the zeros that the stream ends with so far.
struct Metered {
    inner: Box<dyn Read>,
    budget: Rc<Cell<u64>>,
    zeros: Rc<Cell<usize>>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let left = self.budget.get().checked_sub(count as u64).ok_or_else(|| too_large("a header in it"))?;
        self.budget.set(left);
        let zeros = buffer[..count].iter().rev().take_while(|&&byte| byte == 0).count();
        self.zeros.set(if zeros == count { self.zeros.get() + count } else { zeros });
        Ok(count)
    }
}
