//! `huddle domains --check` against kernels recorded in guests (`tests/captures`, see docs/kernels.md).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

fn huddle(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_huddle")).arg("domains").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn capture(name: &str) -> String {
    format!("{}/tests/captures/{name}.tar.xz", env!("CARGO_MANIFEST_DIR"))
}

/// A capture in a folder, to be changed.
struct Unpacked(TempDir);

impl Unpacked {
    fn new(name: &str) -> Unpacked {
        let folder = tempfile::tempdir().unwrap();
        let file = liblzma::read::XzDecoder::new(File::open(capture(name)).unwrap());
        tar::Archive::new(file).unpack(folder.path().join("box")).unwrap();
        Unpacked(folder)
    }

    fn top(&self) -> PathBuf {
        self.0.path().join("box")
    }

    fn edit(&self, path: &str, change: impl Fn(String) -> String) {
        let path = self.top().join(path);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let changed = change(text.clone());
        assert_ne!(changed, text, "{}", path.display());
        fs::write(path, changed).unwrap();
    }

    fn replace(&self, path: &str, from: &str, to: &str) {
        self.edit(path, |text| text.replace(from, to));
    }

    fn remove(&self, path: &str) {
        let path = self.top().join(path);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn check(&self, args: &[&str]) -> (i32, String, String) {
        let top = self.top();
        huddle(&[&["--check", "--from", top.to_str().unwrap()], args].concat())
    }
}

/// What is printed, without the first line.
fn body(out: &str) -> String {
    out.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned())
}

const DEBUGFS: &str = "sys/kernel/debug/sched/domains";

#[test]
fn recorded_kernels_have_the_domains_that_their_records_give() {
    let leaving = "not compared: some intervals of cpu0-2,4-7,12-19,21-23: they count one CPU more, which was going \
                   offline when the domains were made\n";
    let fault = "note: the kernel itself finds fault with its domains: ERROR: groups don't span domain->span\n";
    for (name, first, rest) in [
        ("5.10-four-nodes", "16 CPUs, Linux 5.10.0-32-cloud-amd64, record 5.10, compared with sysctl", fault),
        ("6.12-offline", "18 CPUs, Linux 6.12.117+deb13-cloud-amd64, record 6.12, compared with debugfs", leaving),
        ("6.18-c6", "24 CPUs, Linux 6.18.15+deb13-cloud-amd64, record 6.17, compared with debugfs", ""),
        ("6.18-arm64-clusters", "24 CPUs, Linux 6.18.15+deb13-cloud-arm64, record 6.17, compared with debugfs", ""),
        (
            "7.2-isolated",
            "16 CPUs (2,8-11 isolated), Linux 7.2.12+deb13-cloud-amd64, record 7.2, compared with debugfs",
            "",
        ),
        ("7.3-four-nodes", "16 CPUs, Linux 7.3.4+deb13-cloud-amd64, record 7.2, compared with debugfs", ""),
    ] {
        let (status, out, err) = huddle(&["--check", "--from", &capture(name)]);
        assert_eq!(out, format!("{name}.tar.xz, {first}, schedstat, log\n{rest}no difference\n"), "{err}");
        assert_eq!((status, err.as_str()), (0, ""));
    }
}

