//! Snapshots of real machines give what their files say: the table says how each was read.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use huddle_machine::{Cache, CacheKind, CpuId, CpuSet, Partition, Topology, load_topology};

#[path = "snapshots/table.rs"]
mod table;

use table::{SNAPSHOTS, Snapshot};

/// Where the shared test inputs are; `None`, with a line, when they are not there.
fn snapshots() -> Option<PathBuf> {
    let shared = std::env::var_os("HUDDLE_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let folder = shared.join("topo-snapshots");
    if !folder.is_dir() {
        println!("no snapshots at {}: nothing tested (set HUDDLE_SHARED)", folder.display());
        return None;
    }
    Some(folder)
}

fn load(folder: &Path, file: &str) -> Topology {
    let path = folder.join(file);
    load_topology(Some(path.to_str().unwrap())).unwrap_or_else(|error| panic!("{error}")).1
}

/// The sets that the notation of [`Snapshot`] stands for, as kernel lists.
fn sets(notation: &str) -> Vec<String> {
    let mut out = Vec::new();
    for term in notation.split(" | ").filter(|term| !term.is_empty()) {
        let mut parts = term.split(" x");
        let mut sets = vec![members(parts.next().unwrap())];
        for repeat in parts {
            let (count, step) = repeat.split_once('+').unwrap();
            let (count, step): (usize, usize) = (count.parse().unwrap(), step.parse().unwrap());
            let shifted = |times: usize| {
                sets.iter().map(move |set| set.iter().map(|cpu| cpu + times * step).collect::<Vec<usize>>())
            };
            sets = (0..count).flat_map(shifted).collect();
        }
        out.extend(sets.into_iter().map(|set| CpuSet::from_cpus(1 << 14, set).to_string()));
    }
    out
}

fn members(term: &str) -> Vec<usize> {
    match term.split_once('/') {
        _ if term == "none" => Vec::new(),
        Some((range, step)) => {
            let (from, to) = range.split_once('-').unwrap();
            (from.parse().unwrap()..=to.parse().unwrap()).step_by(step.parse().unwrap()).collect()
        }
        None => CpuSet::parse_list(term).unwrap().iter().map(CpuId::index).collect(),
    }
}

/// The sets of one level, whose name in the notation of another stands for them.
struct Level {
    name: &'static str,
    expected: Vec<String>,
}

/// The notation's sets where it may be another level's name.
fn resolve(levels: &[Level], notation: &str) -> Vec<String> {
    match levels.iter().find(|level| level.name == notation) {
        Some(level) => level.expected.clone(),
        None => sets(notation),
    }
}

fn lists<'a>(sets: impl IntoIterator<Item = &'a CpuSet>) -> Vec<String> {
    sets.into_iter().map(CpuSet::to_string).collect()
}

