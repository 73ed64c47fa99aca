//! The part of a tar archive that describes a machine, held in memory, and the unpacking that an XML file shares.
//!
//! An archive may come from anywhere, so nothing in it is trusted: only paths that a topology can need are kept, every
//! entry and the sum of all are bounded, and links are followed inside the archive only, a bounded number of times.

mod ahead;
mod store;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::MachineError;

pub(crate) use store::Archive;
use store::Entry;

/// Longest file kept: a CPU mask of a machine at the limit is far shorter.
const FILE_LIMIT: u64 = 1 << 20;
/// Longest `proc/cpuinfo` kept: some 2 kB per CPU.
pub(crate) const CPUINFO_LIMIT: u64 = 64 << 20;
/// Longest `proc/schedstat` or kernel log kept: some 2 kB per CPU and level.
pub(crate) const LONG_FILE_LIMIT: u64 = 64 << 20;
/// What [`crate::Capture`] reads beside the topology, by the end of its path.
const SCHEDULER_FILES: [&str; 5] =
    ["proc/schedstat", "proc/cmdline", "proc/version", "proc/sys/kernel/osrelease", "dmesg"];
/// Folders with a file per figure of a sched domain, from 5.13 on and before.
const SCHEDULER_FOLDERS: [&str; 2] = ["sys/kernel/debug/sched/", "proc/sys/kernel/sched_domain/"];
/// What is read of a cache.
const CACHE_FILES: [&str; 5] = ["level", "type", "size", "shared_cpu_list", "shared_cpu_map"];
/// Everything kept, names included.
const KEPT_LIMIT: usize = 512 << 20;
/// Unpacked length of the whole archive.
const UNPACKED_LIMIT: u64 = 8 << 30;
/// Longest XML text read: hwloc writes some 2 kB per CPU.
const XML_LIMIT: u64 = 64 << 20;
/// Longest path that Linux opens.
const PATH_LIMIT: usize = 4096;
/// What the headers and long names of one entry may take.
const HEADER_LIMIT: u64 = 1 << 20;
/// Memory that an xz stream may ask for.
const XZ_MEMORY_LIMIT: u64 = 256 << 20;
/// Folders below one another that a folder of CPUs is read to: caches are two below their CPU.
const FOLDER_DEPTH: usize = 6;
/// What is read at a time of an entry that is not kept.
const CHUNK: usize = 16 << 10;

/// What the formats are, for error messages.
pub(crate) const FORMATS: &str = "a folder or a .tar, .tar.gz, .tar.bz2 or .tar.xz archive with a /sys tree, \
     an hwloc export (.xml), or a machine file (.toml)";

/// Unpacked content, its compression told by the first bytes.
struct Content<'a> {
    /// How it begins, up to a tar block.
    begin: Vec<u8>,
    /// All of it.
    stream: Box<dyn Read + Send + 'a>,
    /// Whether it was compressed.
    packed: bool,
}

impl<'a> Content<'a> {
    fn of(mut file: impl Read + Send + 'a) -> io::Result<Content<'a>> {
        let begin = first_block(&mut file)?;
        let file = BufReader::new(Cursor::new(begin.clone()).chain(file));
        let mut stream: Box<dyn Read + Send + 'a> = match begin.as_slice() {
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(file)),
            [b'B', b'Z', b'h', ..] => Box::new(bzip2::read::MultiBzDecoder::new(file)),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
                let concatenated = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_LIMIT, concatenated)?;
                Box::new(liblzma::read::XzDecoder::new_stream(file, stream))
            }
            _ => return Ok(Content { begin, stream: Box::new(file), packed: false }),
        };
        let begin = first_block(&mut stream)?;
        Ok(Content { stream: Box::new(Cursor::new(begin.clone()).chain(stream)), begin, packed: true })
    }

    /// Whether it begins as an XML text does, in UTF-8 or, which is then refused with a reason, in UTF-16.
    fn is_xml(&self) -> bool {
        let text = self.begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.begin);
        text.trim_ascii_start().starts_with(b"<")
            || [&b"\xff\xfe"[..], b"\xfe\xff", b"\0<"].iter().any(|begin| text.starts_with(begin))
    }
}

/// What a file is that one may well take for an archive with a `/sys` tree.
fn other_format(begin: &[u8]) -> Option<&'static str> {
    let formats: [(&[u8], &str); 6] = [
        (b"PK\x03\x04", "a zip archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!", "a rar archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"\x04\x22\x4d\x18", "an lz4 archive"),
        (b"0707", "a cpio archive"),
    ];
    formats.into_iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, format)| format)
}

