//! Machine files: the built-in ones are what they say, and every mistake gets one line that names file and key.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use huddle_machine::{
    Arch, COST_KEYS, CacheKind, ClusterSource, Confidence, CostKey, CpuId, CpuSet, Distance, Layout, Level, Machine,
    MachineError, Partition, Shape, Topology, Value, builtin_names, load_topology,
};

const NAMES: [&str; 11] = [
    "alder-lake",
    "altra",
    "graviton",
    "jacobsville",
    "kunpeng920",
    "kunpeng920-32",
    "rome",
    "sierra-forest",
    "snow-ridge",
    "turin",
    "xeon-2s44c88t",
];

#[test]
fn every_built_in_machine_loads_with_all_figures() {
    assert_eq!(builtin_names(), NAMES);
    for name in builtin_names() {
        let machine = Machine::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(machine.name, name);
        let has = machine.topology.distances();
        for info in COST_KEYS {
            assert!(!machine.costs.figure(info.key).source.is_empty());
            if info.shape == Shape::ByDistance {
                let values = machine.costs.by_distance(info.key);
                let stated = Distance::ALL.iter().skip(1).filter(|&&d| has[d as usize]);
                assert!(stated.clone().count() > 0);
                stated.for_each(|&d| assert!(values[d as usize] > 0.0, "{name} {} {}", info.name, d.name()));
            }
        }
    }
}

#[test]
fn kunpeng_has_clusters_of_four_nodes_of_24_and_published_distances() {
    let machine = Machine::load("kunpeng920").unwrap();
    let topology = &machine.topology;
    assert_eq!((topology.arch, topology.nr_cpus()), (Arch::Arm64, 96));
    assert_eq!(topology.cluster.set_of(CpuId(30)).to_string(), "28-31");
    assert_eq!(topology.llc.set_of(CpuId(30)).to_string(), "24-47");
    assert_eq!(topology.package.set_of(CpuId(30)).to_string(), "0-47");
    let classes = [0, 3, 4, 24, 48].map(|cpu| topology.distance(CpuId(0), CpuId(cpu)));
    use Distance::{Beyond, Cluster, Llc, Package, SameCpu};
    assert_eq!(classes, [SameCpu, Cluster, Llc, Package, Beyond]);
    assert_eq!([24, 48, 72].map(|cpu| topology.numa_distance(CpuId(0), CpuId(cpu))), [16, 32, 33]);
    assert_eq!(topology.numa_distance(CpuId(24), CpuId(48)), 25);
}

#[test]
fn kunpeng_two_nodes_are_the_first_package() {
    let machine = Machine::load("kunpeng920:nodes=2").unwrap();
    assert_eq!(machine.name, "kunpeng920:nodes=2");
    assert_eq!(machine.topology.online.to_string(), "0-47");
    assert_eq!(machine.topology.nodes[0].distance, [10, 16]);
    assert!(!machine.topology.distances()[Distance::Beyond as usize]);
    assert_eq!(machine.topology.caches.iter().filter(|cache| cache.level == 3).count(), 2);
    let whole = Machine::load("kunpeng920").unwrap();
    assert_eq!(
        machine.costs.by_distance(CostKey::Line)[..Distance::Beyond as usize],
        whole.costs.by_distance(CostKey::Line)[..Distance::Beyond as usize]
    );
}

#[test]
fn jacobsville_modules_share_the_l2() {
    let topology = Machine::load("jacobsville").unwrap().topology;
    let l2: Vec<String> = topology.caches.iter().filter(|c| c.level == 2).map(|c| c.cpus.to_string()).collect();
    assert_eq!(l2, ["0-3", "4-7", "8-11", "12-15", "16-19", "20-23"]);
    assert_eq!(topology.llc.sets().len(), 1);
}

