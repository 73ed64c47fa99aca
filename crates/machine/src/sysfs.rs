//! Reads a `/sys` tree into a [`Topology`].
//!
//! Files are missing, padded, contradictory and named differently from kernel to kernel; whatever can be repaired is, with
//! a finding, and what cannot ends in one error. The file names are those of Linux 2.6.16 to 7.2
//! (`drivers/base/topology.c`, `drivers/base/cacheinfo.c`, `drivers/base/node.c`).

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::archive::numbered;
use crate::tree::Tree;
use crate::{
    Arch, Cache, CacheKind, ClusterSource, CpuId, CpuSet, Finding, IdleState, MAX_CPUS, MachineError, Node, Partition,
    Severity, Topology,
};

const CPU: &str = "devices/system/cpu";
const NODE: &str = "devices/system/node";

/// Distances that the kernel uses when firmware gives none (`include/linux/topology.h`).
const LOCAL_DISTANCE: u32 = 10;
const REMOTE_DISTANCE: u32 = 20;

/// Most nodes that a kernel can have (`CONFIG_NODES_SHIFT` of 10), and a level that no cache has: both guard memory
/// against garbage input.
const MAX_NODES: usize = 1 << 10;
const MAX_CACHE_LEVEL: u32 = 15;

/// Findings of one kind that are listed one by one; the rest is counted.
const FINDINGS_PER_CODE: usize = 16;

/// Files that state one mask, lists before masks, new names before old.
type MaskFiles = &'static [(&'static str, Form)];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    List,
    Mask,
}

const SMT_FILES: MaskFiles = &[
    ("topology/core_cpus_list", Form::List),
    ("topology/thread_siblings_list", Form::List),
    ("topology/core_cpus", Form::Mask),
    ("topology/thread_siblings", Form::Mask),
];
const CLUSTER_FILES: MaskFiles = &[("topology/cluster_cpus_list", Form::List), ("topology/cluster_cpus", Form::Mask)];
const PACKAGE_FILES: MaskFiles = &[
    ("topology/package_cpus_list", Form::List),
    ("topology/core_siblings_list", Form::List),
    ("topology/package_cpus", Form::Mask),
    ("topology/core_siblings", Form::Mask),
];

/// Reads the tree; `name` is what errors call it, `live` says that it is the running machine's.
pub(crate) fn read_topology(tree: &Tree, name: &str, live: bool) -> Result<Topology, MachineError> {
    let mut findings = Findings::default();
    let (online, offline) = read_cpus(tree, name, &mut findings)?;
    let info = CpuInfo::parse(&tree.cpuinfo().unwrap_or_default());
    let mut reader = Reader { tree, online: &online, info, findings, masks: Masks::default() };

    let smt_masks = reader.masks(SMT_FILES);
    let package_masks = reader.masks(PACKAGE_FILES);
    let cluster_masks = reader.masks(CLUSTER_FILES);
    let smt = reader.smt(&smt_masks);
    let package = reader.package(&package_masks);
    let caches = reader.caches(&smt);
    let llc = reader.llc(&caches, &smt);
    let (cluster, cluster_source) = reader.cluster(&cluster_masks, &caches, &smt);
    let (node, nodes) = reader.nodes(name)?;
    reader.check_nesting(&[("smt", &smt), ("cluster", &cluster), ("llc", &llc), ("package", &package)]);
    reader.check_nesting(&[("node", &node), ("llc", &llc)]);
    reader.check_nesting(&[("node", &node), ("package", &package)]);

    let capacity = reader.capacities();
    let arch = reader.arch(live);
    let hybrid = arch == Arch::X86_64 && reader.is_hybrid(&smt_masks, &smt, &offline, &capacity, &caches);
    let idle_states = reader.idle_states();
    let findings = reader.findings.finish();
    Ok(Topology {
        arch,
        offline,
        smt,
        cluster,
        cluster_source,
        llc,
        package,
        node,
        nodes,
        capacity,
        hybrid,
        caches: caches.caches,
        idle_states,
        findings,
        online,
    })
}

