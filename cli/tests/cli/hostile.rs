//! Malicious files and names: the exit status is 2, and no file is lost.

use std::fs;
use std::path::Path;

use crate::command::{holdfast, holdfast_in, scratch};

const EXPERIMENT: &str = r#"name = "NAME"
title = "one guest"
metric = "elapsed"

[[vm]]
name = "build"
workload = "kernbench"

[[cases]]
name = "CASE"
"#;

#[test]
fn an_experiments_name_leads_to_no_other_folder() {
    let folder = scratch();
    for name in ["../../escaped", "/escaped", "a/b", ".", "", "\\u001b[2J", "..\\\\x"] {
        fs::write(folder.path().join("mine.toml"), EXPERIMENT.replace("NAME", name)).expect("writable");
        let ran = holdfast_in(folder.path(), &["run", "mine.toml", "--out", "in/here"]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{name:?}");
        assert!(
            ran.err.contains("mine.toml:1: name: found \"") && ran.err.contains("expected a name that files can have"),
            "{}",
            ran.err
        );
        assert!(!ran.err.contains('\u{1b}'));
    }
    let long = "n".repeat(101);
    fs::write(folder.path().join("mine.toml"), EXPERIMENT.replace("NAME", &long)).expect("writable");
    assert_eq!(holdfast_in(folder.path(), &["run", "mine.toml"]).status, 2);
    let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "only the experiment itself");
}

#[test]
fn a_cases_name_is_one_that_can_be_shown() {
    let folder = scratch();
    for name in ["", "a\\tb", "\\u0007"] {
        let text = EXPERIMENT.replace("NAME", "mine").replace("CASE", name);
        fs::write(folder.path().join("mine.toml"), text).expect("writable");
        let ran = holdfast_in(folder.path(), &["run", "mine.toml"]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{name:?}");
        assert!(
            ran.err.contains("expected a name without control characters"),
            "{}",
            ran.err
        );
    }
}

/// Returns a result file that `change` has changed.
fn changed(folder: &Path, change: impl Fn(&str) -> String) {
    let text = include_str!("../../../lab/tests/integration/real-host.json");
    let text = change(text);
    fs::write(folder.join("bad.json"), text).expect("writable");
}

#[test]
fn damaged_results_are_refused_by_all_that_read_them() {
    let folder = scratch();
    for (from, to) in [
        ("\"scale\": 0.02", "\"scale\": NaN"),
        ("\"scale\": 0.02", "\"scale\": 1e999"),
        ("\"scale\": 0.02", "\"scale\": -0.0"),
        ("\"period_ns\": 24000000", "\"period_ns\": 99999999999999999999999999"),
        ("\"contenders\"", "\"\\u001b]0;x\\u0007\""),
        ("\"higher\"", "\"\""),
    ] {
        changed(folder.path(), |text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        for command in ["explain", "compare", "report"] {
            let ran = holdfast_in(folder.path(), &[command, "bad.json"]);
            assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{command}: {to}");
            assert!(ran.err.starts_with("error: bad.json:"), "{}", ran.err);
            assert!(!ran.err.contains('\u{1b}'), "{:?}", ran.err);
        }
    }
    assert!(!folder.path().join("bad.html").exists());
    // These numbers are huge but valid.
    changed(folder.path(), |text| {
        text.replacen("\"lock.acquired\": 4229.0", "\"lock.acquired\": 1e308", 1)
    });
    let ran = holdfast_in(folder.path(), &["explain", "bad.json"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.out.lines().all(|line| line.chars().count() < 200), "{}", ran.out);
}

#[test]
fn results_are_known_by_what_is_in_them() {
    let folder = scratch();
    changed(folder.path(), str::to_owned);
    fs::rename(folder.path().join("bad.json"), folder.path().join("results")).expect("ours");
    assert_eq!(holdfast_in(folder.path(), &["explain", "results"]).status, 0);
    let ran = holdfast_in(folder.path(), &["run", "results"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err
            .contains("found JSON in results, expected an experiment as TOML; results are read by `holdfast explain`"),
        "{}",
        ran.err
    );
    // The runs are over at this point, so options for runs have no effect. Names choose a part of the results.
    let part = holdfast_in(folder.path(), &["explain", "results", "--case", "8-1x-4"]);
    assert_eq!(part.status, 0, "{}", part.err);
    let ran = holdfast_in(folder.path(), &["explain", "results", "--seeds", "3"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("expected it only with an experiment"), "{}", ran.err);
}

#[test]
fn output_that_cannot_be_written_is_refused_before_the_work() {
    let folder = scratch();
    fs::write(folder.path().join("file"), "precious").expect("writable");
    fs::create_dir(folder.path().join("taken.toml")).expect("writable");
    changed(folder.path(), str::to_owned);
    for arguments in [
        &["run", "--out", "file"][..],
        &["validate", "--out", "file"],
        &["trace", "--out", "file/x"],
        &["trace", "--svg", "file/x.svg"],
        &["report", "bad.json", "--out", "file/x"],
        &["report", "bad.json", "--svg", "file"],
    ] {
        let ran = holdfast_in(folder.path(), arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(": cannot write it: "), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(
        fs::read_to_string(folder.path().join("file")).expect("readable"),
        "precious"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_named_as_output_stays_one() {
    let folder = scratch();
    changed(folder.path(), str::to_owned);
    let link = folder.path().join("full");
    std::os::unix::fs::symlink("/dev/full", &link).expect("writable");
    let ran = holdfast_in(folder.path(), &["report", "bad.json", "--out", "full"]);
    assert_eq!(ran.status, 1, "{}", ran.err);
    assert!(ran.err.contains("full: cannot write it: No space left"), "{}", ran.err);
    assert!(link.is_symlink());
}

#[test]
fn help_names_every_exit_status() {
    let help = holdfast(&["--help"]).out;
    for status in [
        "0 done",
        "1 a run failed",
        "2 bad usage",
        "77 SKIPPED",
        "130 interrupted",
    ] {
        assert!(help.contains(status), "{status}: {help}");
    }
}
