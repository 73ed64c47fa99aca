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
    for name in [
        "huddle-gather",
        "huddle-spread",
        "linux-5.9",
        "linux-6.7",
        "merged+next-cpu",
        "merged-idle-search-bug",
        "rfc2-cluster",
        "rfc2-no-select-idle-cluster",
        "scx-default-7.2",
        "v7-scan-prev-llc",
    ] {
        let line = list.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert_eq!((&line[column - 1..column], line.as_bytes()[column] == b' '), (" ", false), "{line}");
        assert!(line.len() <= 130, "{line}");
    }
    let value = json("policies --json");
    assert_eq!(value["schema"], 1);
    let listed = list.lines().skip(1).filter_map(|line| line.split(' ').next());
    assert!(value["policies"].as_array().unwrap().iter().map(|policy| policy["name"].as_str().unwrap()).eq(listed));
    let at = |name: &str| list.find(&format!("\n{name} ")).unwrap();
    assert!(at("linux-5.9") < at("linux-5.10") && at("linux-5.14") < at("linux-5.14-cluster"), "{list}");
    assert!(at("linux-6.7") < at("linux-6.12") && at("linux-6.12") < at("linux-7.2"), "{list}");
}

#[test]
fn a_policy_is_explained_step_by_step() {
    let told = text("policies linux-6.9");
    assert!(told.starts_with("linux-6.7: "), "{told}");
    for line in [" 10. ScanCluster", "     Reads nr_idle_scan.", "  - prev is idle: prev;"] {
        assert!(told.lines().any(|found| found == line), "no `{line}` in {told}");
    }
    assert!(told.lines().skip(1).all(|line| line.chars().count() <= 100), "{told}");
    let value = json("policies linux-6.7 --json");
    assert_eq!((&value["schema"], value["steps"].as_array().unwrap().len()), (&1.into(), 13));
    assert_eq!(value["steps"][9]["step"]["src"], "llc_first_group");
    assert_eq!(value["entry"]["rule"]["affine_idle_prev"], true);
}

#[test]
fn every_policy_is_explained_in_lines_of_100_and_places_a_wake_up_on_kunpeng_and_with_threads() {
    for policy in json("policies --json")["policies"].as_array().unwrap() {
        let name = policy["name"].as_str().unwrap();
        let told = text(&format!("policies {name}"));
        assert!(told.lines().skip(1).all(|line| line.chars().count() <= 100), "{told}");
        for (machine, busy) in [("kunpeng920:nodes=2", "0-8,10-47"), ("xeon-2s44c88t", "0-8,10-87")] {
            let value =
                json(&format!("place --machine {machine} --policy {name} --busy {busy} --this 4 --prev 9 --json"));
            assert_eq!(value["cpu"], 9, "{name} on {machine}: the only idle CPU is prev");
        }
    }
}

#[test]
fn the_searches_of_2018_are_explained() {
    for (name, words) in [
        ("merged-idle-search", "else the first idle thread of the core"),
        ("merged-idle-search-bug", "the CPU, whatever it runs, at which the search met the core"),
        ("merged+next-cpu", "from where the last scan for this target stopped"),
        ("transpose-offset", "from the CPU with prev's position in its own LLC"),
        ("subhra-full-2018", "at least 2 or the threads of a core, if more and at most 2 times that"),
        ("linux-4.17", "Charged to the budget, CPUs outside the affinity too."),
    ] {
        let told = text(&format!("policies {name}")).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(words), "no `{words}` in {told}");
    }
}