#[test]
fn isolation_that_the_capture_hides_shows_in_spans_groups_and_intervals() {
    let unpacked = Unpacked::new("7.2-isolated");
    unpacked.edit("sys/devices/system/cpu/isolated", |_| "\n".to_owned());
    let (status, out, _) = unpacked.check(&[]);
    assert_eq!(status, 1);
    insta::assert_snapshot!(body(&out), @r"
    kernel says root domains {0-1,3-7,12-15}, Huddle says {0-15}
    cpu0-1,3 domain0 CLS: kernel says min_interval 3, Huddle says 4
    cpu0-1,3 domain0 CLS: kernel says max_interval 6, Huddle says 8
    cpu0-1,3 domain0 CLS: kernel says span 0-1,3, Huddle says 0-3
    cpu0 domain0 CLS: kernel says groups {0} {1} {3}, Huddle says {0} {1} {2} {3}
    cpu0-1,3-7,12-15 domain1 MC: kernel says min_interval 11, Huddle says 16
    cpu0-1,3-7,12-15 domain1 MC: kernel says max_interval 22, Huddle says 32
    cpu0-1,3-7,12-15 domain1 MC: kernel says span 0-1,3-7,12-15, Huddle says 0-15
    cpu0-1,3 domain1 MC: kernel says groups {0-1,3} {4-7} {12-15}, Huddle says {0-3} {4-7} {8-11} {12-15}
    cpu1 domain0 CLS: kernel says groups {1} {3} {0}, Huddle says {1} {2} {3} {0}
    cpu2 domain0: Huddle has domain CLS 0-3, the kernel does not
    cpu2,8-11 domain1: Huddle has domain MC 0-15, the kernel does not
    cpu3 domain0 CLS: kernel says groups {3} {0} {1}, Huddle says {3} {0} {1} {2}
    cpu4-7 domain1 MC: kernel says groups {4-7} {12-15} {0-1,3}, Huddle says {4-7} {8-11} {12-15} {0-3}
    cpu8-11 domain0: Huddle has domain CLS 8-11, the kernel does not
    cpu12-15 domain1 MC: kernel says groups {12-15} {0-1,3} {4-7}, Huddle says {12-15} {0-3} {4-7} {8-11}
    not compared: groups of cpu2,8-11: the log does not tell of them; sched_verbose was off, or the log begins too late
    note: cpusets are not read: all online CPUs but the isolated count as one partition
    16 differences
    ");
    // Without the file the command line tells.
    unpacked.remove("sys/devices/system/cpu/isolated");
    assert_eq!(unpacked.check(&[]).1.lines().last(), Some("no difference"));
}

#[test]
fn one_thing_changed_of_each_kind_gives_exactly_those_differences() {
    let unpacked = Unpacked::new("6.18-c6");
    for cpu in 0..24 {
        unpacked.replace(&format!("{DEBUGFS}/cpu{cpu}/domain1/max_interval"), "48", "96");
    }
    unpacked.replace(&format!("{DEBUGFS}/cpu5/domain0/flags"), "SD_CLUSTER ", "");
    unpacked.replace(&format!("{DEBUGFS}/cpu6/domain1/groups_flags"), "SD_CLUSTER", "SD_NUMA");
    unpacked.replace(&format!("{DEBUGFS}/cpu7/domain0/level"), "0", "1");
    unpacked.replace(&format!("{DEBUGFS}/cpu8/domain0/name"), "CLS", "L2");
    unpacked.remove(&format!("{DEBUGFS}/cpu9/domain1"));
    unpacked.edit("proc/schedstat", |text| {
        let (before, cpu) = text.split_once("cpu11 ").unwrap();
        format!("{before}cpu11 {}", cpu.replacen("000f00", "000300", 1))
    });
    unpacked.replace("dmesg", "groups: 10:{ span=10 }, 11:{ span=11 }", "groups: 11:{ span=11 }, 10:{ span=10 }");
    let (status, out, err) = unpacked.check(&[]);
    assert_eq!(status, 1);
    insta::assert_snapshot!(body(&out), @r"
    cpu0-8,10-23 domain1 MC: kernel says max_interval 96, Huddle says 48
    cpu5 domain0 CLS: Huddle has flags SD_CLUSTER, the kernel does not
    cpu6 domain1 MC: kernel has groups_flags SD_NUMA, Huddle does not
    cpu6 domain1 MC: Huddle has groups_flags SD_CLUSTER, the kernel does not
    cpu7 domain0 CLS: kernel says level 1, Huddle says 0
    cpu8 domain0 CLS: kernel says name L2, Huddle says CLS
    cpu9 domain1: Huddle has domain MC 0-23, the kernel does not
    cpu10 domain0 CLS: kernel says groups {11} {10} {8} {9}, Huddle says {10} {11} {8} {9}
    cpu11 domain0 CLS: kernel says span 8-9, Huddle says 8-11
    not compared: groups of cpu11: the log tells of other domains than /proc/schedstat shows; sched_verbose was off since
    note: cpusets are not read: all online CPUs but the isolated count as one partition
    9 differences
    ");
    assert_eq!(err, "huddle: box: 9 differences between the kernel and the record 6.17\n");
}

#[test]
fn json_has_the_same_in_fields() {
    let unpacked = Unpacked::new("6.18-c6");
    unpacked.replace(&format!("{DEBUGFS}/cpu7/domain0/level"), "0", "1");
    let (status, out, err) = unpacked.check(&["--json"]);
    assert_eq!(status, 1, "{err}");
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&value["cpus"], &value["isolated"], &value["kernel"]), (&24.into(), &"".into(), &"6.17".into()));
    assert_eq!((&value["machine"], &value["release"]), (&"box".into(), &"6.18.15+deb13-cloud-amd64".into()));
    assert_eq!(value["sources"], serde_json::json!(["debugfs", "schedstat", "log"]));
    let difference = serde_json::json!({
        "cpus": "7", "domain": 0, "name": "CLS", "field": "level", "kernel": "1", "huddle": "0",
        "text": "cpu7 domain0 CLS: kernel says level 1, Huddle says 0",
    });
    assert_eq!(value["differences"], serde_json::json!([difference]));
    assert_eq!((&value["not_compared"], &value["notes"]), (&serde_json::json!([]), &serde_json::json!([])));
}