#[test]
fn xeon_numbers_packages_fastest_and_threads_slowest() {
    let topology = Machine::load("xeon-2s44c88t").unwrap().topology;
    assert_eq!(topology.smt.set_of(CpuId(45)).to_string(), "1,45");
    assert!(topology.package.set_of(CpuId(0)).iter().all(|cpu| cpu.0 % 2 == 0));
    let has = topology.distances();
    let present: Vec<&str> = Distance::ALL.iter().filter(|&&d| has[d as usize]).map(|d| d.name()).collect();
    assert_eq!(present, ["same-cpu", "smt", "llc", "beyond"]);
    let one = topology.first_nodes(1).unwrap();
    assert_eq!((one.online.len(), one.nr_cpus()), (44, 87));
    assert!(one.offline.is_empty());
}

#[test]
fn layouts_of_nothing_or_too_much_are_refused() {
    assert!(Topology::from_layout(Arch::Other, &Layout::new([1, 1, 1, 1, 0, 1])).is_none());
    assert!(Topology::from_layout(Arch::Other, &Layout::new([usize::MAX, 2, 1, 1, 1, 1])).is_none());
    let mut twice = Layout::new([1, 1, 1, 2, 4, 1]);
    twice.numbering[0] = Level::Thread;
    assert!(Topology::from_layout(Arch::Other, &twice).is_none());
}

#[test]
fn unknown_names_and_options_are_usage_errors_that_list_what_exists() {
    let error = |source| {
        let error = Machine::load(source).unwrap_err();
        assert!(error.is_usage(), "{error}");
        assert_eq!(load_topology(Some(source)).unwrap_err().to_string(), error.to_string());
        error.to_string()
    };
    assert!(error("kunpeng930").contains(&NAMES.join(", ")));
    assert!(error("kunpeng920:sockets=1").contains("nodes=N"));
    assert!(error("kunpeng920:nodes=0").contains("1 or more"));
    assert!(error("kunpeng920:nodes=5").contains("has 4 NUMA nodes"));
}

#[test]
fn a_sys_tree_has_no_cost_figures() {
    let error = Machine::load(env!("CARGO_MANIFEST_DIR")).unwrap_err();
    assert!(!error.is_usage() && error.to_string().contains("no cost figures"), "{error}");
}