/// Online and offline CPUs, over one number of ids.
fn read_cpus(tree: &Tree, name: &str, findings: &mut Findings) -> Result<(CpuSet, CpuSet), MachineError> {
    let folders: Vec<u32> = tree.list(CPU).iter().filter_map(|entry| numbered(entry, "cpu")).collect();
    if folders.is_empty() {
        return Err(MachineError::source(name, "holds no sys/devices/system/cpu/cpuN folder"));
    }
    let file = |file: &str| format!("{name}: sys/{CPU}/{file}");
    let too_many = |file: String, cpu: usize| {
        MachineError::source(file, format!("names CPU {cpu}; machines of up to {MAX_CPUS} CPUs are supported"))
    };
    if let Some(&cpu) = folders.iter().find(|&&cpu| cpu as usize >= MAX_CPUS) {
        return Err(too_many(file(&format!("cpu{cpu}")), cpu as usize));
    }
    let list = |file_name: &str| -> Result<Option<CpuSet>, MachineError> {
        let Some(data) = tree.read(&format!("{CPU}/{file_name}")) else { return Ok(None) };
        let set = CpuSet::parse_list(&text(&data)).map_err(|e| MachineError::source(file(file_name), e.to_string()))?;
        match set.last() {
            Some(last) if last.index() >= MAX_CPUS => Err(too_many(file(file_name), last.index())),
            _ => Ok(Some(set)),
        }
    };
    let states: Vec<(u32, Option<bool>)> = folders
        .iter()
        .map(|&cpu| (cpu, read_text(tree, &format!("{CPU}/cpu{cpu}/online")).map(|t| t != "0")))
        .collect();

    let online = match list("online")? {
        Some(set) if set.is_empty() => {
            return Err(MachineError::source(file("online"), "the list is empty; at least one CPU must be online"));
        }
        Some(set) => {
            for &(cpu, state) in &states {
                let listed = set.contains(CpuId(cpu));
                if state.is_some_and(|state| state != listed) {
                    let says = if listed { "says offline" } else { "says online" };
                    findings.warn(
                        "online-conflict",
                        Some(CpuId(cpu)),
                        format!("{CPU}/cpu{cpu}/online"),
                        format!("{says} but cpu/online does not; the list is taken"),
                    );
                }
            }
            set
        }
        None => {
            let has_topology = |cpu: u32| !tree.list(&format!("{CPU}/cpu{cpu}/topology")).is_empty();
            let any_topology = folders.iter().any(|&cpu| has_topology(cpu));
            let mut set = CpuSet::new(MAX_CPUS);
            for &(cpu, state) in &states {
                if state != Some(false) && (!any_topology || has_topology(cpu)) {
                    set.insert(CpuId(cpu));
                }
            }
            findings.warn(
                "online-missing",
                None,
                format!("{CPU}/online"),
                format!("is missing; {} with a topology folder and not switched off taken", amount(set.len(), "CPU")),
            );
            if set.is_empty() {
                return Err(MachineError::source(
                    name,
                    "no CPU is online: every sys/devices/system/cpu/cpuN/online is 0",
                ));
            }
            set
        }
    };
    let mut present = match list("present")? {
        Some(set) => set,
        None => CpuSet::from_cpus(MAX_CPUS, folders.iter().map(|&cpu| cpu as usize)),
    };
    present.subtract(&online);
    let ids = [online.last(), present.last()].into_iter().flatten().max().map_or(0, |last| last.index() + 1);
    let folder_cpus = CpuSet::from_cpus(MAX_CPUS, folders.iter().map(|&cpu| cpu as usize));
    if !online.intersects(&folder_cpus) {
        let message = format!("none of the CPUs {} has a cpuN folder; at least one must", cut(&online.to_string()));
        return Err(MachineError::source(file("online"), message));
    }
    for cpu in online.iter().filter(|&cpu| !folder_cpus.contains(cpu)) {
        let message = "is missing although the CPU is online; the CPU is taken to share nothing";
        findings.warn("cpu-folder-missing", Some(cpu), format!("{CPU}/cpu{cpu}"), message);
    }
    Ok((online.resized(ids), present.resized(ids)))
}

/// Each distinct CPU set once, cut to the online CPUs.
#[derive(Default)]
struct Masks {
    by_text: BTreeMap<(Form, String), Result<(u32, u32), String>>,
    by_words: BTreeMap<Box<[u64]>, u32>,
    sets: Vec<CpuSet>,
}

/// What one CPU's file says.
#[derive(Clone, Copy)]
struct Stated {
    /// Index of the set, online CPUs only.
    set: u32,
    /// CPUs named, offline ones included.
    width: u32,
    /// The file, as an index of its [`MaskFiles`].
    file: u8,
}

impl Masks {
    fn add(&mut self, set: CpuSet) -> u32 {
        let next = self.sets.len() as u32;
        let index = *self.by_words.entry(set.words().into()).or_insert(next);
        if index == next {
            self.sets.push(set);
        }
        index
    }

    /// The set's index and its width before it is cut to the online CPUs.
    fn parse(&mut self, form: Form, text: String, online: &CpuSet) -> Result<(u32, u32), String> {
        if let Some(known) = self.by_text.get(&(form, text.clone())) {
            return known.clone();
        }
        let parsed = match form {
            Form::List => CpuSet::parse_list(&text),
            Form::Mask => CpuSet::parse_mask(&text),
        };
        let result = match parsed {
            Ok(set) => {
                let mut cut = set.resized(online.capacity());
                cut.intersect_with(online);
                Ok((self.add(cut), set.len() as u32))
            }
            Err(error) => Err(error.to_string()),
        };
        self.by_text.insert((form, text), result.clone());
        result
    }
}

/// Caches and, by level and kind, which of them each CPU has.
struct Caches {
    caches: Vec<Cache>,
    /// The first CPU of the cache by CPU id, for each level and kind met, ascending.
    leader: BTreeMap<(u32, CacheKind), Vec<Option<CpuId>>>,
}

