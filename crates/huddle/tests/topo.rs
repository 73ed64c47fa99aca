//! `huddle topo` as a user runs it.

#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use serde_json::Value;

fn huddle(args: &[&str]) -> std::process::Output {
    Command::cargo_bin("huddle").unwrap().arg("topo").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn json(source: &str) -> Value {
    let output = huddle(&[source, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The CPUs of the set that a CPU names.
fn set_of(json: &Value, cpu: usize, level: &str) -> Vec<u64> {
    let index = json["cpus"][cpu][level].as_u64().unwrap() as usize;
    ids(&json[level][index]["cpus"])
}

#[test]
fn kunpeng_json_has_the_documented_shape() {
    let json = json("kunpeng920:nodes=2");
    let expected = [
        "arch",
        "book",
        "caches",
        "cluster",
        "cluster_source",
        "cpus",
        "drawer",
        "findings",
        "hybrid",
        "idle_states",
        "llc",
        "machine",
        "nodes",
        "offline",
        "online",
        "package",
        "schema",
        "smt",
    ];
    assert_eq!(keys(&json), expected);
    assert_eq!((&json["schema"], &json["machine"]), (&Value::from(2), &Value::from("kunpeng920:nodes=2")));
    assert_eq!((&json["arch"], &json["cluster_source"]), (&Value::from("arm64"), &Value::from("stated")));
    assert_eq!((&json["hybrid"], &json["book"], &json["drawer"]), (&Value::from(false), &Value::Null, &Value::Null));
    assert_eq!((&json["online"]["list"], &json["offline"]["list"]), (&Value::from("0-47"), &Value::from("")));
    let counts: Vec<usize> = ["cpus", "smt", "cluster", "llc", "package", "nodes", "findings"]
        .map(|key| json[key].as_array().unwrap().len())
        .to_vec();
    assert_eq!(counts, [48, 48, 12, 2, 1, 2, 0]);
    let cpu = &json["cpus"][30];
    assert_eq!(keys(cpu), ["book", "capacity", "cluster", "drawer", "id", "llc", "node", "package", "smt"]);
    assert_eq!((&cpu["id"], &cpu["node"], &cpu["capacity"]), (&30.into(), &1.into(), &1024.into()));
    assert_eq!((set_of(&json, 30, "smt"), set_of(&json, 30, "cluster")), (vec![30], vec![28, 29, 30, 31]));
    assert_eq!(set_of(&json, 30, "llc"), (24..48).collect::<Vec<u64>>());
    assert_eq!(set_of(&json, 30, "package"), (0..48).collect::<Vec<u64>>());
    assert_eq!(json["cluster"][7]["list"], "28-31");
    let node = &json["nodes"][1];
    assert_eq!(keys(node), ["cpus", "distances", "id", "list"]);
    assert_eq!((ids(&node["distances"]), ids(&node["cpus"])), (vec![16, 10], (24..48).collect()));
    let l3 = json["caches"].as_array().unwrap().iter().filter(|cache| cache["level"] == 3).collect::<Vec<_>>();
    assert_eq!(keys(l3[1]), ["cpus", "kind", "level", "list", "size"]);
    assert_eq!(
        (&l3[1]["list"], &l3[1]["kind"], &l3[1]["size"]),
        (&"24-47".into(), &"unified".into(), &23_592_960.into())
    );
    assert_eq!(l3.len(), 2);
}

#[test]
fn tree_with_an_offline_cpu_and_no_nodes_in_json() {
    let mut input = files(&[("cpu/online", "1"), ("cpu/present", "0-1"), ("cpu/cpu0/online", "0")]);
    input.extend(files(&[("cpu/cpu1/topology/core_cpus_list", "0-1"), ("cpu/cpu1/cpu_capacity", "446")]));
    for (file, content) in [("name", "C1"), ("latency", "2"), ("residency", "3")] {
        input.push((format!("cpu/cpu1/cpuidle/state0/{file}"), content.to_owned()));
    }
    let folder = tree(&input);
    let json = json(folder.path().to_str().unwrap());
    assert_eq!((ids(&json["online"]["cpus"]), ids(&json["offline"]["cpus"])), (vec![1], vec![0]));
    let cpus = json["cpus"].as_array().unwrap();
    assert_eq!((cpus.len(), &cpus[0]["node"], &cpus[0]["capacity"]), (1, &Value::Null, &446.into()));
    assert_eq!(set_of(&json, 0, "smt"), [1]);
    assert_eq!(json["idle_states"][0], serde_json::json!({"name": "C1", "exit_latency_us": 2, "residency_us": 3}));
    let findings = json["findings"].as_array().unwrap();
    for finding in findings {
        assert_eq!(keys(finding), ["code", "counted", "cpu", "file", "message", "severity"]);
        assert!(["info", "warning"].contains(&finding["severity"].as_str().unwrap()));
    }
    assert!(findings.iter().any(|finding| finding["code"] == "cluster-from-smt"));
}

#[test]
fn books_and_drawers_are_there_where_a_tree_states_them() {
    let mut input = files(&[("cpu/online", "0-3")]);
    for cpu in 0..4 {
        let book = if cpu < 2 { "0-1" } else { "2-3" };
        for (file, list) in [("core_cpus_list", cpu.to_string()), ("package_cpus_list", cpu.to_string())] {
            input.push((format!("cpu/cpu{cpu}/topology/{file}"), list));
        }
        input.push((format!("cpu/cpu{cpu}/topology/book_siblings_list"), book.to_owned()));
        input.push((format!("cpu/cpu{cpu}/topology/drawer_siblings_list"), "0-3".to_owned()));
    }
    let folder = tree(&input);
    let json = json(folder.path().to_str().unwrap());
    assert_eq!((set_of(&json, 3, "book"), set_of(&json, 3, "drawer")), (vec![2, 3], vec![0, 1, 2, 3]));
    let drawing = view(&folder);
    assert!(drawing.contains("\ndrawer ") && drawing.contains("\n└ 2 books "), "{drawing}");
}

/// A Kunpeng 920 with 512 clusters under each LLC, 8192 CPUs in all.
fn large_kunpeng() -> tempfile::TempDir {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/kunpeng920.toml");
    let small = std::fs::read_to_string(file).unwrap();
    let large = small.replace("clusters_per_llc = 6\n", "clusters_per_llc = 512\n");
    assert_ne!(small, large);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("large.toml"), large).unwrap();
    folder
}

#[test]
fn kunpeng_of_8192_cpus_has_each_set_once_in_json_and_a_readable_text() {
    let folder = large_kunpeng();
    let source = folder.path().join("large.toml");
    let output = huddle(&[source.to_str().unwrap(), "--json"]);
    // 2048 CPUs share an LLC: each of them naming all of them would be some 80 MB.
    assert!(output.stdout.len() < 4 << 20, "{} bytes", output.stdout.len());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["cpus"].as_array().unwrap().len(), 8192);
    assert_eq!(set_of(&json, 8191, "llc"), (6144..8192).collect::<Vec<u64>>());
    assert_eq!(set_of(&json, 5000, "cluster"), [5000, 5001, 5002, 5003]);
    let output = huddle(&[source.to_str().unwrap()]);
    let drawing = text(&output.stdout);
    assert!(drawing.lines().count() < 30 && drawing.lines().all(|line| line.chars().count() <= 120), "{drawing}");
}

#[test]
fn long_lists_without_a_pattern_are_cut_and_counted() {
    // Squares: no two steps are alike.
    let cpus: Vec<String> = (0..40).map(|root: u32| (root * root).to_string()).collect();
    let online = cpus.join(",");
    let mut input = files(&[("cpu/online", &online)]);
    for cpu in &cpus {
        input.push((format!("cpu/cpu{cpu}/topology/package_cpus_list"), online.clone()));
        input.push((format!("cpu/cpu{cpu}/topology/core_cpus_list"), cpu.clone()));
    }
    let drawing = view(&tree(&input));
    assert!(drawing.contains("0-1,4,9,16,25,36,") && drawing.contains(",…(40 CPUs)\n"), "{drawing}");
}

#[test]
fn kunpeng_is_drawn_with_its_clusters() {
    let output = huddle(&["kunpeng920"]);
    assert!(output.status.success());
    insta::assert_snapshot!(text(&output.stdout), @r"
    kunpeng920: arm64, 96 CPUs online, clusters as stated

    level             each  caches                     cpus
    2 packages          48                             0-47 48-95
    └ 4 nodes = LLCs    24  L3 22.5M                   0-23 24-47 48-71 72-95
      └ 24 clusters      4                             0-3 4-7 8-11 12-15 16-19 20-23 24-27 28-31 32-35
                                                       36-39 40-43 44-47 48-51 52-55 56-59 60-63 64-67
                                                       68-71 72-75 76-79 80-83 84-87 88-91 92-95
        └ 96 cores       1  L1d 64K, L1i 64K, L2 512K

    NUMA distances
    node   0   1   2   3  cpus
       0  10  16  32  33  0-23
       1  16  10  25  32  24-47
       2  32  25  10  16  48-71
       3  33  32  16  10  72-95
    ");
}

#[test]
fn xeon_is_drawn_with_clusters_that_are_cores() {
    let output = huddle(&["xeon-2s44c88t"]);
    assert!(output.status.success());
    let drawing = text(&output.stdout);
    assert!(drawing.contains("2 packages = nodes = LLCs"), "{drawing}");
    assert!(drawing.contains("44 clusters = cores"), "{drawing}");
    assert!(drawing.contains("0,2,…,86"), "{drawing}");
}

#[test]
fn this_machine_is_read() {
    let output = huddle(&["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!json["cpus"].as_array().unwrap().is_empty());
}

#[test]
fn wrong_requests_and_unreadable_sources_differ_in_exit_status() {
    let empty = tempfile::tempdir().unwrap();
    for (source, status, part) in [
        ("kunpeng930", 2, "jacobsville, kunpeng920, kunpeng920-32, rome, "),
        ("kunpeng920:nodes=9", 2, "has 4 NUMA nodes"),
        ("nowhere/machine.tar.gz", 1, "nowhere/machine.tar.gz"),
        (empty.path().to_str().unwrap(), 1, "holds no sys/devices/system/cpu"),
    ] {
        let output = huddle(&[source]);
        assert_eq!(output.status.code(), Some(status), "{source}");
        assert!(output.stdout.is_empty());
        let message = text(&output.stderr);
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("huddle: ") && message.contains(part), "{message}");
    }
}

/// A folder with a tree of files given by path below `sys/devices/system`.
fn tree(files: &[(String, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, content) in files {
        let path = folder.path().join("sys/devices/system").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

fn files(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|&(file, content)| (file.to_owned(), content.to_owned())).collect()
}

/// The text view, which must succeed.
fn view(folder: &tempfile::TempDir) -> String {
    let output = huddle(&[folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[test]
fn control_characters_of_the_input_are_escaped() {
    let escape = char::from(27);
    let output = huddle(&[&format!("no{escape}[31m\rsuch\nname")]);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
    assert!(message.contains(r"no\u{1b}[31m\rsuch\nname"), "{message}");

    let mut input = files(&[("cpu/online", "0"), ("cpu/cpu0/topology/core_id", "0")]);
    input.extend(files(&[("cpu/cpu0/cpuidle/state0/latency", "1")]));
    input.push(("cpu/cpu0/cpuidle/state0/name".to_owned(), format!("C1{escape}[31m")));
    input.push(("cpu/cpu0/cpu_capacity".to_owned(), format!("a{escape}[2J")));
    input.push(("cpu/cpu0/topology/core_cpus_list".to_owned(), "0\r1".to_owned()));
    let drawing = view(&tree(&input));
    assert!(!drawing.contains(|char: char| char.is_control() && char != '\n'), "{drawing:?}");
    for part in [r"C1\u{1b}[31m", r"`a\u{1b}[2J`", r"`0\r1`", "1 CPU online"] {
        assert!(drawing.contains(part), "{drawing}");
    }
}

#[test]
fn siblings_are_tied_together_in_the_drawing() {
    let mut input = files(&[("cpu/online", "0-5")]);
    for cpu in 0..6 {
        input.push((format!("cpu/cpu{cpu}/topology/core_cpus_list"), cpu.to_string()));
        let package = if cpu < 4 { "0-3" } else { "4-5" };
        input.push((format!("cpu/cpu{cpu}/topology/package_cpus_list"), package.to_owned()));
    }
    for (cpu, sharers) in [(0, "0-1"), (1, "0-1"), (4, "4-5"), (5, "4-5")] {
        input.push((format!("cpu/cpu{cpu}/cache/index0/shared_cpu_list"), sharers.to_owned()));
    }
    let drawing = view(&tree(&input));
    let rows: Vec<&str> = drawing.lines().skip(2).take_while(|line| !line.is_empty()).collect();
    insta::assert_snapshot!(rows.join("\n"), @r"
    level                        each  caches  cpus
    package                         4          0-3
    ├ LLC                           2  L1d     0-1
    │ └ 2 clusters = cores          1
    └ 2 LLCs = clusters = cores     1
    package = LLC                   2  L1d     4-5
    └ 2 clusters = cores            1
    ");
}

#[test]
fn wide_distance_tables_show_each_distance_once() {
    let mut input = files(&[("cpu/online", "0-63")]);
    for cpu in 0..64 {
        input.push((format!("cpu/cpu{cpu}/topology/core_cpus_list"), cpu.to_string()));
        input.push((format!("node/node{cpu}/cpulist"), cpu.to_string()));
        let row = (0..64).map(|other| match (other == cpu, other / 4 == cpu / 4) {
            (true, _) => "10",
            (_, true) => "16",
            _ => "22",
        });
        input.push((format!("node/node{cpu}/distance"), row.collect::<Vec<_>>().join(" ")));
    }
    let drawing = view(&tree(&input));
    assert!(drawing.contains("\n  63  10 16x3 22x60             63\n"), "{drawing}");
    assert!(drawing.lines().all(|line| line.chars().count() <= 120), "{drawing}");
}

#[test]
fn repeated_findings_are_listed_three_times_and_counted() {
    let mut input = files(&[("cpu/online", "0-31")]);
    for cpu in 0..32 {
        input.push((format!("cpu/cpu{cpu}/cpu_capacity"), "none".to_owned()));
    }
    let folder = tree(&input);
    let drawing = view(&folder);
    let lines: Vec<&str> = drawing.lines().filter(|line| line.contains("capacity-invalid")).collect();
    assert_eq!(lines.len(), 4, "{drawing}");
    assert!(lines[3].starts_with("warning  capacity-invalid") && lines[3].ends_with("  29 more of this kind"));
    let output = huddle(&[folder.path().to_str().unwrap(), "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = json["findings"].as_array().unwrap().iter().filter(|finding| finding["code"] == "capacity-invalid");
    assert_eq!(listed.count(), 17);
}
