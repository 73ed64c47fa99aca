//! Caches: `cache/indexN` of every CPU.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use super::masks::{Files, Names, PLACES_COMPARED, Place, Stated};
use super::{CPU, Reader, parse_size, read_text};
use crate::archive::numbered;
use crate::assemble::{Caches, MAX_CACHE_LEVEL, amount, cut};
use crate::tree::Tree;
use crate::{CacheKind, CpuId, CpuSet, Partition};

const SHARED: Files = &[Names { list: "shared_cpu_list", mask: "shared_cpu_map" }];

/// What a cache's files say of it, as they say it.
#[derive(Clone)]
struct Described {
    level: Option<u32>,
    kind: Option<String>,
    size: Option<String>,
}

impl Described {
    /// Reads the files of every place. On large machines, where opening them is what takes the time, caches of one index
    /// that are as large and shared by as many CPUs are taken to be of the level and type of the first of them.
    fn read(tree: &Tree, places: &[(Place, Option<Stated>)]) -> Vec<Described> {
        let text = |&(place, _): &(Place, Option<Stated>), file: &str| read_text(tree, &place.path(file));
        let sizes: Vec<Option<String>> = places.par_iter().with_min_len(64).map(|place| text(place, "size")).collect();
        let is_large = places.len() > PLACES_COMPARED;
        let mut first_like = HashMap::new();
        let mut firsts = Vec::new();
        let like: Vec<usize> = places
            .iter()
            .zip(&sizes)
            .map(|(place, size)| {
                let key = (place.0.index, place.1.map(|shared| shared.width), size);
                let next = firsts.len();
                let first = if is_large && size.is_some() { *first_like.entry(key).or_insert(next) } else { next };
                if first == next {
                    firsts.push(place);
                }
                first
            })
            .collect();
        let kinds: Vec<(Option<u32>, Option<String>)> = firsts
            .par_iter()
            .with_min_len(64)
            .map(|place| (text(place, "level").and_then(|text| text.parse().ok()), text(place, "type")))
            .collect();
        let described = like.iter().zip(&sizes).map(|(&first, size)| {
            let (level, kind) = kinds[first].clone();
            Described { level, kind, size: size.clone() }
        });
        described.collect()
    }

    /// Without level files the index tells: level-1 data, level-1 instructions, then one cache a level.
    fn level(&self, index: u32) -> u32 {
        self.level.unwrap_or(index.max(1))
    }

    fn kind(&self, index: u32) -> CacheKind {
        match (self.kind.as_deref(), self.level, index) {
            (Some("Data"), ..) | (None, None, 0) => CacheKind::Data,
            (Some("Instruction"), ..) | (None, None, 1) => CacheKind::Instruction,
            _ => CacheKind::Unified,
        }
    }
}

/// All caches of one level and kind.
struct Row {
    /// What is stated, by CPU id.
    stated: Vec<Option<Stated>>,
    /// The index of the first of them.
    index: u32,
}

