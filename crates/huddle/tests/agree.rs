//! `huddle agree`: recorded wake-ups against a policy, and refusals.

#![allow(clippy::expect_used)]

use assert_cmd::Command;

fn capture(kernel: &str) -> String {
    format!("{}/../trace/tests/captures/{kernel}.trace.gz", env!("CARGO_MANIFEST_DIR"))
}

fn agree(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("huddle").expect("the binary");
    command.arg("agree").args(arguments);
    command
}

fn refused(arguments: &[&str], status: i32, what: &str) {
    let output = agree(arguments).assert().code(status).get_output().clone();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.stdout.is_empty() && error.lines().count() == 1 && error.contains(what), "{error}");
}

#[test]
fn a_capture_of_7_2_agrees_with_its_record_step_by_step() {
    let capture = capture("7.2.6");
    let output = agree(&[&capture, "--policy", "linux-7.2", "--json"]).assert().success().get_output().clone();
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = &said["non_trivial"];
    let [decisions, agreed] = ["decisions", "agreed"].map(|key| row[key].as_u64().expect("a number"));
    assert!(decisions >= 500 && agreed * 100 >= decisions * 97, "{row}");
    assert_eq!(said["release"], "7.2.6+deb13-cloud-amd64");
    assert_eq!(said["hogs"][0]["recorded"]["first"], said["hogs"][0]["simulated"]["first"]);
}

#[test]
fn differences_are_told_in_words() {
    let capture = capture("7.2.6");
    let arguments = [&*capture, "--policy", "linux-5.10", "--differences", "2"];
    let output = agree(&arguments).assert().success().get_output().clone();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().filter(|line| line.contains("the kernel looked at")).count(), 2, "{text}");
}

#[test]
fn what_is_no_trace_or_no_policy_is_refused_with_a_line() {
    let capture = capture("6.1");
    refused(&["/nonexistent", "--policy", "linux-6.1"], 1, "/nonexistent");
    refused(&[concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "--policy", "linux-6.1"], 1, "line 1");
    refused(&[&capture, "--policy", "linux-0.1"], 2, "linux-0.1");
    refused(&[&capture, "--policy", "linux-6.1", "--machine", "nowhere"], 2, "nowhere");
}
