//! Repairs and refusals of `/sys` trees made for the purpose.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use huddle_machine::{Arch, CacheKind, ClusterSource, CpuId, Partition, Severity, Topology, load_topology};
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

/// The machine of a folder, which must be that of an archive of the folder as well.
fn read(folder: &TempDir) -> Topology {
    let topology = load(folder.path()).unwrap_or_else(|message| panic!("{message}"));
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    builder.append_dir_all("./machine", folder.path()).unwrap();
    let archived = load_bytes("folder.tar", &builder.into_inner().unwrap()).unwrap();
    assert_eq!(codes(&archived), codes(&topology));
    assert!(archived == topology, "the archive gives another machine than the folder");
    topology
}

fn load(path: &Path) -> Result<Topology, String> {
    load_topology(Some(path.to_str().unwrap())).map(|(_, topology)| topology).map_err(|error| error.to_string())
}

/// The sets as kernel lists.
fn lists(partition: &Partition) -> Vec<String> {
    partition.sets().iter().map(|set| set.to_string()).collect()
}

fn remove(folder: &TempDir, path: &str) {
    let path = folder.path().join(SYSTEM).join(path);
    match path.is_dir() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    }
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
        // The cores of the last cache have one level fewer.
        let (level, size) = if cpu < 8128 { ("3", "32768K") } else { ("2", "4096K") };
        for (file, content) in [("level", level), ("type", "Unified"), ("size", size)] {
            files.push((format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/{file}"), content.to_owned()));
        }
    }
    let entries: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    let topology = load_bytes("large.tar", &tar(&entries)).unwrap();
    let partitions = [&topology.smt, &topology.cluster, &topology.llc, &topology.package];
    assert_eq!(partitions.map(|partition| partition.sets().len()), [4096, 1024, 128, 2]);
    let caches = |level, size| topology.caches.iter().filter(|c| (c.level, c.size) == (level, Some(size))).count();
    assert_eq!((caches(3, 32 << 20), caches(2, 4 << 20), topology.caches.len()), (127, 1, 128));
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

#[test]
fn lists_with_blanks_line_ends_of_dos_and_commas_at_the_end_are_read() {
    let folder = two_cores();
    add(
        folder.path(),
        &[
            ("cpu/online", " 0-1, 2,3,\r\n"),
            ("cpu/present", "0 - 3,8-9,\0\0"),
            ("cpu/cpu0/topology/thread_siblings_list", "0,1,\r\n\0"),
            ("cpu/cpu1/topology/thread_siblings_list", "0-1"),
            ("node/node0/cpulist", "0-1,,2-3 \n"),
        ],
    );
    let topology = read(&folder);
    assert_eq!((topology.online.to_string(), topology.offline.to_string()), ("0-3".into(), "8-9".into()));
    assert_eq!(lists(&topology.smt), ["0-1", "2-3"]);
    assert_eq!(codes(&topology), ["cluster-from-smt"]);
}

#[test]
fn masks_of_any_width_with_or_without_commas_are_read() {
    let folder = tree(&[("cpu/online", "0-99")]);
    for cpu in 0..100 {
        let mask = ["000000000000ffffffffffff", "0000000f,ffff0000,00000000,"][cpu / 48 % 2];
        let mask = if cpu < 96 { mask.trim_end_matches(',') } else { "0xf,0x00000000,0x00000000,0x00000000" };
        let mask = if (48..96).contains(&cpu) { "ffffffff,ffff0000,00000000" } else { mask };
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/thread_siblings"), mask)]);
    }
    let topology = read(&folder);
    assert_eq!(lists(&topology.smt), ["0-47", "48-95", "96-99"]);
    assert!(!codes(&topology).contains(&"mask-unreadable"));
}

#[test]
fn a_list_that_its_mask_contradicts_gives_way_when_cpus_agree_by_the_masks() {
    let folder = two_cores();
    for cpu in 0..4 {
        let [list, mask] = [["0", "1", "2", "3"][cpu], ["3", "c"][cpu / 2]];
        add(
            folder.path(),
            &[
                (&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), list),
                (&format!("cpu/cpu{cpu}/topology/thread_siblings"), mask),
            ],
        );
    }
    let topology = read(&folder);
    assert_eq!(lists(&topology.smt), ["0-1", "2-3"]);
    let finding = topology.findings.iter().find(|finding| finding.code == "list-and-mask-disagree").unwrap();
    assert_eq!(finding.cpu, Some(CpuId(0)));
    assert!(finding.message.contains("says 0 but thread_siblings says 0-1, and 3 more like it"), "{}", finding.message);
    assert!(finding.message.ends_with("the masks are taken for all CPUs"), "{}", finding.message);
}

