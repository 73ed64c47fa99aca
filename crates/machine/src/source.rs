//! Where a machine comes from: a name, a machine file, a `/sys` tree in a folder or archive, hwloc's XML, or this machine.

use std::path::Path;

use include_dir::{Dir, include_dir};

use crate::archive::{self, Archive};
use crate::file::MachineFile;
use crate::sysfs::read_topology;
use crate::tree::Tree;
use crate::{Machine, MachineError, Topology};

static MACHINES: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../machines");

/// The built-in machines, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = MACHINES
        .files()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| path.file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    names
}

impl Machine {
    /// Loads a machine with its cost figures: a built-in name or a machine file, `:nodes=N` after it for the first N nodes.
    ///
    /// # Errors
    /// An unknown name or option, or a file that is not a complete machine file.
    pub fn load(source: &str) -> Result<Machine, MachineError> {
        let (name, cut) = Cut::split(source)?;
        let Some(file) = MachineFile::find(name)? else {
            let why = "has no cost figures; give a machine file (.toml) or a built-in machine";
            return match Path::new(name).exists() {
                true => Err(MachineError::source(name, why)),
                false => Err(no_such(name)),
            };
        };
        let machine = file.machine(|topology| cut.apply(source, topology))?;
        Ok(Machine { name: format!("{}{}", machine.name, &source[name.len()..]), ..machine })
    }

    /// Reads the text of a machine file, whole; `file` is what errors call it.
    ///
    /// # Errors
    /// The first key that is unknown, missing or wrong.
    pub fn parse(file: &str, text: &str) -> Result<Machine, MachineError> {
        MachineFile::parse(file, text)?.machine(Ok)
    }
}

impl Topology {
    /// Reads the `/sys` tree in a tar archive, packed or not, that is held in memory; `file` is what errors call it.
    ///
    /// # Errors
    /// What is no archive, holds no tree or more than one, or a tree of no machine.
    pub fn parse_archive(file: &str, data: &[u8]) -> Result<Topology, MachineError> {
        read_topology(&Tree::of(file, Archive::read_from(file, data, false)?)?, file, false)
    }
}

/// Loads a topology and its name from any source: a built-in machine, a machine file, a folder or archive with a `/sys` tree, an
/// export of hwloc, or, when there is none, this machine. `:nodes=N` after it takes the first N nodes.
///
/// # Errors
/// An unknown name or option, or a source that cannot be read.
pub fn load_topology(source: Option<&str>) -> Result<(String, Topology), MachineError> {
    let Some(source) = source else {
        return Ok(("this machine".to_owned(), read_topology(&Tree::live(), "this machine", true)?));
    };
    let (name, cut) = Cut::split(source)?;
    let (short, topology) = match MachineFile::find(name)? {
        Some(file) => {
            // A machine file is read whole or not at all.
            let machine = file.machine(Ok)?;
            (machine.name, machine.topology)
        }
        None if Path::new(name).exists() => {
            let short = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name);
            let topology = match archive::xml(Path::new(name))? {
                Some(xml) => Topology::parse_hwloc(name, &xml)?,
                None => read_topology(&Tree::open(Path::new(name))?, name, false)?,
            };
            (short.to_owned(), topology)
        }
        None => return Err(no_such(name)),
    };
    Ok((format!("{short}{}", &source[name.len()..]), cut.apply(source, topology)?))
}

/// A bare word was meant as a name, anything else as a path.
fn no_such(name: &str) -> MachineError {
    match name.contains('/') || Path::new(name).extension().is_some() {
        true => MachineError::source(name, "no such file or folder"),
        false => MachineError::UnknownName { name: name.to_owned(), builtin: builtin_names().join(", ") },
    }
}

/// What `:nodes=N` asks for.
struct Cut(Option<usize>);

impl Cut {
    /// The part before the option, and the option.
    fn split(source: &str) -> Result<(&str, Cut), MachineError> {
        let bad = |message: String| MachineError::BadOption { machine: source.to_owned(), message };
        let Some((name, option)) = source.rsplit_once(':').filter(|_| !Path::new(source).exists()) else {
            return Ok((source, Cut(None)));
        };
        match option.split_once('=') {
            Some(("nodes", count)) => match count.parse() {
                Ok(count) if count > 0 => Ok((name, Cut(Some(count)))),
                _ => Err(bad(format!("nodes={count} is no number of nodes; give 1 or more"))),
            },
            _ => Err(bad(format!("unknown option `{option}`; the options are nodes=N (the first N NUMA nodes)"))),
        }
    }

    fn apply(&self, source: &str, topology: Topology) -> Result<Topology, MachineError> {
        match self.0 {
            None => Ok(topology),
            Some(count) => topology.first_nodes(count).ok_or_else(|| {
                let message = match topology.nodes.len() {
                    nodes if count > nodes => format!("nodes={count} is too many; the machine has {nodes} NUMA nodes"),
                    _ => format!("the first {count} NUMA nodes hold no online CPU"),
                };
                MachineError::BadOption { machine: source.to_owned(), message }
            }),
        }
    }
}

impl MachineFile {
    /// The machine, its topology cut as given.
    fn machine(&self, cut: impl FnOnce(Topology) -> Result<Topology, MachineError>) -> Result<Machine, MachineError> {
        let topology = cut(self.topology()?)?;
        let costs = self.costs(&topology)?;
        let (name, title) = (self.name().to_owned(), self.title().to_owned());
        Ok(Machine { name, title, topology, costs, config: self.config()? })
    }

    /// The machine file of that name or path; `None` when the name is neither a built-in machine nor a `.toml` file.
    /// A file in the current folder never shadows a built-in name.
    fn find(name: &str) -> Result<Option<MachineFile>, MachineError> {
        let builtin = format!("{name}.toml");
        if let Some(text) = MACHINES.get_file(&builtin).and_then(|file| file.contents_utf8()) {
            return MachineFile::parse(&format!("machines/{builtin}"), text).map(Some);
        }
        let path = Path::new(name);
        if path.extension().is_none_or(|extension| extension != "toml") || !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| MachineError::source(name, format!("cannot be read: {error}")))?;
        MachineFile::parse(name, &text).map(Some)
    }
}
