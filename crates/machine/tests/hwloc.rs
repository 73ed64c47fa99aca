//! Exports of hwloc: small ones written by hand for the purpose, in the shapes that hwloc 1 to 3 write, and one of a real
//! machine whose expected sets were read from the file by other means.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::path::PathBuf;

use huddle_machine::{Arch, CacheKind, ClusterSource, CpuId, Partition, Severity, Topology, load_topology};

/// An export of version 2 around the root object's children and what follows the root object.
fn version_2(cpuset: &str, children: &str, rest: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="{cpuset}" complete_cpuset="{cpuset}" allowed_cpuset="{cpuset}" gp_index="1">
    <info name="Backend" value="Linux"/>
    <info name="Architecture" value="x86_64"/>
    {children}
  </object>
  {rest}
  <support name="discovery.pu"/>
</topology>
"#
    )
}

/// An export of version 1.
fn version_1(attributes: &str, children: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
  <object type="Machine" os_level="-1" os_index="0" {attributes}>
    <info name="Architecture" value="x86_64"/>
    {children}
  </object>
</topology>
"#
    )
}

fn pu(cpu: usize) -> String {
    format!(r#"<object type="PU" os_index="{cpu}" cpuset="{0}" complete_cpuset="{0}"/>"#, mask(&[cpu]))
}

/// CPUs below 32 as hwloc writes them.
fn mask(cpus: &[usize]) -> String {
    format!("{:#010x}", cpus.iter().fold(0u32, |mask, cpu| mask | 1 << cpu))
}

/// An object with PUs only.
fn of_pus(kind: &str, attributes: &str, cpus: &[usize]) -> String {
    let pus: String = cpus.iter().map(|&cpu| pu(cpu)).collect();
    object(kind, attributes, cpus, &pus)
}

fn object(kind: &str, attributes: &str, cpus: &[usize], children: &str) -> String {
    format!(
        "<object type=\"{kind}\" {attributes} cpuset=\"{0}\" complete_cpuset=\"{0}\">\n{children}</object>\n",
        mask(cpus)
    )
}

fn read(text: &str) -> Topology {
    Topology::parse_hwloc("x.xml", text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// One line that begins with the file's name and holds the parts.
fn assert_refused(data: &[u8], parts: &[&str]) {
    let Err(error) = Topology::parse_hwloc("x.xml", data) else {
        panic!("read, and should not be ({parts:?}):\n{}", String::from_utf8_lossy(data));
    };
    let message = error.to_string();
    assert!(!message.contains(char::is_control) && message.len() < 300 && !error.is_usage(), "{message}");
    assert!(message.starts_with("x.xml: "), "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn sets(partition: &Partition) -> Vec<String> {
    partition.sets().iter().map(ToString::to_string).collect()
}

fn codes(topology: &Topology) -> Vec<&'static str> {
    topology.findings.iter().map(|finding| finding.code).collect()
}

fn rows(topology: &Topology) -> Vec<&[u32]> {
    topology.nodes.iter().map(|node| node.distance.as_slice()).collect()
}

/// Two packages of two cores of two threads, a node each, numbered as Intel servers are; version 2.
fn two_packages() -> String {
    let package = |at: usize| {
        let cpus = [at, at + 2, at + 4, at + 6];
        let node = object("NUMANode", &format!("os_index=\"{at}\""), &cpus, "");
        let cores: String = [[at, at + 4], [at + 2, at + 6]]
            .iter()
            .map(|core| {
                let inner = of_pus("Core", "os_index=\"0\"", core);
                let l1i = object("L1iCache", "cache_size=\"32768\" depth=\"1\" cache_type=\"2\"", core, &inner);
                let l1 = object("L1Cache", "cache_size=\"49152\" depth=\"1\" cache_type=\"1\"", core, &l1i);
                object("L2Cache", "cache_size=\"1048576\" depth=\"2\" cache_type=\"0\"", core, &l1)
            })
            .collect();
        let l3 = object("L3Cache", "cache_size=\"16777216\" depth=\"3\" cache_type=\"0\"", &cpus, &cores);
        object("Package", &format!("os_index=\"{at}\""), &cpus, &format!("{node}{l3}"))
    };
    version_2(
        "0x000000ff",
        &format!("{}{}", package(0), package(1)),
        r#"<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes>
    <u64values length="6">10 21 </u64values>
    <u64values length="6">21 10 </u64values>
  </distances2>"#,
    )
}

#[test]
fn two_packages_of_two_threads_per_core_version_2() {
    let topology = read(&two_packages());
    assert_eq!(topology.arch, Arch::X86_64);
    assert_eq!((topology.online.to_string(), topology.offline.to_string()), ("0-7".into(), "".into()));
    assert_eq!(sets(&topology.smt), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!((topology.cluster_source, sets(&topology.cluster)), (ClusterSource::L2, sets(&topology.smt)));
    for level in [&topology.llc, &topology.package, &topology.node] {
        assert_eq!(sets(level), ["0,2,4,6", "1,3,5,7"]);
    }
    assert_eq!(rows(&topology), [[10, 21], [21, 10]]);
    let caches: Vec<_> =
        topology.caches.iter().map(|c| (c.level, c.kind, c.size.unwrap() >> 10, c.cpus.to_string())).collect();
    assert_eq!(caches.len(), 14);
    assert_eq!(caches[0], (1, CacheKind::Data, 48, "0,4".to_owned()));
    assert_eq!(caches[1], (1, CacheKind::Instruction, 32, "0,4".to_owned()));
    assert_eq!(caches[13], (3, CacheKind::Unified, 16384, "1,3,5,7".to_owned()));
    assert!(!topology.hybrid && topology.capacity == [1024; 8] && topology.idle_states.is_empty());
    assert_eq!(codes(&topology), ["cluster-from-l2"]);
    assert_eq!((topology.book, topology.drawer), (None, None));
}

/// The same machine as hwloc 1 writes it: nodes around packages, `Socket`, `Cache`, relative distances.
#[test]
fn two_packages_of_two_threads_per_core_version_1() {
    let node = |at: usize| {
        let cpus = [at, at + 2, at + 4, at + 6];
        let cores: String = [[at, at + 4], [at + 2, at + 6]]
            .iter()
            .map(|core| {
                let l1 = object(
                    "Cache",
                    "cache_size=\"49152\" depth=\"1\" cache_type=\"1\"",
                    core,
                    &of_pus("Core", "", core),
                );
                object("Cache", "cache_size=\"1048576\" depth=\"2\" cache_type=\"0\"", core, &l1)
            })
            .collect();
        let l3 = object("Cache", "cache_size=\"16777216\" depth=\"3\"", &cpus, &cores);
        object("NUMANode", &format!("os_index=\"{at}\""), &cpus, &object("Socket", "os_index=\"0\"", &cpus, &l3))
    };
    let latencies =
        |values: &[&str]| -> String { values.iter().map(|value| format!("<latency value=\"{value}\"/>")).collect() };
    // The first matrix is of the packages, which are as many.
    let distances = format!(
        "<distances nbobjs=\"2\" relative_depth=\"2\" latency_base=\"1.000000\">{}</distances>\n\
         <distances nbobjs=\"2\" relative_depth=\"1\" latency_base=\"10.000000\">{}</distances>\n",
        latencies(&["1.000000", "4.000000", "4.000000", "1.000000"]),
        latencies(&["1.000000", "2.100000", "2.100000", "1.000000"]),
    );
    let old = read(&version_1(
        "cpuset=\"0xff\" complete_cpuset=\"0xff\" online_cpuset=\"0xff\" allowed_cpuset=\"0xff\"",
        &format!("{distances}{}{}", node(0), node(1)),
    ));
    let new = read(&two_packages());
    assert_eq!(rows(&old), [[10, 21], [21, 10]]);
    for (old, new) in [
        (&old.smt, &new.smt),
        (&old.cluster, &new.cluster),
        (&old.llc, &new.llc),
        (&old.package, &new.package),
        (&old.node, &new.node),
    ] {
        assert_eq!(old, new);
    }
    assert_eq!((old.arch, old.findings), (new.arch, new.findings));
    assert_eq!(old.caches.len(), 10);
}

#[test]
fn one_cpu_is_a_machine() {
    for text in [
        version_2("0x00000001", &of_pus("Core", "os_index=\"0\"", &[0]), ""),
        version_1("cpuset=\"0x00000001\"", &of_pus("Core", "os_index=\"0\"", &[0])),
        version_1("", "<object type=\"PU\" os_index=\"0\"/>"),
    ] {
        let topology = read(&text);
        assert_eq!((topology.online.to_string(), sets(&topology.smt)), ("0".into(), vec!["0".to_owned()]));
        assert_eq!(topology.cluster_source, ClusterSource::Smt);
        for code in ["cluster-from-smt", "no-llc", "no-nodes", "package-missing"] {
            assert!(codes(&topology).contains(&code), "{code}");
        }
    }
}

/// Two P cores of two threads and a module of four E cores under one L3, as hwloc 2.4 and later describe it.
#[test]
fn hybrid_laptop_with_an_e_core_module() {
    let e_cores: String = (4..8).map(|cpu| of_pus("Core", "", &[cpu])).collect();
    let l2 = "cache_size=\"2097152\" depth=\"2\" cache_type=\"0\"";
    let inner = [
        object("L2Cache", l2, &[0, 1], &of_pus("Core", "", &[0, 1])),
        object("L2Cache", l2, &[2, 3], &of_pus("Core", "", &[2, 3])),
        object("L2Cache", l2, &[4, 5, 6, 7], &e_cores),
    ];
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    let l3 = object("L3Cache", "cache_size=\"12582912\" depth=\"3\" cache_type=\"0\"", &all, &inner.concat());
    let node = object("NUMANode", "os_index=\"0\"", &all, "");
    let text = version_2(
        "0x000000ff",
        &object("Package", "os_index=\"0\"", &all, &format!("{node}{l3}")),
        r#"<cpukind cpuset="0x000000f0"><info name="FrequencyMaxMHz" value="3500"/><info name="CoreType" value="IntelAtom"/></cpukind>
  <cpukind cpuset="0x0000000f"><info name="FrequencyMaxMHz" value="4800"/><info name="CoreType" value="IntelCore"/></cpukind>"#,
    );
    let topology = read(&text);
    assert!(topology.hybrid);
    assert_eq!(sets(&topology.smt), ["0-1", "2-3", "4", "5", "6", "7"]);
    assert_eq!(
        (topology.cluster_source, sets(&topology.cluster)),
        (ClusterSource::L2, vec!["0-1".into(), "2-3".into(), "4-7".to_owned()])
    );
    assert_eq!(topology.llc.sets().len(), 1);
    // Without kinds the numbers of threads tell.
    let without: String =
        text.lines().filter(|line| !line.contains("cpukind")).map(|line| format!("{line}\n")).collect();
    assert!(read(&without).hybrid);
    // Favoured cores of one type are no kinds of cores; nor is anything but x86 a hybrid.
    let favoured = version_2(
        "0x00000003",
        &format!("{}{}", of_pus("Core", "", &[0]), of_pus("Core", "", &[1])),
        r#"<cpukind cpuset="0x1"><info name="FrequencyMaxMHz" value="5000"/></cpukind>
           <cpukind cpuset="0x2"><info name="FrequencyMaxMHz" value="5200"/></cpukind>"#,
    );
    assert!(!read(&favoured).hybrid);
    // Ranks that the system gives, as on Windows, tell kinds of cores apart.
    let ranked = favoured.replace("cpuset=\"0x1\"", "cpuset=\"0x1\" forced_efficiency=\"0\"");
    assert!(read(&ranked.replace("cpuset=\"0x2\"", "cpuset=\"0x2\" forced_efficiency=\"1\"")).hybrid);
    assert!(!read(&text.replace("x86_64", "aarch64")).hybrid);
}

#[test]
fn arm_server_with_stated_clusters_and_capacities() {
    let cluster = |first: usize, attributes: &str| {
        let cpus: Vec<usize> = (first..first + 4).collect();
        let cores: String = cpus
            .iter()
            .map(|&cpu| {
                object(
                    "L2Cache",
                    "cache_size=\"524288\" depth=\"2\" cache_type=\"0\"",
                    &[cpu],
                    &of_pus("Core", "", &[cpu]),
                )
            })
            .collect();
        object("Group", attributes, &cpus, &cores)
    };
    let all: Vec<usize> = (0..16).collect();
    let groups = [
        cluster(0, "kind=\"222\" subkind=\"0\""),
        cluster(4, "subtype=\"Cluster\" kind=\"0\" subkind=\"0\""),
        cluster(8, "kind=\"222\" subkind=\"0\""),
        cluster(12, "kind=\"1001\" subkind=\"0\""),
    ];
    let l3 = object("L3Cache", "cache_size=\"33554432\" depth=\"3\" cache_type=\"0\"", &all, &groups.concat());
    let text = version_2(
        "0x0000ffff",
        &object("Package", "os_index=\"36\"", &all, &l3),
        r#"<cpukind cpuset="0x0000000f"><info name="LinuxCapacity" value="512"/></cpukind>
           <cpukind cpuset="0x0000fff0"><info name="LinuxCapacity" value="1024"/></cpukind>"#,
    )
    .replace("x86_64", "aarch64");
    let topology = read(&text);
    assert_eq!((topology.arch, topology.cluster_source), (Arch::Arm64, ClusterSource::Stated));
    // The last group is none of firmware's; its CPUs keep their own level-2 caches.
    assert_eq!(sets(&topology.cluster), ["0-3", "4-7", "8-11", "12", "13", "14", "15"]);
    let finding = topology.findings.iter().find(|finding| finding.code == "cluster-missing").unwrap();
    assert_eq!((finding.cpu, finding.severity), (Some(CpuId(12)), Severity::Warning));
    assert_eq!((topology.capacity[3], topology.capacity[4], topology.hybrid), (512, 1024, false));

    let whole = read(&text.replace("kind=\"1001\"", "kind=\"222\""));
    assert_eq!(sets(&whole.cluster), ["0-3", "4-7", "8-11", "12-15"]);
    assert_eq!(codes(&whole), ["no-nodes"]);
    // Version 1 has the name of a group as an info.
    let group =
        object("Group", "depth=\"0\"", &[0, 1], &format!("<info name=\"Type\" value=\"Cluster\"/>{}{}", pu(0), pu(1)));
    let old = read(&version_1("cpuset=\"0x7\"", &format!("{group}{}", pu(2))));
    assert_eq!(
        (old.cluster_source, sets(&old.cluster)),
        (ClusterSource::Stated, vec!["0-1".to_owned(), "2".to_owned()])
    );
}

#[test]
fn s390_books_and_drawers_are_groups_of_their_kind() {
    let book = |first: usize| {
        object("Group", "kind=\"110\" subkind=\"0\"", &[first, first + 1], &format!("{}{}", pu(first), pu(first + 1)))
    };
    let drawer = object("Group", "kind=\"110\" subkind=\"1\"", &[0, 1, 2, 3], &format!("{}{}", book(0), book(2)));
    let topology = read(&version_2("0x0000000f", &drawer, "").replace("x86_64", "s390x"));
    assert_eq!(topology.arch, Arch::Other);
    assert_eq!(sets(&topology.book.unwrap()), ["0-1", "2-3"]);
    assert_eq!(sets(&topology.drawer.unwrap()), ["0-3"]);
}

/// Node 2 has memory only: in version 1 it is an empty object, in version 2 it has the CPUs that it is near.
#[test]
fn node_with_memory_only_has_no_cpus() {
    let distances = r#"<distances2 type="NUMANode" nbobjs="2" kind="9" indexing="os"><indexes length="4">0 2 </indexes>
      <u64values length="16">100 1 1 100 </u64values></distances2>
      <distances2 type="NUMANode" nbobjs="3" kind="6" indexing="os"><indexes length="6">0 1 2</indexes>
      <u64values length="9">1 2 3 1 2 3 1 2 3 </u64values></distances2>
      <distances2 type="NUMANode" nbobjs="3" kind="5" indexing="os"><indexes length="6">2 0 1 </indexes>
      <u64values length="27">10 17 28 17 10 21 28 21 10 </u64values></distances2>"#;
    let node = |id: usize, cpus: &[usize]| object("NUMANode", &format!("os_index=\"{id}\""), cpus, "");
    let package = |at: usize, nodes: &str| {
        let cpus = [at, at + 1];
        object("Package", "", &cpus, &format!("{nodes}{}", of_pus("Core", "", &cpus)))
    };
    let memory = object("MemCache", "cache_size=\"103079215104\" depth=\"1\"", &[0, 1], &node(2, &[0, 1]));
    let packages = [package(0, &format!("{}{memory}", node(0, &[0, 1]))), package(2, &node(1, &[2, 3]))];
    let new = read(&version_2("0x0000000f", &packages.concat(), distances));
    let ids: Vec<_> = new.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect();
    assert_eq!(ids, [(0, "0-1".to_owned()), (1, "2-3".to_owned()), (2, "".to_owned())]);
    // Rows and columns in the order of node numbers; the matrix is the system's, of latencies.
    assert_eq!(rows(&new), [[10, 21, 17], [21, 10, 28], [17, 28, 10]]);
    assert!(codes(&new).contains(&"node-memory-only") && !codes(&new).contains(&"nodes-overlap"));
    assert_eq!(sets(&new.node), ["0-1", "2-3"]);
    // A memory's own cache is no CPU cache.
    assert!(new.caches.is_empty());

    let old = read(&version_1(
        "cpuset=\"0x3\" complete_cpuset=\"0x3\"",
        &format!("{}{}", object("NUMANode", "os_index=\"0\"", &[0, 1], &of_pus("Core", "", &[0, 1])), node(2, &[])),
    ));
    let ids: Vec<_> = old.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect();
    assert_eq!(ids, [(0, "0-1".to_owned()), (2, "".to_owned())]);
    assert_eq!(rows(&old), [[10, 20], [20, 10]]);
    assert!(codes(&old).contains(&"distance-missing"));
}

/// hwloc 2 writes a memory's own cache into version 1 as a cache of the next level.
#[test]
fn memory_side_cache_of_version_1_is_no_last_level_cache() {
    let l2 = |cpu: usize| object("Cache", "cache_size=\"4194304\" depth=\"2\" cache_type=\"0\"", &[cpu], &pu(cpu));
    let info = "<info name=\"Type\" value=\"MemorySideCache\"/>";
    let inner = format!("{info}{}{}", l2(0), l2(1));
    let text = version_1("", &object("Cache", "cache_size=\"2147483648\" depth=\"3\"", &[0, 1], &inner));
    assert_eq!(sets(&read(&text).llc), ["0", "1"]);
    assert_eq!(sets(&read(&text.replace(info, "")).llc), ["0-1"]);
}

#[test]
fn nodes_that_cross_are_parted_with_a_finding() {
    let node = |id: usize, cpus: &[usize]| object("NUMANode", &format!("os_index=\"{id}\""), cpus, "");
    let children =
        format!("{}{}{}{}", node(0, &[0, 1]), node(1, &[1, 2]), of_pus("Core", "", &[0, 1]), of_pus("Core", "", &[2]));
    let topology = read(&version_2("0x00000007", &children, ""));
    assert_eq!(sets(&topology.node), ["0-1", "2"]);
    let finding = topology.findings.iter().find(|finding| finding.code == "nodes-overlap").unwrap();
    assert_eq!((finding.cpu, finding.file.as_str()), (Some(CpuId(1)), "NUMANode 1"));
}

#[test]
fn offline_and_disallowed_cpus() {
    // Of six CPUs, 4 and 5 have no PU object; version 2 cannot say why.
    let text = version_2("0x0000000f", &format!("{}{}", of_pus("Core", "", &[0, 1]), of_pus("Core", "", &[2, 3])), "");
    let text = text.replacen(
        "complete_cpuset=\"0x0000000f\" allowed_cpuset=\"0x0000000f\"",
        "complete_cpuset=\"0x0000003f\" allowed_cpuset=\"0x00000007\"",
        1,
    );
    let topology = read(&text);
    assert_eq!((topology.online.to_string(), topology.offline.to_string()), ("0-3".into(), "4-5".into()));
    assert_eq!((topology.nr_cpus(), topology.hybrid), (6, false));
    let finding = topology.findings.iter().find(|finding| finding.code == "offline-or-disallowed").unwrap();
    assert_eq!((finding.severity, finding.cpu), (Severity::Warning, Some(CpuId(4))));
    let disallowed = topology.findings.iter().find(|finding| finding.code == "cpus-disallowed").unwrap();
    assert!(disallowed.severity == Severity::Info && disallowed.message.contains('3'), "{}", disallowed.message);

    // A core of which one thread is off is no other kind of core.
    let cores = format!("{}{}", of_pus("Core", "", &[0, 1]), of_pus("Core", "", &[2]));
    let text = version_2("0x00000007", &cores, "");
    assert!(read(&text).hybrid);
    let text = text.replacen("complete_cpuset=\"0x00000007\"", "complete_cpuset=\"0x0000000f\"", 1);
    assert!(!read(&text).hybrid);

    // Version 1 says what is on: of CPUs 3 to 5 only 5, which was not allowed, as its PU object is missing too.
    let text = version_1(
        "cpuset=\"0x0000000f\" complete_cpuset=\"0x0000003f\" online_cpuset=\"0x00000027\" allowed_cpuset=\"0x0000001f\"",
        &format!("{}{}", of_pus("Core", "", &[0, 1]), of_pus("Core", "", &[2, 3])),
    );
    let topology = read(&text);
    assert_eq!((topology.online.to_string(), topology.offline.to_string()), ("0-2".into(), "3-5".into()));
    assert_eq!(sets(&topology.smt), ["0-1", "2"]);
    let finding = topology.findings.iter().find(|finding| finding.code == "offline-or-disallowed").unwrap();
    assert_eq!(finding.cpu, Some(CpuId(4)));
    // A kind may name a CPU that has no PU object as long as the machine has it.
    let kind = text.replace("</topology>", "<cpukind cpuset=\"0x00000020\"/></topology>");
    assert_eq!(read(&kind).offline.to_string(), "3-5");
}

#[test]
fn sparse_cpu_numbers_above_32_and_empty_groups_of_a_mask() {
    let text = r#"<topology version="2.0"><object type="Machine" cpuset="0x00000001,,0x00000100" complete_cpuset="0x00000001,,0x00000100">
        <object type="PU" os_index="8" cpuset="0x00000100"/><object type="PU" os_index="64" cpuset="0x00000001,,0x0"/>
        </object></topology>"#;
    let topology = read(text);
    assert_eq!(topology.online.to_string(), "8,64");
    assert!(codes(&topology).contains(&"arch-guessed") && codes(&topology).contains(&"smt-missing"));
}

#[test]
fn architecture_by_name_or_vendor() {
    let text = version_2("0x00000001", &pu(0), "");
    for (name, arch) in [
        ("x86_64", Arch::X86_64),
        ("i686", Arch::X86_64),
        ("aarch64", Arch::Arm64),
        ("armv7l", Arch::Arm64),
        ("riscv64", Arch::Riscv),
        ("ppc64le", Arch::Other),
        ("s390x", Arch::Other),
    ] {
        assert_eq!(read(&text.replace("x86_64", name)).arch, arch, "{name}");
    }
    // Since version 3 the topology has it, not the machine.
    let third = text
        .replace("version=\"2.0\"", "version=\"3.0\"")
        .replace("<info name=\"Architecture\" value=\"x86_64\"/>", "");
    let third = third.replace("<support", "<info name=\"Architecture\" value=\"aarch64\"/><support");
    assert_eq!(read(&third).arch, Arch::Arm64);
    for (info, arch) in [
        ("<info name=\"CPUVendor\" value=\"AuthenticAMD\"/>", Arch::X86_64),
        ("<info name=\"CPUModel\" value=\"Intel(R) Xeon(R) CPU\"/>", Arch::X86_64),
        ("<info name=\"CPUModel\" value=\"Dual-Core Intel(R) Itanium(R) Processor 9140N\"/>", Arch::Other),
        ("<info name=\"Backend\" value=\"x86\"/>", Arch::X86_64),
        // A device's own.
        ("<object type=\"OSDev\"><info name=\"Architecture\" value=\"x86_64\"/></object>", Arch::Other),
        ("<info name=\"CPUImplementer\" value=\"0x48\"/>", Arch::Arm64),
        ("", Arch::Other),
    ] {
        let topology = read(&text.replace("<info name=\"Architecture\" value=\"x86_64\"/>", info));
        assert_eq!(topology.arch, arch);
        assert!(codes(&topology).contains(&"arch-guessed"));
    }
}

#[test]
fn distances_that_are_not_the_kernels_are_replaced_with_a_finding() {
    let text = two_packages();
    for (old, new, code) in [
        (">10 21 <", ">80 140 <", "distance-scale"),
        (">10 21 <", ">10 9 <", "distance-invalid"),
        (">10 21 <", ">10 256 <", "distance-invalid"),
        (">10 21 <", ">10 18446744073709551615 <", "distance-invalid"),
        (">0 1 <", ">0 7 <", "distance-missing"),
        ("kind=\"5\"", "kind=\"9\"", "distance-missing"),
        (">10 21 <", ">10 22 <", "distance-asymmetric"),
    ] {
        let topology = read(&text.replace(old, new));
        assert!(codes(&topology).contains(&code), "{new}: {:?}", topology.findings);
        let row = if code == "distance-asymmetric" { [10, 22] } else { [10, 20] };
        assert_eq!(rows(&topology)[0], row, "{new}");
    }
    // Relative values that come to no whole number.
    let node = |id: usize| object("NUMANode", &format!("os_index=\"{id}\""), &[id], &pu(id));
    let old = |value: &str| {
        let others: String = ["1.0", value, value, "1.0"].iter().map(|v| format!("<latency value=\"{v}\"/>")).collect();
        let distances =
            format!("<distances nbobjs=\"2\" relative_depth=\"1\" latency_base=\"10.0\">{others}</distances>");
        read(&version_1("cpuset=\"0x3\"", &format!("{distances}{}{}", node(0), node(1))))
    };
    assert_eq!(rows(&old("2.100000"))[0], [10, 21]);
    assert_eq!(rows(&old("2.123456"))[0], [10, 20]);
    assert!(codes(&old("2.123456")).contains(&"distance-invalid"));
}

#[test]
fn unknown_object_types_are_passed_over_with_one_finding() {
    let children = format!("<object type=\"Flux\"><object type=\"Flux\"/></object>{}", pu(0));
    let topology = read(&version_2("0x00000001", &children, ""));
    let finding = topology.findings.iter().find(|finding| finding.code == "object-unknown").unwrap();
    assert!(finding.message.contains("Flux") && finding.message.contains("2 objects"), "{}", finding.message);
}

#[test]
fn what_is_no_export_gets_one_line() {
    let whole = |text: &str, part: &str| assert_refused(text.as_bytes(), &[part]);
    whole("", "line 1: holds no topology element");
    whole("   \n\n", "no topology element");
    whole("<!-- only -->", "no topology element");
    whole("<html></html>", "the root element is `html`; an hwloc export has `topology`");
    whole("<topology/>", "holds no PU");
    whole("<topology/><topology/>", "second root element");
    whole("hello <topology/>", "line 1: text outside");
    whole("&lt;<topology/>", "text outside");
    whole("<topology/>\n]]>", "line 1: text outside");
    whole("<topology version=\"4.0\"></topology>", "version `4.0` is not known; export with hwloc 1 to 3");
    whole("<topology version=\"next\"></topology>", "`next`");
    whole("<topology>\n<object/></topology>", "line 2: object without type");
    whole("<topology><object type=\"Machine\"/><object type=\"Machine\"/></topology>", "second root object");
}

#[test]
fn what_is_not_well_formed_or_not_utf_8_gets_one_line() {
    let good = two_packages();
    for text in [
        "<topology>\n<object type=\"Machine\"></topology>",
        "<topology>\n<object type=\"Machine></topology>",
        "<topology a=\"1\" a=\"2\"></topology>",
        "<topology a></topology>",
        "<topology a=\"&none;\"></topology>",
        "<topology",
        "<topology><!-- ",
        "<!DOCTYPE",
        "</topology>",
    ] {
        assert_refused(text.as_bytes(), &["not well-formed XML"]);
    }
    assert_refused(&good.as_bytes()[..good.len() / 2], &["line "]);
    assert_refused(&good.as_bytes()[..good.len() - 12], &["truncated"]);
    let utf_16 = |bytes: fn(u16) -> [u8; 2]| good.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    assert_refused(&utf_16(u16::to_le_bytes), &["UTF-16"]);
    assert_refused(&utf_16(u16::to_be_bytes), &["UTF-16"]);
    assert_refused(&[b"\xff\xfe", &utf_16(u16::to_le_bytes)[..]].concat(), &["UTF-16"]);
    assert_refused(&[good.as_bytes(), b"\xe9"].concat(), &[&format!("not UTF-8 at byte {}", good.len())]);
}

/// A bomb is refused before it goes off: entities are not expanded, and nesting ends.
#[test]
fn bombs_get_one_line() {
    let laughs = "<!DOCTYPE topology [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\">\
                  <!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;\">]>";
    let text = format!("{laughs}<topology><object type=\"&c;\"/></topology>");
    assert_refused(text.as_bytes(), &["not well-formed XML", "`c`"]);
    for depth in [256, 500_000] {
        let (open, close) = ("<object type=\"Group\">".repeat(depth), "</object>".repeat(depth));
        assert_refused(format!("<topology>{open}{close}</topology>").as_bytes(), &["256 deep"]);
    }
}

/// One change each to a good export.
#[test]
fn contradictions_and_absurd_numbers_get_one_line_with_the_place() {
    let good = two_packages();
    let line_of = |text: &str| format!("line {}: ", good.lines().position(|line| line.contains(text)).unwrap() + 1);
    for (from, to, part) in [
        (" os_index=\"5\"", "", "PU without os_index"),
        ("os_index=\"5\"", "os_index=\"-1\"", "PU: os_index `-1` is not a number"),
        ("os_index=\"5\"", "os_index=\"16384\"", "PU 16384: machines of up to 16384 CPUs"),
        ("os_index=\"5\"", "os_index=\"99999999999999999999\"", "is not a number"),
        ("os_index=\"5\"", "os_index=\"&#10;\"", "is not a number"),
        ("os_index=\"5\"", "os_index=\"4\"", "PU 4 is there twice"),
        ("os_index=\"5\"", "os_index=\"9\"", "PU: its cpuset is 5 but the PUs in it are 9"),
        ("cpuset=\"0x00000022\"", "cpuset=\"0x00000002\"", "L2Cache: its cpuset is 1 but the PUs in it are 1,5"),
        ("cpuset=\"0x00000022\"", "cpuset=\"all\"", "L2Cache: cpuset `all` is not a bitmap"),
        ("cpuset=\"0x00000022\"", "cpuset=\"\"", "is not a bitmap"),
        ("cpuset=\"0x00000022\"", "cpuset=\"0xf...f,0x00000022\"", "without end"),
        ("cpuset=\"0x00000022\"", "cpuset=\"0x1,,,,0x022222222\"", "is not a bitmap"),
        ("\"NUMANode\" os_index=\"1\"", "\"NUMANode\"", "NUMANode without os_index"),
        ("\"NUMANode\" os_index=\"1\"", "\"NUMANode\" os_index=\"0\"", "NUMANode 0 is there twice"),
        ("\"NUMANode\" os_index=\"1\"", "\"NUMANode\" os_index=\"5000\"", "machines of up to 1024 nodes"),
        ("\"NUMANode\" os_index=\"1\" cpuset", "\"NUMANode\" os_index=\"1\" nodeset", "NUMANode without cpuset"),
        ("L2Cache", "L9Cache", "L9Cache: level `2` is no cache's"),
        ("L2Cache", "L3Cache", "a L3Cache lies in another L3Cache"),
        ("cache_size=\"1048576\"", "cache_size=\"1M\"", "L2Cache: cache_size `1M` is not a number"),
        ("nbobjs=\"2\"", "nbobjs=\"3\"", "distances2: indexes: 2 entries, but nbobjs asks for 3"),
        ("nbobjs=\"2\"", "nbobjs=\"4000000000\"", "nbobjs must be a number of nodes, 1 to 1024"),
        (">10 21 <", ">10 21 30 <", "u64values: more than the 4 entries that nbobjs asks for"),
        (">10 21 <", ">10 <", "u64values: 3 entries, but nbobjs asks for 4"),
        (">10 21 <", ">10 2.1 <", "u64values `2.1` is not a number"),
        ("indexing=\"os\"", "indexing=\"gp\"", "indexing `gp`"),
        ("<support", "<cpukind/><support", "cpukind without cpuset"),
        ("<support", "<cpukind cpuset=\"0x100\"/><support", "the cpuset of a cpukind names CPU 8"),
        (
            "<support",
            "<cpukind cpuset=\"1\" forced_efficiency=\"x\"/><support",
            "forced_efficiency `x` is not a number",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        assert_refused(good.replacen(from, to, 1).as_bytes(), &["x.xml: line ", part]);
    }
    let without_number = good.replacen(" os_index=\"5\"", "", 1);
    assert_refused(without_number.as_bytes(), &[&line_of("os_index=\"5\"")]);
    let old = |attributes: &str, children: &str| version_1(attributes, &format!("{children}{}", pu(0)));
    let off = old("cpuset=\"0x1\" online_cpuset=\"0x2\"", "");
    assert_refused(off.as_bytes(), &["x.xml: no CPU is online"]);
    let empty = old("", "<object type=\"Package\" cpuset=\"0x1\"/>");
    assert_refused(empty.as_bytes(), &["Package: its cpuset is 0 but the PUs in it are none"]);
    let around = object("NUMANode", "os_index=\"0\"", &[1], &pu(2));
    let around = version_1("", &around);
    assert_refused(around.as_bytes(), &["NUMANode: its cpuset is 1 but the PUs in it are 2"]);
    let node = "<object type=\"NUMANode\" os_index=\"1\">";
    let twice = old("", &format!("{node}{node}</object></object>"));
    assert_refused(twice.as_bytes(), &["NUMANode 1 is there twice"]);
    let distances = old("", "<distances nbobjs=\"1\" relative_depth=\"1\"/>");
    assert_refused(distances.as_bytes(), &["distances without latency_base"]);
}

/// A document type is a plain line to us: nothing is fetched, and entities that nobody uses do no harm.
#[test]
fn document_types_and_byte_order_marks_are_accepted() {
    let good = two_packages();
    let online = |text: &str| read(text).online.to_string();
    assert_eq!(online(&good), "0-7");
    assert_eq!(online(&format!("\u{feff}{good}")), "0-7");
    assert_eq!(online(&good.replace("\n", "\r\n")), "0-7");
    let doctype = "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\"";
    assert_eq!(online(&good.replace(doctype, "<!DOCTYPE topology SYSTEM \"file:///dev/zero\"")), "0-7");
    assert_eq!(online(&good.replace(doctype, "<!DOCTYPE topology [<!ENTITY a SYSTEM \"/dev/zero\">]")), "0-7");
}

#[test]
fn files_are_told_by_content_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let text = two_packages();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text.as_bytes()).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
    xz.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for (name, data) in [
        ("plain.xml", text.clone().into_bytes()),
        ("without-extension", text.clone().into_bytes()),
        ("packed.xml.gz", gzip.clone()),
        ("packed.xml.bz2", bzip2.finish().unwrap()),
        ("packed.xml.xz", xz.finish().unwrap()),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, data).unwrap();
        let (title, topology) = load_topology(Some(path.to_str().unwrap())).unwrap();
        assert_eq!((title.as_str(), topology.online.to_string()), (name, "0-7".to_owned()));
    }
    let path = folder.path().join("cut.xml.gz");
    std::fs::write(&path, &gzip[..gzip.len() - 20]).unwrap();
    let message = load_topology(Some(path.to_str().unwrap())).unwrap_err().to_string();
    assert!(message.contains("cut.xml.gz") && message.contains("truncated"), "{message}");
    // The name alone makes an empty file an export that is wanting.
    let path = folder.path().join("empty.xml");
    std::fs::write(&path, "").unwrap();
    let message = load_topology(Some(path.to_str().unwrap())).unwrap_err().to_string();
    assert!(message.contains("no topology element"), "{message}");
    let first = folder.path().join("plain.xml");
    let (_, cut) = load_topology(Some(&format!("{}:nodes=1", first.display()))).unwrap();
    assert_eq!(cut.online.to_string(), "0,2,4,6");
}

/// Where the shared test inputs are; `None`, with a line, when they are not there.
fn snapshot(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("HUDDLE_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let path = shared.join("topo-snapshots").join(name);
    if !path.is_file() {
        println!("no snapshot {}: nothing tested (set HUDDLE_SHARED)", path.display());
        return None;
    }
    Some(path)
}

/// Sets, sizes and distances counted in the file with Python.
#[test]
fn sgi_uv_2000_with_24_packages_of_its_own_node() {
    let Some(path) = snapshot("hwloc--192em64t-12gr2n8c2t.xml") else { return };
    let (name, topology) = load_topology(Some(path.to_str().unwrap())).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(name, "hwloc--192em64t-12gr2n8c2t.xml");
    assert_eq!((topology.arch, topology.hybrid), (Arch::X86_64, false));
    assert_eq!((topology.online.to_string(), topology.offline.len()), ("0-383".to_owned(), 0));
    assert_eq!((topology.smt.sets().len(), topology.smt.set_of(CpuId(191)).to_string()), (192, "191,383".to_owned()));
    assert_eq!(topology.cluster_source, ClusterSource::L2);
    assert_eq!(topology.cluster.set_of(CpuId(292)).to_string(), "100,292");
    for level in [&topology.llc, &topology.package, &topology.node] {
        assert_eq!(level.sets().len(), 24);
        assert_eq!(level.set_of(CpuId(279)).to_string(), "80-87,272-279");
    }
    let ids: Vec<u32> = topology.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, (0..24).collect::<Vec<u32>>());
    assert_eq!(topology.nodes[23].cpus.to_string(), "184-191,376-383");
    let row = [65, 65, 65, 65, 65, 65, 50, 10, 79, 79, 65, 65, 79, 79, 65, 65, 79, 79, 79, 79, 79, 79, 65, 65];
    assert_eq!(topology.nodes[7].distance, row);
    let distances = topology.nodes.iter().flat_map(|node| &node.distance);
    let count = |wanted: u32| distances.clone().filter(|&&distance| distance == wanted).count();
    assert_eq!([10, 50, 65, 79].map(count), [24, 24, 272, 256]);
    let caches = |level| topology.caches.iter().filter(move |cache| cache.level == level);
    assert_eq!([1, 2, 3].map(|level| caches(level).count()), [384, 192, 24]);
    assert!(caches(3).all(|cache| cache.size == Some(20_971_520)));
    assert_eq!(codes(&topology), ["cluster-from-l2"]);
}
