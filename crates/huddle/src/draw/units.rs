//! What is inside what: drawers, books, packages, nodes, LLCs, clusters, cores and shared caches as one tree of boxes.
//!
//! A level is in the tree when each of its sets is disjoint from every other set of the tree, or inside it, or around it.
//! Equal sets are one box with several names. A level of which that is not true cuts across the boxes; it is kept apart,
//! to be drawn as marks on the CPUs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use huddle_machine::{Cache, CacheKind, CpuId, CpuSet, Partition, Topology};

/// What a box stands for, outermost first where sets are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Drawer, a set of s390 books.
    Drawer,
    /// Book, a set of s390 sockets.
    Book,
    /// Package.
    Package,
    /// NUMA node.
    Node,
    /// Last-level cache.
    Llc,
    /// Cluster.
    Cluster,
    /// Core.
    Core,
    /// Sharers of a cache that is none of the others.
    Cache,
}

/// One name of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// What it is.
    pub level: Level,
    /// Which one: a node's number, else the set's index; `None` for the CPUs in no node, for cores and for caches.
    pub number: Option<u32>,
}

impl Role {
    /// `node 3`, `core`; `None` for sharers of a cache, whose strip names it.
    pub fn name(&self) -> Option<String> {
        let word = match self.level {
            Level::Drawer => "drawer",
            Level::Book => "book",
            Level::Package => "package",
            Level::Node => "node",
            Level::Llc => "LLC",
            Level::Cluster => "cluster",
            Level::Core => return Some("core".to_owned()),
            Level::Cache => return None,
        };
        Some(match self.number {
            Some(number) => format!("{word} {number}"),
            None => format!("no {word}"),
        })
    }
}

/// What is directly in a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A box, by its index in [`Nesting::units`].
    Unit(usize),
    /// A CPU.
    Cpu(CpuId),
}

/// A box.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Its names, outermost first; none for the machine.
    pub roles: Vec<Role>,
    /// Its CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// The caches that exactly these CPUs share, farthest first: `L3 32 MiB`.
    pub caches: Vec<String>,
    /// What is in it, by first CPU.
    pub items: Vec<Item>,
}

impl Unit {
    /// Whether it is a set of that level.
    pub fn is(&self, level: Level) -> bool {
        self.roles.iter().any(|role| role.level == level)
    }
}

/// A level whose sets cut across the boxes.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Its sets, by index.
    pub sets: Vec<(Role, CpuSet)>,
    /// The set of each CPU id.
    pub of: Vec<Option<usize>>,
}

/// The whole machine.
#[derive(Clone, Debug)]
pub struct Nesting {
    /// The boxes; the first is the machine itself.
    pub units: Vec<Unit>,
    /// Levels that cut across them.
    pub cuts: Vec<Cut>,
    /// Caches that cut across them, by name: `L2`.
    pub hidden: Vec<String>,
}

/// The index of the machine in [`Nesting::units`].
pub const MACHINE: usize = 0;

/// Sets of one level, disjoint from each other.
struct Sets {
    level: Level,
    sets: Vec<(Role, Vec<CpuId>)>,
    /// For caches, their name: `L2`.
    name: Option<String>,
    /// For caches, what their strips say.
    strips: Vec<String>,
}

impl Nesting {
    /// The nesting of a topology. Where two levels cut across each other, cores stay boxes first, then LLCs, packages,
    /// clusters, books, drawers and nodes.
    pub fn new(topology: &Topology) -> Nesting {
        let mut accepted: Vec<Sets> = Vec::new();
        let mut nesting = Nesting { units: Forest::new(topology).units, cuts: Vec::new(), hidden: Vec::new() };
        for sets in levels(topology) {
            accepted.push(sets);
            if let Some(forest) = Forest::build(topology, &accepted) {
                nesting.units = forest.units;
                continue;
            }
            match accepted.pop() {
                Some(sets) if sets.level == Level::Cache => nesting.hidden.extend(sets.name),
                Some(sets) => nesting.cuts.push(sets.cut(topology)),
                None => {}
            }
        }
        nesting
    }
}

impl Sets {
    fn of(level: Level, partition: &Partition) -> Sets {
        let sets = partition.sets().iter().enumerate().map(|(index, cpus)| {
            let number = (level != Level::Core).then_some(index as u32);
            (Role { level, number }, cpus.iter().collect())
        });
        Sets { level, sets: sets.collect(), name: None, strips: Vec::new() }
    }

    fn nodes(topology: &Topology) -> Sets {
        let mut homeless = topology.online.clone();
        topology.nodes.iter().for_each(|node| homeless.subtract(&node.cpus));
        let nodes = topology.nodes.iter().map(|node| (Some(node.id), &node.cpus)).chain([(None, &homeless)]);
        let sets = nodes
            .filter(|(_, cpus)| !cpus.is_empty())
            .map(|(number, cpus)| (Role { level: Level::Node, number }, cpus.iter().collect()));
        Sets { level: Level::Node, sets: sets.collect(), name: None, strips: Vec::new() }
    }

    /// Caches of one level and kind.
    fn caches(caches: &[&Cache]) -> Sets {
        let role = Role { level: Level::Cache, number: None };
        Sets {
            level: Level::Cache,
            sets: caches.iter().map(|cache| (role.clone(), cache.cpus.iter().collect())).collect(),
            name: caches.first().map(|cache| cache.name()),
            strips: caches.iter().map(|cache| cache_text(cache)).collect(),
        }
    }

