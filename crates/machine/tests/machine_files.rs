//! Machine files: the built-in ones are what they say, and every mistake gets one line that names file and key.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use huddle_machine::{
    Arch, COST_KEYS, CostKey, CpuId, Distance, Layout, Level, Machine, MachineError, Shape, Topology, builtin_names,
    load_topology,
};

#[test]
fn every_built_in_machine_loads_with_all_figures() {
    assert_eq!(builtin_names(), ["jacobsville", "kunpeng920", "xeon-2s44c88t"]);
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
    assert!(error("kunpeng930").contains("jacobsville, kunpeng920, xeon-2s44c88t"));
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
