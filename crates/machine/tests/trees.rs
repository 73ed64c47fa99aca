//! Repairs and refusals of `/sys` trees made for the purpose.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::path::Path;

use huddle_machine::{Arch, CacheKind, ClusterSource, CpuId, Severity, Topology, load_topology};
use tempfile::TempDir;

const SYSTEM: &str = "sys/devices/system";

/// A folder with files given as path below `sys/devices/system` and content.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), files);
    folder
}

fn add(folder: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = folder.join(SYSTEM).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Four CPUs, two cores of two threads, one package, one L3.
fn two_cores() -> TempDir {
    let folder = tree(&[("cpu/online", "0-3\n"), ("cpu/present", "0-3\n"), ("node/node0/cpulist", "0-3\n")]);
    for cpu in 0..4 {
        let core = ["0-1", "2-3"][cpu / 2];
        for (file, content) in [
            ("topology/thread_siblings_list", core),
            ("topology/core_siblings_list", "0-3"),
            ("cache/index0/level", "1"),
            ("cache/index0/type", "Data"),
            ("cache/index0/size", "32K"),
            ("cache/index0/shared_cpu_list", core),
            ("cache/index1/level", "3"),
            ("cache/index1/type", "Unified"),
            ("cache/index1/size", "16M"),
            ("cache/index1/shared_cpu_list", "0-3"),
        ] {
            add(folder.path(), &[(&format!("cpu/cpu{cpu}/{file}"), content)]);
        }
    }
    fs::create_dir_all(folder.path().join("proc")).unwrap();
    fs::write(folder.path().join("proc/cpuinfo"), "processor\t: 0\nvendor_id\t: GenuineIntel\n").unwrap();
    folder
}

fn read(folder: &TempDir) -> Topology {
    load_topology(Some(folder.path().to_str().unwrap())).unwrap_or_else(|error| panic!("{error}")).1
}

fn refusal(folder: &TempDir) -> String {
    let error = load_topology(Some(folder.path().to_str().unwrap())).unwrap_err();
    assert!(!error.is_usage());
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

fn codes(topology: &Topology) -> Vec<&'static str> {
    topology.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn two_cores_without_cluster_files_or_l2_take_the_cores() {
    let topology = read(&two_cores());
    assert_eq!(topology.arch, Arch::X86_64);
    assert_eq!(topology.cluster_source, ClusterSource::Smt);
    assert_eq!(topology.cluster, topology.smt);
    assert_eq!(topology.smt.set_of(CpuId(3)).to_string(), "2-3");
    assert_eq!(topology.llc.sets().len(), 1);
    assert_eq!(codes(&topology), ["cluster-from-smt"]);
    assert_eq!(topology.findings[0].severity, Severity::Info);
}

#[test]
fn level_two_sharers_are_the_clusters_when_nothing_states_them() {
    let folder = two_cores();
    for cpu in 0..4 {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/cache/index1/level"), "2")]);
    }
    let topology = read(&folder);
    assert_eq!(topology.cluster_source, ClusterSource::L2);
    assert_eq!(topology.cluster.sets()[0].to_string(), "0-3");
    assert_eq!(codes(&topology), ["cluster-from-l2"]);
}

#[test]
fn cluster_files_of_the_cpu_alone_are_a_stated_fact() {
    let folder = two_cores();
    for cpu in 0..4 {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/cluster_cpus_list"), &cpu.to_string())]);
    }
    let topology = read(&folder);
    assert_eq!(topology.cluster_source, ClusterSource::Stated);
    assert_eq!(topology.cluster.sets().len(), 4);
    assert!(codes(&topology).contains(&"narrower-than-core"));
}

#[test]
fn masks_padded_with_nul_and_in_old_mask_files_are_read() {
    let folder = two_cores();
    for cpu in 0..4 {
        let topology = folder.path().join(SYSTEM).join(format!("cpu/cpu{cpu}/topology"));
        fs::remove_file(topology.join("thread_siblings_list")).unwrap();
        fs::write(topology.join("thread_siblings"), ["00000000,00000003\n\0\0\0\0", "c\0\0"][cpu / 2]).unwrap();
    }
    let topology = read(&folder);
    assert_eq!(topology.smt.set_of(CpuId(0)).to_string(), "0-1");
    assert_eq!(topology.smt.set_of(CpuId(2)).to_string(), "2-3");
}

#[test]
fn siblings_that_disagree_are_parted_with_a_finding() {
    let folder = two_cores();
    add(folder.path(), &[("cpu/cpu1/topology/thread_siblings_list", "1-2")]);
    let topology = read(&folder);
    let cores: Vec<String> = topology.smt.sets().iter().map(|set| set.to_string()).collect();
    assert_eq!(cores, ["0", "1", "2-3"]);
    let finding = topology.findings.iter().find(|finding| finding.code == "masks-disagree").unwrap();
    assert_eq!(finding.cpu, Some(CpuId(0)));
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.file.ends_with("cpu0/topology/thread_siblings_list"));
    assert!(finding.message.contains("0-1") && finding.message.contains("cpu1 says 1-2"), "{}", finding.message);
}

#[test]
fn mask_without_its_own_cpu_gets_it() {
    let folder = two_cores();
    for cpu in [0, 1] {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), "1")]);
    }
    let topology = read(&folder);
    assert!(codes(&topology).contains(&"mask-without-self"));
    assert_eq!(topology.smt.set_of(CpuId(0)).to_string(), "0");
}