impl Caches {
    /// The level and first CPU of a CPU's cache of data, unified preferred, at the highest level, or at `level`.
    fn of(&self, cpu: CpuId, level: Option<u32>) -> Option<(u32, CpuId)> {
        self.leader
            .iter()
            .rev()
            .filter(|((at, kind), _)| *kind != CacheKind::Instruction && level.is_none_or(|level| level == *at))
            .find_map(|((at, _), leaders)| Some((*at, leaders[cpu.index()]?)))
    }
}

struct Reader<'a> {
    tree: &'a Tree,
    online: &'a CpuSet,
    info: CpuInfo,
    findings: Findings,
    masks: Masks,
}

impl Reader<'_> {
    fn text(&self, cpu: CpuId, file: &str) -> Option<String> {
        read_text(self.tree, &format!("{CPU}/cpu{cpu}/{file}"))
    }

    /// What each CPU's files state, by CPU id.
    fn masks(&mut self, files: MaskFiles) -> Vec<Option<Stated>> {
        let mut out = vec![None; self.online.capacity()];
        let mut usual = 0;
        for cpu in self.online.iter() {
            let order = std::iter::once(usual).chain((0..files.len()).filter(|&index| index != usual));
            for index in order {
                if let Some((set, width)) = self.mask(cpu, files[index].0, files[index].1) {
                    out[cpu.index()] = Some(Stated { set, width, file: index as u8 });
                    usual = index;
                    break;
                }
            }
        }
        out
    }

    /// One file's set, with the CPU itself in it.
    fn mask(&mut self, cpu: CpuId, file: &str, form: Form) -> Option<(u32, u32)> {
        let text = self.text(cpu, file).filter(|text| !text.is_empty())?;
        let path = format!("{CPU}/cpu{cpu}/{file}");
        match self.masks.parse(form, text, self.online) {
            Err(message) => {
                self.findings.warn("mask-unreadable", Some(cpu), path, format!("{message}; the file is ignored"));
                None
            }
            Ok((set, width)) if self.masks.sets[set as usize].contains(cpu) => Some((set, width)),
            Ok((set, width)) => {
                let mut with = self.masks.sets[set as usize].clone();
                with.insert(cpu);
                let message = "does not hold its own CPU; the CPU is added".to_owned();
                self.findings.warn("mask-without-self", Some(cpu), path, message);
                Some((self.masks.add(with), width + 1))
            }
        }
    }

    /// The first CPU of each CPU's set. CPUs form a set when one names the other and their files agree, or when one
    /// names the other and the other has no file. This is stricter than the kernel, which trusts its own masks
    /// (7.2 `kernel/sched/topology.c:topology_span_sane()` refuses contradictions).
    fn leaders(&mut self, stated: &[Option<Stated>], file_of: impl Fn(Stated) -> String) -> Vec<Option<CpuId>> {
        let mut leader: Vec<Option<CpuId>> = vec![None; stated.len()];
        for cpu in self.online.iter() {
            let Some(mine) = stated[cpu.index()] else { continue };
            if leader[cpu.index()].is_some() {
                continue;
            }
            let mut other = None;
            for member in self.masks.sets[mine.set as usize].iter() {
                let free = leader[member.index()].is_none();
                match stated[member.index()] {
                    Some(theirs) if theirs.set == mine.set => leader[member.index()] = Some(cpu),
                    None if free => leader[member.index()] = Some(cpu),
                    _ => other = other.or(Some(member)),
                }
            }
            leader[cpu.index()] = Some(cpu);
            if let Some(other) = other {
                let names = &self.masks.sets[mine.set as usize];
                let says = match stated[other.index()] {
                    Some(theirs) => format!("cpu{other} says {}", self.masks.sets[theirs.set as usize]),
                    None => format!("cpu{other} is already in another set"),
                };
                let message = format!("says {names} but {says}; only CPUs that agree are kept together");
                self.findings.warn("masks-disagree", Some(cpu), format!("{CPU}/cpu{cpu}/{}", file_of(mine)), message);
            }
        }
        leader
    }

    fn smt(&mut self, stated: &[Option<Stated>]) -> Partition {
        let leader = self.leaders(stated, |mask| SMT_FILES[mask.file as usize].0.to_owned());
        let mut by_core = BTreeMap::new();
        let mut from_ids = 0;
        let smt = self.fill(leader, |reader, cpu| {
            let package = reader.id(cpu, "physical_package_id").or(reader.info.of(cpu).and_then(|ids| ids.0))?;
            let core = reader.id(cpu, "core_id").or(reader.info.of(cpu).and_then(|ids| ids.1))?;
            let die = reader.id(cpu, "die_id");
            from_ids += 1;
            Some(*by_core.entry((package, die, core)).or_insert(cpu))
        });
        if from_ids > 0 {
            let message =
                format!("missing for {}; package and core ids (or proc/cpuinfo) are used", amount(from_ids, "CPU"));
            self.findings.info("smt-from-ids", "topology/thread_siblings", message);
        }
        self.missing("smt-missing", "topology/thread_siblings", &smt.1, "each is taken to be a core of its own");
        smt.0
    }

    fn package(&mut self, stated: &[Option<Stated>]) -> Partition {
        let leader = self.leaders(stated, |mask| PACKAGE_FILES[mask.file as usize].0.to_owned());
        let mut by_id = BTreeMap::new();
        let mut none = None;
        let mut without = Vec::new();
        let mut from_ids = 0;
        let (package, _) = self.fill(leader, |reader, cpu| {
            match reader.id(cpu, "physical_package_id").or(reader.info.of(cpu).and_then(|ids| ids.0)) {
                Some(id) => {
                    from_ids += 1;
                    Some(*by_id.entry(id).or_insert(cpu))
                }
                // The kernel's id is then -1 for all of them, which makes them one package (`drivers/base/topology.c`).
                None => {
                    without.push(cpu);
                    Some(*none.get_or_insert(cpu))
                }
            }
        });
        if from_ids > 0 {
            let message = format!("missing for {}; the package id (or proc/cpuinfo) is used", amount(from_ids, "CPU"));
            self.findings.info("package-from-ids", "topology/core_siblings", message);
        }
        self.missing("package-missing", "topology/core_siblings", &without, "such CPUs are taken to form one package");
        package
    }

    /// A partition from leaders, where `fallback` finds the leader of a CPU that has none; the second value lists the CPUs that stay
    /// alone because it finds none either.
    fn fill(
        &self,
        leader: Vec<Option<CpuId>>,
        mut fallback: impl FnMut(&Self, CpuId) -> Option<CpuId>,
    ) -> (Partition, Vec<CpuId>) {
        let mut alone = Vec::new();
        let ids: Vec<u64> = (0..self.online.capacity())
            .map(CpuId::from)
            .map(|cpu| match leader[cpu.index()] {
                Some(leader) => leader.0.into(),
                None if !self.online.contains(cpu) => 0,
                // Leaders found by files and by ids are kept apart by the upper half.
                None => match fallback(self, cpu) {
                    Some(leader) => 1 << 32 | u64::from(leader.0),
                    None => {
                        alone.push(cpu);
                        2 << 32 | u64::from(cpu.0)
                    }
                },
            })
            .collect();
        (Partition::from_ids(self.online, |cpu| ids[cpu.index()]), alone)
    }

    fn missing(&mut self, code: &'static str, file: &str, cpus: &[CpuId], taken: &str) {
        let (Some(&first), count) = (cpus.first(), cpus.len()) else { return };
        let message = match count {
            1 => format!("missing for cpu{first}; {taken}"),
            _ => format!("missing for {count} CPUs; {taken}"),
        };
        self.findings.warn(code, Some(first), file.to_owned(), message);
    }

    /// A number in `topology/`; negative ones mean "undefined".
    fn id(&self, cpu: CpuId, file: &str) -> Option<i64> {
        self.text(cpu, &format!("topology/{file}"))?.parse().ok().filter(|&id| id >= 0)
    }

    fn caches(&mut self, smt: &Partition) -> Caches {
        #[derive(Clone, Copy)]
        struct Described {
            level: u32,
            kind: CacheKind,
            size: Option<u64>,
        }
        const SHARED: MaskFiles = &[("shared_cpu_list", Form::List), ("shared_cpu_map", Form::Mask)];
        let nr_cpus = self.online.capacity();
        let mut known: BTreeMap<(u32, u32), Described> = BTreeMap::new();
        let mut stated: BTreeMap<(u32, CacheKind), Vec<Option<Stated>>> = BTreeMap::new();
        let mut sizes: BTreeMap<(u32, CacheKind, CpuId), u64> = BTreeMap::new();
        let mut index_of = BTreeMap::new();
        let (mut level_missing, mut sharers_missing) = (Vec::new(), Vec::new());
        for cpu in self.online.iter() {
            let folders = self.tree.list(&format!("{CPU}/cpu{cpu}/cache"));
            for index in folders.iter().filter_map(|name| numbered(name, "index")) {
                let folder = format!("cache/index{index}");
                let shared = SHARED.iter().enumerate().find_map(|(which, &(file, form))| {
                    let (set, width) = self.mask(cpu, &format!("{folder}/{file}"), form)?;
                    Some(Stated { set, width, file: which as u8 })
                });
                let described = match shared.and_then(|shared| known.get(&(index, shared.set)).copied()) {
                    Some(described) => described,
                    None => {
                        let level = self.text(cpu, &format!("{folder}/level")).and_then(|text| text.parse().ok());
                        if level.is_none() {
                            level_missing.push(cpu);
                        }
                        let kind = match (self.text(cpu, &format!("{folder}/type")).as_deref(), level, index) {
                            (Some("Data"), ..) | (None, None, 0) => CacheKind::Data,
                            (Some("Instruction"), ..) | (None, None, 1) => CacheKind::Instruction,
                            _ => CacheKind::Unified,
                        };
                        let size = self.text(cpu, &format!("{folder}/size"));
                        let size = size.and_then(|text| {
                            let size = parse_size(&text);
                            if size.is_none() {
                                let path = format!("{CPU}/cpu{cpu}/{folder}/size");
                                let message = format!("`{}` is not a size like 512K; it is left out", cut(&text));
                                self.findings.warn("cache-size-unreadable", Some(cpu), path, message);
                            }
                            size.filter(|&size| size > 0)
                        });
                        // Without level files the index tells: L1 data, L1 instructions, then one cache a level.
                        let described = Described { level: level.unwrap_or(index.max(1)), kind, size };
                        if let Some(shared) = shared {
                            known.insert((index, shared.set), described);
                        }
                        described
                    }
                };
                let Described { level, kind, size } = described;
                if !(1..=MAX_CACHE_LEVEL).contains(&level) {
                    let path = format!("{CPU}/cpu{cpu}/{folder}/level");
                    let message = format!("level {level} is no cache level; the cache is left out");
                    self.findings.warn("cache-level-invalid", Some(cpu), path, message);
                    continue;
                }
                let shared = shared.unwrap_or_else(|| {
                    sharers_missing.push(cpu);
                    let core = smt.set_of(cpu).clone();
                    Stated { width: core.len() as u32, set: self.masks.add(core), file: 0 }
                });
                stated.entry((level, kind)).or_insert_with(|| vec![None; nr_cpus])[cpu.index()] = Some(shared);
                index_of.entry((level, kind)).or_insert(index);
                if let Some(size) = size {
                    sizes.insert((level, kind, cpu), size);
                }
            }
        }
        if let (Some(&cpu), count) = (level_missing.first(), level_missing.len()) {
            let message = format!(
                "missing for {}; the index tells: 0 and 1 level 1, then one level each",
                amount(count, "cache")
            );
            self.findings.warn("cache-level-missing", Some(cpu), "cache/indexN/level".into(), message);
        }
        self.missing(
            "cache-sharers-missing",
            "cache/indexN/shared_cpu_list",
            &sharers_missing,
            "the threads of the core are taken to share it",
        );

        let mut caches = Vec::new();
        let mut leader = BTreeMap::new();
        for (&(level, kind), stated) in &stated {
            let index = index_of[&(level, kind)];
            let leaders = self.leaders(stated, |mask| format!("cache/index{index}/{}", SHARED[mask.file as usize].0));
            // A CPU without such a cache is named by one that has it: it does not have it.
            let leaders: Vec<Option<CpuId>> =
                leaders.iter().zip(stated).map(|(leader, stated)| stated.and(*leader)).collect();
            let mut members: BTreeMap<CpuId, Vec<usize>> = BTreeMap::new();
            for (cpu, leader) in leaders.iter().enumerate() {
                if let Some(leader) = leader {
                    members.entry(*leader).or_default().push(cpu);
                }
            }
            caches.extend(members.into_iter().map(|(first, cpus)| Cache {
                level,
                kind,
                size: sizes.get(&(level, kind, first)).copied(),
                cpus: CpuSet::from_cpus(nr_cpus, cpus),
            }));
            leader.insert((level, kind), leaders);
        }
        caches.sort_by_key(|cache: &Cache| (cache.level, cache.cpus.first(), cache.kind));
        Caches { caches, leader }
    }

    /// Each CPU's highest cache that holds data; low-power cores may have one level fewer than the rest.
    fn llc(&mut self, caches: &Caches, smt: &Partition) -> Partition {
        let without: Vec<CpuId> = self.online.iter().filter(|&cpu| caches.of(cpu, None).is_none()).collect();
        self.missing("no-llc", "cache", &without, "the threads of the core are taken to share the last level");
        Partition::from_ids(self.online, |cpu| match caches.of(cpu, None) {
            Some((level, leader)) => u64::from(level) << 32 | u64::from(leader.0),
            None => smt.index_of(cpu).into(),
        })
    }

    fn cluster(&mut self, stated: &[Option<Stated>], caches: &Caches, smt: &Partition) -> (Partition, ClusterSource) {
        if stated.iter().any(Option::is_some) {
            let leader = self.leaders(stated, |mask| CLUSTER_FILES[mask.file as usize].0.to_owned());
            let (cluster, alone) = self.fill(leader, |_, _| None);
            self.missing(
                "cluster-missing",
                "topology/cluster_cpus_list",
                &alone,
                "each is taken to be a cluster of its own",
            );
            return (cluster, ClusterSource::Stated);
        }
        let level2 = |cpu: CpuId| caches.of(cpu, Some(2));
        let with = self.online.iter().filter(|&cpu| level2(cpu).is_some()).count();
        let (code, source, message) = match with {
            0 => (
                "cluster-from-smt",
                ClusterSource::Smt,
                "missing, and no level-2 cache is known; each core is a cluster",
            ),
            _ => ("cluster-from-l2", ClusterSource::L2, "missing; the sharers of the level-2 cache are taken"),
        };
        let rest = match (with, self.online.len() - with) {
            (0, _) | (_, 0) => String::new(),
            (_, rest) => format!(", the core for {} without one", amount(rest, "CPU")),
        };
        self.findings.info(code, "topology/cluster_cpus_list", format!("{message}{rest}"));
        let cluster = Partition::from_ids(self.online, |cpu| match level2(cpu) {
            Some((level, leader)) => u64::from(level) << 32 | u64::from(leader.0),
            None => smt.index_of(cpu).into(),
        });
        (cluster, source)
    }

    /// The node of each CPU and the nodes; CPUs in no node form a set of their own.
    fn nodes(&mut self, name: &str) -> Result<(Partition, Vec<Node>), MachineError> {
        let mut ids: Vec<u32> = self.tree.list(NODE).iter().filter_map(|name| numbered(name, "node")).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() > MAX_NODES {
            let message = format!("holds {} nodes; machines of up to {MAX_NODES} are supported", ids.len());
            return Err(MachineError::source(format!("{name}: sys/{NODE}"), message));
        }
        let nr_cpus = self.online.capacity();
        let mut node_of: Vec<Option<u32>> = vec![None; nr_cpus];
        let mut nodes: Vec<Node> = Vec::new();
        for &id in &ids {
            let mut cpus = self.node_cpus(id).resized(nr_cpus);
            cpus.intersect_with(self.online);
            for cpu in cpus.clone().iter() {
                if let Some(other) = node_of[cpu.index()] {
                    cpus.remove(cpu);
                    let message = format!("holds cpu{cpu}, which node{other} holds too; node{other} keeps it");
                    self.findings.warn("nodes-overlap", Some(cpu), format!("{NODE}/node{id}"), message);
                } else {
                    node_of[cpu.index()] = Some(id);
                }
            }
            nodes.push(Node { id, cpus, distance: Vec::new() });
        }
        let rows: Vec<Vec<u32>> = ids.iter().map(|&id| self.distances(id, &ids)).collect();
        let stated = |id: u32| self.tree.read(&format!("{NODE}/node{id}/distance")).is_some();
        let silent = ids.iter().filter(|&&id| !stated(id)).count();
        if silent > 0 && ids.len() > 1 {
            let message =
                format!("missing for {silent} of {} nodes; 10 in the node and 20 outside are taken", ids.len());
            self.findings.warn("distance-missing", None, format!("{NODE}/nodeN/distance"), message);
        }
        for (node, row) in nodes.iter_mut().zip(rows) {
            node.distance = row;
        }
        self.check_distances(&mut nodes);
        match nodes.is_empty() {
            true => {
                self.findings.info("no-nodes", NODE, "there are no NUMA nodes; all CPUs are taken to be in one".into())
            }
            false => {
                let homeless: Vec<CpuId> = self.online.iter().filter(|cpu| node_of[cpu.index()].is_none()).collect();
                self.missing("node-missing", "node/nodeN/cpulist", &homeless, "left in no node");
            }
        }
        let node = Partition::from_ids(self.online, |cpu| node_of[cpu.index()].map_or(0, |id| u64::from(id) + 1));
        Ok((node, nodes))
    }

    /// A node's CPUs: its list, else its mask, else the CPU links in its folder.
    fn node_cpus(&mut self, id: u32) -> CpuSet {
        let folder = format!("{NODE}/node{id}");
        for (file, form) in [("cpulist", Form::List), ("cpumap", Form::Mask)] {
            let path = format!("{folder}/{file}");
            let Some(text) = read_text(self.tree, &path) else { continue };
            let parsed = match form {
                Form::List => CpuSet::parse_list(&text),
                Form::Mask => CpuSet::parse_mask(&text),
            };
            match parsed {
                Ok(cpus) => return cpus,
                Err(error) => {
                    let message = format!("{error}; the file is ignored");
                    self.findings.warn("mask-unreadable", None, path, message);
                }
            }
        }
        let links = self.tree.list(&folder);
        let cpus = links.iter().filter_map(|name| numbered(name, "cpu")).map(|cpu| cpu as usize);
        CpuSet::from_cpus(MAX_CPUS, cpus.filter(|&cpu| cpu < MAX_CPUS))
    }

    /// A node's row of distances, in the order of `ids`; entries that the file does not give are 10 for the node itself, else 20.
    fn distances(&mut self, id: u32, ids: &[u32]) -> Vec<u32> {
        let default = |other: u32| if other == id { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        let path = format!("{NODE}/node{id}/distance");
        let Some(text) = read_text(self.tree, &path) else {
            return ids.iter().map(|&other| default(other)).collect();
        };
        let row: Vec<Option<u32>> = text.split_whitespace().map(|number| number.parse().ok()).collect();
        let by_id = row.len() != ids.len();
        if by_id {
            let message = format!("has {} entries for {} nodes; they are taken by node number", row.len(), ids.len());
            self.findings.warn("distance-length", None, path.clone(), message);
        }
        ids.iter()
            .enumerate()
            .map(|(position, &other)| {
                let entry = row.get(if by_id { other as usize } else { position }).copied().flatten();
                // Below 10 is reserved and above 255 cannot be stated (ACPI SLIT); a node is at 10 from itself.
                let valid =
                    entry.filter(|&d| d < 256 && if other == id { d == LOCAL_DISTANCE } else { d >= LOCAL_DISTANCE });
                valid.unwrap_or_else(|| {
                    let taken = default(other);
                    let message = format!("has no valid distance to node{other}; {taken} is taken");
                    self.findings.warn("distance-invalid", None, path.clone(), message);
                    taken
                })
            })
            .collect()
    }

    /// The kernel warns about unequal ways there and back and goes on (`kernel/sched/topology.c:sched_init_numa()`).
    fn check_distances(&mut self, nodes: &mut [Node]) {
        for a in 0..nodes.len() {
            for b in 0..a {
                let (there, back) = (nodes[b].distance[a], nodes[a].distance[b]);
                if there != back {
                    let (from, to) = (nodes[b].id, nodes[a].id);
                    let message = format!("node{from} to node{to} is {there} but back is {back}; both are kept");
                    self.findings.warn("distance-asymmetric", None, format!("{NODE}/node{to}/distance"), message);
                }
            }
        }
    }

    /// Two sets of neighbouring levels must be equal, disjoint or one inside the other.
    fn check_nesting(&mut self, levels: &[(&str, &Partition)]) {
        for pair in levels.windows(2) {
            let [(inner_name, inner), (outer_name, outer)] = pair else { continue };
            for set in inner.sets() {
                let mut partial =
                    set.iter().map(|cpu| outer.set_of(cpu)).filter(|wide| !set.is_subset(wide)).peekable();
                let Some(&narrow) = partial.peek() else { continue };
                let wide = partial.find(|wide| !wide.is_subset(set)).unwrap_or(narrow);
                let cpu = set.first();
                let (code, message) = match wide.is_subset(set) {
                    false => (
                        "levels-cross",
                        format!("{inner_name} {set} and {outer_name} {wide} overlap without one holding the other"),
                    ),
                    true if *inner_name == "smt" => {
                        ("narrower-than-core", format!("{outer_name} {wide} is narrower than the core {set}"))
                    }
                    true => continue,
                };
                self.findings.warn(code, cpu, format!("{CPU}/cpu{}/topology", cpu.unwrap_or(CpuId(0))), message);
            }
        }
    }

    fn capacities(&mut self) -> Vec<u32> {
        let mut capacity = vec![1024; self.online.capacity()];
        for cpu in self.online.iter() {
            let Some(text) = self.text(cpu, "cpu_capacity") else { continue };
            match text.parse() {
                Ok(value @ 1..=1024) => capacity[cpu.index()] = value,
                _ => {
                    let message = format!("`{}` is not a capacity of 1 to 1024; 1024 is taken", cut(&text));
                    self.findings.warn("capacity-invalid", Some(cpu), format!("{CPU}/cpu{cpu}/cpu_capacity"), message);
                }
            }
        }
        capacity
    }

    fn arch(&mut self, live: bool) -> Arch {
        if live {
            return match std::env::consts::ARCH {
                "aarch64" => Arch::Arm64,
                "x86_64" => Arch::X86_64,
                "riscv64" => Arch::Riscv,
                _ => Arch::Other,
            };
        }
        if let Some(arch) = self.info.arch {
            return arch;
        }
        let first = self.online.first().unwrap_or(CpuId(0));
        let modalias = read_text(self.tree, &format!("{CPU}/modalias")).unwrap_or_default();
        if modalias.contains("type:aarch64") || self.text(first, "regs/identification/midr_el1").is_some() {
            return Arch::Arm64;
        }
        if modalias.contains("type:x86") || !self.tree.list(&format!("{CPU}/cpu{first}/microcode")).is_empty() {
            return Arch::X86_64;
        }
        // Die ids are set by x86 only; others leave the file at -1 or without it.
        let die: Option<i64> =
            self.online.iter().find_map(|cpu| self.text(cpu, "topology/die_id")).and_then(|text| text.parse().ok());
        let (arch, guess) = match die {
            Some(0..) => (Arch::X86_64, "x86, because die ids are set"),
            Some(_) => (Arch::Arm64, "arm64, because die ids exist and are not set"),
            None => (Arch::Other, "neither arm64, x86 nor riscv"),
        };
        self.findings.warn("arch-guessed", None, "proc/cpuinfo".into(), format!("is missing; taken for {guess}"));
        arch
    }

    /// Cores of more than one kind: core-type folders, different capacities, different numbers of threads (offline
    /// ones counted), or cores with one cache level fewer.
    fn is_hybrid(
        &self,
        stated: &[Option<Stated>],
        smt: &Partition,
        offline: &CpuSet,
        capacity: &[u32],
        caches: &Caches,
    ) -> bool {
        fn differ(mut values: impl Iterator<Item = u32>) -> bool {
            let first = values.next();
            values.any(|value| Some(value) != first)
        }
        let has_type =
            |name: &str| read_text(self.tree, &format!("devices/{name}/cpus")).is_some_and(|cpus| !cpus.is_empty());
        // Files name offline siblings too; without files the widths are known only when no sibling can be offline.
        let width = |cpu: CpuId| match stated[cpu.index()] {
            Some(stated) => Some(stated.width),
            None => offline.is_empty().then(|| smt.set_of(cpu).len() as u32),
        };
        has_type("cpu_core") && has_type("cpu_atom")
            || differ(self.online.iter().map(|cpu| capacity[cpu.index()]))
            || differ(self.online.iter().filter_map(width))
            || differ(self.online.iter().filter_map(|cpu| caches.of(cpu, None).map(|(level, _)| level)))
    }

    /// The idle states of the first CPU that has any, in the governor's order.
    fn idle_states(&mut self) -> Vec<IdleState> {
        let found = self.online.iter().find_map(|cpu| {
            let folder = format!("{CPU}/cpu{cpu}/cpuidle");
            let mut states: Vec<u32> =
                self.tree.list(&folder).iter().filter_map(|name| numbered(name, "state")).collect();
            states.sort_unstable();
            (!states.is_empty()).then_some((cpu, states))
        });
        let Some((cpu, states)) = found else { return Vec::new() };
        let mut out = Vec::new();
        for state in states {
            let folder = format!("cpuidle/state{state}");
            let number = |file: &str| -> Option<u32> {
                self.text(cpu, &format!("{folder}/{file}")).and_then(|text| text.parse().ok())
            };
            let name = self.text(cpu, &format!("{folder}/name"));
            // Kernels before 4.17 have no residency file; a state pays after twice its latency at the latest.
            match (name, number("latency"), number("residency")) {
                (Some(name), Some(exit_latency_us), residency) => {
                    let residency_us = residency.unwrap_or_else(|| exit_latency_us.saturating_mul(2));
                    if residency.is_none() {
                        let path = format!("{CPU}/cpu{cpu}/{folder}/residency");
                        let message = format!("is missing; twice the exit latency, {residency_us} us, is taken");
                        self.findings.warn("idle-residency-missing", Some(cpu), path, message);
                    }
                    out.push(IdleState { name, exit_latency_us, residency_us });
                }
                _ => {
                    let message = "has no name or no latency; the state is left out";
                    self.findings.warn("idle-state-incomplete", Some(cpu), format!("{CPU}/cpu{cpu}/{folder}"), message);
                }
            }
        }
        out
    }
}