#[test]
fn another_release_s_record_differs_where_the_releases_do() {
    let (status, out, _) = huddle(&["--check", "--from", &capture("6.18-c6"), "--kernel", "6.7"]);
    assert_eq!(status, 1);
    insta::assert_snapshot!(body(&out), @r"
    cpu0-23 domain0 CLS: kernel says level 0, Huddle says 1
    cpu0-23 domain0 CLS: kernel has a file level, Huddle does not
    cpu0-23 domain0 CLS: kernel has flags SD_SHARE_LLC, Huddle does not
    cpu0-23 domain0 CLS: Huddle has flags SD_SHARE_PKG_RESOURCES, the kernel does not
    cpu0-23 domain1 MC: kernel says level 1, Huddle says 2
    cpu0-23 domain1 MC: kernel has a file level, Huddle does not
    cpu0-23 domain1 MC: kernel has flags SD_SHARE_LLC, Huddle does not
    cpu0-23 domain1 MC: Huddle has flags SD_SHARE_PKG_RESOURCES, the kernel does not
    cpu0-23 domain1 MC: kernel has groups_flags SD_SHARE_LLC, Huddle does not
    cpu0-23 domain1 MC: Huddle has groups_flags SD_SHARE_PKG_RESOURCES, the kernel does not
    10 differences
    ");
}

#[test]
fn padded_copies_are_read_as_if_they_were_not() {
    fn pad(folder: &Path) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                pad(&entry);
            } else {
                let mut data = fs::read(&entry).unwrap();
                data.resize(data.len().next_multiple_of(4096), 0);
                fs::write(&entry, data).unwrap();
            }
        }
    }
    let unpacked = Unpacked::new("6.18-c6");
    pad(&unpacked.top());
    let (status, out, err) = unpacked.check(&[]);
    assert_eq!((status, body(&out).as_str()), (0, "no difference\n"), "{err}");
}

#[test]
fn what_a_capture_lacks_is_said_and_the_rest_compared() {
    let unpacked = Unpacked::new("6.18-c6");
    let log = unpacked.0.path().join("log.txt");
    fs::rename(unpacked.top().join("dmesg"), &log).unwrap();
    let (status, out, _) = unpacked.check(&[]);
    assert_eq!(status, 0);
    let no_log = "not compared: groups: the capture has no file dmesg beside sys; give --log FILE\n";
    assert_eq!(body(&out), format!("{no_log}no difference\n"));
    assert_eq!(unpacked.check(&["--log", log.to_str().unwrap()]).1.lines().last(), Some("no difference"));

    unpacked.remove("sys/kernel");
    let (status, out, _) = unpacked.check(&[]);
    let no_debugfs = "not compared: names, levels, flags and numbers: there is no sys/kernel/debug/sched/domains; \
                      mount debugfs (mount -t debugfs none /sys/kernel/debug)\n";
    assert_eq!((status, body(&out)), (0, format!("{no_debugfs}{no_log}no difference\n")));

    unpacked.remove("proc/schedstat");
    let (status, out, err) = unpacked.check(&[]);
    let no_schedstat = "not compared: spans: there is no proc/schedstat; the kernel needs CONFIG_SCHEDSTATS\n";
    assert_eq!((status, body(&out)), (1, format!("{no_debugfs}{no_schedstat}{no_log}")));
    assert!(out.lines().next().unwrap().ends_with("compared with nothing"), "{out}");
    assert_eq!(err, "huddle: box: the kernel shows nothing of its domains to compare with\n");
}