/// Loads the Kunpeng file with one text replaced.
fn changed(from: &str, to: &str) -> MachineError {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/kunpeng920.toml")).unwrap();
    assert!(text.contains(from), "{from}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let error = Machine::load(path.to_str().unwrap()).unwrap_err();
    assert!(load_topology(Some(path.to_str().unwrap())).is_err(), "a file is read whole or not at all");
    let message = error.to_string();
    assert!(message.contains("mine.toml") && !message.contains('\n') && !error.is_usage(), "{message}");
    error
}

#[test]
fn mistakes_in_a_machine_file_name_the_key_and_what_would_be_right() {
    for (from, to, wanted) in [
        ("title =", "titel =", &["line 6", "titel", "unknown field"][..]),
        ("packages = 2", "packages = \"two\"", &["packages", "must be a whole number, 0 or more, not \"two\""]),
        ("packages = 2", "packages = -1", &["packages", "must be a whole number, 0 or more, not -1"]),
        ("packages = 2", "packages = { a = 1 }", &["packages", "must be a whole number, 0 or more, not a table"]),
        ("hz = 250", "hz = 5000000000", &["hz", "a whole number, 0 or more and less than 4294967296"]),
        ("preempt = true", "preempt = 1", &["preempt", "must be true or false, not 1"]),
        ("arch = \"arm64\"", "arch = 3", &["arch", "a text in quotes"]),
        ("L2 = {", "L2 = 3 #", &["L2", "must be a table, not 3"]),
        ("[config]", "[[config]]", &["[[config]]", "one table"]),
        ("name = \"kunpeng920\"", "name = \" \"", &["mine.toml: name:", "empty"]),
        ("name = \"kunpeng920\"", "name = \"a\\u001b[31m\"", &["mine.toml: name:", "\\u{1b}", "control"]),
        ("title = \"", "title = \"a\\rb", &["mine.toml: title:", "control"]),
        ("packages = 2\n", "", &["topology", "missing field", "packages"]),
        ("packages = 2", "packages = 0", &["topology", "1 or more"]),
        ("packages = 2", "packages = 100000", &["topology", "16384"]),
        ("[10, 16, 32, 33]", "[10, 16, 32]", &["topology.distances", "4 rows of 4"]),
        ("[10, 16, 32, 33]", "[11, 16, 32, 33]", &["topology.distances", "10 on the diagonal"]),
        ("L2 = {", "LL2 = {", &["caches.LL2", "L1d, L1i, L2, L3"]),
        ("\"512K\"", "\"half\"", &["caches.L2.size", "`half`", "512K"]),
        ("threads_per_core = 1", "threads_per_core = 1\nnumbering = [\"core\"]", &["topology.numbering"]),
        ("hz = 250", "hz = 0", &["config.hz", "250"]),
        ("[costs.tick]", "[costs.tock]", &["costs.tock", "unknown figure", "tick"]),
    ] {
        let message = changed(from, to).to_string();
        for part in wanted {
            assert!(message.contains(part), "{to}: {message} lacks {part}");
        }
    }
}

/// The table of a cost figure in the Kunpeng file.
fn figure_table(name: &str) -> String {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/kunpeng920.toml")).unwrap();
    let start = text.find(&format!("[costs.{name}]")).unwrap();
    let end = text[start..].find("\n\n").map_or(text.len(), |length| start + length);
    text[start..end].to_owned()
}

#[test]
fn wrong_figures_name_the_key_and_what_would_be_right() {
    const REST: &str = "source = \"a test\"\nconfidence = \"D\"";
    for (name, numbers, wanted) in [
        ("tick", "value = -1", &["costs.tick", "-1", "zero or more"][..]),
        ("tick", "value = nan", &["costs.tick", "NaN", "ns"]),
        ("tick", "cluster = 1500", &["costs.tick", "`value`", "ns"]),
        ("tick", "value = 1\nbeyond = 1", &["costs.tick", "`value`"]),
        ("tick", "value = 1\nfar = 1", &["far", "unknown field", "beyond"]),
        ("pipe_locked", "value = 1.5", &["costs.pipe_locked", "0 to 1"]),
        ("tick", "value = 1e300", &["costs.tick.value", "1e300", "1000000000 at most"]),
        ("wake_lines", "value = 2e6", &["costs.wake_lines.value", "lines", "1000000 at most"]),
        ("noise_time", "value = 2e6", &["costs.noise_time.value", "us", "1000000 at most"]),
        ("node_bandwidth", "value = 2e6", &["costs.node_bandwidth.value", "GB/s", "1000000 at most"]),
        ("line", "cluster = 1\nllc = 1\npackage = 2e9\nbeyond = 1", &["costs.line.package", "1000000000 at most"]),
        ("idle_polling", "value = 0.5", &["costs.idle_polling", "0 or 1"]),
        ("line", "llc = 1\npackage = 1\nbeyond = 1", &["costs.line", "distance cluster", "ns"]),
        ("line", "smt = 1\ncluster = 1\nllc = 1\npackage = 1\nbeyond = 1", &["costs.line", "smt", "delete"]),
        ("line", "value = 35", &["costs.line", "cluster, llc, package, beyond"]),
        ("line", "cluster = 1\nllc = inf\npackage = 1\nbeyond = 1", &["costs.line", "inf", "zero or more"]),
    ] {
        let message = changed(&figure_table(name), &format!("[costs.{name}]\n{numbers}\n{REST}")).to_string();
        for part in wanted {
            assert!(message.contains(part), "{name} {numbers}: {message} lacks {part}");
        }
    }
    for (rest, wanted) in [
        ("source = \" \"\nconfidence = \"D\"", "`source` is empty"),
        ("source = \"a test\"\nconfidence = \"E\"", "unknown variant `E`"),
        ("confidence = \"D\"", "missing field `source`"),
    ] {
        let message = changed(&figure_table("tick"), &format!("[costs.tick]\nvalue = 1\n{rest}")).to_string();
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn a_missing_figure_is_named_with_unit_and_meaning() {
    let message = changed(&figure_table("fork"), "").to_string();
    assert!(message.contains("missing figure `fork` (ns): Creating a thread"), "{message}");
}

#[test]
fn a_figure_that_need_not_be_stated_is_assumed_and_says_so() {
    // One thread a core and one node: neither figure is of use, and neither is stated.
    let machine = Machine::load("jacobsville").unwrap();
    for (key, value) in [(CostKey::SmtShare, 0.625), (CostKey::AllCoreClock, 1.0), (CostKey::RemoteMemory, 5.0)] {
        let figure = machine.costs.figure(key);
        assert_eq!((&figure.value, figure.confidence), (&Value::Scalar(value), Confidence::D));
        assert_eq!(figure.source, "not stated: the default, assumed");
    }
    // Stated ones hold.
    let stated = Machine::load("xeon-2s44c88t").unwrap().costs;
    assert_eq!((stated.scalar(CostKey::AllCoreClock), stated.scalar(CostKey::RemoteMemory)), (0.78, 4.5));
}

#[test]
fn pipe_operations_may_cost_nothing() {
    let mut text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/kunpeng920.toml")).unwrap();
    for name in ["pipe_lines", "pipe_write", "pipe_read", "pipe_locked"] {
        let free = format!("[costs.{name}]\nvalue = 0\nsource = \"a test\"\nconfidence = \"D\"");
        text = text.replacen(&figure_table(name), &free, 1);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, text).unwrap();
    let machine = Machine::load(path.to_str().unwrap()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(machine.costs.scalar(CostKey::PipeWrite), 0.0);
}

/// The machine files that a shared snapshot shows, with the states that its kernel lists.
const SNAPSHOTS: [(&str, &str); 8] = [
    ("alder-lake", "pepc--adl0.tar.gz"),
    ("jacobsville", "pepc--snr0.tar.gz"),
    ("kunpeng920-32", "hwloc--128arm-2pa2n8cluster4co.tar.bz2"),
    ("rome", "pepc--rome0.tar.gz"),
    ("sierra-forest", "pepc--srf2.tar.gz"),
    ("snow-ridge", "pepc--snr0.tar.gz"),
    ("turin", "pepc--turin0.tar.gz"),
    ("xeon-2s44c88t", "pepc--bdw0.tar.gz"),
];

/// A shared snapshot; `None`, with a line, when the folder is not there.
fn snapshot(file: &str) -> Option<Topology> {
    let shared = std::env::var_os("HUDDLE_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let path = shared.join("topo-snapshots").join(file);
    if !path.exists() {
        println!("no snapshot {}: nothing tested (set HUDDLE_SHARED)", path.display());
        return None;
    }
    Some(load_topology(Some(path.to_str().unwrap())).unwrap_or_else(|error| panic!("{error}")).1)
}

fn sets(partition: &Partition) -> Vec<String> {
    partition.sets().iter().map(CpuSet::to_string).collect()
}

/// By level and kind, the CPUs of each cache.
fn sharers(topology: &Topology) -> BTreeMap<(u32, CacheKind), Vec<String>> {
    let mut sharers: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for cache in &topology.caches {
        sharers.entry((cache.level, cache.kind)).or_default().push(cache.cpus.to_string());
    }
    sharers
}

#[test]
fn machine_files_number_and_nest_cpus_as_their_snapshots_do() {
    for (name, file) in SNAPSHOTS {
        let Some(seen) = snapshot(file) else { continue };
        let written = Machine::load(name).unwrap().topology;
        assert_eq!((written.arch, written.hybrid), (seen.arch, seen.hybrid), "{name}");
        assert_eq!(written.online, seen.online, "{name}");
        for (level, written, seen) in [
            ("cores", &written.smt, &seen.smt),
            ("clusters", &written.cluster, &seen.cluster),
            ("LLCs", &written.llc, &seen.llc),
            ("packages", &written.package, &seen.package),
            ("nodes", &written.node, &seen.node),
        ] {
            assert_eq!(sets(written), sets(seen), "{name}: {level}");
        }
        assert_eq!(sharers(&written), sharers(&seen), "{name}");
        let nodes = |topology: &Topology| -> Vec<_> {
            topology.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect()
        };
        assert_eq!(nodes(&written), nodes(&seen), "{name}");
        let polling = seen.idle_states.iter().position(|state| state.name == "POLL").map_or(0, |at| at + 1);
        assert_eq!(written.idle_states, seen.idle_states[polling..], "{name}");
    }
}

#[test]
fn kunpeng_with_eight_clusters_has_the_distances_and_cache_sizes_of_its_snapshot() {
    let Some(seen) = snapshot("hwloc--128arm-2pa2n8cluster4co.tar.bz2") else { return };
    let written = Machine::load("kunpeng920-32").unwrap().topology;
    assert_eq!((&written.nodes, &written.caches), (&seen.nodes, &seen.caches));
}

#[test]
fn alder_lake_has_the_cache_sizes_of_the_other_snapshot_of_its_die() {
    let Some(seen) = snapshot("ghw--linux-amd64-i7-1270P.tar.gz") else { return };
    let written = Machine::load("alder-lake").unwrap().topology;
    assert_eq!(written.caches, seen.caches);
}

#[test]
fn alder_lake_has_two_kinds_of_cores_under_one_llc() {
    let machine = Machine::load("alder-lake").unwrap();
    let topology = &machine.topology;
    assert!(topology.hybrid);
    assert_eq!(topology.capacity, [[1024; 8], [580; 8]].concat());
    use Distance::{Cluster, Llc, Smt};
    let classes =
        [(0, 1), (0, 2), (0, 8), (8, 11), (8, 12)].map(|(a, b): (u32, u32)| topology.distance(CpuId(a), CpuId(b)));
    assert_eq!(classes, [Smt, Llc, Llc, Cluster, Llc]);
    // a module shares its L2 and yet hands lines over more slowly than the ring does
    let line = machine.costs.by_distance(CostKey::Line);
    assert!(line[Cluster as usize] > line[Llc as usize]);
}

#[test]
fn altra_has_pairs_and_no_cache_that_cores_share() {
    let topology = Machine::load("altra").unwrap().topology;
    assert_eq!((topology.nr_cpus(), topology.cluster_source), (160, ClusterSource::Stated));
    assert_eq!(topology.cluster.set_of(CpuId(81)).to_string(), "80-81");
    assert_eq!(topology.llc.set_of(CpuId(81)).to_string(), "81");
    assert_eq!(topology.node.set_of(CpuId(81)).to_string(), "80-159");
    use Distance::{Beyond, Cluster, Node};
    let classes = [81, 82, 159, 0].map(|cpu| topology.distance(CpuId(80), CpuId(cpu)));
    assert_eq!(classes, [Cluster, Node, Node, Beyond]);
    assert!(!topology.distances()[Distance::Llc as usize]);
    assert!(topology.caches.iter().all(|cache| cache.cpus.len() == 1));
}

#[test]
fn graviton_has_no_clusters_under_its_llc() {
    let topology = Machine::load("graviton").unwrap().topology;
    assert_eq!((topology.nr_cpus(), topology.nodes.len(), topology.cluster_source), (64, 1, ClusterSource::Smt));
    assert_eq!((topology.llc.sets().len(), topology.cluster.sets().len()), (1, 64));
    assert_eq!(topology.distance(CpuId(0), CpuId(1)), Distance::Llc);
}

#[test]
fn snow_ridge_is_jacobsville() {
    let [sold, published] = ["snow-ridge", "jacobsville"].map(|name| Machine::load(name).unwrap());
    assert_eq!(sold.topology, published.topology);
    for info in COST_KEYS {
        let [sold, published] = [&sold, &published].map(|machine| machine.costs.figure(info.key));
        assert_eq!((sold.value, sold.confidence), (published.value, published.confidence), "{}", info.name);
    }
}

/// Reads a machine file with the given `[topology]` and `[caches]` and the Kunpeng's figures.
fn drawn(topology: &str) -> Result<Topology, String> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/kunpeng920.toml")).unwrap();
    let (head, rest) = text.split_once("[topology]").unwrap();
    let (_, tail) = rest.split_once("[config]").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, format!("{head}[topology]\n{topology}\n[config]{tail}")).unwrap();
    match load_topology(Some(path.to_str().unwrap())) {
        Ok((_, topology)) => Ok(topology),
        Err(error) => Err(error.to_string()),
    }
}

const ONE: &str = "packages = 1\nnodes_per_package = 1\n";

#[test]
fn counts_that_form_no_chain_name_the_key_and_what_can_follow() {
    for (counts, wanted) in [
        ("", &["mine.toml: topology:", "llcs_per_node or clusters_per_node or cores_per_node"][..]),
        ("llcs_per_node = 2", &["topology:", "clusters_per_llc or cores_per_llc"]),
        ("cores_per_node = 2", &["topology:", "a count is missing; give threads_per_core"]),
        ("llcs_per_node = 1\ncores_per_node = 2", &["topology:", "both llcs_per_node and cores_per_node"]),
        (
            "clusters_per_node = 2\ncores_per_llc = 2\ncores_per_cluster = 2\nthreads_per_core = 1",
            &["topology.cores_per_llc:", "no count leads there"],
        ),
        ("cores_per_node = 0\nthreads_per_core = 1", &["topology:", "1 or more"]),
        (
            "cores_per_node = 2\nthreads_per_core = 2\nnumbering = [\"core\", \"core\"]",
            &["topology.numbering", "twice"],
        ),
    ] {
        let message = drawn(&format!("{ONE}{counts}")).unwrap_err();
        for part in wanted {
            assert!(message.contains(part), "{counts}: {message} lacks {part}");
        }
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn mistakes_in_parts_name_the_part_and_what_would_be_right() {
    const P: &str = "[[topology.part]]\nkind = \"P\"\ncores_per_llc = 2\nthreads_per_core = 2\n";
    const E: &str =
        "[[topology.part]]\nkind = \"E\"\nclusters_per_llc = 1\ncores_per_cluster = 4\nthreads_per_core = 1\n";
    let shared = format!("{ONE}llcs_per_node = 1\n");
    for (topology, wanted) in [
        (
            format!("{ONE}cores_per_node = 1\nthreads_per_core = 1\n{P}"),
            &["topology:", "nothing is left to the parts"][..],
        ),
        (format!("{ONE}{P}"), &["topology.part P.cores_per_llc:", "no count leads there"]),
        (
            format!("{shared}{P}[[topology.part]]\nkind = \"E\"\n"),
            &["topology.part E:", "clusters_per_llc or cores_per_llc"],
        ),
        (format!("{shared}{P}[[topology.part]]\ncores_per_llc = 1\n"), &["missing field `kind`"]),
        (format!("{shared}{P}{E}kinds = 2\n"), &["line", "kinds", "unknown field"]),
        (format!("{shared}{P}{}", E.replace("\"E\"", "\" \"")), &["topology.part.kind:", "empty"]),
        (format!("{shared}{P}{E}capacity = 0\n"), &["topology.part E.capacity:", "1 to 1024"]),
        (format!("{shared}{P}{E}capacity = 2000\n"), &["topology.part E.capacity:", "2000", "1 to 1024"]),
        (
            format!("{shared}{P}capacity = 900\n{E}capacity = 500\n"),
            &["topology.part.capacity:", "full capacity of 1024"],
        ),
        (
            format!("{shared}{P}caches.L2 = {{ size = \"1M\", shared_by = \"cluster\" }}\n"),
            &["topology.part P.caches.L2.shared_by:", "not all"],
        ),
        (
            format!("{shared}{P}caches.L2 = {{ size = \"1M\", shared_by = \"llc\" }}\n"),
            &["topology.part P.caches.L2.shared_by:", "`[caches]`"],
        ),
        (
            format!("{shared}{P}caches.L2 = {{ size = \"big\", shared_by = \"core\" }}\n"),
            &["topology.part P.caches.L2.size:", "`big`"],
        ),
        (
            format!("{shared}{P}caches.LX = {{ size = \"1M\", shared_by = \"core\" }}\n"),
            &["topology.part P.caches.LX:", "L1d"],
        ),
        (
            format!(
                "{shared}{P}caches.L3 = {{ size = \"1M\", shared_by = \"core\" }}\n[caches]\nL3 = {{ size = \"1M\", shared_by = \"llc\" }}\n"
            ),
            &["topology.part P.caches.L3:", "delete one"],
        ),
        (
            format!("{shared}{P}{E}[caches]\nL2 = {{ size = \"1M\", shared_by = \"cluster\" }}\n"),
            &["caches.L2.shared_by:", "in the part that has it"],
        ),
        (
            format!(
                "{ONE}cores_per_node = 2\nthreads_per_core = 1\n[caches]\nL3 = {{ size = \"1M\", shared_by = \"llc\" }}\n"
            ),
            &["caches.L3.shared_by:", "not all"],
        ),
    ] {
        let message = drawn(&topology).unwrap_err();
        for part in wanted {
            assert!(message.contains(part), "{topology}: {message} lacks {part}");
        }
        assert!(!message.contains('\n'), "{message}");
    }
}

fn parts(shared: Level, parts: &[Layout]) -> Topology {
    Topology::from_parts(Arch::X86_64, shared, parts).unwrap()
}

#[test]
fn parts_share_their_llc_or_have_one_each() {
    let big = Layout { cluster: false, ..Layout::new([1, 1, 1, 1, 2, 2]) };
    let small = Layout { capacity: 400, ..Layout::new([1, 1, 1, 2, 2, 1]) };
    let common = parts(Level::Llc, &[big.clone(), small.clone()]);
    assert_eq!((sets(&common.llc), sets(&common.node)), (vec!["0-7".to_owned()], vec!["0-7".to_owned()]));
    assert_eq!(sets(&common.smt), ["0-1", "2-3", "4", "5", "6", "7"]);
    assert_eq!(sets(&common.cluster), ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!(common.capacity, [1024, 1024, 1024, 1024, 400, 400, 400, 400]);
    let own = parts(Level::Node, &[big.clone(), small.clone()]);
    assert_eq!((sets(&own.llc), sets(&own.node)), (vec!["0-3".to_owned(), "4-7".to_owned()], vec!["0-7".to_owned()]));
    // low-power cores outside the L3: their own caches are their last
    let without = parts(Level::Node, &[big, Layout { llc: false, ..small }]);
    assert_eq!(sets(&without.llc), ["0-3", "4", "5", "6", "7"]);
    assert_eq!(without.distance(CpuId(4), CpuId(5)), Distance::Cluster);
    assert_eq!(without.distance(CpuId(4), CpuId(0)), Distance::Node);
}

#[test]
fn clusters_of_threaded_cores_count_without_an_llc() {
    let cores = parts(Level::Node, &[Layout { llc: false, ..Layout::new([1, 1, 1, 2, 2, 2]) }]);
    assert_eq!(sets(&cores.llc), sets(&cores.smt));
    let classes = [1, 2, 4].map(|cpu| cores.distance(CpuId(0), CpuId(cpu)));
    assert_eq!(classes, [Distance::Smt, Distance::Cluster, Distance::Node]);
}

#[test]
fn parts_in_each_package_are_numbered_one_after_the_other() {
    let package = |cores| Layout::new([2, 1, 1, 1, cores, 1]);
    let machine = parts(Level::Llc, &[package(2), package(1)]);
    assert_eq!(sets(&machine.package), ["0-1,4", "2-3,5"]);
    assert_eq!(sets(&machine.cluster), ["0-1", "2-3", "4", "5"]);
    let three = Layout::new([3, 1, 1, 1, 1, 1]);
    assert!(Topology::from_parts(Arch::Other, Level::Llc, &[package(2), three]).is_none());
    assert!(Topology::from_parts(Arch::Other, Level::Llc, &[]).is_none());
}
