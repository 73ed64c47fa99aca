//! Snapshots of real machines give the sets that their files state. The expected counts were read from the files and the
//! snapshots' index by other means than this crate.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use huddle_machine::{Arch, ClusterSource, CpuId, CpuSet, Partition, Topology, load_topology};

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

fn load(folder: &std::path::Path, file: &str) -> Topology {
    let path = folder.join(file);
    load_topology(Some(path.to_str().unwrap())).unwrap_or_else(|error| panic!("{error}")).1
}

/// `4x2 2x4`: four sets of two and two of four.
fn sizes<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> String {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for set in sets {
        *counts.entry(set.len()).or_default() += 1;
    }
    counts.iter().map(|(size, count)| format!("{count}x{size}")).collect::<Vec<_>>().join(" ")
}

/// File, online, offline, cores, source of clusters, clusters, LLCs, packages, nodes.
type Row =
    (&'static str, usize, usize, &'static str, ClusterSource, &'static str, &'static str, &'static str, &'static str);

use ClusterSource::{L2, Smt, Stated};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("cadvisor--epyc7402.tar.gz", 42, 6, "6x1 18x2", Smt, "6x1 18x2", "6x1 18x2", "1x42", ""),
    ("cadvisor--graviton2.tar.gz", 3, 1, "3x1", Smt, "3x1", "3x1", "1x1 1x2", ""),
    ("cadvisor--single_socket_many_NUMAs.tar.gz", 32, 0, "16x2", Smt, "16x2", "16x2", "16x2", ""),
    ("cpuinfo--galaxy-s9-us.tar.gz", 8, 0, "8x1", L2, "8x1", "1x8", "2x4", ""),
    ("ghw--linux-amd64-i7-1270P.tar.gz", 16, 0, "8x1 4x2", Stated, "4x2 2x4", "1x16", "1x16", "1x16"),
    ("ghw--linux-amd64-ryzen-1600.tar.gz", 12, 0, "6x2", L2, "6x2", "2x6", "1x12", "1x12"),
    ("ghw--linux-s390x-snapshot.tar.gz", 8, 0, "4x2", L2, "1x8", "1x8", "1x8", "1x8"),
    ("hwloc--128arm-2pa2n8cluster4co.tar.bz2", 128, 0, "128x1", Stated, "32x4", "4x32", "2x64", "4x32"),
    ("hwloc--16amd64-8n2c-cpusets.tar.bz2", 15, 1, "15x1", L2, "15x1", "15x1", "1x1 7x2", "1x1 7x2"),
    ("hwloc--20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2", 20, 0, "8x1 6x2", Stated, "6x2 2x4", "1x20", "1x20", "1x20"),
    ("hwloc--256ia64-64n2s2c.tar.bz2", 256, 0, "256x1", Smt, "256x1", "256x1", "128x2", "64x4"),
    ("hwloc--256ppc-8n8s4t.tar.bz2", 256, 0, "64x4", L2, "64x4", "64x4", "64x4", "8x32"),
    ("hwloc--2ps3-2t.tar.bz2", 2, 0, "1x2", Smt, "1x2", "1x2", "1x2", ""),
    ("hwloc--32amd64-4s2n4c-cgroup2.tar.bz2", 32, 0, "32x1", L2, "32x1", "8x4", "4x8", "8x4"),
    ("hwloc--64amd64-4s2n4ca2co.tar.bz2", 64, 0, "32x2", L2, "64x1", "8x8", "4x16", "8x8"),
    ("hwloc--8em64t-2s2ca2c.tar.bz2", 8, 0, "8x1", L2, "4x2", "4x2", "2x4", "1x8"),
    ("hwloc--96em64t-4no4pa3ca2co.tar.bz2", 96, 0, "96x1", L2, "48x2", "16x6", "16x6", "4x24"),
    ("hwloc--fakecpuid1f-64intel64-2p4d2n2c2t.tar.bz2", 64, 0, "32x2", L2, "32x2", "8x8", "4x16", "16x4"),
    ("hwloc--memorysidecaches.tar.bz2", 80, 0, "40x2", L2, "40x2", "2x40", "2x40", "4x20"),
    ("hwloc--offline-cpu0-node0.tar.bz2", 17, 7, "17x1", L2, "17x1", "1x8 1x9", "1x8 1x9", "1x8"),
    ("nri--cpuallocator-sysfs.tar.bz2", 80, 0, "40x2", L2, "40x2", "2x40", "2x40", "4x20"),
    ("pepc--adl0.tar.gz", 16, 0, "8x1 4x2", L2, "4x2 2x4", "1x16", "1x16", "1x16"),
    ("pepc--arl-h-1.tar.gz", 14, 0, "14x1", L2, "4x1 1x2 2x4", "1x2 1x12", "1x14", "1x14"),
    ("pepc--bdw0.tar.gz", 88, 0, "44x2", L2, "44x2", "2x44", "2x44", "2x44"),
    ("pepc--clxap1.tar.gz", 192, 0, "96x2", L2, "96x2", "4x48", "2x96", "8x24"),
    ("pepc--dnv0.tar.gz", 12, 0, "12x1", L2, "6x2", "6x2", "1x12", "1x12"),
    ("pepc--gnr0.tar.gz", 512, 0, "256x2", L2, "256x2", "2x256", "2x256", "2x256"),
    ("pepc--rome0.tar.gz", 256, 0, "128x2", L2, "128x2", "32x8", "2x128", "2x128"),
    ("pepc--snr0.tar.gz", 24, 0, "24x1", L2, "6x4", "1x24", "1x24", "1x24"),
    ("pepc--srf2.tar.gz", 224, 0, "224x1", L2, "56x4", "2x112", "2x112", "2x112"),
    ("pepc--turin0.tar.gz", 256, 0, "128x2", L2, "128x2", "16x16", "2x128", "2x128"),
    ("util-linux--arm-A510-A710-A715-X3.tar.gz", 8, 0, "8x1", L2, "6x1 1x2", "1x8", "1x1 1x3 1x4", ""),
    ("util-linux--ppc64-POWER7-64cpu.tar.gz", 64, 0, "16x4", Smt, "16x4", "16x4", "16x4", "1x0 1x64"),
    ("util-linux--rv64-visionfive2.tar.gz", 4, 0, "4x1", Stated, "1x4", "1x4", "1x4", "1x4"),
    ("util-linux--s390-lpar-drawer.tar.gz", 8, 0, "8x1", L2, "8x1", "8x1", "1x2 1x6", "1x8"),
    ("util-linux--vmware_fpe.tar.gz", 16, 0, "8x2", L2, "8x2", "4x4", "2x8", "4x4"),
    ("util-linux--x86_64-64cpu.tar.gz", 64, 0, "32x2", L2, "32x2", "4x16", "4x16", "2x16 1x32"),
    ("util-linux--x86_64-64cpu-linux6.2.tar.gz", 8, 0, "4x2", Stated, "4x2", "1x8", "1x8", "1x8"),
    ("util-linux--x86_64-epyc_7451.tar.gz", 96, 0, "48x2", L2, "48x2", "16x6", "2x48", "8x12"),
];

