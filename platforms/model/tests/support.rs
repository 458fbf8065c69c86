//! Searches and their reports.

use std::fmt::Debug;
use std::time::Duration;

use holdfast_model::{Bounds, Checker, Explored, Failure};

/// Runs `body` under every execution of `search` and reports how many they were.
#[track_caller]
pub fn holds<C: Checker>(lock: &str, scenario: &str, search: C::Search, body: impl Fn() + Send + Sync + 'static) {
    match C::explore(&search, body) {
        Ok(explored) => report(C::NAME, lock, scenario, &search, explored),
        Err(failure) => panic!("{lock}, {scenario}, under {} with {search:?}: {failure}", C::NAME),
    }
}

fn report(checker: &str, lock: &str, scenario: &str, search: &impl Debug, explored: Explored) {
    let Explored { executions, elapsed } = explored;
    let seconds = Duration::as_secs_f64(&elapsed);
    println!("{checker:8} {lock:20} {scenario:20} {executions:8} executions {seconds:7.2} s  {search:?}");
}

/// Every execution, of a search that may become long.
pub const ALL: Bounds = Bounds {
    executions_max: 3_000_000,
    ..Bounds::ALL
};

/// Three threads in full would take hours: each may be preempted so often where it could go on.
pub const BOUNDED: Bounds = Bounds {
    executions_max: 3_000_000,
    ..Bounds::preemptions(2)
};

/// Asserts that a search for lost interrupts has found none, and reports how much it has seen.
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

/// Asserts that it has found one, which nobody who waits for it survives.
#[track_caller]
pub fn loses_interrupts(part: &str, what: &str, found: Result<Explored, Failure>) {
    match found {
        Ok(explored) => panic!("{what}: not noticed in {} executions", explored.executions),
        Err(failure) => {
            assert!(failure.message.contains("deadlock"), "{what}: {failure}");
            println!(
                "fault    {part} {what:40} -> lost interrupt, execution {}",
                failure.execution
            );
        }
    }
}
