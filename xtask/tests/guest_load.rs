//! `guest-load` on the machine that tests it: how it counts, ends and refuses. Where wake-ups land is the kernel's choice.

#![allow(clippy::expect_used)]

use std::process::{Command, Output};

use xtask::load::Load;

fn guest_load(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_guest-load"));
    command.args(arguments.split_whitespace()).output().expect("it starts")
}

fn measured(arguments: &str) -> Load {
    let output = guest_load(&format!("{arguments} --seconds 0.3 --warm-up 0.1 --json"));
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && err.is_empty(), "{err}");
    assert_eq!(out.lines().count(), 1, "{out}");
    serde_json::from_str(&out).expect("the report")
}

fn refused(arguments: &str) -> String {
    let output = guest_load(arguments);
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{arguments}");
    String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn two_pairs_count_no_more_wakeups_than_messages_and_no_hogs() {
    let load = measured("--pairs 2");
    assert_eq!((load.pairs, load.hogs, load.bound_hogs, load.spread.samples), (2, 0, 0, 0));
    assert!(load.wakeups.all() <= load.messages && load.wakeups.moved <= load.wakeups.all(), "{load:?}");
    assert!(load.delay_mean_ns <= load.delay_max_ns, "{load:?}");
    assert_eq!(load.wakeups.on_bound_hogs, 0, "{load:?}");
}

#[test]
fn a_hog_alone_uses_at_most_one_cluster_which_it_shares_with_none() {
    let load = measured("--hogs 1");
    assert_eq!((load.messages, load.wakeups.all(), load.spread.shared), (0, 0, 0), "{load:?}");
    assert!(load.spread.used <= load.spread.samples, "{load:?}");
    assert!(load.spread.cluster_changes <= load.spread.cpu_changes, "{load:?}");
}

#[test]
fn bound_hogs_fill_the_cluster_in_which_the_pair_starts() {
    let load = measured("--pairs 1 --fill-cluster --hogs 1 --hogs-first");
    let (_, topology) = huddle_machine::load_topology(None).expect("this machine");
    let sizes: Vec<u64> = topology.cluster.sets().iter().map(|set| set.len() as u64).collect();
    assert!(load.bound_hogs >= 1 && load.bound_hogs <= topology.online.len() as u64, "{load:?} of {sizes:?}");
    assert!(load.wakeups.on_bound_hogs <= load.wakeups.all(), "{load:?}");
}

#[test]
fn a_line_of_text_says_the_same_without_json() {
    let output = guest_load("--pairs 1 --hogs 1 --seconds 0.2 --warm-up 0");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.lines().count() == 1, "{text}");
    assert!(text.starts_with("1 pairs, 1 hogs, 0 bound hogs, 0.2 s"), "{text}");
}

#[test]
fn wrong_usage_is_refused_with_a_line() {
    assert!(refused("--seconds 1").contains("required"));
    assert!(refused("--hogs 1 --seconds 1 --fill-cluster").contains("required"));
    assert!(refused("--pairs 0 --seconds 1").contains("0 is not in 1..=10000"));
    assert!(refused("--pairs 1 --seconds -1").contains("-1"));
    assert!(refused("--pairs 1 --seconds soon").contains("not a number of seconds"));
}

#[test]
fn more_pairs_than_there_are_files_for_fail_with_a_line() {
    // Four files a pair, and a limit of open files that the shell sets.
    let script = format!("ulimit -n 64; exec '{}' --pairs 100 --seconds 1", env!("CARGO_BIN_EXE_guest-load"));
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.starts_with("guest-load: no pipes for pair "), "{errors}");
}
