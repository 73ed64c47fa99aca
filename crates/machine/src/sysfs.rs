//! Reads a `/sys` tree into a [`Topology`].
//!
//! Files are missing, padded, contradictory and named differently from kernel to kernel; whatever can be repaired is, with
//! a finding, and what cannot ends in one error. The file names are those of Linux 2.6.16 to 7.2
//! (`drivers/base/topology.c`, `drivers/base/cacheinfo.c`, `drivers/base/node.c`).

mod caches;
mod cpuinfo;
mod cpus;
mod masks;
mod nodes;

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::archive::numbered;
use crate::assemble::{Caches, Findings, amount, check_nesting, cut, differ};
use crate::topology::reclaim_distance;
use crate::tree::Tree;
use crate::{Arch, ClusterSource, CpuId, CpuSet, IdleState, MachineError, Node, Partition, Topology};

use cpuinfo::CpuInfo;
use masks::{Files, Names, Sets, Stated};

const CPU: &str = "devices/system/cpu";
const NODE: &str = "devices/system/node";

const SMT: Files = &[
    Names { list: "core_cpus_list", mask: "core_cpus" },
    Names { list: "thread_siblings_list", mask: "thread_siblings" },
];
const CLUSTER: Files = &[Names { list: "cluster_cpus_list", mask: "cluster_cpus" }];
const PACKAGE: Files = &[
    Names { list: "package_cpus_list", mask: "package_cpus" },
    Names { list: "core_siblings_list", mask: "core_siblings" },
];
const BOOK: Files = &[Names { list: "book_siblings_list", mask: "book_siblings" }];
const DRAWER: Files = &[Names { list: "drawer_siblings_list", mask: "drawer_siblings" }];

/// Cluster ids that mean "unknown": x86 keeps 16 or 32 bits of ones for a level-2 cache that it cannot tell.
const UNKNOWN_CLUSTERS: [i64; 2] = [u16::MAX as i64, u32::MAX as i64];

/// Reads the tree; `name` is what errors call it, `live` says that it is the running machine's.
pub(crate) fn read_topology(tree: &Tree, name: &str, live: bool) -> Result<Topology, MachineError> {
    let mut findings = Findings::default();
    let info = CpuInfo::new(tree);
    let (online, offline) = cpus::read(tree, name, &info, &mut findings)?;
    let mut reader = Reader { tree, online: &online, info, findings, sets: Sets::default() };

    let smt_stated = reader.topology(SMT);
    let smt = reader.smt(&smt_stated);
    let package = reader.package();
    let book = reader.group(BOOK, "book_id", "book");
    let drawer = reader.group(DRAWER, "drawer_id", "drawer");
    let caches = reader.caches(&smt);
    let llc = caches.llc(&online, &smt, "cache", &mut reader.findings);
    let (cluster, cluster_source) = reader.cluster(&caches, &smt);
    let (node, nodes) = reader.nodes(name)?;
    let mut levels = vec![("smt", &smt), ("cluster", &cluster), ("llc", &llc), ("package", &package)];
    levels.extend(book.as_ref().map(|book| ("book", book)));
    levels.extend(drawer.as_ref().map(|drawer| ("drawer", drawer)));
    for levels in [&levels[..], &[("node", &node), levels[2]], &[("node", &node), levels[3]]] {
        check_nesting(levels, |cpu| format!("{CPU}/cpu{cpu}/topology"), &mut reader.findings);
    }

    let capacity = reader.capacities();
    let arch = reader.arch(live);
    let hybrid = arch == Arch::X86_64 && reader.is_hybrid(&smt_stated, &smt, &offline, &capacity, &caches);
    let node_reclaim_distance = reader.node_reclaim_distance(arch, &nodes);
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
        book,
        drawer,
        node,
        nodes,
        capacity,
        node_reclaim_distance,
        hybrid,
        caches: caches.into_sorted(),
        idle_states,
        findings,
        online,
    })
}

struct Reader<'a> {
    tree: &'a Tree,
    online: &'a CpuSet,
    info: CpuInfo<'a>,
    findings: Findings,
    sets: Sets,
}

