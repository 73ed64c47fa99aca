//! The XML of an hwloc export, read into plain records. Nothing is resolved from outside and no entity is expanded but
//! the five of XML itself, so the records are no larger than the text.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use crate::assemble::{MAX_NODES, cut};
use crate::{CacheKind, CpuId, CpuSet, MAX_CPUS, MachineError};

/// Deepest nesting read; hwloc's deepest trees, those with bridges, have some twenty levels.
const MAX_DEPTH: usize = 256;
/// Last version of the format that is known; files without a version are of the first.
const LAST_VERSION: u32 = 3;
/// Caches that hwloc knows are L1 to L5.
const CACHE_LEVELS: std::ops::RangeInclusive<u32> = 1..=5;
/// Kinds of groups (hwloc 2.5, `include/private/misc.h`): `HWLOC_GROUP_KIND_LINUX_CLUSTER`, what `cluster_cpus` said,
/// and `HWLOC_GROUP_KIND_S390_BOOK`, of which subkind 1 are drawers.
const LINUX_CLUSTER: u64 = 222;
const S390_BOOK: u64 = 110;

/// An object that holds PUs.
#[derive(Debug)]
pub(super) struct Unit {
    /// Its PUs, as a part of [`Export::pus`].
    pub(super) pus: Range<usize>,
    /// How many CPUs it has when all are online.
    pub(super) width: usize,
    /// Bytes, of a cache.
    pub(super) size: Option<u64>,
}

/// A NUMA node.
#[derive(Debug)]
pub(super) struct NumaNode {
    pub(super) id: u32,
    /// CPUs local to it, which a memory-only node has as well.
    pub(super) cpus: CpuSet,
    /// Objects around it.
    depth: usize,
}

/// Distances between NUMA nodes.
#[derive(Debug)]
pub(super) struct Matrix {
    /// The nodes, in the order of rows and columns.
    pub(super) ids: Vec<u32>,
    /// Row by row.
    pub(super) values: Vec<f64>,
    /// What a value is to be multiplied by.
    pub(super) scale: f64,
}

/// CPUs of one kind.
#[derive(Debug)]
pub(super) struct CpuKind {
    pub(super) cpus: CpuSet,
    pub(super) efficiency: Option<i64>,
    pub(super) core_type: Option<String>,
    /// What `cpu_capacity` said.
    pub(super) capacity: Option<String>,
}

/// What an export says.
#[derive(Debug, Default)]
pub(super) struct Export {
    /// CPU numbers of the PUs in the order of the file, so that the PUs of an object are neighbours.
    pub(super) pus: Vec<u32>,
    /// The root's `complete_cpuset`: CPUs that are offline or not allowed included.
    pub(super) complete: Option<CpuSet>,
    /// The root's `online_cpuset`, of version 1.
    pub(super) online: Option<CpuSet>,
    /// The root's `allowed_cpuset`.
    pub(super) allowed: Option<CpuSet>,
    pub(super) cores: Vec<Unit>,
    pub(super) packages: Vec<Unit>,
    /// Inner ones first.
    pub(super) clusters: Vec<Unit>,
    pub(super) books: Vec<Unit>,
    pub(super) drawers: Vec<Unit>,
    pub(super) caches: BTreeMap<(u32, CacheKind), Vec<Unit>>,
    /// In the order of the file.
    pub(super) nodes: Vec<NumaNode>,
    pub(super) matrix: Option<Matrix>,
    pub(super) kinds: Vec<CpuKind>,
    /// `uname -m` of the machine.
    pub(super) architecture: Option<String>,
    /// Whether the vendor or model of a package, or the reader that hwloc used, is of x86, or of Arm.
    pub(super) x86: bool,
    pub(super) arm: bool,
    /// Whether its packages are AMD's or Hygon's, and their family.
    pub(super) amd: bool,
    pub(super) family: u32,
    /// The first object type that is not known, and how many objects have such a type.
    pub(super) unknown: Option<(String, usize)>,
}