#[test]
fn a_mask_that_contradicts_its_list_gives_way_when_cpus_agree_by_the_lists_only() {
    let folder = two_cores();
    for cpu in 0..4 {
        let mask = ["3", "6", "c", "c"][cpu];
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/thread_siblings"), mask)]);
    }
    let topology = read(&folder);
    assert_eq!(lists(&topology.smt), ["0-1", "2-3"]);
    assert_eq!(codes(&topology), ["list-and-mask-disagree", "cluster-from-smt"]);
    assert!(topology.findings[0].message.ends_with("the lists are taken for all CPUs"));
}

#[test]
fn siblings_left_empty_by_the_kernel_are_found_by_ids() {
    let folder = two_cores();
    for cpu in 0..4 {
        for (file, content) in [
            ("thread_siblings_list", "\n"),
            ("thread_siblings", ""),
            ("core_siblings_list", "\0\0"),
            ("core_id", ["0", "1"][cpu / 2]),
            ("physical_package_id", "0"),
            ("cluster_cpus_list", "\n"),
        ] {
            add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/{file}"), content)]);
        }
    }
    let topology = read(&folder);
    assert_eq!(
        (lists(&topology.smt), lists(&topology.package)),
        (vec!["0-1".into(), "2-3".into()], vec!["0-3".into()])
    );
    assert_eq!(codes(&topology), ["smt-from-ids", "package-from-ids", "cluster-from-smt"]);
}