impl Reader<'_> {
    fn text(&self, cpu: CpuId, file: &str) -> Option<String> {
        read_text(self.tree, &format!("{CPU}/cpu{cpu}/{file}"))
    }

    /// A number in `topology/` as it is stated, negative ones included.
    fn id(&self, cpu: CpuId, file: &str) -> Option<i64> {
        self.text(cpu, &format!("topology/{file}"))?.parse().ok()
    }

    /// Threads of a core. Without masks CPUs with equal ids form one, as in the kernel, to which an undefined package
    /// (-1) is as good a package as any (`drivers/base/arch_topology.c:update_siblings_masks()`).
    fn smt(&mut self, stated: &[Option<Stated>]) -> Partition {
        let leader = self.leaders(stated, SMT, |_| None);
        let mut by_core = BTreeMap::new();
        let mut from_ids = 0;
        let (smt, alone) = self.fill(leader, |reader, cpu| {
            let package = reader.id(cpu, "physical_package_id").or_else(|| reader.info.of(cpu).package)?;
            let core = reader.id(cpu, "core_id").or_else(|| reader.info.of(cpu).core).filter(|&core| core >= 0)?;
            let within = ["die_id", "cluster_id"].map(|file| reader.id(cpu, file));
            from_ids += 1;
            Some(*by_core.entry((package, within, core)).or_insert(cpu))
        });
        if from_ids > 0 {
            let message =
                format!("missing for {}; package and core ids (or proc/cpuinfo) are used", amount(from_ids, "CPU"));
            self.findings.info("smt-from-ids", "topology/thread_siblings", message);
        }
        let taken = "each is taken to be a core of its own";
        self.findings.missing("smt-missing", "topology/thread_siblings", &alone, taken);
        smt
    }

    fn package(&mut self) -> Partition {
        let stated = self.topology(PACKAGE);
        let leader = self.leaders(&stated, PACKAGE, |_| None);
        let by_mask: Vec<CpuId> = self.online.iter().filter(|cpu| leader[cpu.index()] == Some(*cpu)).collect();
        let mut by_id = BTreeMap::new();
        let mut none = None;
        let mut without = Vec::new();
        let mut from_ids = 0;
        let (package, _) = self.fill(leader, |reader, cpu| match reader.package_id(cpu) {
            Some(id) => {
                from_ids += 1;
                Some(*by_id.entry(id).or_insert(cpu))
            }
            // The kernel's id is then -1 for all of them, which makes them one package (`drivers/base/topology.c`).
            None => {
                without.push(cpu);
                Some(*none.get_or_insert(cpu))
            }
        });
        if from_ids > 0 {
            let message = format!("missing for {}; the package id (or proc/cpuinfo) is used", amount(from_ids, "CPU"));
            self.findings.info("package-from-ids", "topology/core_siblings", message);
        }
        let taken = "such CPUs are taken to form one package";
        self.findings.missing("package-missing", "topology/core_siblings", &without, taken);
        self.check_package_ids(&by_mask);
        package
    }

    /// The number of a CPU's package, with that of its book and drawer, within which s390 counts packages.
    fn package_id(&self, cpu: CpuId) -> Option<(i64, [Option<i64>; 2])> {
        let stated = self.id(cpu, "physical_package_id").filter(|&id| id >= 0);
        let id = stated.or_else(|| self.info.of(cpu).package)?;
        Some((id, ["book_id", "drawer_id"].map(|file| self.id(cpu, file))))
    }

    /// Packages stated by mask, given by their first CPUs, must have different ids. Some kernels stop the mask of a
    /// package at its NUMA nodes.
    fn check_package_ids(&mut self, firsts: &[CpuId]) {
        let mut first_of = BTreeMap::new();
        for &cpu in firsts {
            let Some(id) = self.package_id(cpu) else { continue };
            let first = *first_of.entry(id).or_insert(cpu);
            if first != cpu {
                let path = format!("{CPU}/cpu{cpu}/topology/physical_package_id");
                let message =
                    format!("{} is the package of cpu{first} too, by mask they are two; the masks are taken", id.0);
                self.findings.warn("package-id-shared", Some(cpu), path, message);
            }
        }
    }

    /// Sets of packages that only s390 has: books and drawers.
    fn group(&mut self, files: Files, id: &str, what: &str) -> Option<Partition> {
        let has_one = |cpu: CpuId| {
            let mut files = [id, files[0].list, files[0].mask].into_iter();
            files.any(|file| self.text(cpu, &format!("topology/{file}")).is_some())
        };
        [self.online.first(), self.online.last()].into_iter().flatten().find(|&cpu| has_one(cpu))?;
        let stated = self.topology(files);
        if stated.iter().all(Option::is_none) {
            return None;
        }
        let leader = self.leaders(&stated, files, |_| None);
        let (group, alone) = self.fill(leader, |_, _| None);
        let (code, file) = match what {
            "book" => ("book-missing", "topology/book_siblings"),
            _ => ("drawer-missing", "topology/drawer_siblings"),
        };
        self.findings.missing(code, file, &alone, &format!("each is taken to be a {what} of its own"));
        Some(group)
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

    fn cluster(&mut self, caches: &Caches, smt: &Partition) -> (Partition, ClusterSource) {
        let stated = self.topology(CLUSTER);
        if stated.iter().any(Option::is_some) {
            let leader = self.leaders(&stated, CLUSTER, |_| None);
            let mut without = Vec::new();
            let (cluster, _) = self.fill(leader, |_, cpu| {
                without.push(cpu);
                smt.set_of(cpu).first()
            });
            let taken = "the core of each is taken";
            self.findings.missing("cluster-missing", "topology/cluster_cpus_list", &without, taken);
            return (cluster, ClusterSource::Stated);
        }
        match self.cluster_by_id(smt) {
            Some(cluster) => (cluster, ClusterSource::Stated),
            None => caches.clusters(self.online, smt, "topology/cluster_cpus_list", &mut self.findings),
        }
    }

    /// Clusters by package and cluster id, the core where the id says "none" or "unknown"; `None` when it does for all.
    fn cluster_by_id(&mut self, smt: &Partition) -> Option<Partition> {
        let id = |cpu: CpuId| self.id(cpu, "cluster_id").filter(|id| *id >= 0 && !UNKNOWN_CLUSTERS.contains(id));
        [self.online.first(), self.online.last()].into_iter().flatten().find(|&cpu| id(cpu).is_some())?;
        let mut first_of = BTreeMap::new();
        let mut with = 0;
        let mut leader = vec![0; self.online.capacity()];
        for cpu in self.online.iter() {
            leader[cpu.index()] = match id(cpu) {
                Some(id) => {
                    with += 1;
                    let key = (self.id(cpu, "physical_package_id"), id);
                    u64::from(first_of.entry(key).or_insert(cpu).0)
                }
                None => 1 << 32 | u64::from(smt.index_of(cpu)),
            };
        }
        let message = format!("missing for {}; package and cluster ids are used", amount(with, "CPU"));
        self.findings.info("cluster-from-ids", "topology/cluster_cpus_list", message);
        Some(Partition::from_ids(self.online, |cpu| leader[cpu.index()]))
    }

    fn capacities(&mut self) -> Vec<u32> {
        let mut capacity = vec![1024; self.online.capacity()];
        let (tree, cpus) = (self.tree, self.online.iter().collect::<Vec<_>>());
        let text = |&cpu: &CpuId| read_text(tree, &format!("{CPU}/cpu{cpu}/cpu_capacity"));
        let texts: Vec<Option<String>> = cpus.par_iter().with_min_len(64).map(text).collect();
        for (cpu, text) in cpus.into_iter().zip(texts) {
            let Some(text) = text else { continue };
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

    /// As the kernel of the machine has it. Who made the processors matters only where nodes are that far apart.
    fn node_reclaim_distance(&self, arch: Arch, nodes: &[Node]) -> u32 {
        let [usual, raised] = [false, true].map(reclaim_distance);
        let between = |distance: &u32| (usual + 1..=raised).contains(distance);
        let matters = arch == Arch::X86_64 && nodes.iter().any(|node| node.distance.iter().any(between));
        reclaim_distance(matters && self.info.is_zen())
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
        if let Some(arch) = self.info.arch() {
            return arch;
        }
        let modalias = read_text(self.tree, &format!("{CPU}/modalias")).unwrap_or_default();
        // x86 wrote `x86cpu:vendor:…` before 3.14; the others that write one are arm64, s390 and powerpc.
        match modalias.strip_prefix("cpu:type:") {
            Some(kind) if kind.starts_with("aarch64") => return Arch::Arm64,
            Some(kind) if kind.starts_with("x86") => return Arch::X86_64,
            Some(_) => return Arch::Other,
            None if modalias.starts_with("x86cpu:") => return Arch::X86_64,
            None => {}
        }
        let first = self.online.first().unwrap_or(CpuId(0));
        if self.text(first, "regs/identification/midr_el1").is_some() {
            return Arch::Arm64;
        }
        if !self.tree.list(&format!("{CPU}/cpu{first}/microcode")).is_empty() {
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
        self.findings.warn(
            "arch-guessed",
            None,
            "proc/cpuinfo".into(),
            format!("is missing or does not tell; taken for {guess}"),
        );
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
        let (tree, cpus) = (self.tree, self.online.iter().collect::<Vec<_>>());
        let found = cpus.par_iter().with_min_len(64).find_map_first(|&cpu| {
            let mut states: Vec<u32> = tree
                .list(&format!("{CPU}/cpu{cpu}/cpuidle"))
                .iter()
                .filter_map(|name| numbered(name, "state"))
                .collect();
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

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned()
}

fn read_text(tree: &Tree, path: &str) -> Option<String> {
    tree.read(path).map(|data| text(&data))
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