#[test]
fn unreadable_mask_falls_back_to_the_next_file() {
    let folder = two_cores();
    add(
        folder.path(),
        &[("cpu/cpu0/topology/thread_siblings_list", "zero"), ("cpu/cpu0/topology/thread_siblings", "3")],
    );
    let topology = read(&folder);
    assert_eq!(topology.smt.set_of(CpuId(0)).to_string(), "0-1");
    let finding = topology.findings.iter().find(|finding| finding.code == "mask-unreadable").unwrap();
    assert!(finding.message.contains("`zero`"), "{}", finding.message);
}

#[test]
fn offline_cpus_leave_every_set() {
    let folder = two_cores();
    add(folder.path(), &[("cpu/online", "0,2-3"), ("cpu/cpu1/online", "0")]);
    let topology = read(&folder);
    assert_eq!(topology.offline.to_string(), "1");
    assert_eq!(topology.smt.set_of(CpuId(0)).to_string(), "0");
    assert_eq!(topology.llc.set_of(CpuId(0)).to_string(), "0,2-3");
    assert_eq!(topology.nodes[0].cpus.to_string(), "0,2-3");
    assert_eq!(topology.nr_cpus(), 4);
    assert!(!topology.hybrid, "an offline sibling is no other kind of core");
    assert_eq!(codes(&topology), ["cluster-from-smt"]);
}

#[test]
fn online_list_missing_is_made_from_the_folders() {
    let folder = two_cores();
    fs::remove_file(folder.path().join(SYSTEM).join("cpu/online")).unwrap();
    add(folder.path(), &[("cpu/cpu1/online", "0")]);
    fs::remove_dir_all(folder.path().join(SYSTEM).join("cpu/cpu3/topology")).unwrap();
    let topology = read(&folder);
    assert_eq!(topology.online.to_string(), "0,2");
    assert_eq!(topology.offline.to_string(), "1,3");
    assert!(codes(&topology).contains(&"online-missing"));
}

#[test]
fn online_cpu_without_folder_shares_nothing() {
    let folder = two_cores();
    add(folder.path(), &[("cpu/online", "0-4"), ("cpu/present", "0-4")]);
    let topology = read(&folder);
    assert_eq!(topology.smt.set_of(CpuId(4)).to_string(), "4");
    for code in ["cpu-folder-missing", "smt-missing", "package-missing", "no-llc", "node-missing"] {
        assert!(codes(&topology).contains(&code), "{code}");
    }
}

#[test]
fn no_caches_make_the_core_the_last_level() {
    let folder = two_cores();
    for cpu in 0..4 {
        fs::remove_dir_all(folder.path().join(SYSTEM).join(format!("cpu/cpu{cpu}/cache"))).unwrap();
    }
    let topology = read(&folder);
    assert_eq!(topology.llc, topology.smt);
    assert!(codes(&topology).contains(&"no-llc"));
}

#[test]
fn low_power_cores_without_l3_have_their_own_last_level_and_make_a_hybrid() {
    let folder = two_cores();
    for cpu in [0, 1] {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/cache/index1/shared_cpu_list"), "0-1")]);
    }
    for cpu in [2, 3] {
        fs::remove_dir_all(folder.path().join(SYSTEM).join(format!("cpu/cpu{cpu}/cache/index1"))).unwrap();
    }
    let topology = read(&folder);
    assert_eq!(topology.llc.set_of(CpuId(2)).to_string(), "2-3");
    assert!(topology.hybrid);
}

