//! `huddle domains` as a user runs it.

use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;

fn huddle(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_huddle"));
    let output = match command.arg("domains").args(args).output() {
        Ok(output) => output,
        Err(error) => return (-1, String::new(), error.to_string()),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A file of the shared test inputs, when they are there.
fn shared(file: &str) -> Option<String> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let path = std::env::var_os("HUDDLE_SHARED").map_or_else(|| PathBuf::from(default), PathBuf::from).join(file);
    if !path.exists() {
        eprintln!("skipped: {} is not there; set HUDDLE_SHARED", path.display());
        return None;
    }
    Some(path.display().to_string())
}

#[test]
fn kunpeng_node_under_the_rfc_is_the_published_table() {
    let (status, out, err) = huddle(&["kunpeng920:nodes=1", "--kernel", "5.9+rfc2", "--cpu", "0"]);
    assert_eq!((status, err.as_str()), (0, ""));
    insta::assert_snapshot!(out, @r"
    kunpeng920:nodes=1, 24 CPUs, kernel 5.9+rfc2 (Linux 5.9 with the arm64-only cluster level of RFC v2)

    cpu0
      domain   name  min_interval  max_interval  busy_factor  imbalance_pct  cache_nice_tries  span
      domain0  CL               4             8           32            117                 1  0-3
               flags: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_PKG_RESOURCES SD_PREFER_SIBLING
               groups: {0} {1} {2} {3}
      domain1  MC              24            48           32            117                 1  0-23
               flags: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_PKG_RESOURCES SD_PREFER_SIBLING
               groups: {0-3} {4-7} {8-11} {12-15} {16-19} {20-23}
    ");
}

#[test]
fn kunpeng_6_7_merges_cpus_of_a_cluster() {
    let (status, out, _) = huddle(&["kunpeng920:nodes=2"]);
    assert_eq!(status, 0);
    assert_eq!(out.lines().filter(|line| line.starts_with("cpu")).count(), 12);
    let first = out.split("\n\n").nth(1).unwrap();
    insta::assert_snapshot!(first, @r"
    cpu0-3
      domain   name  min_interval  max_interval  busy_factor  imbalance_pct  cache_nice_tries  span
      domain0  CLS              4             8           16            117                 1  0-3
               flags: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_CLUSTER SD_SHARE_PKG_RESOURCES SD_PREFER_SIBLING
               groups_flags: none
               groups: {0} {1} {2} {3}
      domain1  MC              24            48           16            117                 1  0-23
               flags: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_PKG_RESOURCES SD_PREFER_SIBLING
               groups_flags: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_CLUSTER SD_SHARE_PKG_RESOURCES SD_PREFER_SIBLING
               groups: {0-3} {4-7} {8-11} {12-15} {16-19} {20-23}
      domain2  NUMA            48            96           16            117                 2  0-47
               flags: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SERIALIZE SD_OVERLAP SD_NUMA
               groups_flags: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_PKG_RESOURCES SD_PREFER_SIBLING
               groups: {0-23} {24-47}
    ");
}

#[test]
fn json_lists_every_cpu() {
    let (status, out, _) = huddle(&["kunpeng920:nodes=1", "--json"]);
    assert_eq!(status, 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    let cpus = value["cpus"].as_array().unwrap();
    assert_eq!((cpus.len(), value["kernel"].as_str()), (24, Some("6.7")));
    assert_eq!(cpus[5]["domains"][0]["span"], "4-7");
    assert_eq!(cpus[5]["domains"][0]["groups"], serde_json::json!(["5", "6", "7", "4"]));
    assert_eq!(cpus[5]["domains"][1]["groups_flags"][4], "SD_CLUSTER");
    assert_eq!(cpus[5]["sd_share_id"], 4);
}

#[test]
fn wrong_use_and_wrong_input_are_one_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let based = folder.path().join("odd.toml");
    std::fs::write(&based, "base = \"4.4\"\n").unwrap();
    let based = based.to_str().unwrap();
    for (args, status, part) in [
        (&["kunpeng920", "--kernel", "2.4"][..], 2, "5.9+rfc2"),
        (&["kunpeng920", "--kernel", "no/such.toml"], 1, "no/such.toml"),
        (&["kunpeng920", "--kernel", based], 1, "odd.toml: `base` is `4.4`, must be a built-in kernel: one of 4.17, "),
        (&["kunpeng920", "--cpu", "4000"], 2, "--cpu 4000"),
        (&["no-such-machine"], 2, "no-such-machine"),
        (&["no/such/file"], 1, "no/such/file"),
    ] {
        let (code, out, err) = huddle(args);
        assert_eq!((code, out.as_str(), err.lines().count()), (status, "", 1), "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
}

#[test]
fn kernel_record_by_path_overrides_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "base = \"6.7\"\n[domains]\nbusy_factor = 5\n").unwrap();
    let (status, out, err) =
        huddle(&["kunpeng920:nodes=1", "--cpu", "0", "--json", "--kernel", path.to_str().unwrap()]);
    assert_eq!((status, err.as_str()), (0, ""));
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&value["kernel"], &value["cpus"][0]["domains"][0]["busy_factor"]), (&"mine".into(), &5.into()));
}

#[test]
fn record_that_prints_levels_gets_a_column_with_their_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later.toml");
    std::fs::write(&path, "base = \"6.7\"\n[domains]\nshows_level = true\nshare_llc_name = \"SHARE_LLC\"\n").unwrap();
    let (status, out, _) = huddle(&["kunpeng920:nodes=2", "--cpu", "0", "--kernel", path.to_str().unwrap()]);
    assert_eq!(status, 0);
    let levels: Vec<&str> = out
        .lines()
        .filter(|line| line.trim_start().starts_with("domain"))
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert_eq!(levels, ["level", "1", "2", "5"]);
    assert!(out.contains("SD_CLUSTER SD_SHARE_LLC SD_PREFER_SIBLING"), "{out}");
}

#[test]
fn every_snapshot_builds_under_every_kernel() {
    let Some(folder) = shared("topo-snapshots") else { return };
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.display().to_string();
        if !file.contains(".tar.") {
            continue;
        }
        for kernel in ["5.9+rfc2", "5.16", "6.7"] {
            let (status, out, err) = huddle(&[&file, "--kernel", kernel, "--json"]);
            // what cannot be read is the machine reader's to say, on one line
            assert!(status == 0 || status == 1 && err.lines().count() == 1, "{file} {kernel}: {status} {err}");
            if status == 0 {
                let value: Value = serde_json::from_str(&out).unwrap();
                assert!(!value["cpus"].as_array().unwrap().is_empty(), "{file}");
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "only {seen} snapshots could be read");
}

#[test]
fn kunpeng_128_snapshot_has_cls_mc_and_numa() {
    let Some(file) = shared("topo-snapshots/hwloc--128arm-2pa2n8cluster4co.tar.bz2") else { return };
    let (status, out, err) = huddle(&[&file, "--json", "--cpu", "70"]);
    assert_eq!((status, err.as_str()), (0, ""));
    let value: Value = serde_json::from_str(&out).unwrap();
    let domains = value["cpus"][0]["domains"].as_array().unwrap();
    let spans: Vec<String> = domains.iter().map(|d| format!("{} {}", d["name"], d["span"]).replace('"', "")).collect();
    assert_eq!(spans[..3], ["CLS 68-71", "MC 64-95", "NUMA 64-127"]);
}