/// What an object is to a topology.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Pu,
    Core,
    Package,
    Cache(u32, CacheKind),
    Cluster,
    Book,
    Drawer,
    Node,
    /// Holds PUs or nothing, and is of no interest.
    Around,
    /// Memory and devices, whose CPU sets say what they are near.
    Beside,
}

struct Object {
    class: Class,
    /// What errors call it.
    kind: String,
    /// Where it begins in the text.
    at: usize,
    first_pu: usize,
    id: Option<u32>,
    cpus: Option<CpuSet>,
    width: Option<usize>,
    size: Option<u64>,
}

/// An element that is open.
enum Open {
    Topology,
    Object(Box<Object>),
    /// Distances of version 1, an index of [`Parser::old`].
    Distances(usize),
    /// Distances since version 2, an index of [`Parser::new`].
    Distances2(usize),
    Indexes(usize),
    Values(usize),
    CpuKind,
    Other,
}

/// A matrix of version 1: of all objects at a depth below the object that holds it.
struct OldMatrix {
    at: usize,
    depth: usize,
    relative_depth: usize,
    objects: usize,
    base: f64,
    values: Vec<f64>,
}

/// A matrix of NUMA latencies since version 2.
struct NewMatrix {
    at: usize,
    objects: usize,
    from_os: bool,
    ids: Vec<u32>,
    values: Vec<f64>,
}

type Attributes<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// What is wrong and where in the text.
type Fault = (usize, String);

struct Parser {
    export: Export,
    version: Option<u32>,
    open: Vec<Open>,
    /// Numbers of the PUs and of the nodes met.
    seen: CpuSet,
    seen_nodes: BTreeSet<u32>,
    old: Vec<OldMatrix>,
    new: Vec<NewMatrix>,
    roots: usize,
}

/// Reads the export; `name` is what errors call it.
///
/// # Errors
/// What is not well-formed, not hwloc's, or contradicts itself, with its line.
pub(super) fn parse(name: &str, data: &[u8]) -> Result<Export, MachineError> {
    let text = decode(data).map_err(|message| MachineError::source(name, message))?;
    let mut parser = Parser {
        export: Export::default(),
        version: None,
        open: Vec::new(),
        seen: CpuSet::new(MAX_CPUS),
        seen_nodes: BTreeSet::new(),
        old: Vec::new(),
        new: Vec::new(),
        roots: 0,
    };
    parser.run(text).and_then(|()| parser.finish(text.len())).map_err(|(at, message)| {
        let line = text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1;
        MachineError::source(format!("{name}: line {line}"), message)
    })?;
    Ok(parser.export)
}

fn decode(data: &[u8]) -> Result<&str, String> {
    let data = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    if [&b"\xff\xfe"[..], b"\xfe\xff", b"<\0", b"\0<"].iter().any(|begin| data.starts_with(begin)) {
        return Err("is UTF-16, which hwloc does not write; convert it to UTF-8".to_owned());
    }
    std::str::from_utf8(data).map_err(|error| format!("is not UTF-8 at byte {}; convert it", error.valid_up_to()))
}

impl Parser {
    fn run(&mut self, text: &str) -> Result<(), Fault> {
        let mut reader = Reader::from_str(text);
        loop {
            let at = reader.buffer_position() as usize;
            let event = reader.read_event().map_err(|error| malformed(reader.error_position() as usize, &error))?;
            match event {
                Event::Start(tag) => {
                    let open = self.start(at, &tag)?;
                    if self.open.len() == MAX_DEPTH {
                        return Err((at, format!("elements are nested more than {MAX_DEPTH} deep, as no machine is")));
                    }
                    self.open.push(open);
                }
                Event::Empty(tag) => {
                    let open = self.start(at, &tag)?;
                    self.end(open)?;
                }
                Event::End(_) => {
                    if let Some(open) = self.open.pop() {
                        self.end(open)?;
                    }
                }
                Event::Text(content) => self.text(at, &content)?,
                Event::Eof => return Ok(()),
                Event::CData(_) | Event::GeneralRef(_) if self.open.is_empty() => {
                    return Err((at, "text outside the topology element; this is no hwloc export".to_owned()));
                }
                _ => {}
            }
        }
    }

