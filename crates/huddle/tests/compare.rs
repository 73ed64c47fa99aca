//! `huddle compare` as it is called: what it refuses and how, and what it writes.

// clippy.toml allows unwrap in test functions; this allows it in their helpers.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use assert_cmd::Command;

fn huddle(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("huddle").unwrap();
    command.arg("compare").args(arguments);
    command
}

/// Exit status and the one line on stderr of a refused call, which prints nothing on stdout.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = huddle(arguments).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    (output.status.code().unwrap(), line)
}

const OWN: [&str; 8] = [
    "--machine",
    "kunpeng920",
    "--workload",
    "hackbench/threads-pipe,fds=2,loops=5",
    "--load",
    "1,2",
    "--policies",
    "linux-5.9,rfc2-cluster",
];

/// [`OWN`] with one value replaced and arguments added.
fn own<'a>(flag: &str, value: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = OWN.to_vec();
    if let Some(at) = arguments.iter().position(|argument| *argument == flag) {
        arguments[at + 1] = value;
    }
    arguments.extend(more);
    arguments
}

#[test]
fn wrong_use_is_one_line_and_status_2() {
    for (arguments, said) in [
        (vec![], "name an experiment (jacobsville-mcf, rfc2-one-node, rfc2-two-nodes)"),
        (vec!["rfc3"], "unknown experiment `rfc3`"),
        (vec!["rfc2-one-node", "--runs", "0"], "--runs `0`: must be a whole number from 1 to 10000"),
        (vec!["rfc2-one-node", "--runs", "10001"], "--runs `10001`: must be a whole number from 1 to 10000"),
        (vec!["rfc2-one-node", "--runs", "10000"], "runs: 12 cells of 10000 runs are too many"),
        (vec!["rfc2-one-node", "--seconds", "0"], "--seconds `0`: must be from 0.000001 to 3600"),
        (vec!["rfc2-one-node", "--seconds", "1e-7"], "--seconds `1e-7`: must be from 0.000001 to 3600"),
        (vec!["rfc2-one-node", "--seconds", "nan"], "--seconds `nan`"),
        (vec!["rfc2-one-node", "--seconds", "-1"], "--seconds `-1`"),
        (vec!["rfc2-one-node", "--runs", "many"], "--runs `many`"),
        (vec!["rfc2-one-node", "--seed", "-3"], "--seed `-3`"),
        (vec!["rfc2-one-node", "--jobs", "0"], "--jobs `0`"),
        (vec!["rfc2-one-node", "--std", "robust"], "--std robust"),
        (vec!["rfc2-one-node", "--machine", "jacobsville"], "--machine cannot change"),
        (vec!["rfc2-one-node", "--policies", "linux-5.9,nonsense"], "unknown policy `nonsense`"),
        (vec!["--list", "rfc2-one-node"], "--list"),
        (vec!["rfc2-one-node", "--without", "clocks"], "--without `clocks`: there is no mechanism `clocks`; there are"),
        (vec!["rfc2-one-node", "--without", "tick,"], "there is no mechanism ``"),
        (vec!["rfc2-one-node", "--cluster", "maybe"], "--cluster maybe: must be on or off"),
        (vec!["rfc2-one-node", "--switch-cluster", "-1"], "--switch-cluster `-1`: must be from 0 to 3600"),
        (vec!["rfc2-one-node", "--switch-cluster", "soon"], "--switch-cluster `soon`"),
        (
            own("--policies", "linux-5.9,linux-5.10", &["--cluster", "off"]),
            "none of the kernels 5.9, 5.10 has a cluster",
        ),
        (vec!["--machine", "kunpeng920"], "give all of --machine, --workload, --load and --policies"),
        (own("--machine", "pdp11", &[]), "pdp11"),
        (own("--workload", "hackbench/carrier-pigeon", &[]), "unknown workload"),
        (own("--workload", "hackbench/threads-pipe,loops=0", &[]), "loops=0"),
        (own("--load", "1,,2", &[]), "--load `1,,2`"),
        (own("--load", "0", &[]), "--load: 0 is no load"),
        (own("--load", "-1", &[]), "`-1` must be a whole number"),
        (own("--load", "99999", &[]), "load 99999"),
        (own("--workload", "hackbench/threads-pipe,loops=1,loops=2", &[]), "`loops` is given twice"),
        (
            vec![
                "--machine",
                "kunpeng920",
                "--workload",
                "hackbench/threads-pipe,fds=1000",
                "--load",
                "10000",
                "--policies",
                "linux-5.9",
            ],
            "would be 20000001 tasks; at most 1000000",
        ),
        (own("", "", &["--nodes", "0,0"]), "nodes: 0 is given twice"),
        (own("--load", "1,1", &[]), "loads: 1 is given twice"),
        (own("--policies", "", &[]), "--policies ``"),
        (own("--policies", "linux-5.9,linux-5.9", &[]), "`linux-5.9` is named twice"),
        (own("", "", &["--nodes", "17"]), "has no node 17"),
        (own("", "", &["--nodes", "0", "--cpus", "0-3"]), "not both"),
        (own("", "", &["--cpus", "0-9999"]), "is not online"),
        (own("", "", &["--cpus", "3-1"]), "runs backwards"),
        (
            own("--workload", "hackbench/threads-socket,size=4097", &[]),
            "`size=4097` must be a whole number from 1 to 4096",
        ),
        (own("--workload", "hogs/forked,ms=5", &[]), "`ms=5` must be a whole number from 20 to"),
        (own("--workload", "pingpong/pairs,via=fifo", &[]), "`via=fifo` must be one of pipe, socket, futex"),
        (
            own("", "", &["--override", "steps=5.9"]),
            "--override `steps=5.9`: there is no part `steps`; write kernel=RECORD",
        ),
        (own("", "", &["--override", ""]), "--override ``: there is no part ``"),
        (
            own("", "", &["--override", "queue=2.6"]),
            "--override `queue=2.6`: unknown kernel `2.6`: known are 4.17, 5.9,",
        ),
    ] {
        let (status, line) = refused(&arguments);
        assert_eq!(status, 2, "{arguments:?}: {line}");
        assert!(line.contains(said), "{arguments:?}: {line}");
    }
}

