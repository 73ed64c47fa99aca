//! The built-in machines as a user meets them: shown, turned into domains, simulated or refused.

#![allow(clippy::unwrap_used)]

use std::process::Output;

use assert_cmd::Command;

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

const KERNELS: [&str; 19] = [
    "4.17",
    "5.9",
    "5.9+rfc2",
    "5.10",
    "5.14",
    "5.14+cluster",
    "5.16",
    "6.0",
    "6.1",
    "6.6",
    "6.7",
    "6.9",
    "6.10",
    "6.12",
    "6.17",
    "6.18.33",
    "7.1",
    "7.2",
    "7.2-nocache",
];

fn huddle(arguments: &[&str]) -> Output {
    Command::cargo_bin("huddle").unwrap().args(arguments).output().unwrap()
}

/// What a call prints that is expected to work.
fn printed(arguments: &[&str]) -> String {
    let output = huddle(arguments);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {line}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn topo_draws_every_machine() {
    for name in NAMES {
        let text = printed(&["topo", name]);
        let line = text.lines().next().unwrap();
        assert!(line.starts_with(&format!("{name}: ")), "{line}");
        assert_eq!(line.contains("hybrid"), name == "alder-lake", "{line}");
        assert_eq!(line.contains("no clusters known"), ["graviton", "rome", "turin"].contains(&name), "{line}");
    }
}

#[test]
fn domains_shows_every_machine_under_every_kernel() {
    for name in NAMES {
        for kernel in KERNELS {
            let text = printed(&["domains", name, "--kernel", kernel]);
            assert!(text.starts_with(&format!("{name}, ")), "{text}");
            let complains = name == "altra" && ["5.9+rfc2", "5.14+cluster", "5.16"].contains(&kernel);
            assert_eq!(text.contains("borken"), complains, "{name} under {kernel}");
        }
    }
    assert!(printed(&["domains", "altra", "--kernel", "5.16"]).contains("MC domain (160 times)"));
}

/// Hackbench with two senders and two receivers.
fn compare(machine: &str) -> Output {
    let workload = "hackbench/threads-pipe,fds=2,loops=5";
    let run = ["--load", "1", "--policies", "linux-5.10,linux-5.14-cluster", "--runs", "2", "--seconds", "0.001"];
    huddle(&[&["compare", "--machine", machine, "--workload", workload], &run[..]].concat())
}

#[test]
fn compare_simulates_machines_of_equal_cpus() {
    for name in NAMES.into_iter().filter(|name| *name != "alder-lake") {
        let output = compare(name);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{name}: {line}");
        assert!(String::from_utf8(output.stdout).unwrap().contains(&format!("machine    {name}: ")), "{name}");
    }
}

#[test]
fn compare_refuses_alder_lake_for_its_capacities_in_one_line() {
    let output = compare("alder-lake");
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains("a machine whose CPUs differ in capacity") && output.stdout.is_empty(), "{line}");
}
