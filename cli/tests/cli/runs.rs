//! Running experiments.

use std::fs;
use std::process::Command;

use crate::command::{holdfast, holdfast_in, scratch};

/// Arguments of the smallest run.
const SMALL: &[&str] = &["--seeds", "2", "--scale", "0.002", "--case", "1x"];

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, SMALL, more].concat()
}

#[test]
fn standard_output_is_one_json_document() {
    let ran = holdfast(&with(&["run"], &["--format", "json"]));
    assert_eq!(ran.status, 0, "{}", ran.err);
    let results = ran.json();
    assert_eq!(results["schema"], "holdfast.results/2");
    assert_eq!(results["seeds"], serde_json::json!([1, 2]));
    assert_eq!(results["complete"], true);
    let cases = results["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), 2, "one case, two variants, one measured guest");
    for case in cases {
        assert_eq!(case["samples"].as_array().expect("a list").len(), 2);
        assert!(case["published"]["mean"].is_number());
        let shares = case["lost_time"].as_object().expect("an object").values();
        let sum: f64 = shares.map(|share| share.as_f64().expect("a number")).sum();
        assert!((sum - 1.0).abs() < 1e-9, "lost time sums to {sum}");
    }
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let one = holdfast(&with(&["run"], &["--format", "json", "--jobs", "1"]));
    let two = holdfast(&with(&["run"], &["--format", "json", "--jobs", "2"]));
    assert_eq!((one.status, two.status), (0, 0), "{}", one.err);
    assert_eq!(one.out, two.out);
}

#[test]
fn a_run_twice_is_the_same_twice() {
    let ran = holdfast(&with(&["run", "--check-determinism"], &[]));
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(
        ran.err.contains("deterministic: 4 runs gave the same twice"),
        "{}",
        ran.err
    );
}

#[test]
fn executed_spins_give_the_same_history() {
    let hashes = |more: &[&str]| {
        let ran = holdfast(&with(&["run", "--format", "json"], more));
        assert_eq!(ran.status, 0, "{}", ran.err);
        ran.json()["cases"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|case| case["history_hash"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(hashes(&[]), hashes(&["--no-skip"]));
}

#[test]
fn a_failed_run_has_status_1_and_one_command_to_replay_it() {
    let ran = holdfast(&[
        "run",
        "--seeds",
        "1",
        "--scale",
        "0.002",
        "--case",
        "1x",
        "--variant",
        "ticket",
        "--set",
        "limit=1 us",
    ]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.err
            .contains("case 1x, variant ticket, seed 1: virtual-time limit reached"),
        "{}",
        ran.err
    );
    let replay = ran
        .err
        .lines()
        .find(|line| line.starts_with("replay with version "))
        .expect("a replay command");
    let expected = "holdfast run kernbench-overcommit --seeds 1 --first-seed 1 --scale 0.002 --case 1x --variant ticket --set \
                    'limit=1 us'";
    assert!(replay.ends_with(expected), "{replay}");
}

#[test]
fn results_are_written_and_the_table_shows_them() {
    let folder = scratch();
    let ran = holdfast_in(folder.path(), &with(&["run"], &["--out", "made/here"]));
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.out.contains("| 1x   | ticket    |"), "{}", ran.out);
    assert!(
        ran.out
            .contains("Elapsed times are full-size equivalents: measured time / 0.002."),
        "{}",
        ran.out
    );
    let left: Vec<_> = fs::read_dir(folder.path().join("made/here"))
        .expect("a folder")
        .collect();
    assert_eq!(left.len(), 1, "the results and nothing else");
    assert!(
        folder
            .path()
            .join("made/here/kernbench-overcommit.results.json")
            .is_file()
    );
}

#[test]
fn an_unwritable_folder_is_told_before_anything_is_run() {
    let folder = scratch();
    fs::write(folder.path().join("taken"), "x").expect("writable");
    let ran = holdfast_in(
        folder.path(),
        &with(&["run"], &["--variant", "ticket", "--out", "taken"]),
    );
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err
            .contains("taken/kernbench-overcommit.results.json: cannot write it: Not a directory"),
        "{}",
        ran.err
    );
    assert_eq!(fs::read_to_string(folder.path().join("taken")).expect("readable"), "x");
}

#[test]
fn validate_shows_every_published_figure() {
    let ran = holdfast(&[
        "validate",
        "--seeds",
        "1",
        "--scale",
        "0.002",
        "--format",
        "json",
        "kernbench-overcommit",
    ]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let validation = ran.json();
    let rows = validation["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 6);
    assert_eq!(rows.iter().filter(|row| row["calibrate"] == true).count(), 1);
    assert_eq!(validation["orders"].as_array().expect("a list").len(), 3);
}

#[test]
fn a_validation_continues_from_its_cache() {
    let folder = scratch();
    let small = [
        "--seeds", "1", "--scale", "0.002", "--cache", "kept", "--format", "json",
    ];
    let run = |of: &str| holdfast_in(folder.path(), &[&["validate", of][..], &small].concat());
    let (first, again) = (run("kernbench-overcommit"), run("kernbench-overcommit"));
    assert_eq!((first.status, again.status), (0, 0), "{}{}", first.err, again.err);
    assert_eq!(first.out, again.out);
    assert!(again.err.contains("0 units run, 6 from the cache"), "{}", again.err);
}

#[test]
fn a_quick_validation_says_what_it_leaves_out() {
    let ran = holdfast(&["validate", "--quick", "avic-netperf"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(
        ran.err.contains("s of CPU time, as measured on one CPU of: "),
        "{}",
        ran.err
    );
    assert!(
        ran.out.contains("This quick validation leaves nothing out."),
        "{}",
        ran.out
    );
    let both = holdfast(&["validate", "--quick", "--seeds", "1"]);
    assert_eq!((both.status, both.out.as_str()), (2, ""), "{}", both.err);
}

#[test]
fn every_experiment_has_a_measured_cost_and_a_cache_without_records_has_none() {
    let list = holdfast(&["list", "--format", "json"]).json();
    let experiments = list["experiments"].as_array().expect("a list");
    assert!(experiments.iter().all(|it| it["cpu_seconds"].as_f64() > Some(0.0)));
    let folder = scratch();
    let ran = holdfast_in(folder.path(), &["list", "--costs", "."]);
    assert_eq!(ran.status, 1, "{}", ran.err);
    assert!(ran.out.ends_with("experiment,case,variant,cpu_s\n"), "{}", ran.out);
    assert!(ran.err.contains("cells have no record of this build"), "{}", ran.err);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing_behind_and_the_results_are_shown() {
    let folder = scratch();
    // A process that ignores SIGXFSZ gets an error at its file size limit, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let binary = env!("CARGO_BIN_EXE_holdfast");
    let arguments = with(
        &["-c", script, binary, "run"],
        &["--variant", "ticket", "--out", "here"],
    );
    let output = Command::new("sh")
        .current_dir(folder.path())
        .args(arguments)
        .output()
        .expect("sh is there");
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("kernbench-overcommit.results.json: cannot write it: "),
        "{message}"
    );
    assert_eq!(fs::read_dir(folder.path().join("here")).expect("a folder").count(), 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("| 1x   | ticket  |"));
}

#[test]
fn failures_of_one_cell_are_folded() {
    let ran = holdfast(&[
        "run",
        "--seeds",
        "3",
        "--scale",
        "0.002",
        "--case",
        "1x",
        "--set",
        "limit=1 us",
    ]);
    assert_eq!(ran.status, 1);
    assert_eq!(
        ran.err.matches("error: case 1x").count(),
        2,
        "one for each variant: {}",
        ran.err
    );
    for variant in ["ticket", "pv-ticket"] {
        let others = format!("case 1x, variant {variant} failed with these seeds too: 2, 3\n");
        assert!(ran.err.contains(&others), "{}", ran.err);
    }
}