#[test]
fn an_override_puts_all_policies_on_equal_ground_and_is_told_in_head_and_json() {
    let text = |more: &[&str]| {
        let output = huddle(&own("--load", "1", &["--runs", "1"])).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let parts = ["--override", "queue=5.10,kernel=6.1"];
    let table = text(&parts);
    assert!(table.contains("  override   kernel=6.1,queue=5.10 for all policies, in place of their own"), "{table}");
    for policy in ["linux-5.9", "rfc2-cluster"] {
        assert!(table.contains(&format!("{policy} on kernel 6.1 with queue=5.10\n")), "{table}");
    }
    let json = |more: &[&str]| -> serde_json::Value { serde_json::from_str(&text(more)).unwrap() };
    let over = json(&[&parts[..], &["--json", "-"]].concat());
    assert_eq!(over["override"], serde_json::json!({ "kernel": "6.1", "queue": "5.10" }));
    assert_eq!(json(&["--json", "-"])["override"], serde_json::Value::Null);
}

#[test]
fn every_mode_of_hackbench_and_the_pairs_and_hogs_make_a_table() {
    for (workload, metric) in [
        ("hackbench/threads-socket,fds=3,size=1000", "seconds for 100000 loops"),
        ("hackbench/processes-pipe,fds=3", "seconds for 100000 loops"),
        ("hackbench/processes-socket,fds=3", "seconds for 100000 loops"),
        ("pingpong/pairs,via=futex,run_ns=2000", "round trips/s"),
        ("hogs/forked", "clusters used"),
    ] {
        let arguments = own("--workload", workload, &["--runs", "1", "--seconds", "0.02"]);
        let output = huddle(&arguments).args(["--cpus", "0-23"]).output().unwrap();
        assert!(output.status.success(), "{workload}: {}", String::from_utf8_lossy(&output.stderr));
        let table = String::from_utf8(output.stdout).unwrap();
        let name = workload.split(',').next().unwrap();
        assert!(table.contains(&format!("  workload   {name}; {metric}")), "{table}");
    }
}

#[test]
fn a_wrong_experiment_file_is_one_line_with_file_and_key_and_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, "name = \"mine\"\nruns = \"many\"\n").unwrap();
    let (status, line) = refused(&[path.to_str().unwrap()]);
    assert!(status == 1 && line.contains("mine.toml:2: `runs`:"), "{line}");
    let (status, line) = refused(&[folder.path().join("none.toml").to_str().unwrap()]);
    assert!(status == 1 && line.contains("none.toml: cannot be read"), "{line}");
    fs::write(
        &path,
        "name = \"mine\"\ntitle = \"Mine\"\nmachine = \"pdp11\"\nworkload = \"mcf/copies\"\nloads = [1]\n\
         policies = [\"linux-5.9\"]\nruns = 1\nseconds = 1.0\nreduced = { runs = 1, seconds = 1.0 }\n",
    )
    .unwrap();
    let (status, line) = refused(&[path.to_str().unwrap()]);
    assert!(status == 1 && line.contains("mine.toml: machine: no machine `pdp11`"), "{line}");
}