#[test]
fn debugfs_without_domains_says_how_to_get_them() {
    let unpacked = Unpacked::new("6.18-c6");
    unpacked.remove(DEBUGFS);
    fs::write(unpacked.top().join("sys/kernel/debug/sched/verbose"), "N\n").unwrap();
    let verbose = "write Y into sys/kernel/debug/sched/verbose";
    assert!(unpacked.check(&[]).1.contains(verbose), "{}", unpacked.check(&[]).1);
    unpacked.remove("sys/kernel/debug/sched");
    fs::create_dir_all(unpacked.top().join("sys/kernel/debug/bdi")).unwrap();
    assert!(unpacked.check(&[]).1.contains("the kernel needs CONFIG_SCHED_DEBUG, and sched_verbose at boot"));
}

#[test]
fn release_comes_from_the_version_when_osrelease_is_missing() {
    let unpacked = Unpacked::new("6.18-c6");
    unpacked.remove("proc/sys/kernel/osrelease");
    assert!(unpacked.check(&[]).1.contains(", Linux 6.18.15+deb13-cloud-amd64, record 6.17, "));
    unpacked.remove("proc/version");
    let (status, out, err) = unpacked.check(&[]);
    assert_eq!((status, out.as_str(), err.lines().count()), (1, "", 1));
    assert!(err.ends_with("tells no kernel release (proc/sys/kernel/osrelease); give --kernel\n"), "{err}");
    assert_eq!(unpacked.check(&["--kernel", "6.17"]).0, 0);
}

#[test]
fn bad_input_is_one_line_that_names_it() {
    let spoilt = |path: &str, content: &str| {
        let unpacked = Unpacked::new("6.18-c6");
        fs::write(unpacked.top().join(path), content).unwrap();
        unpacked
    };
    for (path, content, parts) in [
        ("proc/schedstat", "hello\n", &["box: proc/schedstat: has no line `version N`"][..]),
        (&format!("{DEBUGFS}/cpu3/domain1/level"), "two\n", &["cpu3/domain1/level: `two` is not a number"]),
        ("dmesg", "CPU0 attaching sched-domain(s):\n domain-0: span=x\n", &["box: dmesg: line 2: `x` is not a CPU"]),
        ("sys/devices/system/cpu/isolated", "1-\n", &["cpu/isolated: ", "`1-`"]),
        ("proc/sys/kernel/osrelease", "2.6.39\n", &["no kernel record for `2.6.39`: the oldest is 4.17"]),
        ("sys/devices/system/cpu/online", "x\n", &["cpu/online: `x`"]),
    ] {
        let (status, out, err) = spoilt(path, content).check(&[]);
        assert_eq!((status, out.as_str(), err.lines().count()), (1, "", 1), "{path}: {err}");
        for part in parts {
            assert!(err.contains(part), "{path}: {err}");
        }
    }
}

#[test]
fn wrong_use_is_refused() {
    let capture = capture("6.18-c6");
    for (args, status, part) in [
        (&["--check", "--from", "no/such"][..], 1, "no/such: no such file or folder"),
        (&["--check", "--from", &capture, "--log", "no/such"], 1, "no/such: cannot be read"),
        (&["--check", "--from", &capture, "--kernel", "4.4"], 2, "unknown kernel `4.4`"),
        (&["--check", "--from", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 1, "Cargo.toml: "),
        (&["--from", &capture], 2, "--check"),
        (&["--log", &capture], 2, "--check"),
        (&["kunpeng920", "--check"], 2, "--check"),
        (&["--check", "--cpu", "0"], 2, "--cpu"),
    ] {
        let (code, out, err) = huddle(args);
        assert_eq!((code, out.as_str()), (status, ""), "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
}