    /// A box is drawn for two CPUs and more; for one it is drawn down to packages and nodes.
    fn makes_box(&self, cpus: &[CpuId]) -> bool {
        cpus.len() > 1 || self.level <= Level::Node
    }

    /// As marks on the CPUs.
    fn cut(self, topology: &Topology) -> Cut {
        let mut of = vec![None; topology.nr_cpus()];
        let mut sets = Vec::new();
        for (index, (role, cpus)) in self.sets.into_iter().enumerate() {
            cpus.iter().for_each(|cpu| of[cpu.index()] = Some(index));
            sets.push((role, CpuSet::from_cpus(topology.nr_cpus(), cpus.iter().map(|cpu| cpu.index()))));
        }
        Cut { sets, of }
    }
}

/// All levels, in the order in which they become boxes.
fn levels(topology: &Topology) -> Vec<Sets> {
    let mut levels = vec![
        Sets::of(Level::Core, &topology.smt),
        Sets::of(Level::Llc, &topology.llc),
        Sets::of(Level::Package, &topology.package),
        Sets::of(Level::Cluster, &topology.cluster),
    ];
    levels.extend(topology.book.as_ref().map(|book| Sets::of(Level::Book, book)));
    levels.extend(topology.drawer.as_ref().map(|drawer| Sets::of(Level::Drawer, drawer)));
    if !topology.nodes.is_empty() {
        levels.push(Sets::nodes(topology));
    }
    let mut caches: BTreeMap<(Reverse<u32>, CacheKind), Vec<&Cache>> = BTreeMap::new();
    for cache in topology.caches.iter().filter(|cache| !cache.cpus.is_empty()) {
        caches.entry((Reverse(cache.level), cache.kind)).or_default().push(cache);
    }
    levels.extend(caches.values().map(|caches| Sets::caches(caches)));
    levels
}

/// `L3 22.5 MiB`; without the size when it is not known.
pub fn cache_text(cache: &Cache) -> String {
    let size = match cache.size {
        None => String::new(),
        Some(bytes) if bytes >= 1 << 30 => format!(" {} GiB", rounded(bytes, 30)),
        Some(bytes) if bytes >= 1 << 20 => format!(" {} MiB", rounded(bytes, 20)),
        Some(bytes) => format!(" {} KiB", rounded(bytes, 10)),
    };
    format!("{}{size}", cache.name())
}

/// In units of `1 << shift`, two decimals at most.
fn rounded(bytes: u64, shift: u32) -> f64 {
    (bytes as f64 / (1u64 << shift) as f64 * 100.0).round() / 100.0
}

/// The tree while it grows.
struct Forest {
    units: Vec<Unit>,
    parent: Vec<usize>,
    /// The smallest box around each CPU id.
    at: Vec<usize>,
}

impl Forest {
    fn new(topology: &Topology) -> Forest {
        let machine =
            Unit { roles: Vec::new(), cpus: topology.online.iter().collect(), caches: Vec::new(), items: Vec::new() };
        Forest { units: vec![machine], parent: vec![MACHINE], at: vec![MACHINE; topology.nr_cpus()] }
    }

    /// The tree of these levels; `None` when one set cuts across another.
    fn build(topology: &Topology, levels: &[Sets]) -> Option<Forest> {
        let mut all: Vec<(&Sets, usize)> = levels
            .iter()
            .flat_map(|level| (0..level.sets.len()).map(move |index| (level, index)))
            .filter(|(level, index)| level.makes_box(&level.sets[*index].1))
            .collect();
        // From the largest set to the smallest, so that a box is there before what is in it.
        all.sort_by_key(|(level, index)| {
            let cpus = &level.sets[*index].1;
            (Reverse(cpus.len()), level.level, cpus.first().copied())
        });
        let mut forest = Forest::new(topology);
        for (level, index) in all {
            let (role, cpus) = &level.sets[index];
            forest.insert(role, cpus, level.strips.get(index))?;
        }
        forest.fill(topology);
        Some(forest)
    }

    fn insert(&mut self, role: &Role, cpus: &[CpuId], strip: Option<&String>) -> Option<()> {
        let around = self.at[cpus.first()?.index()];
        if cpus.iter().any(|cpu| self.at[cpu.index()] != around) {
            return None;
        }
        let same = around != MACHINE && self.units[around].cpus.len() == cpus.len();
        let unit = match same {
            true => around,
            false => {
                cpus.iter().for_each(|cpu| self.at[cpu.index()] = self.units.len());
                self.parent.push(around);
                self.units.push(Unit { roles: Vec::new(), cpus: cpus.to_vec(), caches: Vec::new(), items: Vec::new() });
                self.units.len() - 1
            }
        };
        let unit = &mut self.units[unit];
        // A cache that shares its set with something better known is only a strip there.
        if !same || role.level != Level::Cache {
            unit.roles.push(role.clone());
        }
        unit.caches.extend(strip.cloned());
        Some(())
    }

    /// Puts each box and CPU into the box around it.
    fn fill(&mut self, topology: &Topology) {
        let mut placed = vec![false; self.units.len()];
        placed[MACHINE] = true;
        for cpu in topology.online.iter() {
            let mut item = Item::Cpu(cpu);
            let mut around = self.at[cpu.index()];
            loop {
                self.units[around].items.push(item);
                if placed[around] {
                    break;
                }
                placed[around] = true;
                item = Item::Unit(around);
                around = self.parent[around];
            }
        }
    }
}
