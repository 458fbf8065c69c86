//! Ctrl-C: it ends every command at once, and finished work is kept.

use std::time::Duration;

use crate::command::{Ran, start};

/// Far more time than a command takes to end on a busy machine, and far less than the runs that it leaves out.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Sends Ctrl-C to `holdfast ARGUMENTS` once it has so many threads. Returns its outputs.
pub fn interrupted(arguments: &[&str], threads: u32) -> Ran {
    let running = start(arguments);
    running.until_it_listens();
    running.until_it_has_threads(threads);
    running.interrupt();
    let (ran, took) = running.end();
    assert!(took < AT_ONCE, "{arguments:?} took {took:?}");
    assert_eq!(ran.status, 130, "{arguments:?}: {}", ran.err);
    for words in ["interrupted: keeping what is finished", "incomplete: "] {
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
    }
    ran
}

#[test]
fn a_run_keeps_the_runs_that_are_done() {
    // This is far more work than can be done before the signal comes.
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