    fn start(&mut self, at: usize, tag: &BytesStart) -> Result<Open, Fault> {
        let attributes = attributes(at, tag)?;
        let tag = tag.name();
        let tag = tag.as_ref();
        match (self.open.last(), tag) {
            (None, "topology") if self.version.is_none() => self.topology(at, &attributes),
            (None, _) if self.version.is_some() => Err((at, "a second root element; this is no hwloc export".into())),
            (None, _) => {
                let message = format!("the root element is `{}`; an hwloc export has `topology`", cut(tag));
                Err((at, message))
            }
            (Some(Open::Topology | Open::Object(_)), "object") => self.object(at, &attributes),
            (Some(Open::Object(_)), "distances") => self.distances(at, &attributes),
            (Some(Open::Distances(_)), "latency") => self.latency(at, &attributes),
            (Some(Open::Topology), "distances2") => self.distances2(at, &attributes),
            (Some(&Open::Distances2(matrix)), "indexes") => Ok(Open::Indexes(matrix)),
            (Some(&Open::Distances2(matrix)), "u64values") => Ok(Open::Values(matrix)),
            (Some(Open::Topology), "cpukind") => self.cpu_kind(at, &attributes),
            (Some(_), "info") => {
                self.info(&attributes);
                Ok(Open::Other)
            }
            _ => Ok(Open::Other),
        }
    }

    fn topology(&mut self, at: usize, attributes: &Attributes) -> Result<Open, Fault> {
        let version = match get(attributes, "version") {
            None => 1,
            Some(text) => text
                .split('.')
                .next()
                .and_then(|major| major.parse().ok())
                .filter(|major| (1..=LAST_VERSION).contains(major))
                .ok_or_else(|| {
                    (at, format!("version `{}` is not known; export with hwloc 1 to {LAST_VERSION}", cut(text)))
                })?,
        };
        self.version = Some(version);
        Ok(Open::Topology)
    }

    fn object(&mut self, at: usize, attributes: &Attributes) -> Result<Open, Fault> {
        let Some(kind) = get(attributes, "type") else {
            return Err((at, "object without type; every object needs one".to_owned()));
        };
        let root = matches!(self.open.last(), Some(Open::Topology));
        self.roots += usize::from(root);
        if self.roots > 1 {
            return Err((at, "a second root object; give an export of one machine".to_owned()));
        }
        let class = self.class(at, kind, attributes)?;
        let set = |name: &str| bitmap_attribute(at, kind, attributes, name);
        let cpus = set("cpuset")?;
        let complete = set("complete_cpuset")?;
        let mut object = Object {
            class,
            kind: cut(kind),
            at,
            first_pu: self.export.pus.len(),
            id: None,
            cpus,
            width: complete.as_ref().map(CpuSet::len),
            size: None,
        };
        if root {
            (self.export.complete, self.export.online) = (complete, set("online_cpuset")?);
            self.export.allowed = set("allowed_cpuset")?;
        }
        match class {
            Class::Pu => self.pu(&object, number(at, kind, attributes, "os_index")?)?,
            Class::Node => object.id = Some(self.node_id(&object, number(at, kind, attributes, "os_index")?)?),
            Class::Cache(..) => object.size = number(at, kind, attributes, "cache_size")?.filter(|&size| size > 0),
            _ => {}
        }
        Ok(Open::Object(Box::new(object)))
    }

