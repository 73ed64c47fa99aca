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