#[test]
fn a_cpu_named_by_an_l3_that_it_does_not_list_has_no_l3() {
    let folder = two_cores();
    fs::remove_dir_all(folder.path().join(SYSTEM).join("cpu/cpu3/cache/index1")).unwrap();
    let topology = read(&folder);
    assert_eq!(topology.llc.set_of(CpuId(0)).to_string(), "0-2");
    assert_eq!(topology.llc.set_of(CpuId(3)).to_string(), "3");
    assert!(codes(&topology).contains(&"levels-cross"), "the core 2-3 crosses both");
}

#[test]
fn caches_without_level_files_are_told_by_their_index() {
    let folder = two_cores();
    for cpu in 0..4 {
        for index in 0..2 {
            for file in ["level", "type", "size"] {
                let path = format!("cpu/cpu{cpu}/cache/index{index}/{file}");
                fs::remove_file(folder.path().join(SYSTEM).join(path)).unwrap();
            }
        }
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/cache/index2/shared_cpu_list"), "0-3")]);
    }
    let topology = read(&folder);
    let kinds: Vec<_> = topology.caches.iter().map(|c| (c.level, c.kind, c.cpus.to_string())).collect();
    assert_eq!(
        kinds,
        [
            (1, CacheKind::Data, "0-1".to_owned()),
            (1, CacheKind::Instruction, "0-3".to_owned()),
            (1, CacheKind::Data, "2-3".to_owned()),
            (2, CacheKind::Unified, "0-3".to_owned()),
        ]
    );
    assert!(codes(&topology).contains(&"cache-level-missing"));
}

#[test]
fn absurd_cache_levels_and_node_counts_are_not_believed() {
    let folder = two_cores();
    add(folder.path(), &[("cpu/cpu0/cache/index1/level", "4000000000")]);
    let topology = read(&folder);
    assert!(codes(&topology).contains(&"cache-level-invalid"));
    assert!(topology.caches.iter().all(|cache| cache.level <= 3));
    for node in 1..=1024 {
        fs::create_dir_all(folder.path().join(SYSTEM).join(format!("node/node{node}"))).unwrap();
    }
    assert!(refusal(&folder).contains("1025 nodes"));
}

#[test]
fn package_and_core_ids_replace_missing_masks() {
    let folder = tree(&[("cpu/online", "0-3")]);
    for cpu in 0..4 {
        add(
            folder.path(),
            &[
                (&format!("cpu/cpu{cpu}/topology/physical_package_id"), ["36", "8442"][cpu % 2]),
                (&format!("cpu/cpu{cpu}/topology/core_id"), "0"),
            ],
        );
    }
    let topology = read(&folder);
    assert_eq!(topology.smt.set_of(CpuId(0)).to_string(), "0,2");
    assert_eq!(topology.package.set_of(CpuId(3)).to_string(), "1,3");
}

#[test]
fn nodes_that_overlap_or_lack_distances_are_repaired() {
    let folder = two_cores();
    add(
        folder.path(),
        &[
            ("node/node0/cpulist", "0-2"),
            ("node/node0/distance", "10 99999"),
            ("node/node7/cpumap", "c"),
            ("node/node7/distance", "30 11"),
            ("node/node9/cpulist", ""),
        ],
    );
    let topology = read(&folder);
    let nodes: Vec<_> = topology.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect();
    assert_eq!(nodes, [(0, "0-2".to_owned()), (7, "3".to_owned()), (9, String::new())]);
    for code in ["nodes-overlap", "distance-length", "distance-invalid", "distance-missing"] {
        assert!(codes(&topology).contains(&code), "{code} in {:?}", codes(&topology));
    }
    for (row, node) in topology.nodes.iter().enumerate() {
        assert_eq!((node.distance.len(), node.distance[row]), (3, 10));
    }
}

#[test]
fn ways_there_and_back_may_differ() {
    let folder = two_cores();
    add(
        folder.path(),
        &[
            ("node/node0/cpulist", "0-1"),
            ("node/node0/distance", "10 20"),
            ("node/node1/cpulist", "2-3"),
            ("node/node1/distance", "30 10"),
        ],
    );
    let topology = read(&folder);
    assert_eq!(topology.numa_distance(CpuId(0), CpuId(2)), 20);
    assert_eq!(topology.numa_distance(CpuId(2), CpuId(0)), 30);
    assert!(codes(&topology).contains(&"distance-asymmetric"));
    assert!(codes(&topology).iter().all(|code| *code != "distance-missing"));
}

