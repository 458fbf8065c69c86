//! The policies in the conformance suite, and in a shipped experiment.

use std::process::Command;

use holdfast_host::{Policy, conformance};
use own_policy::Balance;
use own_policy::ideas::{Boost, CoScheduling, Grace, IpiYield, LagCredit, MicroPool, Opportunistic};

/// Returns what the policy breaks.
fn broken<P: Policy + Default + 'static>() -> Option<String> {
    let (kernel, broken) = conformance::check::<P>().err()?;
    Some(format!("{}, {kernel:?}: {broken}", P::default().about()))
}

#[test]
fn they_conform() {
    let checks = [
        broken::<Balance>,
        broken::<Boost>,
        broken::<CoScheduling>,
        broken::<Grace<20>>,
        broken::<Grace<100>>,
        broken::<Grace<500>>,
        broken::<IpiYield>,
        broken::<LagCredit>,
        broken::<MicroPool>,
        broken::<Opportunistic>,
    ];
    let found: Vec<String> = checks.iter().filter_map(|check| check()).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// The folder of results.
const OUT: &str = env!("CARGO_TARGET_TMPDIR");

/// Returns what the command prints.
fn command(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_own-policy")).args(arguments).output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns what the command prints of a short experiment, run twice, in which `key` has each of the `values`.
fn swept(key: &str, values: &str) -> String {
    let sweep = format!("{key}={values}");
    let run = [
        "run",
        "ebizzy-tlb",
        "--check-determinism",
        "--sweep-variants",
        &sweep,
        "--out",
        OUT,
    ];
    let scale = ["--scale", "0.005", "--seeds", "1", "--case", "2x", "--variant", "plain"];
    command(&[&run[..], &scale].concat())
}

#[test]
fn experiments_and_keys_name_them() {
    let keys = command(&["keys", "host.policy"]);
    assert!(
        keys.contains("\"balance\": keeps the vCPUs of a guest on different pCPUs"),
        "{keys}"
    );
    let policies =
        "kernel,balance,boost,co-scheduling,grace-100us,grace-500us,ipi-yield,lag-credit,micro-pool,opportunistic";
    let told = swept("host.policy", policies);
    assert!(policies.split(',').all(|policy| told.contains(policy)), "{told}");
}

#[test]
fn experiments_and_keys_name_guest_policies() {
    let keys = command(&["keys", "vm.*.guest_policy"]);
    assert!(
        keys.contains("\"off-preempted\": no task goes to a busy vCPU"),
        "{keys}"
    );
    let policies = "kernel,off-preempted,steal-governor,steal-governor-50ms";
    let told = swept("vm.*.guest_policy", policies);
    assert!(policies.split(',').all(|policy| told.contains(policy)), "{told}");
}

#[test]
fn siblings_apart_pass_more_messages() {
    let policies = "host.policy=kernel,balance";
    let scale = ["--scale", "0.1", "--case", "1.5x", "--variant", "none"];
    let run = ["run", "amqp-directed-yield", "--sweep-variants", policies, "--out", OUT];
    let told = command(&[&run[..], &scale].concat());
    let row = told
        .lines()
        .find(|line| line.contains("| none policy=balance") && line.ends_with("better |"));
    assert!(row.is_some(), "{told}");
}
