//! The locks in the conformance suite, under loom, and in an experiment.

use std::process::Command;

use holdfast_locks::conformance;
use holdfast_model::{Bounds, Checker, Loom, ModelWorld, Schedules, Setup, Shuttle, scenario};
use own_lock::{Informed, Marked};

#[test]
fn conforms_under_random_schedules() {
    let suite = || conformance::check_lock::<Marked, _>(&ModelWorld::<Shuttle>::new(&Setup::new(3)));
    Shuttle::explore(&Schedules::random(20), suite).unwrap_or_else(|failure| panic!("{failure}"));
    let suite = || conformance::check_lock::<Informed, _>(&ModelWorld::<Shuttle>::new(&Setup::new(3)));
    Shuttle::explore(&Schedules::random(20), suite).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn excludes_in_every_execution_of_two_cpus() {
    let body = scenario::contention::<Loom, Marked>(&Setup::new(2), 2, 0);
    Loom::explore(&Bounds::ALL, body).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Returns what the command prints.
fn command(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_own-lock")).args(arguments).output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn an_experiment_names_it() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/marked.toml");
    let told = command(&["run", file, "--check-determinism", "--out", env!("CARGO_TARGET_TMPDIR")]);
    assert!(told.contains("marked"), "{told}");
    let keys = command(&["keys", "vm.*.lock"]);
    assert!(keys.contains("\"marked\": in no kernel"), "{keys}");
}

#[test]
fn fewer_holders_are_preempted_if_they_are_told_when_their_slices_end() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/informed.toml");
    let out = concat!(env!("CARGO_TARGET_TMPDIR"), "/informed.json");
    let _ = std::fs::remove_file(out);
    command(&["run", file, "--out", out]);
    let results = std::fs::read_to_string(out).expect("results");
    let key = "\"preempted_holding_lock\": ";
    let counts = results.split(key).skip(1).map(|rest| {
        let end = rest.find([',', '\n', '}']).expect("a number ends");
        rest[..end].trim().parse::<f64>().expect("a number")
    });
    let counts: Vec<f64> = counts.collect();
    // The two guests, untold and told.
    let [untold, _, told, _] = counts[..] else {
        panic!("{counts:?}")
    };
    assert!(untold > 0.0 && told < untold / 2.0, "{counts:?}");
}
