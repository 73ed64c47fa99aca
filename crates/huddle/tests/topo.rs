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

#[test]
fn kunpeng_json_has_the_documented_shape() {
    let output = huddle(&["kunpeng920:nodes=2", "--json"]);
    assert!(output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(keys(&json), ["cpus", "findings", "nodes", "offline", "schema"]);
    assert_eq!(json["schema"], 1);
    let cpus = json["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), 48);
    let cpu = &cpus[30];
    assert_eq!(keys(cpu), ["cluster", "id", "llc", "node", "package", "smt"]);
    assert_eq!((cpu["id"].as_u64(), cpu["node"].as_u64()), (Some(30), Some(1)));
    assert_eq!((ids(&cpu["smt"]), ids(&cpu["cluster"])), (vec![30], vec![28, 29, 30, 31]));
    assert_eq!(ids(&cpu["llc"]), (24..48).collect::<Vec<u64>>());
    assert_eq!(ids(&cpu["package"]), (0..48).collect::<Vec<u64>>());
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!(keys(&nodes[1]), ["cpus", "distances", "id"]);
    assert_eq!((ids(&nodes[1]["distances"]), ids(&nodes[1]["cpus"])), (vec![16, 10], (24..48).collect()));
    assert_eq!((json["offline"].as_array().unwrap().len(), json["findings"].as_array().unwrap().len()), (0, 0));
}

#[test]
fn tree_with_an_offline_cpu_and_no_nodes_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let cpu = folder.path().join("sys/devices/system/cpu");
    for (file, content) in
        [("online", "1"), ("present", "0-1"), ("cpu0/online", "0"), ("cpu1/topology/core_cpus_list", "0-1")]
    {
        let path = cpu.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let output = huddle(&[folder.path().to_str().unwrap(), "--json"]);
    assert!(output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ids(&json["offline"]), [0]);
    let cpus = json["cpus"].as_array().unwrap();
    assert_eq!((cpus.len(), &cpus[0]["node"]), (1, &Value::Null));
    assert_eq!(ids(&cpus[0]["smt"]), [1]);
    let findings = json["findings"].as_array().unwrap();
    for finding in findings {
        assert_eq!(keys(finding), ["code", "cpu", "file", "message", "severity"]);
        assert!(["info", "warning"].contains(&finding["severity"].as_str().unwrap()));
    }
    assert!(findings.iter().any(|finding| finding["code"] == "cluster-from-smt"));
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
        ("kunpeng930", 2, "jacobsville, kunpeng920, xeon-2s44c88t"),
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