/// What `/proc/cpuinfo` adds.
#[derive(Default)]
struct CpuInfo {
    arch: Option<Arch>,
    /// Package and core id by CPU.
    ids: BTreeMap<u32, (Option<i64>, Option<i64>)>,
}

impl CpuInfo {
    fn parse(text: &str) -> CpuInfo {
        let mut info = CpuInfo::default();
        let mut cpu = None;
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim_matches(|c: char| c == '\0' || c.is_whitespace());
            match key.trim() {
                "processor" | "cpu number" => cpu = value.parse::<u32>().ok(),
                "physical id" => {
                    if let Some(cpu) = cpu {
                        info.ids.entry(cpu).or_default().0 = value.parse().ok();
                    }
                }
                "core id" => {
                    if let Some(cpu) = cpu {
                        info.ids.entry(cpu).or_default().1 = value.parse().ok();
                    }
                }
                "vendor_id" => {
                    info.arch = info.arch.or(Some(if value.contains('/') { Arch::Other } else { Arch::X86_64 }))
                }
                "CPU implementer" => info.arch = info.arch.or(Some(Arch::Arm64)),
                "hart" | "isa" if value.starts_with("rv") || key.trim() == "hart" => {
                    info.arch = info.arch.or(Some(Arch::Riscv));
                }
                // powerpc, IA-64.
                "cpu" | "arch" => info.arch = info.arch.or(Some(Arch::Other)),
                _ => {}
            }
        }
        info
    }

    fn of(&self, cpu: CpuId) -> Option<(Option<i64>, Option<i64>)> {
        self.ids.get(&cpu.0).copied()
    }
}