fn check(snapshot: &Snapshot, topology: &Topology) {
    let file = snapshot.file;
    let described = (topology.arch, topology.hybrid, topology.online.to_string(), topology.offline.to_string());
    let expected = (snapshot.arch, snapshot.hybrid, snapshot.online.to_owned(), snapshot.offline.to_owned());
    assert_eq!(described, expected, "{file}: architecture, hybrid, online, offline");

    let mut levels: Vec<Level> = Vec::new();
    let stated = [
        ("smt", Some(snapshot.smt), Some(&topology.smt)),
        ("cluster", Some(snapshot.cluster.1), Some(&topology.cluster)),
        ("llc", Some(snapshot.llc), Some(&topology.llc)),
        ("package", Some(snapshot.package), Some(&topology.package)),
        ("book", snapshot.book, topology.book.as_ref()),
        ("drawer", snapshot.drawer, topology.drawer.as_ref()),
    ];
    for (name, notation, partition) in stated {
        assert_eq!(notation.is_some(), partition.is_some(), "{file}: {name}");
        let (Some(notation), Some(partition)) = (notation, partition) else { continue };
        let expected = resolve(&levels, notation);
        assert_eq!(lists(partition.sets()), expected, "{file}: {name}");
        assert_partition(partition, &topology.online, file);
        levels.push(Level { name, expected });
    }
    assert_eq!(topology.cluster_source, snapshot.cluster.0, "{file}: source of clusters");

    let ids: Vec<usize> = topology.nodes.iter().map(|node| node.id as usize).collect();
    assert_eq!(CpuSet::from_cpus(1 << 14, ids).to_string(), snapshot.nodes.0, "{file}: nodes");
    let nodes = resolve(&levels, snapshot.nodes.1);
    assert_eq!(lists(topology.nodes.iter().map(|node| &node.cpus)), nodes, "{file}: CPUs of nodes");
    assert_partition(&topology.node, &topology.online, file);
    check_distances(snapshot, topology);

    assert_eq!(caches(topology), expected_caches(snapshot, &levels), "{file}: caches");
    let mut capacity = vec![1024; topology.nr_cpus()];
    for row in snapshot.capacity {
        let (value, cpus) = row.split_once(": ").unwrap();
        members(cpus).into_iter().for_each(|cpu| capacity[cpu] = value.parse().unwrap());
    }
    assert_eq!(topology.capacity, capacity, "{file}: capacities");
    let idle = topology.idle_states.iter();
    let idle: Vec<String> =
        idle.map(|state| format!("{} {} {}", state.name, state.exit_latency_us, state.residency_us)).collect();
    assert_eq!(idle.join(" | "), snapshot.idle, "{file}: idle states");

    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &topology.findings {
        *found.entry(finding.code).or_default() += finding.counted.max(1);
    }
    let expected: BTreeMap<&str, usize> = snapshot
        .findings
        .iter()
        .map(|code| code.split_once(" x").map_or((*code, 1), |(code, count)| (code, count.parse().unwrap())))
        .collect();
    assert_eq!(found, expected, "{file}: findings");
}

fn assert_partition(partition: &Partition, online: &CpuSet, file: &str) {
    let mut seen = CpuSet::new(online.capacity());
    for set in partition.sets() {
        assert!(!set.is_empty() && !set.intersects(&seen), "{file}: {set} overlaps");
        seen.union_with(set);
        assert!(set.iter().all(|cpu| partition.set_of(cpu) == set), "{file}: {set}");
    }
    assert_eq!(&seen, online, "{file}");
}

fn check_distances(snapshot: &Snapshot, topology: &Topology) {
    let file = snapshot.file;
    for node in &topology.nodes {
        assert_eq!(node.distance.len(), topology.nodes.len(), "{file}: distances of node {}", node.id);
    }
    for line in snapshot.distances {
        let (which, row) = line.split_once(": ").unwrap();
        let figures = row.split(' ').flat_map(|figure| match figure.split_once('x') {
            Some((figure, count)) => vec![figure.parse().unwrap(); count.parse().unwrap()],
            None => vec![figure.parse::<u32>().unwrap()],
        });
        let figures: Vec<u32> = figures.collect();
        match which {
            "sum" => {
                let sum: u32 = topology.nodes.iter().flat_map(|node| &node.distance).sum();
                assert_eq!([sum].as_slice(), figures, "{file}: sum of distances");
            }
            "*" => {
                for (at, node) in topology.nodes.iter().enumerate() {
                    let expected = |other: usize| figures[usize::from(other != at)];
                    let expected: Vec<u32> = (0..topology.nodes.len()).map(expected).collect();
                    assert_eq!(node.distance, expected, "{file}: distances of node {}", node.id);
                }
            }
            id => {
                let node = topology.nodes.iter().find(|node| node.id.to_string() == id).unwrap();
                assert_eq!(node.distance, figures, "{file}: distances of node {id}");
            }
        }
    }
}

type CacheRow = (String, String, Vec<String>);

/// Caches of one level, kind and size in one row.
fn caches(topology: &Topology) -> Vec<CacheRow> {
    let order = |cache: &&Cache| {
        let kind = [CacheKind::Data, CacheKind::Instruction, CacheKind::Unified];
        (cache.level, kind.iter().position(|kind| *kind == cache.kind), cache.cpus.first())
    };
    let mut caches: Vec<&Cache> = topology.caches.iter().collect();
    caches.sort_by_key(order);
    let mut rows: Vec<CacheRow> = Vec::new();
    for cache in caches {
        let kind = match cache.kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        let name = format!("L{}{kind}", cache.level);
        let size = cache.size.map_or("?".to_owned(), |size| format!("{}K", size >> 10));
        match rows.iter_mut().find(|row| row.0 == name && row.1 == size) {
            Some(row) => row.2.push(cache.cpus.to_string()),
            None => rows.push((name, size, vec![cache.cpus.to_string()])),
        }
    }
    rows
}