    fn class(&mut self, at: usize, kind: &str, attributes: &Attributes) -> Result<Class, Fault> {
        let kinds = || Ok((number(at, kind, attributes, "kind")?, number(at, kind, attributes, "subkind")?));
        Ok(match kind {
            "PU" => Class::Pu,
            "Core" => Class::Core,
            "Package" | "Socket" => Class::Package,
            "NUMANode" | "Node" => Class::Node,
            "Cluster" => Class::Cluster,
            "Group" => match (get(attributes, "subtype").and_then(group_class), kinds()?) {
                (Some(class), _) => class,
                (None, (Some(LINUX_CLUSTER), _)) => Class::Cluster,
                (None, (Some(S390_BOOK), Some(1))) => Class::Drawer,
                (None, (Some(S390_BOOK), _)) => Class::Book,
                _ => Class::Around,
            },
            "System" | "Machine" | "Die" | "Misc" | "Tile" | "Module" => Class::Around,
            "MemCache" | "Bridge" | "PCIDev" | "OSDev" => Class::Beside,
            _ if kind.ends_with("Cache") => cache_class(at, kind, attributes)?,
            _ => {
                self.export.unknown.get_or_insert_with(|| (cut(kind), 0)).1 += 1;
                Class::Beside
            }
        })
    }

    fn pu(&mut self, object: &Object, id: Option<u64>) -> Result<(), Fault> {
        let Some(id) = id else {
            return Err((object.at, "PU without os_index; every PU needs its CPU number".to_owned()));
        };
        let Some(cpu) = usize::try_from(id).ok().filter(|&cpu| cpu < MAX_CPUS) else {
            return Err((object.at, format!("PU {id}: machines of up to {MAX_CPUS} CPUs are supported")));
        };
        let inside = self.open.iter().any(|open| matches!(open, Open::Object(outer) if outer.class == Class::Pu));
        if self.seen.contains(CpuId::from(cpu)) || inside {
            let message = if inside { "lies in another PU" } else { "is there twice" };
            return Err((object.at, format!("PU {cpu} {message}; give an export of one machine")));
        }
        self.seen.insert(CpuId::from(cpu));
        self.export.pus.push(cpu as u32);
        Ok(())
    }

    fn node_id(&mut self, object: &Object, id: Option<u64>) -> Result<u32, Fault> {
        let Some(id) = id else {
            return Err((object.at, "NUMANode without os_index; every node needs its number".to_owned()));
        };
        match u32::try_from(id) {
            Ok(id) if (id as usize) < MAX_NODES => match self.seen_nodes.insert(id) {
                true => Ok(id),
                false => Err((object.at, format!("NUMANode {id} is there twice; give an export of one machine"))),
            },
            _ => Err((object.at, format!("NUMANode {id}: machines of up to {MAX_NODES} nodes are supported"))),
        }
    }

    fn end(&mut self, open: Open) -> Result<(), Fault> {
        match open {
            Open::Object(object) => self.end_object(*object),
            Open::Distances(matrix) => {
                let OldMatrix { at, objects, ref values, .. } = self.old[matrix];
                full(at, "distances", values.len(), objects * objects)
            }
            Open::Distances2(matrix) => {
                let NewMatrix { at, objects, ref ids, ref values, .. } = self.new[matrix];
                full(at, "distances2: indexes", ids.len(), objects)?;
                full(at, "distances2: u64values", values.len(), objects * objects)
            }
            _ => Ok(()),
        }
    }