fn first_block(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    file.take(512).read_to_end(&mut begin)?;
    Ok(begin)
}

/// The text of an XML file, unpacked; `None` for a folder, for what is no XML and for what cannot be read, which opening
/// it as a tree reports.
pub(crate) fn xml(path: &Path) -> Result<Option<Vec<u8>>, MachineError> {
    let Ok(content) = File::open(path).and_then(Content::of) else { return Ok(None) };
    if !content.is_xml() && path.extension().is_none_or(|extension| extension != "xml") {
        return Ok(None);
    }
    let fail = |message: String| MachineError::source(path.display().to_string(), message);
    let mut text = Vec::new();
    let length = content.stream.take(XML_LIMIT + 1).read_to_end(&mut text);
    match length.map_err(|error| fail(format!("the file is damaged or truncated: {error}")))? as u64 {
        0..=XML_LIMIT => Ok(Some(text)),
        _ => Err(fail(format!("is larger than any machine description, {} MiB", XML_LIMIT >> 20))),
    }
}

impl Archive {
    /// Reads an archive, its compression told by its first bytes.
    pub(crate) fn open(path: &Path) -> Result<Archive, MachineError> {
        let name = path.display().to_string();
        let file = File::open(path)
            .map_err(|error| MachineError::source(name.as_str(), format!("cannot be opened: {error}")))?;
        Archive::read_from(&name, file, path.extension().is_some_and(|extension| extension == "tar"))
    }

    /// Reads an archive from anything; `is_tar` when it may lack the mark of a tar archive.
    pub(crate) fn read_from(name: &str, file: impl Read + Send, is_tar: bool) -> Result<Archive, MachineError> {
        let fail = |error: io::Error| {
            let message = format!("the archive is damaged, truncated or not a tar archive: {error}");
            MachineError::source(name, message)
        };
        let content = Content::of(file).map_err(fail)?;
        if !content.packed && !is_tar && content.begin.get(257..262) != Some(b"ustar") {
            let message = match other_format(&content.begin) {
                Some(format) => format!("{format} is not read; unpack it and give the folder, or give {FORMATS}"),
                None => format!("the format is not known; give {FORMATS}"),
            };
            return Err(MachineError::source(name, message));
        }
        ahead::unpacked(content.stream, Archive::unpack).map_err(fail)
    }

    fn unpack(unpacked: impl Read) -> io::Result<Archive> {
        let budget = Rc::new(Cell::new(HEADER_LIMIT));
        let zeros = Rc::new(Cell::new(0));
        let mut left = UNPACKED_LIMIT;
        let mut keeper = Keeper::default();
        let (mut content, mut rest) = (Vec::new(), vec![0; CHUNK]);
        let metered = Metered { inner: unpacked, budget: budget.clone(), zeros: zeros.clone(), position: 0 };
        let mut tar = tar::Archive::new(metered);
        for entry in tar.entries_with_seek()? {
            let mut entry = entry?;
            let size = entry.size();
            left = left.checked_sub(size.saturating_add(1024)).ok_or_else(|| too_large("it"))?;
            budget.set(size.saturating_add(HEADER_LIMIT));
            keeper.entry(&mut entry, &mut content)?;
            // What is left of the entry is drained here so that the next header can be held to a small budget: long
            // names would otherwise be read into memory whole.
            while entry.read(&mut rest)? > 0 {}
            budget.set(HEADER_LIMIT);
            zeros.set(0);
        }
        // Only the padding of the last entry, less than a block, and the end mark, a block of zeros, can follow.
        match zeros.get() {
            512.. => Ok(keeper.archive),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends without an end mark")),
        }
    }

    /// The files of folders as if they were an archive's, below the given paths.
    pub(crate) fn of_folders(folders: Vec<(PathBuf, String)>) -> io::Result<Archive> {
        let mut keeper = Keeper::default();
        let mut open: Vec<(PathBuf, String, usize)> =
            folders.into_iter().map(|(folder, path)| (folder, path, FOLDER_DEPTH)).collect();
        while let Some((folder, above, depth)) = open.pop() {
            for entry in std::fs::read_dir(&folder)?.flatten() {
                let path = format!("{above}/{}", entry.file_name().to_string_lossy());
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    if depth > 0 {
                        open.push((entry.path(), path.clone(), depth - 1));
                    }
                    keeper.insert(&path, Entry::Folder)?;
                } else if kind.is_file() && is_read(&path) {
                    let mut data = Vec::new();
                    File::open(entry.path())?.take(FILE_LIMIT).read_to_end(&mut data)?;
                    let content = keeper.share(&data);
                    keeper.insert(&path, Entry::File(content))?;
                }
            }
        }
        Ok(keeper.archive)
    }
}