#[test]
fn every_snapshot_gives_the_sets_its_files_state() {
    let Some(folder) = snapshots() else { return };
    for &(file, online, offline, cores, source, clusters, llcs, packages, nodes) in ROWS {
        let topology = load(&folder, file);
        let found = (
            topology.online.len(),
            topology.offline.len(),
            sizes(topology.smt.sets().iter()),
            topology.cluster_source,
            sizes(topology.cluster.sets().iter()),
            sizes(topology.llc.sets().iter()),
            sizes(topology.package.sets().iter()),
            sizes(topology.nodes.iter().map(|node| &node.cpus)),
        );
        let expected = (
            online,
            offline,
            cores.to_owned(),
            source,
            clusters.to_owned(),
            llcs.to_owned(),
            packages.to_owned(),
            nodes.to_owned(),
        );
        assert_eq!(found, expected, "{file}");
        for partition in [&topology.smt, &topology.cluster, &topology.llc, &topology.package, &topology.node] {
            assert_partition(partition, &topology.online, file);
        }
    }
}

fn assert_partition(partition: &Partition, online: &CpuSet, file: &str) {
    let mut seen = CpuSet::new(online.capacity());
    for set in partition.sets() {
        assert!(!set.is_empty() && !set.intersects(&seen), "{file}: {set} overlaps");
        seen.union_with(set);
    }
    assert_eq!(&seen, online, "{file}");
}

#[test]
fn every_archive_is_in_the_table() {
    let Some(folder) = snapshots() else { return };
    let mut missing: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".tar") && !ROWS.iter().any(|row| row.0 == name))
        .collect();
    missing.sort();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn hwloc_xml_is_refused_by_name() {
    let Some(folder) = snapshots() else { return };
    let path = folder.join("hwloc--192em64t-12gr2n8c2t.xml");
    let error = load_topology(Some(path.to_str().unwrap())).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("192em64t") && message.contains("XML") && message.contains(".tar.gz"), "{message}");
    assert!(!error.is_usage());
}