    fn end_object(&mut self, object: Object) -> Result<(), Fault> {
        let Object { class, ref kind, at, first_pu, id, ref cpus, width, size } = object;
        let export = &mut self.export;
        let inside = &export.pus[first_pu..];
        let agrees = |cpus: &CpuSet| cpus.len() == inside.len() && inside.iter().all(|&pu| cpus.contains(CpuId(pu)));
        // A node's set and a device's say what is near it, unless the node holds PUs as in version 1.
        let near = class == Class::Beside || class == Class::Node && inside.is_empty();
        if let Some(stated) = cpus.as_ref().filter(|cpus| !near && !agrees(cpus)) {
            let (stated, inside) = (listed(stated), listed(&cpu_set(inside)));
            let message = format!("{kind}: its cpuset is {stated} but the PUs in it are {inside}; they must agree");
            return Err((at, message));
        }
        let unit = Unit { pus: first_pu..export.pus.len(), width: width.unwrap_or(inside.len()), size };
        match class {
            Class::Core => export.cores.push(unit),
            Class::Package => export.packages.push(unit),
            Class::Cluster => export.clusters.push(unit),
            Class::Book => export.books.push(unit),
            Class::Drawer => export.drawers.push(unit),
            Class::Cache(level, kind) => export.caches.entry((level, kind)).or_default().push(unit),
            Class::Node => {
                let cpus = match cpus {
                    Some(cpus) => cpus.clone(),
                    None if self.version == Some(1) => cpu_set(inside),
                    None => return Err((at, "NUMANode without cpuset; every node needs one".to_owned())),
                };
                let depth = self.open.iter().filter(|open| matches!(open, Open::Object(_))).count();
                // Read where the node began.
                if let Some(id) = id {
                    export.nodes.push(NumaNode { id, cpus, depth });
                }
                return Ok(());
            }
            Class::Pu | Class::Around | Class::Beside => return Ok(()),
        }
        // Clusters nest: a cluster of clusters is one more group to hwloc, and the inner one counts.
        let nested = self.open.iter().any(|open| matches!(open, Open::Object(outer) if outer.class == class));
        match nested && class != Class::Cluster {
            true => Err((at, format!("a {kind} lies in another {kind}; each CPU can have one only"))),
            false => Ok(()),
        }
    }

    /// Distances of version 1; more objects than nodes can be are of another kind.
    fn distances(&mut self, at: usize, attributes: &Attributes) -> Result<Open, Fault> {
        let need = |name: &str| {
            let missing = || (at, format!("distances without {name}"));
            number(at, "distances", attributes, name)?.ok_or_else(missing)
        };
        let (objects, relative_depth) = (need("nbobjs")?, need("relative_depth")?);
        let base = float(at, "distances", attributes, "latency_base")?;
        match (usize::try_from(objects), usize::try_from(relative_depth)) {
            (Ok(objects @ 1..=MAX_NODES), Ok(relative_depth)) => {
                let depth = self.open.iter().filter(|open| matches!(open, Open::Object(_))).count() - 1;
                let values = Vec::new();
                self.old.push(OldMatrix { at, depth, relative_depth, objects, base, values });
                Ok(Open::Distances(self.old.len() - 1))
            }
            _ => Ok(Open::Other),
        }
    }

    fn latency(&mut self, at: usize, attributes: &Attributes) -> Result<Open, Fault> {
        let value = float(at, "latency", attributes, "value")?;
        if let Some(&Open::Distances(matrix)) = self.open.last() {
            let matrix = &mut self.old[matrix];
            matrix.values.push(value);
            if matrix.values.len() > matrix.objects * matrix.objects {
                return full(at, "distances", matrix.values.len(), matrix.objects * matrix.objects)
                    .map(|()| Open::Other);
            }
        }
        Ok(Open::Other)
    }

    /// Distances since version 2, of which only latencies of NUMA nodes count (`HWLOC_DISTANCES_KIND_MEANS_LATENCY`);
    /// those that the system states come first (`HWLOC_DISTANCES_KIND_FROM_OS`).
    fn distances2(&mut self, at: usize, attributes: &Attributes) -> Result<Open, Fault> {
        const FROM_OS: u64 = 1;
        const LATENCY: u64 = 4;
        let kind = number(at, "distances2", attributes, "kind")?.unwrap_or(0);
        if get(attributes, "type") != Some("NUMANode") || kind & LATENCY == 0 {
            return Ok(Open::Other);
        }
        if let Some(indexing) = get(attributes, "indexing").filter(|&indexing| indexing != "os") {
            return Err((
                at,
                format!("distances2: the indexing `{}` of NUMA nodes is not known; hwloc's is os", cut(indexing)),
            ));
        }
        match number(at, "distances2", attributes, "nbobjs")?.map(usize::try_from) {
            Some(Ok(objects @ 1..=MAX_NODES)) => {
                let from_os = kind & FROM_OS != 0;
                self.new.push(NewMatrix { at, objects, from_os, ids: Vec::new(), values: Vec::new() });
                Ok(Open::Distances2(self.new.len() - 1))
            }
            _ => Err((at, format!("distances2: nbobjs must be a number of nodes, 1 to {MAX_NODES}"))),
        }
    }