/// Takes what is wanted out of a tar archive.
#[derive(Default)]
struct Keeper {
    archive: Archive,
    /// Contents met, each once.
    contents: HashSet<Arc<[u8]>>,
    /// Bytes kept.
    kept: usize,
    /// The folder of the last file that was left out.
    folder: String,
}

impl Keeper {
    /// Keeps an entry that a topology or a look at the scheduler can need.
    fn entry(&mut self, entry: &mut tar::Entry<'_, impl Read>, content: &mut Vec<u8>) -> io::Result<()> {
        let sparse = Sparse::of(entry)?;
        let bytes = entry.path_bytes();
        let name = match &sparse {
            Some(Sparse { name: Some(name), .. }) => Cow::Borrowed(name.as_str()),
            _ => String::from_utf8_lossy(&bytes),
        };
        let is_wanted = |path: &Cow<str>| path.len() <= PATH_LIMIT && is_wanted(path);
        let Some(path) = clean(&name).filter(is_wanted) else { return Ok(()) };
        let (path, is_folder) = (path.into_owned(), name.ends_with('/'));
        let kind = entry.header().entry_type();
        let kept = match entry.link_name_bytes().filter(|_| kind.is_symlink() || kind.is_hard_link()) {
            _ if kind.is_dir() || is_folder => Entry::Folder,
            // A hard link names its target from the archive's top.
            Some(target) if kind.is_hard_link() => Entry::Link(format!("//{}", String::from_utf8_lossy(&target))),
            Some(target) => Entry::Link(String::from_utf8_lossy(&target).into_owned()),
            None if !(kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse()) => return Ok(()),
            None if !is_read(&path) => return self.leave_out(&path),
            None => {
                read_whole(&path, entry, content)?;
                Entry::File(match sparse {
                    Some(sparse) => self.share(&sparse.expand(&path, content)?),
                    None => self.share(content),
                })
            }
        };
        self.insert(&path, kept)
    }

    fn insert(&mut self, path: &str, entry: Entry) -> io::Result<()> {
        self.kept += self.archive.insert(path, entry);
        if self.kept > KEPT_LIMIT {
            return Err(too_large("the machine description in it"));
        }
        Ok(())
    }

    /// A file that nothing reads shows at least that its folder is there.
    fn leave_out(&mut self, path: &str) -> io::Result<()> {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if folder == self.folder {
            return Ok(());
        }
        folder.clone_into(&mut self.folder);
        match self.archive.holds(folder) {
            true => Ok(()),
            false => self.insert(folder, Entry::Folder),
        }
    }

    /// The content, held once however many files have it.
    fn share(&mut self, data: &[u8]) -> Arc<[u8]> {
        if let Some(content) = self.contents.get(data) {
            return content.clone();
        }
        self.kept += data.len();
        let content: Arc<[u8]> = data.into();
        self.contents.insert(content.clone());
        content
    }
}

fn limit(path: &str) -> u64 {
    match path.rsplit('/').next() {
        Some("cpuinfo") => CPUINFO_LIMIT,
        Some("schedstat" | "dmesg") => LONG_FILE_LIMIT,
        _ => FILE_LIMIT,
    }
}

fn ends_early(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("`{path}` ends early"))
}

/// Reads all of an entry into `content`, which is emptied before.
fn read_whole(path: &str, entry: &mut tar::Entry<'_, impl Read>, content: &mut Vec<u8>) -> io::Result<()> {
    let size = entry.size();
    if size > limit(path) {
        return Err(too_large(path));
    }
    content.clear();
    content.resize(size as usize, 0);
    entry.read_exact(content).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ends_early(path),
        _ => error,
    })
}

/// A file with holes in the pax form that GNU tar and bsdtar write (version 1.0): the content begins with a map of the
/// parts that are stored. The older GNU form is unpacked by the tar crate.
struct Sparse {
    name: Option<String>,
    size: u64,
}

impl Sparse {
    fn of(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Option<Sparse>> {
        let (mut name, mut size, mut is_sparse) = (None, 0, false);
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            match extension.key_bytes() {
                b"GNU.sparse.major" => is_sparse = extension.value_bytes() == b"1",
                b"GNU.sparse.name" => name = Some(String::from_utf8_lossy(extension.value_bytes()).into_owned()),
                b"GNU.sparse.realsize" => {
                    size = extension.value().ok().and_then(|size| size.parse().ok()).unwrap_or(u64::MAX);
                }
                _ => {}
            }
        }
        Ok(is_sparse.then_some(Sparse { name, size }))
    }

