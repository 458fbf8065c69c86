//! Ctrl-C, SIGTERM and SIGHUP: each ends every command at once, and finished work is kept.

use std::time::Duration;

use crate::command::{Ran, Running, scratch, start, with_default_signals};

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
            "run", "--yes", "--seeds", "100000", "--scale", "0.002", "--case", "1x", "--format", "json", "--jobs", "1",
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
    let folder = scratch();
    let file = folder.path().join("never.pftrace");
    let file = file.display().to_string();
    interrupted(&["trace", "kernel-build-contention", "--scale", "1", "--out", &file], 1);
    assert!(!std::path::Path::new(&file).exists());
}

/// Much work, of which some is done when the signal comes.
const MUCH: &[&str] = &[
    "run", "--yes", "--seeds", "100000", "--scale", "0.002", "--case", "1x", "--jobs", "1", "--out",
];

#[test]
fn each_signal_that_ends_programs_keeps_what_is_done() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let folder = scratch();
        let folder = folder.path().display().to_string();
        let running = start(&[MUCH, &[folder.as_str()]].concat());
        running.until_it_handles(number);
        running.send(name);
        let (ran, took) = running.end();
        assert!(took < AT_ONCE, "{name} took {took:?}");
        assert_eq!(ran.status, 128 + number as i32, "{name}: {}", ran.err);
        let kept = std::fs::read_to_string(format!("{folder}/kernbench-overcommit.results.json")).expect(name);
        assert!(kept.contains("\"complete\": false"), "{name}");
    }
}

#[test]
fn a_program_under_nohup_outlives_its_terminal() {
    let folder = scratch();
    let script = "trap '' HUP; exec \"$0\" \"$@\"";
    let mut command = with_default_signals("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_holdfast")])
        .args(MUCH)
        .arg(folder.path());
    let running = Running::new(&mut command);
    running.until_it_handles(15);
    running.send("HUP");
    std::thread::sleep(Duration::from_millis(300));
    running.send("TERM");
    let (ran, _) = running.end();
    assert_eq!(ran.status, 128 + 15, "SIGTERM was the first that counts: {}", ran.err);
}

#[test]
fn a_cell_of_hundreds_of_vcpus_is_left_at_once() {
    // Executed spins of 448 vCPUs: between two ticks of the guests lies more than a minute.
    let running = start(&[
        "run",
        "lock-crossover",
        "--case",
        "448-2x-448",
        "--seeds",
        "1",
        "--no-skip",
        "--jobs",
        "1",
    ]);
    running.until_it_listens();
    std::thread::sleep(Duration::from_secs(5));
    running.interrupt();
    let (ran, took) = running.end();
    assert!(took < AT_ONCE, "took {took:?}");
    assert_eq!(ran.status, 130, "{}", ran.err);
}