/// Findings in the order met, each kind bounded.
#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    counts: BTreeMap<&'static str, usize>,
}

impl Findings {
    fn add(&mut self, finding: Finding) {
        let count = self.counts.entry(finding.code).or_default();
        *count += 1;
        if *count <= FINDINGS_PER_CODE {
            self.list.push(finding);
        }
    }

    fn warn(&mut self, code: &'static str, cpu: Option<CpuId>, file: String, message: impl Display) {
        self.add(Finding { code, severity: Severity::Warning, cpu, file, message: message.to_string(), counted: 0 });
    }

    fn info(&mut self, code: &'static str, file: &str, message: String) {
        self.add(Finding { code, severity: Severity::Info, cpu: None, file: file.to_owned(), message, counted: 0 });
    }

    fn finish(mut self) -> Vec<Finding> {
        for (&code, &count) in self.counts.iter().filter(|&(_, &count)| count > FINDINGS_PER_CODE) {
            let counted = count - FINDINGS_PER_CODE;
            let message = format!("{counted} more of this kind are not listed");
            let file = String::new();
            self.list.push(Finding { code, severity: Severity::Warning, cpu: None, file, message, counted });
        }
        self.list
    }
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned()
}

fn read_text(tree: &Tree, path: &str) -> Option<String> {
    tree.read(path).map(|data| text(&data))
}

/// `1 CPU`, `2 CPUs`.
fn amount(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The start of a text, for messages.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// `512K` in bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