    fn text(&mut self, at: usize, content: &str) -> Result<(), Fault> {
        match self.open.last() {
            None if !content.trim().is_empty() => {
                Err((at, "text outside the topology element; this is no hwloc export".to_owned()))
            }
            Some(&Open::Indexes(matrix)) => {
                let NewMatrix { objects, ref mut ids, .. } = self.new[matrix];
                fill(at, "indexes", content, objects, ids)
            }
            Some(&Open::Values(matrix)) => {
                let NewMatrix { objects, ref mut values, .. } = self.new[matrix];
                fill(at, "u64values", content, objects * objects, values)
            }
            _ => Ok(()),
        }
    }

    fn cpu_kind(&mut self, at: usize, attributes: &Attributes) -> Result<Open, Fault> {
        let Some(cpus) = bitmap_attribute(at, "cpukind", attributes, "cpuset")? else {
            return Err((at, "cpukind without cpuset; every kind needs its CPUs".to_owned()));
        };
        let efficiency = match get(attributes, "forced_efficiency") {
            None => None,
            Some(text) => {
                Some(text.trim().parse().map_err(|_| not_a_number(at, "cpukind", "forced_efficiency", text))?)
            }
        };
        self.export.kinds.push(CpuKind { cpus, efficiency, core_type: None, capacity: None });
        Ok(Open::CpuKind)
    }

    /// A name and a value, of the machine, of an object, or of a kind of CPUs. The machine's are in its object up to
    /// version 2 and in the topology since 3.
    fn info(&mut self, attributes: &Attributes) {
        let (Some(name), Some(value)) = (get(attributes, "name"), get(attributes, "value")) else { return };
        let depth = self.open.len();
        match (self.open.last_mut(), name) {
            (Some(Open::Topology), "Architecture") => self.export.architecture = Some(cut(value)),
            (Some(Open::Object(_)), "Architecture") if depth == 2 => self.export.architecture = Some(cut(value)),
            (_, "Backend") => self.export.x86 |= value == "x86",
            (_, "CPUVendor") => {
                self.export.amd |= ["AuthenticAMD", "HygonGenuine"].contains(&value);
                self.export.x86 |= self.export.amd || value == "GenuineIntel";
            }
            (_, "CPUFamilyNumber") => self.export.family = value.trim().parse().unwrap_or(0),
            // Itanium's name is the only one of Intel's that is not x86.
            (_, "CPUModel") => {
                let x86 = ["Intel(R)", "AMD "].iter().any(|vendor| value.contains(vendor));
                self.export.x86 |= x86 && !value.contains("Itanium");
            }
            (_, "CPUImplementer") => self.export.arm = true,
            // How version 2 is written as version 1.
            (Some(Open::Object(object)), "Type") => match (object.class, group_class(value)) {
                (Class::Around, Some(class)) if object.kind == "Group" => object.class = class,
                (Class::Cache(..), _) if value == "MemorySideCache" => object.class = Class::Around,
                _ => {}
            },
            (Some(Open::CpuKind), _) => {
                let Some(kind) = self.export.kinds.last_mut() else { return };
                match name {
                    "CoreType" => kind.core_type = Some(cut(value)),
                    "LinuxCapacity" => kind.capacity = Some(cut(value)),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// What can be said at the end only.
    fn finish(&mut self, end: usize) -> Result<(), Fault> {
        if !self.open.is_empty() {
            return Err((end, format!("ends within {}; the file is truncated", amount_open(self.open.len()))));
        }
        if self.version.is_none() {
            return Err((end, "holds no topology element; this is no hwloc export".to_owned()));
        }
        if self.export.pus.is_empty() {
            return Err((end, "holds no PU object, and with it no CPU; export the whole machine".to_owned()));
        }
        let mut known = self.seen.clone();
        self.export.complete.iter().for_each(|complete| known.union_with(complete));
        let nodes = self.export.nodes.iter().map(|node| ("NUMANode", &node.cpus));
        let kinds = self.export.kinds.iter().map(|kind| ("cpukind", &kind.cpus));
        for (what, cpus) in nodes.chain(kinds) {
            if let Some(cpu) = cpus.iter().find(|&cpu| !known.contains(cpu)) {
                return Err((end, format!("the cpuset of a {what} names CPU {cpu}, which no PU has")));
            }
        }
        self.export.matrix = self.new_matrix().or_else(|| self.old_matrix());
        Ok(())
    }

    fn new_matrix(&mut self) -> Option<Matrix> {
        let first = self.new.iter().position(|matrix| matrix.from_os).unwrap_or(0);
        let NewMatrix { ids, values, .. } = (first < self.new.len()).then(|| self.new.swap_remove(first))?;
        Some(Matrix { ids, values, scale: 1.0 })
    }

    /// The matrix of all nodes: the one whose depth is theirs, else the only one of as many objects. A level's depth is
    /// counted through the deepest branch, so that it can differ from a node's own.
    fn old_matrix(&mut self) -> Option<Matrix> {
        let nodes = &self.export.nodes;
        let fits = |matrix: &OldMatrix| matrix.objects == nodes.len();
        let same_depth = |matrix: &OldMatrix| {
            nodes.iter().all(|node| matrix.depth.checked_add(matrix.relative_depth) == Some(node.depth))
        };
        let exact = self.old.iter().position(|matrix| fits(matrix) && same_depth(matrix));
        let only = || {
            let mut fitting = self.old.iter().enumerate().filter(|(_, matrix)| fits(matrix));
            fitting.next().filter(|_| fitting.next().is_none()).map(|(index, _)| index)
        };
        let index = exact.or_else(only)?;
        let ids = nodes.iter().map(|node| node.id).collect();
        let OldMatrix { values, base, .. } = self.old.swap_remove(index);
        Some(Matrix { ids, values, scale: base })
    }
}

fn malformed(at: usize, error: &quick_xml::Error) -> Fault {
    (at, format!("is not well-formed XML: {error}"))
}

/// A tag's attributes; hwloc's have some twenty.
fn attributes<'a>(at: usize, tag: &'a BytesStart) -> Result<Attributes<'a>, Fault> {
    tag.attributes()
        .map(|attribute| {
            let attribute = attribute.map_err(|error| malformed(at, &error.into()))?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| malformed(at, &error))?;
            Ok((attribute.key.into_inner(), value))
        })
        .collect()
}

fn get<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
    attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_ref())
}

