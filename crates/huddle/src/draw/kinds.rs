//! Kinds of cores: what tells the cores of a hybrid machine, or of one with several capacities, apart; and the caches
//! that each core has for itself.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use huddle_machine::{Cache, CpuId, Topology};

use super::units::cache_text;

/// A kind of core.
#[derive(Clone, Debug)]
pub struct Kind {
    /// What tells it apart: `capacity 1024, 2 threads, L1d 48 KiB, L1i 32 KiB, L2 1.25 MiB`.
    pub text: String,
    /// How many cores are of it.
    pub cores: usize,
}

/// The kinds of a machine's cores, most capable first.
#[derive(Clone, Debug)]
pub struct Kinds {
    /// Each once; a single one when all cores are alike.
    pub kinds: Vec<Kind>,
    /// The kind of each CPU id, as an index.
    pub of: Vec<usize>,
}

/// Order of kinds: capacity, then threads, then caches.
type Key = (Reverse<u32>, Reverse<usize>, Reverse<Vec<(u32, u64)>>, String);

impl Kinds {
    /// Cores differ by capacity; by threads and caches only on a machine that says it is hybrid, since elsewhere that
    /// is an offline sibling or a file that is missing.
    pub fn new(topology: &Topology) -> Kinds {
        let caches = topology.hybrid.then(|| caches_by_cpu(topology));
        let last = topology.caches.iter().map(|cache| cache.level).max();
        let keys: Vec<Key> = topology
            .smt
            .sets()
            .iter()
            .map(|core| {
                let capacity = core.iter().map(|cpu| topology.capacity[cpu.index()]).max().unwrap_or(0);
                let Some(caches) = &caches else {
                    return (Reverse(capacity), Reverse(0), Reverse(Vec::new()), String::new());
                };
                let own = core.first().map_or(&[][..], |cpu| caches[cpu.index()].as_slice());
                let near: Vec<&Cache> = own.iter().filter(|cache| Some(cache.level) != last).copied().collect();
                let sizes = near.iter().map(|cache| (cache.level, cache.size.unwrap_or(0))).collect();
                let mut words: Vec<String> = near
                    .iter()
                    .map(|cache| match cache.cpus.is_subset(core) {
                        true => cache_text(cache),
                        false => format!("shared {}", cache_text(cache)),
                    })
                    .collect();
                if own.iter().all(|cache| Some(cache.level) != last) {
                    words.extend(last.map(|level| format!("no L{level}")));
                }
                (Reverse(capacity), Reverse(core.len()), Reverse(sizes), words.join(", "))
            })
            .collect();
        let mut index_of: BTreeMap<&Key, usize> = keys.iter().map(|key| (key, 0)).collect();
        index_of.values_mut().enumerate().for_each(|(index, value)| *value = index);
        let mut of = vec![0; topology.nr_cpus()];
        let mut kinds: Vec<Kind> =
            index_of.keys().map(|key| Kind { text: describe(key, keys.as_slice()), cores: 0 }).collect();
        for (core, key) in topology.smt.sets().iter().zip(&keys) {
            let kind = index_of[key];
            kinds[kind].cores += 1;
            core.iter().for_each(|cpu| of[cpu.index()] = kind);
        }
        Kinds { kinds, of }
    }

    /// Whether there is more than one kind.
    pub fn differ(&self) -> bool {
        self.kinds.len() > 1
    }
}

fn describe((capacity, threads, _, caches): &Key, all: &[Key]) -> String {
    let mut words = Vec::new();
    if all.iter().any(|other| other.0 != *capacity) {
        words.push(format!("capacity {}", capacity.0));
    }
    match threads.0 {
        0 => {}
        1 => words.push("1 thread".to_owned()),
        threads => words.push(format!("{threads} threads")),
    }
    if !caches.is_empty() {
        words.push(caches.clone());
    }
    words.join(", ")
}

/// Each CPU's caches, by CPU id, nearest first.
fn caches_by_cpu(topology: &Topology) -> Vec<Vec<&Cache>> {
    let mut out = vec![Vec::new(); topology.nr_cpus()];
    for cache in &topology.caches {
        cache.cpus.iter().for_each(|cpu: CpuId| out[cpu.index()].push(cache));
    }
    out.iter_mut().for_each(|caches| caches.sort_by_key(|cache| (cache.level, cache.kind)));
    out
}

/// The caches that belong to one core each, and how many cores have these: `(L1d 64 KiB, L2 512 KiB, 96)`.
pub fn private_caches(topology: &Topology) -> Vec<(String, usize)> {
    let mut of_core: Vec<Vec<&Cache>> = vec![Vec::new(); topology.smt.sets().len()];
    for cache in &topology.caches {
        let Some(first) = cache.cpus.first() else { continue };
        let core = topology.smt.index_of(first) as usize;
        if cache.cpus.is_subset(&topology.smt.sets()[core]) {
            of_core[core].push(cache);
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for caches in &mut of_core {
        caches.sort_by_key(|cache| (cache.level, cache.kind));
        let mut words: Vec<String> = caches.iter().map(|cache| cache_text(cache)).collect();
        words.dedup();
        *counts.entry(words.join(", ")).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().filter(|(text, _)| !text.is_empty()).collect();
    counts.sort_by_key(|(text, cores)| (Reverse(*cores), text.clone()));
    counts
}