#[test]
fn one_cpu_is_a_machine() {
    let topology = read(&tree(&[("cpu/online", "0"), ("cpu/cpu0/topology/core_cpus_list", "0")]));
    assert_eq!(topology.nr_cpus(), 1);
    for partition in [&topology.smt, &topology.cluster, &topology.llc, &topology.package, &topology.node] {
        assert_eq!(partition.sets().len(), 1);
    }
}

#[test]
fn findings_of_one_kind_are_bounded() {
    let folder = tree(&[("cpu/online", "0-63")]);
    for cpu in 0..64 {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/core_cpus_list"), "garbage")]);
    }
    let topology = read(&folder);
    let listed: Vec<_> = topology.findings.iter().filter(|finding| finding.code == "mask-unreadable").collect();
    assert_eq!(listed.len(), 17);
    assert!(listed[16].message.starts_with("48 more"), "{}", listed[16].message);
}

#[test]
fn empty_online_list_is_refused() {
    let folder = two_cores();
    add(folder.path(), &[("cpu/online", "\n")]);
    let message = refusal(&folder);
    assert!(message.contains("sys/devices/system/cpu/online") && message.contains("empty"), "{message}");
}

#[test]
fn garbage_and_oversized_online_lists_are_refused() {
    let folder = two_cores();
    add(folder.path(), &[("cpu/online", "0-x")]);
    assert!(refusal(&folder).contains("`0-x`"));
    add(folder.path(), &[("cpu/online", "0-1000000")]);
    assert!(refusal(&folder).contains("1000000"));
}

#[test]
fn all_cpus_switched_off_are_refused() {
    let folder = tree(&[("cpu/cpu0/online", "0"), ("cpu/cpu1/online", "0")]);
    assert!(refusal(&folder).contains("no CPU is online"));
}

#[test]
fn folder_without_a_tree_or_with_two_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(refusal(&folder).contains("holds no sys/devices/system/cpu"));
    for name in ["a", "b"] {
        let cpu = folder.path().join(name).join(SYSTEM).join("cpu/cpu0");
        fs::create_dir_all(cpu).unwrap();
    }
    let message = refusal(&folder);
    assert!(message.contains("2 /sys trees") && message.contains("a/sys"), "{message}");
}

#[test]
fn folder_may_be_sys_or_hold_it_deeper() {
    let folder = two_cores();
    let sys = folder.path().join("sys");
    assert_eq!(load_topology(Some(sys.to_str().unwrap())).unwrap().1.online.len(), 4);
    let outer = tempfile::tempdir().unwrap();
    fs::create_dir_all(outer.path().join("x/y")).unwrap();
    fs::rename(sys, outer.path().join("x/y/sys")).unwrap();
    assert_eq!(read(&outer).online.len(), 4);
}

/// A tar archive of entries: path and content, or path and link target after `->`.
fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        match content.strip_prefix("->") {
            Some(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                builder.append_link(&mut header, path, target).unwrap();
            }
            None => {
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_bytes()).unwrap();
            }
        }
    }
    builder.into_inner().unwrap()
}

const SMALL: &[(&str, &str)] = &[
    ("./box/sys/devices/system/cpu/online", "0-1\n"),
    ("./box/sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-1\n"),
    ("./box/sys/devices/system/cpu/cpu1/topology/core_cpus_list", "0-1\n"),
    ("./box/proc/cpuinfo", "processor: 0\nCPU implementer: 0x48\n"),
];

fn load_bytes(name: &str, bytes: &[u8]) -> Result<Topology, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    load_topology(Some(path.to_str().unwrap())).map(|(_, topology)| topology).map_err(|error| {
        let message = error.to_string();
        assert!(message.contains(name) && !message.contains('\n'), "{message}");
        message
    })
}

#[test]
fn eight_thousand_cpus_are_read() {
    let mut files = vec![("sys/devices/system/cpu/online".to_owned(), "0-8191".to_owned())];
    for cpu in 0..8192 {
        let mut add = |file: &str, width: usize| {
            let first = cpu / width * width;
            let path = format!("sys/devices/system/cpu/cpu{cpu}/{file}");
            files.push((path, format!("{first}-{}", first + width - 1)));
        };
        add("topology/core_cpus_list", 2);
        add("topology/cluster_cpus_list", 8);
        add("cache/index3/shared_cpu_list", 64);
        add("topology/package_cpus_list", 4096);
    }
    let entries: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    let topology = load_bytes("large.tar", &tar(&entries)).unwrap();
    let partitions = [&topology.smt, &topology.cluster, &topology.llc, &topology.package];
    assert_eq!(partitions.map(|partition| partition.sets().len()), [4096, 1024, 128, 2]);
}