fn not_a_number(at: usize, what: &str, name: &str, text: &str) -> Fault {
    (at, format!("{}: {name} `{}` is not a number", cut(what), cut(text)))
}

fn number(at: usize, what: &str, attributes: &Attributes, name: &str) -> Result<Option<u64>, Fault> {
    let parse = |text: &str| text.trim().parse().map_err(|_| not_a_number(at, what, name, text));
    get(attributes, name).map(parse).transpose()
}

fn float(at: usize, what: &str, attributes: &Attributes, name: &str) -> Result<f64, Fault> {
    let Some(text) = get(attributes, name) else { return Err((at, format!("{what} without {name}"))) };
    text.trim().parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| not_a_number(at, what, name, text))
}

/// What the name of a group makes it.
fn group_class(name: &str) -> Option<Class> {
    match name {
        "Cluster" => Some(Class::Cluster),
        "Book" => Some(Class::Book),
        "Drawer" => Some(Class::Drawer),
        _ => None,
    }
}

/// `L2Cache` and `L1iCache` name their level and kind; `Cache`, of version 1, has both as attributes.
fn cache_class(at: usize, kind: &str, attributes: &Attributes) -> Result<Class, Fault> {
    let invalid = |name: &str, text: &str| (at, format!("{}: {name} `{}` is no cache's", cut(kind), cut(text)));
    let name = kind.strip_suffix("Cache").unwrap_or(kind);
    let (level, named) = match name.strip_prefix('L') {
        Some(rest) => match rest.strip_suffix('i') {
            Some(level) => (level.parse().ok(), Some(CacheKind::Instruction)),
            None => (rest.parse().ok(), None),
        },
        None if name.is_empty() => {
            let level = number(at, kind, attributes, "depth")?;
            (level.and_then(|level| u32::try_from(level).ok()), None)
        }
        None => (None, None),
    };
    let Some(level) = level.filter(|level| CACHE_LEVELS.contains(level)) else {
        return Err(invalid("level", get(attributes, "depth").unwrap_or(name)));
    };
    let kind = match (named, get(attributes, "cache_type")) {
        (Some(kind), _) => kind,
        (None, None | Some("0")) => CacheKind::Unified,
        (None, Some("1")) => CacheKind::Data,
        (None, Some("2")) => CacheKind::Instruction,
        (None, Some(other)) => return Err(invalid("cache_type", other)),
    };
    Ok(Class::Cache(level, kind))
}