fn expected_caches(snapshot: &Snapshot, levels: &[Level]) -> Vec<CacheRow> {
    let row = |line: &&str| {
        let (what, sets) = line.split_once(": ").unwrap();
        let (name, size) = what.split_once(' ').unwrap();
        (name.to_owned(), size.to_owned(), resolve(levels, sets))
    };
    snapshot.caches.iter().map(row).collect()
}

#[test]
fn every_snapshot_gives_what_its_files_say() {
    let Some(folder) = snapshots() else { return };
    for snapshot in SNAPSHOTS {
        check(snapshot, &load(&folder, snapshot.file));
    }
}

#[test]
fn every_archive_is_in_the_table() {
    let Some(folder) = snapshots() else { return };
    let mut missing: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".tar") && !SNAPSHOTS.iter().any(|snapshot| snapshot.file == name))
        .collect();
    missing.sort();
    assert_eq!(missing, Vec::<String>::new());
}

/// Unpacks files, folders and links, whatever their modes.
fn unpack(archive: &Path, folder: &Path) {
    let file = File::open(archive).unwrap();
    let unpacked: Box<dyn Read> = match archive.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(flate2::read::MultiGzDecoder::new(file)),
        false => Box::new(bzip2::read::MultiBzDecoder::new(file)),
    };
    for entry in tar::Archive::new(unpacked).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = folder.join(entry.path().unwrap().strip_prefix("/").unwrap_or(&entry.path().unwrap()));
        if entry.header().entry_type().is_dir() {
            fs::create_dir_all(&path).unwrap();
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match entry.link_name().unwrap() {
            Some(target) => symlink(target, &path).unwrap(),
            None => {
                io::copy(&mut entry, &mut File::create(&path).unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn snapshots_unpacked_to_a_folder_are_the_same_machines() {
    let Some(folder) = snapshots() else { return };
    for file in [
        "cadvisor--graviton2.tar.gz",
        "ghw--linux-s390x-snapshot.tar.gz",
        "hwloc--offline-cpu0-node0.tar.bz2",
        "pepc--arl-h-1.tar.gz",
        "util-linux--vmware_fpe.tar.gz",
    ] {
        let unpacked = tempfile::tempdir().unwrap();
        unpack(&folder.join(file), unpacked.path());
        assert!(load(unpacked.path(), "") == load(&folder, file), "{file}");
    }
}

#[test]
fn kunpeng_snapshot_has_its_clusters_and_no_findings() {
    let Some(folder) = snapshots() else { return };
    let topology = load(&folder, "hwloc--128arm-2pa2n8cluster4co.tar.bz2");
    assert_eq!(topology.findings, []);
    assert_eq!(topology.cluster.set_of(CpuId(5)).to_string(), "4-7");
    assert_eq!(topology.numa_distance(CpuId(0), CpuId(127)), 33);
}

#[test]
fn bulldozer_whose_lists_and_masks_contradict_each_other_says_so() {
    let Some(folder) = snapshots() else { return };
    let topology = load(&folder, "hwloc--64amd64-4s2n4ca2co.tar.bz2");
    let finding = topology.findings.iter().find(|finding| finding.code == "list-and-mask-disagree").unwrap();
    assert_eq!(finding.file, "devices/system/cpu/cpu0/cache/index1/shared_cpu_list");
    assert!(finding.message.starts_with("says 0 but shared_cpu_map says 0-1"), "{}", finding.message);
}

/// The notation itself.
#[test]
fn sets_are_written_short() {
    assert_eq!(sets("0-3 x3+4 | 12"), ["0-3", "4-7", "8-11", "12"]);
    assert_eq!(sets("0,4 x2+1 x2+8"), ["0,4", "1,5", "8,12", "9,13"]);
    assert_eq!(sets("1-7/2 | none"), ["1,3,5,7", ""]);
}
