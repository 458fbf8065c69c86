//! The lock in the conformance suite, under loom, and in an experiment.

use std::process::Command;

use holdfast_locks::conformance;
use holdfast_model::{Bounds, Checker, Loom, ModelWorld, Schedules, Setup, Shuttle, scenario};
use own_lock::Marked;

#[test]
fn conforms_under_random_schedules() {
    let suite = || conformance::check_lock::<Marked, _>(&ModelWorld::<Shuttle>::new(&Setup::new(3)));
    Shuttle::explore(&Schedules::random(20), suite).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn excludes_in_every_execution_of_two_cpus() {
    let body = scenario::contention::<Loom, Marked>(&Setup::new(2), 2, 0);
    Loom::explore(&Bounds::ALL, body).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn an_experiment_names_it() {
    let command = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_own-lock")).args(arguments).output();
        let output = output.expect("the command starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/marked.toml");
    let told = command(&["run", file, "--check-determinism", "--out", env!("CARGO_TARGET_TMPDIR")]);
    assert!(told.contains("marked"), "{told}");
    let keys = command(&["keys", "vm.*.lock"]);
    assert!(keys.contains("\"marked\": in no kernel"), "{keys}");
}
