//! The workload in an experiment, with all that takes results.

use std::process::Command;

/// Returns what the command prints.
fn command(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_own-workload"))
        .args(arguments)
        .output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pipeline.toml");
const OUT: &str = env!("CARGO_TARGET_TMPDIR");

#[test]
fn an_experiment_runs_it_and_its_results_are_as_any_other() {
    let out = format!("{OUT}/whole");
    // Results never replace older ones.
    let _ = std::fs::remove_dir_all(&out);
    let run = command(&["run", FILE, "--check-determinism", "--out", &out]);
    assert!(run.contains("items/s") && run.contains("pv-ticket"), "{run}");
    let results = format!("{out}/pipeline.results.json");
    assert!(command(&["explain", &results]).contains("idle"));
    assert!(command(&["compare", &results, &results]).contains("ticket"));
    command(&["trace", FILE, "--variant", "ticket", "--out", &out]);
}

#[test]
fn a_sweep_takes_its_parameters_and_its_scale() {
    let run = ["run", FILE, "--variant", "ticket", "--seeds", "1", "--out", OUT];
    let sweep = ["--sweep", "vm.guest.own.stages=4,16", "--set", "vm.guest.work=0.5"];
    let told = command(&[&run[..], &sweep, &["--set", "vm.guest.own.work=10 us"]].concat());
    assert!(told.contains("stages=4") && told.contains("stages=16"), "{told}");
    let keys = command(&["keys", "vm.*.workload"]);
    assert!(keys.contains("recorded, pipeline"), "{keys}");
    let keys = command(&["keys", "vm.*.own"]);
    assert!(keys.contains("`work` of \"pipeline\": what a stage computes"), "{keys}");
}

/// Returns what the command says of a bad setting.
fn refused(setting: &str) -> String {
    let run = ["run", FILE, "--set", setting, "--out", OUT];
    let output = Command::new(env!("CARGO_BIN_EXE_own-workload")).args(run).output();
    let output = output.expect("the command starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    told
}

#[test]
fn a_name_that_is_none_is_refused_with_the_own_ones_among_those_expected() {
    let told = refused("vm.guest.workload=pipelines");
    assert!(told.contains("pipeline"), "{told}");
}

#[test]
fn parameters_that_are_none_or_too_large_are_refused() {
    let told = refused("vm.guest.own.stage=8");
    assert!(told.contains("did you mean \"stages\""), "{told}");
    let told = refused("vm.guest.own.stages=1000");
    assert!(told.contains("a whole number from 2 to 64"), "{told}");
    let told = refused("vm.neighbor.own.stages=8");
    assert!(told.contains("a workload or policy of the program's own"), "{told}");
}
