//! The scheduler on a real kernel: attached in a guest of 24 CPUs in 6 clusters, switched, stopped, ejected, and stressed.

#![cfg(feature = "live")]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use xtask::guest::{Guest, Kept, Streams};
use xtask::shape::Shape;
use xtask::{guests, packages, stress};

/// A release whose type information is whole: those of Debian's 7.2.9 to 7.2.12 lack functions that every scheduler needs.
const KERNEL: &str = "7.2.6";

/// Waits until the state is $1.
const HEAD: &str = r#"
state() { n=0; while [ "$(cat /sys/kernel/sched_ext/state)" != "$1" ] && [ $n -lt 60 ]; do sleep 1; n=$((n + 1)); done; cat /sys/kernel/sched_ext/state; }
load() { for i in 1 2 3 4 5 6; do (for j in 1 2 3 4 5 6 7 8; do echo $j | cat > /dev/null; done) & done; wait $!; }
"#;

/// What the script writes, line by line.
fn in_guest(script: &str, with_stress: bool) -> Option<String> {
    if std::env::var_os("HUDDLE_GUESTS").is_some_and(|value| value == "0") {
        println!("HUDDLE_GUESTS=0: no guest was booted");
        return None;
    }
    let cache = packages::cache().unwrap();
    let topology = guests::find("clusters").unwrap().topology().unwrap();
    let shape = Shape::of("clusters", &topology).unwrap();
    let mut programs = vec![Path::new(env!("CARGO_BIN_EXE_huddle")).to_owned()];
    if with_stress {
        programs.push(stress::program(&cache).unwrap());
    }
    let guest = Guest {
        shape: &shape,
        series: KERNEL,
        command: format!("{HEAD}{script}"),
        programs,
        offline: Vec::new(),
        append: String::new(),
        timeout: Duration::from_secs(900),
        console: None,
    };
    let out = Kept::default();
    let streams = Streams { out: Box::new(out.clone()), err: Box::new(std::io::stderr()) };
    guest.run(&cache, streams).unwrap();
    Some(String::from_utf8_lossy(&out.take()).into_owned())
}

#[test]
fn six_clusters_attach_switch_stop_and_be_ejected() {
    let script = r#"
huddle run --mode gather 2> /tmp/one & one=$!
echo "attached $(state enabled) $(cat /sys/kernel/sched_ext/root/ops)"
seq=$(cat /sys/kernel/sched_ext/enable_seq)
huddle run > /tmp/two 2>&1; echo "second $? $(wc -l < /tmp/two) $(cat /tmp/two)"
load
huddle mode spread; echo "mode $?"
huddle mode away 2> /dev/null; echo "wrong $?"
load
[ "$seq" = "$(cat /sys/kernel/sched_ext/enable_seq)" ] && echo "not loaded again"
huddle status --json > /tmp/status; grep -c '"mode": "spread"' /tmp/status
huddle status | grep -c "^placed by huddle-"
ls -l /run/huddle.sock | cut -c1-10
kill -TERM $one; wait $one; echo "signal $? $(state disabled)"
ls /run/huddle.sock 2> /dev/null
huddle status 2> /tmp/none; echo "nobody $? $(wc -l < /tmp/none)"
huddle run --policy linux-6.7 2> /dev/null & two=$!
echo "policy $(state enabled)"; load
huddle mode gather 2> /dev/null; echo "modes of a policy $?"
huddle stop; wait $two; echo "stopped $? $(state disabled)"
huddle run 2> /tmp/three & three=$!
state enabled > /dev/null
echo S > /proc/sysrq-trigger
wait $three; echo "ejected $? $(grep -c 'the kernel ended the scheduler' /tmp/three) $(state disabled)"
"#;
    let Some(out) = in_guest(script, false) else { return };
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "attached enabled huddle", "{out}");
    assert!(lines[1].starts_with("second 1 1 huddle: the sched_ext scheduler `huddle"), "{out}");
    let rest = [
        "mode 0",
        "wrong 2",
        "not loaded again",
        "1",
        "3",
        "srw-------",
        "signal 0 disabled",
        "nobody 1 1",
        "policy enabled",
        "modes of a policy 1",
        "stopped 0 disabled",
        "ejected 1 1 disabled",
    ];
    assert_eq!(lines[2..], rest, "{out}");
}

#[test]
fn six_clusters_stand_a_minute_of_stress_in_both_modes() {
    let command = stress::COMMAND.replace("--timeout 60", "--timeout 30").replace("--metrics-brief", "--quiet");
    let script = format!(
        r#"
for mode in gather spread; do
    huddle run --mode $mode 2> /tmp/run & run=$!
    state enabled > /dev/null
    {command} > /tmp/stress 2>&1; echo "$mode $? $(cat /sys/kernel/sched_ext/state)"
    huddle stop; wait $run; echo "left $? $(state disabled)"
done
dmesg | grep -c -i -E "stall|lockup|BUG:"
"#
    );
    let Some(out) = in_guest(&script, true) else { return };
    let lines: Vec<&str> = out.lines().collect();
    let expected = ["gather 0 enabled", "left 0 disabled", "spread 0 enabled", "left 0 disabled", "0"];
    assert_eq!(lines, expected, "{out}");
}