impl Reader<'_> {
    pub(super) fn caches(&mut self, smt: &Partition) -> Caches {
        let places = self.places();
        let shared = self.stated(&places, SHARED);
        let described = self.described(&places, &shared);

        let nr_cpus = self.online.capacity();
        let mut rows: BTreeMap<(u32, CacheKind), Row> = BTreeMap::new();
        let mut sizes: BTreeMap<(u32, CacheKind, CpuId), u64> = BTreeMap::new();
        let mut without_sharers = Vec::new();
        for ((place, shared), described) in places.iter().zip(shared).zip(described) {
            let (cpu, index) = (place.cpu, place.index.unwrap_or(0));
            let (level, kind) = (described.level(index), described.kind(index));
            if !(1..=MAX_CACHE_LEVEL).contains(&level) {
                let message = format!("level {level} is no cache level; the cache is left out");
                self.findings.warn("cache-level-invalid", Some(cpu), place.path("level"), message);
                continue;
            }
            let shared = shared.unwrap_or_else(|| {
                without_sharers.push(cpu);
                let core = smt.set_of(cpu);
                Stated::assumed(self.sets.add(core.clone()), core.len())
            });
            let row = rows.entry((level, kind)).or_insert_with(|| Row { stated: vec![None; nr_cpus], index });
            row.stated[cpu.index()] = Some(shared);
            if let Some(size) = described.size.as_deref().and_then(parse_size).filter(|&size| size > 0) {
                sizes.insert((level, kind, cpu), size);
            }
        }
        self.findings.missing(
            "cache-sharers-missing",
            "cache/indexN/shared_cpu_list",
            &without_sharers,
            "the threads of the core are taken to share it",
        );
        let with_caches = CpuSet::from_cpus(nr_cpus, places.iter().map(|place| place.cpu.index()));
        self.assembled(&rows, &sizes, &with_caches)
    }

    /// `with_caches` are the CPUs with any cache folder.
    fn assembled(
        &mut self,
        rows: &BTreeMap<(u32, CacheKind), Row>,
        sizes: &BTreeMap<(u32, CacheKind, CpuId), u64>,
        with_caches: &CpuSet,
    ) -> Caches {
        let mut caches = Caches::default();
        for (&(level, kind), row) in rows {
            let leaders = self.leaders(&row.stated, SHARED, |_| Some(row.index));
            // A CPU that lists other caches but not this one does not have it, even when one that has it names it.
            let has = |cpu: usize| row.stated[cpu].is_some() || !with_caches.contains(CpuId::from(cpu));
            let leaders: Vec<Option<CpuId>> =
                leaders.into_iter().enumerate().map(|(cpu, leader)| leader.filter(|_| has(cpu))).collect();
            caches.add(level, kind, leaders, |first| sizes.get(&(level, kind, first)).copied());
        }
        caches
    }

    /// Every cache of every CPU.
    fn places(&self) -> Vec<Place> {
        let (tree, online) = (self.tree, self.online);
        let cpus: Vec<CpuId> = online.iter().collect();
        let of_cpu = |&cpu: &CpuId| {
            let mut indexes: Vec<u32> =
                tree.list(&format!("{CPU}/cpu{cpu}/cache")).iter().filter_map(|name| numbered(name, "index")).collect();
            indexes.sort_unstable();
            indexes
        };
        let indexes: Vec<Vec<u32>> = cpus.par_iter().with_min_len(64).map(of_cpu).collect();
        let places = cpus.iter().zip(&indexes);
        places.flat_map(|(&cpu, indexes)| indexes.iter().map(move |&index| Place { cpu, index: Some(index) })).collect()
    }

    /// What each place's cache is: for caches of one index with the same sharers as the first of them says.
    fn described(&mut self, places: &[Place], shared: &[Option<Stated>]) -> Vec<Described> {
        let mut first_of = BTreeMap::new();
        let mut firsts = Vec::new();
        let which: Vec<usize> = places
            .iter()
            .zip(shared)
            .map(|(&place, shared)| {
                let mut read = || {
                    firsts.push((place, *shared));
                    firsts.len() - 1
                };
                match shared {
                    Some(shared) => *first_of.entry((place.index, shared.set)).or_insert_with(read),
                    None => read(),
                }
            })
            .collect();
        let described = Described::read(self.tree, &firsts);
        self.report(&firsts, &described);
        which.iter().map(|&at| described[at].clone()).collect()
    }

    fn report(&mut self, places: &[(Place, Option<Stated>)], described: &[Described]) {
        let mut without_level = Vec::new();
        for ((place, _), described) in places.iter().zip(described) {
            if described.level.is_none() {
                without_level.push(place.cpu);
            }
            if let Some(size) = described.size.as_deref().filter(|size| parse_size(size).is_none()) {
                let message = format!("`{}` is not a size like 512K; it is left out", cut(size));
                self.findings.warn("cache-size-unreadable", Some(place.cpu), place.path("size"), message);
            }
        }
        if let (Some(&cpu), count) = (without_level.first(), without_level.len()) {
            let message = format!(
                "missing for {}; the index tells: 0 and 1 level 1, then one level each",
                amount(count, "cache")
            );
            self.findings.warn("cache-level-missing", Some(cpu), "cache/indexN/level".into(), message);
        }
    }
}