#[test]
fn kunpeng_node_sched_exts_own_choice_is_told() {
    let args = format!("{KUNPENG} --policy scx-default-7.2 --busy 0-8,10-19 --this 4 --prev 5");
    let told = text(&args);
    for line in ["target 5: always prev", "  9. ClaimAny       skipped: one LLC has all CPUs, or prev has none"] {
        assert!(told.lines().any(|found| found == line), "no `{line}` in {told}");
    }
    assert!(told.contains("; claimed 9\n\nCPU 9: step 11, ClaimAny\n"), "{told}");
    let told = text(&format!("{args} --sync"));
    assert!(told.contains("\nCPU 4: step 2, SyncWaker\n"), "{told}");
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
    let record = "name = 'x'\ntitle = 'x'\nkernel = '9.9'\nentry = {}\nsteps = [{ kind = 'ReturnTarget' }]\n";
    std::fs::write(&file, record).unwrap();
    for args in ["policies ", "place --machine kunpeng920 --target 4 --policy "] {
        refused(&format!("{args}{}", file.display()), 1, &["bad.toml: `kernel`: unknown kernel `9.9`", "5.9+rfc2"]);
    }
}

#[test]
fn kunpeng_node_target_busy_takes_cluster_mate() {
    let told = text(&format!("{KUNPENG} --policy linux-6.7 --busy 5,7-9 --target 5 --prev 9"));
    assert!(told.contains("\n 10. ScanCluster   examined 6 idle; found 6\n"), "{told}");
    assert!(told.contains("\n  9. Budget        no limit in this state\n"), "{told}");
    assert!(told.contains("\nCPU 6: step 10, ScanCluster\n"), "{told}");
}

#[test]
fn huddles_own_policies_are_explained_with_their_forks() {
    for name in ["huddle-gather", "huddle-spread"] {
        let told = text(&format!("policies {name}"));
        for line in ["Kernel: 7.1+huddle", "Fork and exec: target and prev are the CPU that forks", "     Reads claim."]
        {
            assert!(told.lines().any(|found| found == line), "no `{line}` in {told}");
        }
        assert!(told.lines().skip(1).all(|line| line.chars().count() <= 100), "{told}");
        let value = json(&format!("policies {name} --json"));
        assert_eq!((&value["fork"][4]["step"]["kind"], &value["fork"][4]["number"]), (&"ReturnPrev".into(), &5.into()));
    }
    let value = json("policies huddle-gather --json");
    assert_eq!(
        (&value["entry"]["rule"]["anchor"], &value["steps"][8]["step"]["within"]),
        (&"waker".into(), &"prev_cluster".into())
    );
    assert_eq!(json("policies linux-6.7 --json").get("fork"), None);
}

#[test]
fn kunpeng_node_gather_claims_a_cluster_mate() {
    let args = format!("{KUNPENG} --policy huddle-gather --busy 4-6,8 --this 5 --prev 9");
    let told = text(&args);
    assert!(told.contains("\ntarget 5: this CPU shares prev's LLC\n"), "{told}");
    assert!(told.contains("\n  4. ClaimPrev  skipped: prev shares too little with the target\n"), "{told}");
    assert!(
        told.contains("\n  5. ClaimAny   examined 6 busy, 7 idle; claimed 7\n\nCPU 7: step 5, ClaimAny\n"),
        "{told}"
    );
    let value = json(&format!("{args} --json"));
    assert_eq!((&value["cpu"], &value["steps"][4]["claimed"]), (&7.into(), &7.into()));
}

#[test]
fn kunpeng_node_spread_tells_what_is_busy_in_the_cluster_it_chose() {
    let told = text(&format!("{KUNPENG} --policy huddle-spread --busy 0,4-7,12,16,20 --this 0 --prev 5"));
    assert!(told.contains("\ntarget 5: always prev\n"), "{told}");
    assert!(told.contains("\n  4. ClaimIdlest  cluster of 8: 0 of 4 busy; claimed 8\n"), "{told}");
}

#[test]
fn two_threads_per_core_gather_looks_for_cores_and_then_for_threads_in_its_budget() {
    let told = text("place --machine xeon-2s44c88t --policy huddle-gather --busy 0-48 --this 4 --prev 4");
    // No core of the LLC (even CPUs) is idle as a whole; then the first thread behind the target.
    assert!(told.contains("\n 11. Budget     no limit in this state\n"), "{told}");
    assert!(told.contains("\nCPU 50: step 12, ClaimAny\n") && !told.contains("exhausted"), "{told}");
}