fn cpu_set(pus: &[u32]) -> CpuSet {
    let capacity = pus.iter().max().map_or(0, |&last| last as usize + 1);
    CpuSet::from_cpus(capacity, pus.iter().map(|&pu| pu as usize))
}

fn listed(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

fn bitmap_attribute(at: usize, what: &str, attributes: &Attributes, name: &str) -> Result<Option<CpuSet>, Fault> {
    let parse = |text: &str| bitmap(text).map_err(|message| (at, format!("{}: {name} {message}", cut(what))));
    get(attributes, name).map(parse).transpose()
}

/// hwloc's bitmaps, `0x00000001,,0x0000000f`: groups of 32 bits, most significant first, an empty one being 0. A set
/// without end begins with `0xf...f`.
fn bitmap(text: &str) -> Result<CpuSet, String> {
    let mut cpus = Vec::new();
    for (group, digits) in text.trim().rsplit(',').enumerate() {
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        if digits == "f...f" {
            return Err("names CPUs without end; export the machine with its own CPUs only".to_owned());
        }
        let is_hexadecimal = digits.len() <= 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_hexadecimal || text.trim().is_empty() {
            return Err(format!("`{}` is not a bitmap like 0x000000ff", cut(text)));
        }
        let bits = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 16).unwrap_or(0) };
        for bit in (0..32).filter(|bit| bits >> bit & 1 != 0) {
            let cpu = group * 32 + bit;
            if cpu >= MAX_CPUS {
                return Err(format!("names CPU {cpu}; machines of up to {MAX_CPUS} CPUs are supported"));
            }
            cpus.push(cpu);
        }
    }
    Ok(CpuSet::from_cpus(cpus.iter().max().map_or(0, |&last| last + 1), cpus.iter().copied()))
}

/// Whether a list has as many entries as it must.
fn full(at: usize, what: &str, found: usize, wanted: usize) -> Result<(), Fault> {
    match found {
        _ if found == wanted => Ok(()),
        _ if found > wanted => Err((at, format!("{what}: more than the {wanted} entries that nbobjs asks for"))),
        _ => Err((at, format!("{what}: {found} entries, but nbobjs asks for {wanted}"))),
    }
}

/// Adds the whole numbers of a text to a list that may grow to `wanted` entries.
fn fill<T: TryFrom<u32>>(at: usize, what: &str, content: &str, wanted: usize, list: &mut Vec<T>) -> Result<(), Fault> {
    for token in content.split_ascii_whitespace() {
        let value = token.parse::<u64>().ok();
        // A distance is below 256 and a node below 1024; what is larger is told apart later.
        let value = value.and_then(|value| T::try_from(u32::try_from(value).unwrap_or(u32::MAX)).ok());
        list.push(value.ok_or_else(|| not_a_number(at, "distances2", what, token))?);
        if list.len() > wanted {
            return full(at, &format!("distances2: {what}"), list.len(), wanted);
        }
    }
    Ok(())
}

fn amount_open(count: usize) -> String {
    match count {
        1 => "an element that is open".to_owned(),
        _ => format!("{count} elements that are open"),
    }
}