    fn expand(&self, path: &str, stored: &[u8]) -> io::Result<Vec<u8>> {
        if self.size > limit(path) {
            return Err(too_large(path));
        }
        let mut data = vec![0; self.size as usize];
        let mut at = 0;
        let mut number = || -> Option<usize> {
            let digits = stored.get(at..)?.split(|&byte| byte == b'\n').next()?;
            at += digits.len() + 1;
            std::str::from_utf8(digits).ok()?.parse().ok()
        };
        let count = number().filter(|count| *count <= stored.len()).ok_or_else(|| ends_early(path))?;
        let parts: Option<Vec<(usize, usize)>> = (0..count).map(|_| Some((number()?, number()?))).collect();
        let mut from = at.next_multiple_of(512);
        for (to, length) in parts.ok_or_else(|| ends_early(path))? {
            let part = stored.get(from..from.saturating_add(length)).ok_or_else(|| ends_early(path))?;
            data.get_mut(to..to.saturating_add(length)).ok_or_else(|| ends_early(path))?.copy_from_slice(part);
            from += length;
        }
        Ok(data)
    }
}

fn too_large(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("{what} is larger than any machine description"))
}

/// Whether a topology can need the path (CPU and node folders, wherever a CPU folder may be linked to, core types,
/// cpuinfo), or a look at the scheduler.
fn is_wanted(path: &str) -> bool {
    let ends = |end: &str| path.strip_suffix(end).is_some_and(|above| above.is_empty() || above.ends_with('/'));
    if ends("proc/cpuinfo") || SCHEDULER_FILES.into_iter().any(ends) {
        return true;
    }
    if SCHEDULER_FOLDERS.into_iter().any(|folder| path.contains(folder)) {
        return true;
    }
    path.contains("devices/system/cpu")
        || path.contains("devices/system/node")
        || path.split('/').any(|part| ["cpu", "node"].iter().any(|what| numbered(part, what).is_some()))
        || path.contains("devices/cpu_")
        // Beside the folders of CPUs, wherever those are.
        || ends("online")
        || ends("present")
}

/// Whether anything reads a wanted file: most of what a kernel shows of a cache and of a CPU beside its topology is not.
fn is_read(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let (file, folder) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    match folder {
        _ if numbered(folder, "index").is_some() => CACHE_FILES.contains(&file),
        _ if numbered(folder, "cpu").is_some() => matches!(file, "online" | "cpu_capacity"),
        _ => !matches!(folder, "cpufreq" | "power" | "hotplug" | "thermal_throttle" | "acpi_cppc" | "crash_notes"),
    }
}

/// `cpu12` with prefix `cpu` is 12.
pub(crate) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A plain path without `.`; `None` when it climbs out with `..`.
fn clean(path: &str) -> Option<Cow<'_, str>> {
    let path = path.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
    if path.split('/').all(|part| !matches!(part, "" | "." | "..")) {
        return Some(Cow::Borrowed(path));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.contains(&"..")).then(|| Cow::Owned(parts.join("/")))
}

/// Counts what is read against a budget, and the zeros that the stream ends with so far.
struct Metered<R> {
    inner: R,
    budget: Rc<Cell<u64>>,
    zeros: Rc<Cell<usize>>,
    /// Bytes read.
    position: u64,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let left = self.budget.get().checked_sub(count as u64).ok_or_else(|| too_large("a header in it"))?;
        self.budget.set(left);
        self.position += count as u64;
        let zeros = zeros_at_end(&buffer[..count]);
        self.zeros.set(if zeros == count { self.zeros.get() + count } else { zeros });
        Ok(count)
    }
}

/// Skips ahead, which is all that reading an archive from front to back asks for; the crate's own way over what cannot
/// be sought clears 32 kB for each entry.
impl<R: Read> Seek for Metered<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Current(ahead @ 0..) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        let end = self.position + ahead.unsigned_abs();
        let mut skipped = [0; 512];
        while self.position < end {
            let room = skipped.len().min((end - self.position) as usize);
            if self.read(&mut skipped[..room])? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.position)
    }
}

fn zeros_at_end(data: &[u8]) -> usize {
    // Header blocks are mostly zeros: blocks first.
    let blocks = data.rchunks_exact(64).take_while(|block| block.iter().fold(0, |any, byte| any | byte) == 0).count();
    let rest = &data[..data.len() - blocks * 64];
    blocks * 64 + rest.iter().rev().take_while(|&&byte| byte == 0).count()
}
