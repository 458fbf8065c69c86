//! Ctrl-C: it ends every command at once, and what is done is kept.

use std::time::Duration;

use crate::command::{Ran, start};

/// Far more than a command takes to end on a machine that others keep busy, and far less than what it is to leave out.
const AT_ONCE: Duration = Duration::from_secs(10);

/// What `holdfast ARGUMENTS` leaves behind if Ctrl-C comes when it has so many threads.
fn interrupted(arguments: &[&str], threads: u32) -> Ran {
    let running = start(arguments);
    running.until_it_listens();
    running.until_it_has_threads(threads);
    running.interrupt();
    let (ran, took) = running.end();
    assert!(took < AT_ONCE, "{arguments:?} took {took:?}");
    assert_eq!(ran.status, 130, "{arguments:?}: {}", ran.err);
    for words in ["interrupted: keeping what is done", "incomplete: "] {
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
    }
    ran
}

#[test]
fn a_run_keeps_the_runs_that_are_done() {
    // Far more than can be done before the signal comes.
    let ran = interrupted(
        &[
            "run", "--seeds", "100000", "--scale", "0.002", "--case", "1x", "--format", "json", "--jobs", "1",
        ],
        1,
    );
    let results = ran.json();
    assert_eq!(results["complete"], false);
    assert_eq!(results["failures"], serde_json::json!([]));
    assert!(ran.err.contains("interrupted before all runs were done"), "{}", ran.err);
}

#[test]
fn a_single_long_run_ends_within_it() {
    for command in ["run", "explain", "validate"] {
        interrupted(&[command, "kernel-build-contention", "--scale", "1", "--jobs", "1"], 1);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("never.pftrace");
    let file = file.display().to_string();
    interrupted(&["trace", "kernel-build-contention", "--scale", "1", "--out", &file], 1);
    assert!(!std::path::Path::new(&file).exists());
}

#[test]
fn a_benchmark_keeps_its_tables_though_its_threads_stand_in_a_queue() {
    // Each of them gets the lock once more before it looks up: on few CPUs, after minutes.
    let ran = interrupted(
        &[
            "bench",
            "--locks",
            "ticket",
            "--threads",
            "512",
            "--sections",
            "100000",
            "--rounds",
            "1",
            "--format",
            "json",
        ],
        500,
    );
    let report = ran.json();
    assert_eq!(report["complete"], false);
    assert!(report["uncontended"]["rows"][0]["ns"].is_number(), "{report}");
    assert!(
        ran.err.contains("interrupted with 1 of 2 tables measured"),
        "{}",
        ran.err
    );
}

#[test]
fn a_calibration_is_whole_or_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("here.toml");
    let out = file.display().to_string();
    let ran = interrupted(&["calibrate", "--samples", "100000", "--out", &out], 4);
    assert_eq!(ran.out, "");
    assert!(!file.exists());
}

#[test]
fn a_comparison_with_threads_keeps_its_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let ran = interrupted(
        &[
            "validate",
            "--against",
            "threads",
            "--profile",
            "generic-x86",
            "--locks",
            "ticket",
            "--contenders",
            "64",
            "--seeds",
            "1000",
            "--out",
            &out,
            "--format",
            "json",
        ],
        60,
    );
    assert_eq!(ran.json()["complete"], false);
    let kept = std::fs::read_to_string(folder.path().join("reality-threads.json")).expect("kept");
    assert_eq!(kept.trim(), ran.out.trim());
}