#[test]
fn architecture_and_core_kinds_of_the_snapshots() {
    let Some(folder) = snapshots() else { return };
    for (file, arch, hybrid) in [
        ("hwloc--128arm-2pa2n8cluster4co.tar.bz2", Arch::Arm64, false),
        ("cpuinfo--galaxy-s9-us.tar.gz", Arch::Arm64, false),
        ("util-linux--rv64-visionfive2.tar.gz", Arch::Riscv, false),
        ("util-linux--ppc64-POWER7-64cpu.tar.gz", Arch::Other, false),
        ("ghw--linux-s390x-snapshot.tar.gz", Arch::Other, false),
        ("hwloc--256ia64-64n2s2c.tar.bz2", Arch::Other, false),
        ("pepc--adl0.tar.gz", Arch::X86_64, true),
        ("pepc--arl-h-1.tar.gz", Arch::X86_64, true),
        ("ghw--linux-amd64-i7-1270P.tar.gz", Arch::X86_64, true),
        // Its core-type folders name CPUs of both kinds.
        ("nri--cpuallocator-sysfs.tar.bz2", Arch::X86_64, true),
        ("pepc--bdw0.tar.gz", Arch::X86_64, false),
        // Offline siblings do not make it a hybrid.
        ("cadvisor--epyc7402.tar.gz", Arch::X86_64, false),
    ] {
        let topology = load(&folder, file);
        assert_eq!((topology.arch, topology.hybrid), (arch, hybrid), "{file}");
    }
}

#[test]
fn kunpeng_snapshot_has_its_distances_caches_and_no_findings() {
    let Some(folder) = snapshots() else { return };
    let topology = load(&folder, "hwloc--128arm-2pa2n8cluster4co.tar.bz2");
    assert_eq!(topology.findings, []);
    let rows: Vec<&[u32]> = topology.nodes.iter().map(|node| node.distance.as_slice()).collect();
    assert_eq!(rows, [[10, 16, 32, 33], [16, 10, 25, 32], [32, 25, 10, 16], [33, 32, 16, 10]]);
    let l3: Vec<_> = topology.caches.iter().filter(|cache| cache.level == 3).collect();
    assert_eq!(l3.len(), 4);
    assert_eq!((l3[1].size, l3[1].cpus.to_string()), (Some(32 << 20), "32-63".to_owned()));
    assert_eq!(topology.cluster.set_of(CpuId(5)).to_string(), "4-7");
}

#[test]
fn snow_ridge_idle_states_and_modules() {
    let Some(folder) = snapshots() else { return };
    let topology = load(&folder, "pepc--snr0.tar.gz");
    let states: Vec<_> =
        topology.idle_states.iter().map(|s| (s.name.as_str(), s.exit_latency_us, s.residency_us)).collect();
    assert_eq!(states, [("POLL", 0, 0), ("C1", 2, 2), ("C1E", 15, 25)]);
    assert_eq!(topology.cluster.set_of(CpuId(23)).to_string(), "20-23");
}

#[test]
fn xeon_with_node_zero_missing_keeps_its_cpus_without_a_node() {
    let Some(folder) = snapshots() else { return };
    let topology = load(&folder, "hwloc--offline-cpu0-node0.tar.bz2");
    assert_eq!(topology.online.to_string(), "4-20");
    assert_eq!(topology.offline.to_string(), "0-3,21-23");
    assert_eq!((topology.nodes[0].id, topology.nodes[0].distance.as_slice()), (1, [10].as_slice()));
    assert_eq!(topology.node.set_of(CpuId(4)).to_string(), "4,6,8,10,12,14,16,18,20");
    assert!(topology.findings.iter().any(|finding| finding.code == "node-missing"));
}

#[test]
fn sparse_node_ids_are_kept() {
    let Some(folder) = snapshots() else { return };
    let ids = |file| load(&folder, file).nodes.iter().map(|node| node.id).collect::<Vec<_>>();
    assert_eq!(ids("util-linux--x86_64-64cpu.tar.gz"), [0, 2, 3]);
    assert_eq!(ids("hwloc--256ppc-8n8s4t.tar.bz2"), [0, 1, 4, 5, 8, 9, 12, 13]);
}

#[test]
fn phone_capacities_are_read() {
    let Some(folder) = snapshots() else { return };
    let mut capacities = load(&folder, "util-linux--arm-A510-A710-A715-X3.tar.gz").capacity;
    capacities.sort_unstable();
    capacities.dedup();
    assert_eq!(capacities, [280, 855, 1024]);
}