#[test]
fn two_policies_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.toml");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/linux-5.9.toml"), &copy).unwrap();
    let policies = format!("linux-5.9,{}", copy.display());
    let (status, line) = refused(&own("--policies", &policies, &[]));
    assert!(status == 2 && line.contains("are both named `linux-5.9`"), "{line}");
}

#[test]
fn what_is_no_regular_file_is_written_into_and_links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let list = |json: &str| huddle(&["--list", "--json", json]).output().unwrap().status.code();

    // A FIFO stays one, and its reader gets the document.
    let fifo = path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read_to_string(fifo).unwrap()
    });
    assert_eq!(list(&fifo), Some(0));
    assert!(reader.join().unwrap().contains("huddle-experiments/1"));
    assert!(!fs::symlink_metadata(&fifo).unwrap().is_file());

    // A socket cannot be written into and stays one.
    let socket = path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(list(&socket), Some(1));
    assert!(!fs::symlink_metadata(&socket).unwrap().is_file());

    // A link stays one, whether what it points to exists or not.
    fs::create_dir(path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere/result.json", path("link")).unwrap();
    for _ in 0..2 {
        assert_eq!(list(&path("link")), Some(0));
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        assert!(fs::read_to_string(path("elsewhere/result.json")).unwrap().contains("huddle-experiments/1"));
        assert_eq!(files(Path::new(&path("elsewhere"))), ["result.json"]);
    }
    assert_eq!(list("/dev/null"), Some(0));
    assert_eq!(list("/dev/full"), Some(1));
}

#[test]
fn the_title_states_no_length_that_is_not_run() {
    let output = huddle(&own("", "", &["--runs", "1", "--seconds", "0.001"])).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("own: hackbench/threads-pipe,fds=2 on kunpeng920\n"), "{text}");
}

#[test]
fn the_result_file_is_tried_before_anything_is_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none/result.json");
    let (status, line) = refused(&["rfc2-one-node", "--json", nowhere.to_str().unwrap()]);
    assert!(status == 1 && line.contains("result.json: cannot be written"), "{line}");
    let (status, line) = refused(&["rfc2-one-node", "--json", folder.path().to_str().unwrap()]);
    assert!(status == 2 && line.contains("is a folder"), "{line}");
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn the_list_names_every_experiment_as_text_and_json() {
    let text = String::from_utf8(huddle(&["--list"]).output().unwrap().stdout).unwrap();
    let json = huddle(&["--list", "--json", "-"]).output().unwrap().stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let names: Vec<&str> =
        json["experiments"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["jacobsville-mcf", "rfc2-one-node", "rfc2-two-nodes"]);
    assert!(names.iter().all(|name| text.lines().any(|line| line == *name)));
}

#[test]
fn kunpeng_two_groups_give_the_same_bytes_for_any_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let result = |jobs: &str| {
        let path = folder.path().join(format!("{jobs}.json"));
        let path = path.to_str().unwrap();
        let output =
            huddle(&own("", "", &["--nodes", "0", "--runs", "2", "--jobs", jobs, "--json", path])).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "progress was shown without a terminal");
        (String::from_utf8(output.stdout).unwrap(), fs::read_to_string(path).unwrap())
    };
    let (text, json) = result("1");
    assert_eq!(result("2"), (text.clone(), json.clone()));
    assert_eq!(files(folder.path()), ["1.json", "2.json"]);

    assert!(text.contains("\nhackbench\n=========\ncase            \tload    \tbaseline(std%)\tcompare%( std%)\n"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "huddle-compare/1");
    assert_eq!(json["machine"]["used"], "0-23");
    assert_eq!(json["policies"][1]["name"], "rfc2-cluster");
    let policy = &json["policies"][1];
    assert_eq!(policy["steps_text"].as_array().unwrap().len(), policy["steps"].as_array().unwrap().len());
    let costs = json["machine"]["costs"].as_object().unwrap();
    assert!(costs.values().any(serde_json::Value::is_number) && costs.values().any(serde_json::Value::is_object));
    let cell = &json["loads"][1]["cells"][1];
    assert_eq!(cell["runs"].as_array().unwrap().len(), 2);
    // 2 groups of 2 x 2 tasks, 5 messages from each sender to each receiver, and 8 ready bytes.
    assert_eq!(cell["runs"][0]["messages"], 2 * 4 * 5 + 8);
    let seeds =
        |cell: &serde_json::Value| cell["runs"].as_array().unwrap().iter().map(|run| run["seed"].clone()).collect();
    let seeds: [Vec<serde_json::Value>; 2] = [seeds(&json["loads"][1]["cells"][0]), seeds(cell)];
    assert_eq!(seeds[0], seeds[1]);
}

