//! Ctrl-C during measurements.

use std::thread::available_parallelism;

use crate::command::{scratch, skipped};
use crate::interrupts::interrupted;

#[test]
fn a_benchmark_keeps_its_tables_though_its_threads_stand_in_a_queue() {
    // Each thread takes the lock once more before it checks for the signal. On few CPUs this takes minutes.
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
    if available_parallelism().map_or(1, usize::from) < 2 {
        skipped("an interrupted calibration: it needs two CPUs");
        return;
    }
    let folder = scratch();
    let file = folder.path().join("here.toml");
    let out = file.display().to_string();
    let ran = interrupted(&["calibrate", "--samples", "100000", "--out", &out], 4);
    assert_eq!(ran.out, "");
    assert!(!file.exists());
}

#[test]
fn a_comparison_with_threads_keeps_its_rows() {
    let folder = scratch();
    let out = folder.path().display().to_string();
    let ran = interrupted(
        &[
            "validate",
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
