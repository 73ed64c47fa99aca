//! `huddle policies` and `huddle place`, driven as a user does.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use assert_cmd::Command;
use serde_json::Value;

fn huddle(args: &str) -> Command {
    let mut command = Command::cargo_bin("huddle").unwrap();
    command.args(args.split_whitespace());
    command
}

fn text(args: &str) -> String {
    String::from_utf8(huddle(args).assert().success().get_output().stdout.clone()).unwrap()
}

fn json(args: &str) -> Value {
    serde_json::from_str(&text(args)).unwrap()
}

/// Runs what must fail: one line on stderr with these words, nothing on stdout, this exit status.
fn refused(args: &str, status: i32, words: &[&str]) {
    let output = huddle(args).assert().code(status).get_output().clone();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty(), "{args}");
    assert_eq!(error.lines().count(), 1, "{args}: {error}");
    for word in words {
        assert!(error.contains(word), "{args}: {error}");
    }
}

const KUNPENG: &str = "place --machine kunpeng920:nodes=1";

#[test]
fn the_list_is_aligned_and_names_every_policy() {
    let list = text("policies");
    let column = list.lines().next().unwrap().find("what").unwrap();
    for name in ["linux-5.9", "linux-5.10", "linux-5.14", "linux-6.7", "rfc2-cluster", "rfc2-no-select-idle-cluster"] {
        let line = list.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert_eq!((&line[column - 1..column], line.as_bytes()[column] == b' '), (" ", false), "{line}");
        assert!(line.len() <= 130, "{line}");
    }
    let names: Vec<Value> = json("policies --json").as_array().unwrap().iter().map(|p| p["name"].clone()).collect();
    assert_eq!(names.len(), list.lines().count() - 1);
}

#[test]
fn a_policy_is_explained_step_by_step() {
    let told = text("policies linux-6.12");
    assert!(told.starts_with("linux-6.7: "), "{told}");
    for line in [" 10. ScanCluster", "     Reads nr_idle_scan.", "  - prev is idle: prev;"] {
        assert!(told.lines().any(|found| found == line), "no `{line}` in {told}");
    }
    assert!(told.lines().skip(1).all(|line| line.chars().count() <= 100), "{told}");
    let value = json("policies linux-6.7 --json");
    assert_eq!(value["steps"].as_array().unwrap().len(), 13);
    assert_eq!(value["steps"][9]["step"]["src"], "llc_first_group");
    assert_eq!(value["entry"]["rule"]["affine_idle_prev"], true);
}

#[test]
fn a_policy_that_cannot_be_had_is_refused() {
    refused("policies linux-9.9", 2, &["linux-9.9", "linux-6.7"]);
    refused("policies ./nowhere.toml", 1, &["./nowhere.toml"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    let record =
        "name = 'x'\ntitle = 'x'\nkernel = '6.7'\nentry = {}\nsteps = [{ kind = 'NeedLlc' }, { kind = 'Claim' }]\n";
    std::fs::write(&file, record).unwrap();
    refused(&format!("policies {}", file.display()), 1, &["bad.toml: step 2: Claim: unknown step"]);
}

#[test]
fn kunpeng_node_target_busy_takes_cluster_mate() {
    let told = text(&format!("{KUNPENG} --policy linux-6.7 --busy 5,7-9 --target 5 --prev 9"));
    assert!(told.contains("\n 10. ScanCluster   examined 6 idle; budget left 23; found 6\n"), "{told}");
    assert!(told.contains("\nCPU 6: step 10, ScanCluster\n"), "{told}");
}

#[test]
fn kunpeng_node_second_chance_after_a_budget_of_three() {
    let value =
        json(&format!("{KUNPENG} --policy linux-6.7 --busy 0-8,11-23 --target 5 --prev 9 --nr-idle-scan 3 --json"));
    assert_eq!((&value["cpu"], &value["step"], &value["exhausted"]), (&9.into(), &12.into(), &true.into()));
    let scan = value["steps"].as_array().unwrap().iter().find(|step| step["kind"] == "ScanCluster").unwrap();
    let order: Vec<u64> = scan["examined"].as_array().unwrap().iter().map(|cpu| cpu["cpu"].as_u64().unwrap()).collect();
    assert_eq!((order, &scan["left"]), (vec![6, 7, 4], &0.into()));
    assert_eq!(value["examined"]["cluster"], 3);
}

#[test]
fn kunpeng_node_a_proportional_budget_is_set_to_the_cpu() {
    // A scan from 5 that may examine seven CPUs sees 11 but not 12.
    for (busy, cpu) in [("0-10,12-23", 11), ("0-11,13-23", 5)] {
        let value = json(&format!("{KUNPENG} --policy linux-5.9 --busy {busy} --target 5 --budget 7 --json"));
        assert_eq!(value["cpu"], cpu, "{busy}");
    }
}

#[test]
fn kunpeng_two_nodes_the_entry_rule_is_told() {
    let told = text("place --machine kunpeng920:nodes=2 --policy rfc2-cluster --busy 0-30 --this 3 --prev 9 --sync");
    assert!(told.contains("target 3: a sync wake-up, and the waker is alone on this CPU"), "{told}");
    let told =
        text("place --machine kunpeng920:nodes=2 --policy linux-5.9 --busy 0-47 --this 3 --prev 9 --allowed 30-31");
    assert!(told.contains("the steps' choice is outside the affinity"), "{told}");
    let value =
        json("place --machine kunpeng920:nodes=2 --policy linux-5.9 --busy 3,9 --this 3 --prev 9 --allowed 30 --json");
    assert_eq!((&value["cpu"], &value["step"]), (&30.into(), &Value::Null));
}

#[test]
fn a_state_the_machine_cannot_have_is_refused() {
    refused(&format!("{KUNPENG} --policy linux-6.7 --busy 24 --target 5"), 2, &["--busy", "CPU 24", "0-23"]);
    refused(&format!("{KUNPENG} --policy linux-6.7 --busy 5-x --target 5"), 2, &["--busy", "5-x"]);
    refused(&format!("{KUNPENG} --policy linux-6.7 --target 99"), 2, &["--target", "CPU 99"]);
    refused(&format!("{KUNPENG} --policy linux-5.9 --target 5 --budget 2"), 2, &["--budget", "at least 3"]);
    refused(&format!("{KUNPENG} --policy linux-6.7 --target 5 --kernel 1.0"), 2, &["1.0"]);
    refused("place --machine nowhere --policy linux-6.7 --target 5", 2, &["nowhere"]);
    refused(&format!("{KUNPENG} --policy nobody --target 5"), 2, &["nobody", "linux-6.7"]);
    huddle(&format!("{KUNPENG} --policy linux-6.7")).assert().code(2);
    huddle(&format!("{KUNPENG} --policy linux-6.7 --this 3")).assert().code(2);
}
