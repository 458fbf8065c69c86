//! Runs searches, checks their results and reports them.

use std::env;
use std::fmt::Debug;
use std::process::Command;
use std::thread;
use std::time::Duration;

use holdfast_model::{Bounds, Checker, Explored, Failure};

/// Asserts that `body` passes under every execution of `search`, and reports the number of executions.
#[track_caller]
pub fn holds<C: Checker>(lock: &str, scenario: &str, search: C::Search, body: impl Fn() + Send + Sync + 'static) {
    match C::explore(&search, body) {
        Ok(explored) => report(C::NAME, lock, scenario, &search, explored),
        Err(failure) => panic!("{lock}, {scenario}, under {} with {search:?}: {failure}", C::NAME),
    }
}

/// Runs the test of this thread in a process of its own: only there does its search run beside those of other tests
/// (see `SEARCH` in `src/loom.rs`). A test without a thread of its own has no other beside it, and runs here.
#[track_caller]
pub fn apart(test: impl FnOnce()) {
    const IS_APART: &str = "HOLDFAST_MODEL_IS_APART";
    let thread = thread::current();
    let Some(name) = thread
        .name()
        .filter(|name| *name != "main" && env::var_os(IS_APART).is_none())
    else {
        return test();
    };
    let mut command = Command::new(env::current_exe().expect("a process knows its program"));
    command.args(["--exact", name, "--nocapture"]);
    let output = command
        .env(IS_APART, "1")
        .output()
        .expect("a program can be executed twice");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}, {}:\n{failed}", output.status);
    let one = "1 passed; 0 failed";
    assert!(
        String::from_utf8_lossy(&output.stdout).contains(one),
        "{name} was not executed"
    );
}

fn report(checker: &str, lock: &str, scenario: &str, search: &impl Debug, explored: Explored) {
    let Explored { executions, elapsed } = explored;
    let seconds = Duration::as_secs_f64(&elapsed);
    println!("{checker:8} {lock:20} {scenario:20} {executions:8} executions {seconds:7.2} s  {search:?}");
}

/// Explores every execution, with a limit for searches that may become long.
pub const ALL: Bounds = Bounds {
    executions_max: 3_000_000,
    ..Bounds::ALL
};

/// Explores executions with at most two preemptions: a full search of three threads would take hours.
pub const BOUNDED: Bounds = Bounds {
    executions_max: 3_000_000,
    ..Bounds::preemptions(2)
};

/// Asserts that a search has found no lost interrupt, and reports the number of executions.
#[track_caller]
pub fn loses_nothing(part: &str, what: &str, found: Result<Explored, Failure>) {
    match found {
        Ok(explored) => println!(
            "loom     {part} {what:40} {:8} executions {:7.2} s",
            explored.executions,
            explored.elapsed.as_secs_f64()
        ),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

/// Asserts that a search has found a lost interrupt, which shows as a deadlock of the vCPU that waits for it.
#[track_caller]
pub fn loses_interrupts(part: &str, what: &str, found: Result<Explored, Failure>) {
    match found {
        Ok(explored) => panic!("{what}: not found in {} executions", explored.executions),
        Err(failure) => {
            assert!(failure.message.contains("deadlock"), "{what}: {failure}");
            println!(
                "fault    {part} {what:40} -> lost interrupt, execution {}",
                failure.execution
            );
        }
    }
}
