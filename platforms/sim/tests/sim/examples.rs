//! The example `torture`, as a user starts it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Whether the process `id` catches SIGINT (2) already.
fn catches_interrupts(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the process lives");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("Linux says it").trim(), 16).expect("hexadecimal");
    caught & (1 << (2 - 1)) != 0
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_torture_sums_up_the_runs_that_are_done() {
    // The folder of examples is next to that of tests. Cargo builds the examples only if all tests are built.
    let this = std::env::current_exe().expect("this program's name");
    let example = this.with_file_name("../examples/torture");
    if !example.exists() {
        writeln!(
            std::io::stderr(),
            "SKIPPED: the example torture was not built with this test"
        )
        .expect("standard error");
        return;
    }
    let mut command = Command::new(example);
    let child = command.args(["--seconds", "3600"]).stdout(Stdio::piped()).spawn();
    let child = child.expect("the example starts");
    while !catches_interrupts(child.id()) {
        sleep(Duration::from_millis(5));
    }
    // Time for a few runs.
    sleep(Duration::from_millis(300));
    let interrupted = Instant::now();
    let killed = Command::new("kill")
        .args(["-s", "INT", &child.id().to_string()])
        .status();
    assert!(killed.expect("kill is there").success());
    let output = child.wait_with_output().expect("it ends");
    assert!(interrupted.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("no violation in ") && said.contains("incomplete: interrupted"),
        "{said}"
    );
}