#[test]
fn compression_is_told_by_content() {
    let plain = tar(SMALL);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(&plain).unwrap();
    let mut bz2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
    bz2.write_all(&plain).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(&plain).unwrap();
    for bytes in [plain, gz.finish().unwrap(), bz2.finish().unwrap(), xz.finish().unwrap()] {
        let topology = load_bytes("machine.bin", &bytes).unwrap();
        assert_eq!((topology.smt.sets()[0].to_string().as_str(), topology.arch), ("0-1", Arch::Arm64));
    }
}

#[test]
fn archive_cut_anywhere_is_refused() {
    let bytes = tar(SMALL);
    // Between entries, inside a header, inside a content, and before the end mark.
    for length in [512, 700, 1024, 1030, 1536, 4096] {
        let message = load_bytes("cut.tar", &bytes[..length]).unwrap_err();
        assert!(message.contains("truncated"), "{length}: {message}");
    }
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(&bytes).unwrap();
    let gz = gz.finish().unwrap();
    assert!(load_bytes("cut.tar.gz", &gz[..gz.len() / 2]).unwrap_err().contains("truncated"));
}

#[test]
fn links_in_an_archive_are_followed_and_loops_end() {
    let mut entries = SMALL.to_vec();
    entries.extend([
        ("./box/sys/devices/system/cpu/cpu2", "->../../other/cpu2"),
        ("./box/sys/devices/other/cpu2/topology/core_cpus_list", "2"),
        ("./box/sys/devices/system/cpu/cpu3", "->/sys/devices/other/cpu3"),
        ("./box/sys/devices/other/cpu3/topology/core_cpus_list", "3"),
        ("./box/sys/devices/system/cpu/cpu4", "->cpu5"),
        ("./box/sys/devices/system/cpu/cpu5", "->cpu4"),
        ("./box/sys/devices/system/node/node0/cpu0", "->../../cpu/cpu0"),
        ("./box/sys/devices/system/node/node0/cpu2", "->../../cpu/cpu2"),
    ]);
    entries[0].1 = "0-5\n";
    let topology = load_bytes("links.tar", &tar(&entries)).unwrap();
    let missing: Vec<_> = topology.findings.iter().filter(|f| f.code == "smt-missing").collect();
    assert!(missing[0].message.contains("2 CPUs"), "only the looping cpu4 and cpu5: {}", missing[0].message);
    assert_eq!(topology.nodes[0].cpus.to_string(), "0,2");
}

#[test]
fn other_files_and_oversized_entries_are_refused() {
    assert!(load_bytes("notes.txt", b"hello").unwrap_err().contains("format is not known"));
    assert!(load_bytes("empty.tar", b"").unwrap_err().contains("empty.tar"));
    assert!(load_bytes("zeros.tar", &[0; 10240]).unwrap_err().contains("holds no sys/devices/system/cpu"));
    let long = "0,".repeat(1 << 20);
    let message = load_bytes("long.tar", &tar(&[("sys/devices/system/cpu/online", &long)])).unwrap_err();
    assert!(message.contains("larger than any machine description"), "{message}");
}

#[test]
fn absent_source_is_named() {
    let error = load_topology(Some("no/such/place.tar.gz")).unwrap_err();
    assert_eq!(error.to_string(), "no/such/place.tar.gz: no such file or folder");
    assert!(!error.is_usage());
}

#[test]
fn an_online_list_of_cpus_without_any_folder_is_refused() {
    let folder = tree(&[("cpu/online", "8-9"), ("cpu/cpu0/topology/core_id", "0")]);
    let message = refusal(&folder);
    assert!(message.contains("sys/devices/system/cpu/online: none of the CPUs 8-9 has a cpuN folder"), "{message}");
}

#[test]
fn one_cpu_is_counted_as_one() {
    let folder = tree(&[
        ("cpu/online", "0"),
        ("cpu/cpu0/topology/core_id", "0"),
        ("cpu/cpu0/topology/physical_package_id", "0"),
    ]);
    let topology = read(&folder);
    let messages: Vec<&str> = topology.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert!(messages.iter().any(|message| message.starts_with("missing for 1 CPU;")), "{messages:?}");
}