#[test]
fn kunpeng_node_a_fork_goes_to_the_idlest_cluster() {
    let told = text(&format!("{KUNPENG} --policy huddle-gather --busy 5 --this 5 --fork"));
    assert!(told.contains("\nfork on 5, busy 5\n"), "{told}");
    assert!(
        told.contains("\n  2. ClaimIdlest  cluster of 8: 0 of 4 busy; claimed 8\n\nCPU 8: step 2, ClaimIdlest\n"),
        "{told}"
    );
    let value = json(&format!("{KUNPENG} --policy huddle-gather --busy 5 --this 5 --fork --json"));
    assert_eq!(
        (&value["fork"], &value["cpu"], &value["steps"][1]["clusters"][0]["first"]),
        (&true.into(), &8.into(), &8.into())
    );
    refused(
        &format!("{KUNPENG} --policy linux-6.7 --this 5 --fork"),
        2,
        &["--fork: linux-6.7 leaves forks to the kernel"],
    );
    huddle(&format!("{KUNPENG} --policy huddle-gather --fork")).assert().code(2);
    huddle(&format!("{KUNPENG} --policy huddle-gather --this 5 --fork --sync")).assert().code(2);
}

#[test]
fn kunpeng_node_second_chance_after_a_budget_of_three() {
    let value =
        json(&format!("{KUNPENG} --policy linux-6.7 --busy 0-8,11-23 --target 5 --prev 9 --nr-idle-scan 3 --json"));
    assert_eq!((&value["cpu"], &value["step"], &value["exhausted"]), (&9.into(), &12.into(), &true.into()));
    let scan = value["steps"].as_array().unwrap().iter().find(|step| step["kind"] == "ScanCluster").unwrap();
    let order: Vec<u64> = scan["examined"].as_array().unwrap().iter().map(|cpu| cpu["cpu"].as_u64().unwrap()).collect();
    assert_eq!((order, &scan["left"], &value["schema"]), (vec![6, 7, 4], &0.into(), &1.into()));
    assert_eq!(scan["text"], "examined 6-7 busy, 4 busy; budget exhausted; budget left 0");
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
fn kunpeng_a_given_target_is_held_to_the_affinity() {
    for (state, cpu) in [("--allowed 0-3", 0), ("--busy 4 --prev 5 --allowed 4,7", 4), ("--allowed 4-7", 4)] {
        let value = json(&format!("place --machine kunpeng920 --policy linux-5.9 --target 4 {state} --json"));
        assert_eq!((&value["cpu"], &value["target"]), (&cpu.into(), &4.into()), "{state}");
        assert_eq!(value["step"].is_null(), state != "--allowed 4-7", "{state}");
    }
}

#[test]
fn long_scans_are_told_in_rows_and_in_lines_of_120() {
    let xeon = "place --machine xeon-2s44c88t --target 4";
    let told = text(&format!("{xeon} --policy linux-5.9 --busy 0-40"));
    assert!(told.contains("\n  8. Budget        no limit in this state\n"), "{told}");
    assert!(told.contains("\n  9. ScanLlc       examined 4,6,…,40 busy, 42 idle; found 42\n"), "{told}");
    let told = text(&format!("{xeon} --policy linux-6.7 --busy 0-87 --idle-cores"));
    assert!(told.contains("examined 6 busy, 50 busy, 8 busy,"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 120 && !line.ends_with(' ')), "{told}");
}

#[test]
fn negative_numbers_are_wrong_values_not_options() {
    for (args, option) in [("--target -1", "--target"), ("--target 1 --budget -1", "--budget")] {
        let output = huddle(&format!("{KUNPENG} --policy linux-6.7 {args}")).assert().code(2).get_output().clone();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with(&format!("error: invalid value '-1' for '{option} ")), "{error}");
    }
    refused(&format!("{KUNPENG} --policy linux-6.7 --target 5 --busy -1"), 2, &["--busy: `-1`"]);
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