/// Experiments convert what they simulate to the published length: a longer simulation must tell the same.
#[test]
fn jacobsville_mcf_verdicts_do_not_depend_on_the_length() {
    let verdicts = |seconds: &str| {
        let arguments = ["jacobsville-mcf", "--runs", "3", "--seconds", seconds];
        let output = huddle(&arguments).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let rows = text.lines().skip_while(|line| !line.contains("verdict")).skip(1).take(4);
        let words = ["better", "worse", "same", "undecided"];
        rows.map(|row| words.iter().find(|word| row.contains(*word)).copied().unwrap()).collect::<Vec<_>>()
    };
    let short = verdicts("10");
    assert_eq!(short, ["same", "better", "better", "same"]);
    assert_eq!(verdicts("20"), short);
}

#[test]
fn another_seed_gives_another_result() {
    let result = |seed: &str| huddle(&own("", "", &["--runs", "1", "--seed", seed, "--json", "-"])).output().unwrap();
    let (first, second) = (result("1"), result("2"));
    assert!(first.status.success() && second.status.success());
    assert_ne!(first.stdout, second.stdout);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("huddle"))
        .args(["compare", "--list"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Text and JSON of a comparison of one's own.
fn compared(more: &[&str]) -> (String, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("result.json");
    let mut arguments = own("--workload", "hackbench/threads-pipe,loops=50", &["--runs", "2"]);
    arguments[5] = "1";
    arguments.extend(more);
    arguments.extend(["--json", file.to_str().unwrap()]);
    let output = huddle(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap())
}

#[test]
fn what_is_left_out_is_said_in_head_and_json_and_costs_nothing() {
    let (text, json) = compared(&["--without", "scan-cost,tick"]);
    assert!(text.contains("\n  without    scan-cost, tick\n"), "{text}");
    assert_eq!(json["changed"]["without"], serde_json::json!(["scan-cost", "tick"]));
    let search = |json: &serde_json::Value| json["loads"][0]["cells"][0]["runs"][0]["cpu_ns"]["search"].clone();
    assert_eq!(search(&json), 0);
    let (text, json) = compared(&[]);
    assert!(!text.contains("\n  without ") && !text.contains("\n  cluster "), "{text}");
    assert_ne!(search(&json), 0);
    assert_eq!(json["changed"], serde_json::json!({ "without": [], "cluster": "on", "switch_cluster_s": null }));
}

#[test]
fn the_cluster_level_is_switched_for_the_kernels_that_have_it_and_runs_say_when() {
    let (text, json) = compared(&["--cluster", "off", "--switch-cluster", "0.0001"]);
    let head = "\n  cluster    level off at boot, switched on 0.0001 s after a run's start, for rfc2-cluster\n";
    assert!(text.contains(head), "{text}");
    let rebuilt = |policy: usize| json["loads"][0]["cells"][policy]["runs"][0]["rebuilt_s"].clone();
    assert_eq!((rebuilt(0), rebuilt(1)), (serde_json::Value::Null, serde_json::json!(0.0001)));
    let (text, _) = compared(&["--switch-cluster", "3600"]);
    assert!(text.contains("for rfc2-cluster\n             2 of their runs ended before that\n"), "{text}");
    let (text, _) = compared(&["--cluster", "off"]);
    assert!(text.contains("\n  cluster    level off, for rfc2-cluster\n"), "{text}");
}

#[test]
fn the_mechanisms_are_listed_without_an_experiment() {
    let output = huddle(&["--without", "help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("\nscan-cost     Examining CPUs"), "{text}");
}
