//! `huddle calibrate` as a user runs it, where nothing is replayed.

#![allow(clippy::unwrap_used, clippy::panic)]

use assert_cmd::Command;

/// The one line that a wrong use leaves on stderr.
fn refused(arguments: &[&str]) -> String {
    let output = Command::cargo_bin("huddle").unwrap().arg("calibrate").args(arguments).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), line.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{line}");
    line
}

#[test]
fn machines_without_measurements_and_wrong_experiments_are_refused_in_one_line() {
    assert!(refused(&["nosuch"]).contains("nosuch"));
    assert!(refused(&["rome"]).contains("kunpeng920"), "the machine that has some is named");
    let line = refused(&["kunpeng920", "--sensitivity", "--experiment", "jacobsville-mcf"]);
    assert!(line.contains("is for the machine jacobsville, not kunpeng920"), "{line}");
    assert!(refused(&["rome", "--sensitivity"]).contains("no shipped experiment is for rome"));
}