#[test]
fn core_ids_count_within_package_cluster_and_die_even_when_the_package_is_undefined() {
    let folder = tree(&[("cpu/online", "0-7")]);
    for cpu in 0..8 {
        for (file, content) in
            [("physical_package_id", "-1"), ("cluster_id", ["0", "1"][cpu / 4]), ("core_id", ["0", "1"][cpu / 2 % 2])]
        {
            add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/{file}"), content)]);
        }
    }
    let topology = read(&folder);
    assert_eq!(lists(&topology.smt), ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!(
        (lists(&topology.cluster), topology.cluster_source),
        (vec!["0-3".into(), "4-7".into()], ClusterSource::Stated)
    );
    assert_eq!(lists(&topology.package), ["0-7"]);
    for code in ["smt-from-ids", "package-missing", "cluster-from-ids"] {
        assert!(codes(&topology).contains(&code), "{code}");
    }
}

#[test]
fn cluster_ids_that_mean_unknown_make_no_cluster() {
    for id in ["65535", "4294967295", "-1"] {
        let folder = two_cores();
        for cpu in 0..4 {
            add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/cluster_id"), id)]);
        }
        assert_eq!(read(&folder).cluster_source, ClusterSource::Smt, "{id}");
    }
    let folder = two_cores();
    for cpu in 0..4 {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/cluster_id"), ["7", "65535"][cpu / 2])]);
    }
    let topology = read(&folder);
    assert_eq!(
        (lists(&topology.cluster), topology.cluster_source),
        (vec!["0-1".into(), "2-3".into()], ClusterSource::Stated)
    );
}

#[test]
fn a_cpu_without_cluster_file_is_with_its_core() {
    let folder = two_cores();
    for cpu in 0..2 {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/cluster_cpus_list"), "0-1")]);
    }
    let topology = read(&folder);
    assert_eq!(lists(&topology.cluster), ["0-1", "2-3"]);
    assert_eq!(codes(&topology), ["cluster-missing"]);
}

/// What util-linux's first script collected: everything of CPU 0, of the others that they exist.
#[test]
fn tree_with_files_of_the_first_cpu_only_puts_the_others_where_those_say() {
    let folder = two_cores();
    for cpu in 1..4 {
        remove(&folder, &format!("cpu/cpu{cpu}"));
        fs::create_dir_all(folder.path().join(SYSTEM).join(format!("cpu/cpu{cpu}"))).unwrap();
    }
    for file in ["online", "present"] {
        remove(&folder, &format!("cpu/{file}"));
    }
    let cpuinfo =
        (0..4).map(|cpu| format!("processor\t: {cpu}\r\nvendor_id\t: AuthenticAMD\r\n\r\n")).collect::<String>();
    fs::write(folder.path().join("proc/cpuinfo"), cpuinfo).unwrap();
    let topology = read(&folder);
    assert_eq!(topology.online.to_string(), "0-3");
    assert_eq!(lists(&topology.smt), ["0-1", "2", "3"]);
    assert_eq!((lists(&topology.package), lists(&topology.llc)), (vec!["0-3".into()], vec!["0-3".into()]));
    for code in ["online-missing", "smt-missing"] {
        assert!(codes(&topology).contains(&code), "{code}");
    }
}

#[test]
fn cpuinfo_stands_in_for_cpu_folders() {
    let folder = tree(&[("cpu/online", "0-3"), ("node/node0/cpulist", "0-3")]);
    assert!(refusal(&folder).contains("holds no sys/devices/system/cpu/cpuN folder"));
    let cpu = |cpu: u32| {
        format!("processor\t: {cpu}\nvendor_id\t: GenuineIntel\nphysical id\t: 0\ncore id\t\t: {}\n\n", cpu % 2)
    };
    fs::create_dir_all(folder.path().join("proc")).unwrap();
    fs::write(folder.path().join("proc/cpuinfo"), (0..4).map(cpu).collect::<String>()).unwrap();
    let topology = read(&folder);
    assert_eq!(topology.arch, Arch::X86_64);
    assert_eq!(
        (lists(&topology.smt), lists(&topology.package)),
        (vec!["0,2".into(), "1,3".into()], vec!["0-3".into()])
    );
    assert!(codes(&topology).contains(&"cpu-folder-missing"));
    remove(&folder, "cpu/online");
    assert_eq!(read(&folder).online.to_string(), "0-3");
}

#[test]
fn present_list_that_cannot_be_read_is_left_aside() {
    for list in ["zero", "0-4000000000"] {
        let folder = two_cores();
        add(folder.path(), &[("cpu/present", list), ("cpu/cpu5/online", "0")]);
        let topology = read(&folder);
        assert_eq!(topology.offline.to_string(), "5", "{list}");
        assert!(codes(&topology).contains(&"present-unreadable"), "{list}");
    }
}

#[test]
fn caches_with_holes_between_their_indexes_and_masks_alone_are_read() {
    let folder = two_cores();
    for cpu in 0..4 {
        let cpu = folder.path().join(SYSTEM).join(format!("cpu/cpu{cpu}/cache"));
        fs::rename(cpu.join("index1"), cpu.join("index12")).unwrap();
        fs::remove_file(cpu.join("index12/shared_cpu_list")).unwrap();
        fs::write(cpu.join("index12/shared_cpu_map"), "00000000,0000000f\n").unwrap();
        fs::create_dir(cpu.join("indexes")).unwrap();
    }
    let topology = read(&folder);
    assert_eq!(topology.caches.iter().map(|cache| cache.level).collect::<Vec<_>>(), [1, 1, 3]);
    assert_eq!(lists(&topology.llc), ["0-3"]);
}

#[test]
fn packages_that_share_an_id_stay_apart_with_a_finding() {
    let folder = two_cores();
    for cpu in 0..4 {
        let siblings = ["0-1", "2-3"][cpu / 2];
        add(
            folder.path(),
            &[
                (&format!("cpu/cpu{cpu}/topology/core_siblings_list"), siblings),
                (&format!("cpu/cpu{cpu}/topology/physical_package_id"), "0"),
            ],
        );
    }
    let topology = read(&folder);
    assert_eq!(lists(&topology.package), ["0-1", "2-3"]);
    let finding = topology.findings.iter().find(|finding| finding.code == "package-id-shared").unwrap();
    assert_eq!((finding.cpu, finding.message.starts_with("0 is the package of cpu0 too")), (Some(CpuId(2)), true));
}

/// Two books of two sockets, one drawer; sockets are counted within their book.
fn mainframe() -> TempDir {
    let folder = tree(&[("cpu/online", "0-7"), ("node/node0/cpulist", "0-7")]);
    for cpu in 0..8 {
        for (file, content) in [
            ("thread_siblings_list", ["0-1", "2-3", "4-5", "6-7"][cpu / 2]),
            ("book_siblings_list", ["0-3", "4-7"][cpu / 4]),
            ("book_id", ["0", "1"][cpu / 4]),
            ("drawer_siblings", "ff"),
            ("physical_package_id", ["0", "1"][cpu / 2 % 2]),
        ] {
            add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/{file}"), content)]);
        }
    }
    folder
}

#[test]
fn books_and_drawers_of_a_mainframe_are_levels() {
    let topology = read(&mainframe());
    assert_eq!(topology.book.as_ref().map(lists), Some(vec!["0-3".into(), "4-7".into()]));
    assert_eq!(topology.drawer.as_ref().map(lists), Some(vec!["0-7".into()]));
    assert_eq!(lists(&topology.package), ["0-1", "2-3", "4-5", "6-7"], "by id within book and drawer");
    let cut = topology.first_nodes(1).unwrap();
    assert_eq!((cut.book, cut.drawer), (topology.book, topology.drawer));
    assert_eq!(read(&two_cores()).book, None);
}

#[test]
fn a_cpu_without_book_has_one_of_its_own_and_a_book_must_hold_its_packages() {
    let folder = mainframe();
    for cpu in 0..8 {
        let siblings = ["0-3", "4-7"][cpu / 4];
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/core_siblings_list"), siblings)]);
    }
    add(folder.path(), &[("cpu/cpu3/topology/book_siblings_list", "3")]);
    let topology = read(&folder);
    assert_eq!(topology.book.as_ref().map(lists), Some(vec!["0-2".into(), "3".into(), "4-7".into()]));
    assert!(codes(&topology).contains(&"masks-disagree"));
    remove(&folder, "cpu/cpu3/topology/book_siblings_list");
    for cpu in 0..3 {
        add(folder.path(), &[(&format!("cpu/cpu{cpu}/topology/book_siblings_list"), "0-2")]);
    }
    let topology = read(&folder);
    assert_eq!(topology.book.as_ref().map(lists), Some(vec!["0-2".into(), "3".into(), "4-7".into()]));
    assert!(codes(&topology).contains(&"book-missing"));
}

#[test]
fn nodes_are_read_from_masks_and_links_where_lists_are_empty_or_wrong() {
    let folder = two_cores();
    add(
        folder.path(),
        &[
            ("node/node0/cpulist", "\n"),
            ("node/node0/cpumap", "00000003"),
            ("node/node1/cpulist", "3"),
            ("node/node1/cpumap", "c"),
            ("node/node2/cpulist", "\n"),
            ("node/node2/cpumap", "0"),
        ],
    );
    let topology = read(&folder);
    let nodes: Vec<_> = topology.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect();
    assert_eq!(nodes, [(0, "0-1".to_owned()), (1, "2-3".to_owned()), (2, String::new())]);
    let finding = topology.findings.iter().find(|finding| finding.code == "list-and-mask-disagree").unwrap();
    assert_eq!(finding.file, "devices/system/node/node1/cpulist");
}

#[test]
fn cpus_link_to_nodes_that_are_gone_and_ways_back_give_their_distances() {
    let folder = two_cores();
    remove(&folder, "node/node0");
    add(folder.path(), &[("node/node4/cpulist", "2-3"), ("node/node4/distance", "35 10")]);
    for cpu in 0..4 {
        let link = folder.path().join(SYSTEM).join(format!("cpu/cpu{cpu}/node{}", [1, 4][cpu / 2]));
        symlink(format!("../../node/node{}", [1, 4][cpu / 2]), link).unwrap();
    }
    let topology = read(&folder);
    let nodes: Vec<_> =
        topology.nodes.iter().map(|node| (node.id, node.cpus.to_string(), node.distance.clone())).collect();
    assert_eq!(nodes, [(1, "0-1".to_owned(), vec![10, 35]), (4, "2-3".to_owned(), vec![35, 10])]);
    for code in ["node-from-link", "distance-missing"] {
        assert!(codes(&topology).contains(&code), "{code}");
    }
    remove(&folder, "node");
    assert_eq!(read(&folder).nodes.len(), 2, "by the links alone");
}

#[test]
fn architectures_are_told_by_cpuinfo_modalias_or_ids() {
    for (cpuinfo, arch) in [
        ("processor\t: 0\nBogoMIPS\t: 50\nCPU implementer\t: 0x41\n", Arch::Arm64),
        ("processor\t: 0\nhart\t\t: 2\nisa\t\t: rv64imafdc\n", Arch::Riscv),
        ("vendor_id       : IBM/S390\nprocessor 0: version = FF\n", Arch::Other),
        ("processor\t: 0\ncpu\t\t: POWER9 (raw), altivec supported\n", Arch::Other),
        ("system type\t: generic-loongson-machine\nprocessor\t: 0\nCPU Family\t: Loongson-64bit\n", Arch::Other),
    ] {
        let folder = two_cores();
        fs::write(folder.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        let topology = read(&folder);
        assert_eq!(topology.arch, arch, "{cpuinfo}");
        assert!(!codes(&topology).contains(&"arch-guessed"), "{cpuinfo}");
    }
    for (file, content, arch, guessed) in [
        ("cpu/modalias", "cpu:type:aarch64:feature:,0000\n", Arch::Arm64, false),
        ("cpu/modalias", "x86cpu:vendor:0000:family:0006:model:002A:feature:,0000\n", Arch::X86_64, false),
        ("cpu/modalias", "cpu:type:z13:feature:,0000\n", Arch::Other, false),
        ("cpu/cpu0/topology/die_id", "0", Arch::X86_64, true),
        ("cpu/cpu0/topology/die_id", "-1", Arch::Arm64, true),
        ("cpu/cpu0/topology/core_id", "0", Arch::Other, true),
    ] {
        let folder = two_cores();
        fs::remove_file(folder.path().join("proc/cpuinfo")).unwrap();
        add(folder.path(), &[(file, content)]);
        let topology = read(&folder);
        assert_eq!((topology.arch, codes(&topology).contains(&"arch-guessed")), (arch, guessed), "{content}");
    }
}

#[test]
fn any_folder_on_the_way_to_the_cpus_stands_for_the_tree() {
    let folder = two_cores();
    let whole = read(&folder);
    for below in ["sys", "sys/devices", "sys/devices/system", "sys/devices/system/cpu"] {
        assert!(load(&folder.path().join(below)).unwrap() == whole, "{below}");
    }
    let link = folder.path().join("cpus");
    symlink("sys/devices/system/cpu", &link).unwrap();
    assert!(load(&link).unwrap() == whole);
}

/// cAdvisor's tests keep `devices/system/cpu` under names of their own.
#[test]
fn cpu_folders_alone_are_a_tree_in_a_folder_and_in_an_archive() {
    let folder = two_cores();
    let outer = tempfile::tempdir().unwrap();
    let from = folder.path().join(SYSTEM);
    fs::rename(from.join("cpu"), outer.path().join("testdata_x")).unwrap();
    let bare = read(&outer);
    assert_eq!((lists(&bare.smt), lists(&bare.llc)), (vec!["0-1".into(), "2-3".into()], vec!["0-3".into()]));
    assert!(load(&outer.path().join("testdata_x")).unwrap() == bare);
    fs::rename(from.join("node"), outer.path().join("node")).unwrap();
    assert_eq!(read(&outer).nodes[0].cpus.to_string(), "0-3", "nodes beside them");
    for copy in ["a", "b"] {
        fs::create_dir_all(outer.path().join(copy).join("cpu0/topology")).unwrap();
    }
    let message = refusal(&outer);
    assert!(message.contains("3 /sys trees") && message.contains("give one of them"), "{message}");
}

#[test]
fn cpuinfo_of_another_machine_is_not_read() {
    let folder = two_cores();
    let other = folder.path().join("snapshot");
    fs::rename(folder.path().join("sys"), &other).unwrap();
    let topology = load(&other).unwrap();
    assert_eq!(topology.arch, Arch::Other, "proc/cpuinfo beside it says x86");
    fs::rename(folder.path().join("proc"), other.join("proc")).unwrap();
    assert_eq!(load(&other).unwrap().arch, Arch::X86_64);
}

#[test]
fn pipes_folders_and_links_to_nowhere_in_place_of_files_are_missing_files() {
    let folder = two_cores();
    let topology = folder.path().join(SYSTEM).join("cpu/cpu0/topology");
    for file in ["core_cpus_list", "core_cpus", "cluster_cpus", "package_cpus_list"] {
        let _ = fs::remove_file(topology.join(file));
    }
    fs::create_dir(topology.join("core_cpus_list")).unwrap();
    symlink("core_cpus", topology.join("core_cpus")).unwrap();
    symlink("/nowhere", topology.join("cluster_cpus")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(topology.join("package_cpus_list")).status();
    if !pipe.is_ok_and(|status| status.success()) {
        println!("no mkfifo: tested without a pipe");
    }
    let loaded = load(folder.path()).unwrap();
    assert_eq!((lists(&loaded.smt), lists(&loaded.package)), (vec!["0-1".into(), "2-3".into()], vec!["0-3".into()]));
    assert_eq!(codes(&loaded), ["cluster-from-smt"]);
}

fn header(size: usize, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header
}

/// Appends an entry with the name as given, which the crate would otherwise refuse or clean.
fn append_raw(builder: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, content: &[u8]) {
    let mut header = header(content.len(), kind);
    let field = &mut header.as_mut_bytes()[..100];
    field.fill(0);
    field[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

#[test]
fn absolute_names_folders_alone_and_later_copies_in_an_archive() {
    let mut builder = tar::Builder::new(Vec::new());
    let cpu = "/sys/devices/system/cpu";
    append_raw(&mut builder, &format!("{cpu}/online"), tar::EntryType::Regular, b"0-7");
    append_raw(&mut builder, &format!("{cpu}/online"), tar::EntryType::Regular, b"0-1");
    append_raw(&mut builder, "/../sys/devices/system/cpu/cpu9/topology/core_id", tar::EntryType::Regular, b"0");
    for id in 0..3 {
        append_raw(&mut builder, &format!("{cpu}/cpu{id}/"), tar::EntryType::Directory, b"");
    }
    let topology = load_bytes("absolute.tar", &builder.into_inner().unwrap()).unwrap();
    assert_eq!((topology.online.to_string(), topology.offline.to_string()), ("0-1".into(), "2".into()));

    let mut builder = tar::Builder::new(Vec::new());
    append_raw(&mut builder, "sys/devices/system/cpu/", tar::EntryType::Directory, b"");
    let message = load_bytes("empty.tar", &builder.into_inner().unwrap()).unwrap_err();
    assert!(message.contains("holds no sys/devices/system/cpu/cpuN folder"), "{message}");
}

#[test]
fn hard_links_long_names_and_pax_names_in_an_archive_are_read() {
    let long = format!("./{}/sys/devices/system/cpu", "machine/".repeat(30));
    let mut builder = tar::Builder::new(Vec::new());
    for (file, content) in [("online", "0-2"), ("cpu0/topology/core_cpus_list", "0-1"), ("cpu2/topology/core_id", "0")]
    {
        builder
            .append_data(
                &mut header(content.len(), tar::EntryType::Regular),
                format!("{long}/{file}"),
                content.as_bytes(),
            )
            .unwrap();
    }
    let target = format!("{long}/cpu0/topology/core_cpus_list");
    let mut link = header(0, tar::EntryType::Link);
    builder.append_link(&mut link, format!("{long}/cpu1/topology/core_cpus_list"), target).unwrap();
    let pax = format!("{}/cpu2/topology/core_cpus_list", long.trim_start_matches("./"));
    builder.append_pax_extensions([("path", pax.as_bytes())]).unwrap();
    append_raw(&mut builder, "short", tar::EntryType::Regular, b"2");
    let topology = load_bytes("long.tar", &builder.into_inner().unwrap()).unwrap();
    assert_eq!(lists(&topology.smt), ["0-1", "2"]);
    assert!(!codes(&topology).contains(&"smt-missing"));
}

#[test]
fn files_with_holes_in_an_archive_are_filled_with_zeros() {
    let mut builder = tar::Builder::new(Vec::new());
    // GNU's own form: one stored part at the start of a file of 4096.
    let mut sparse = header(512, tar::EntryType::GNUSparse);
    sparse.set_path("sys/devices/system/cpu/online").unwrap();
    let gnu = sparse.as_gnu_mut().unwrap();
    gnu.sparse[0].offset.copy_from_slice(b"00000000000\0");
    gnu.sparse[0].numbytes.copy_from_slice(b"00000001000\0");
    gnu.sparse[1].offset.copy_from_slice(b"00000010000\0");
    gnu.sparse[1].numbytes.copy_from_slice(b"00000000000\0");
    gnu.realsize.copy_from_slice(b"00000010000\0");
    sparse.set_cksum();
    let mut block = [0; 512];
    block[..4].copy_from_slice(b"0-1\n");
    builder.append(&sparse, &block[..]).unwrap();
    // The pax form: the map of parts, padded to a block, then the parts.
    let mut stored = vec![0; 512];
    stored[..6].copy_from_slice(b"1\n0\n4\n");
    stored.extend_from_slice(b"0-1\n");
    for cpu in 0..2 {
        let name = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
        let sparse: [(&str, &[u8]); 4] = [
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", name.as_bytes()),
            ("GNU.sparse.realsize", b"4096"),
        ];
        builder.append_pax_extensions(sparse).unwrap();
        append_raw(&mut builder, "./GNUSparseFile.0/core_cpus_list", tar::EntryType::Regular, &stored);
    }
    let topology = load_bytes("holes.tar", &builder.into_inner().unwrap()).unwrap();
    assert_eq!((topology.online.to_string(), lists(&topology.smt)), ("0-1".into(), vec!["0-1".into()]));

    for (map, size) in [
        ("1\n0\n9\n", "4096"),
        ("1\n4090\n4\n", "4092"),
        ("9999999\n", "4096"),
        ("", "4096"),
        ("1\n0\n4\n", "9999999999"),
    ] {
        let mut builder = tar::Builder::new(Vec::new());
        let sparse: [(&str, &[u8]); 3] = [
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.name", b"sys/devices/system/cpu/online"),
            ("GNU.sparse.realsize", size.as_bytes()),
        ];
        builder.append_pax_extensions(sparse).unwrap();
        let mut stored = map.as_bytes().to_vec();
        stored.resize(516, b'x');
        append_raw(&mut builder, "x", tar::EntryType::Regular, &stored);
        let message = load_bytes("holes.tar", &builder.into_inner().unwrap()).unwrap_err();
        assert!(message.contains("ends early") || message.contains("larger than"), "{map}: {message}");
    }
}

#[test]
fn other_archives_are_called_by_their_name() {
    for (magic, name) in [
        (&b"PK\x03\x04\x14\0"[..], "a zip archive"),
        (b"\x28\xb5\x2f\xfd\x04", "a zstd archive"),
        (b"7z\xbc\xaf\x27\x1c\0", "a 7z archive"),
        (b"070701", "a cpio archive"),
    ] {
        let message = load_bytes("machine.tar.xyz", magic).unwrap_err();
        assert!(message.contains(&format!("{name} is not read; unpack it and give the folder")), "{message}");
    }
}

#[test]
fn archive_of_several_trees_is_refused_with_their_names() {
    let files = ["a", "b", "c", "d", "e"].map(|name| format!("{name}/sys/devices/system/cpu/cpu0/topology/core_id"));
    let entries: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "0")).collect();
    let message = load_bytes("several.tar", &tar(&entries)).unwrap_err();
    assert!(
        message.contains("5 /sys trees (a/sys, b/sys, c/sys, d/sys, …); unpack it and give one of them"),
        "{message}"
    );
}

#[test]
fn paths_too_deep_for_any_system_are_left_out_of_an_archive() {
    let mut builder = tar::Builder::new(Vec::new());
    let deep = format!("{}sys/devices/system/cpu/online", "a/".repeat(20_000));
    builder.append_data(&mut header(1, tar::EntryType::Regular), deep, &b"0"[..]).unwrap();
    let message = load_bytes("deep.tar", &builder.into_inner().unwrap()).unwrap_err();
    assert!(message.contains("holds no sys/devices/system/cpu"), "{message}");
}

/// Two CPUs in two nodes at that distance, with processors of that maker and family.
fn two_nodes_apart(distance: u32, vendor: &str, family: u32) -> TempDir {
    let [near, far] = [format!("10 {distance}\n"), format!("{distance} 10\n")];
    let folder = tree(&[
        ("cpu/online", "0-1\n"),
        ("cpu/cpu0/topology/physical_package_id", "0\n"),
        ("cpu/cpu1/topology/physical_package_id", "1\n"),
        ("node/node0/cpulist", "0\n"),
        ("node/node0/distance", &near),
        ("node/node1/cpulist", "1\n"),
        ("node/node1/distance", &far),
    ]);
    fs::create_dir_all(folder.path().join("proc")).unwrap();
    let info = format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\n");
    fs::write(folder.path().join("proc/cpuinfo"), info).unwrap();
    folder
}

#[test]
fn only_zen_reaches_nodes_at_a_distance_of_32() {
    for (distance, vendor, family, reach) in [
        (32, "AuthenticAMD", 23, 32),
        (32, "HygonGenuine", 24, 32),
        (32, "AuthenticAMD", 21, 30),
        (32, "GenuineIntel", 6, 30),
        // Nothing is between 30 and 32: it makes no difference, and nobody asks who made them.
        (20, "AuthenticAMD", 23, 30),
    ] {
        let topology = read(&two_nodes_apart(distance, vendor, family));
        assert_eq!(topology.node_reclaim_distance, reach, "{vendor} {family} at {distance}");
    }
}
