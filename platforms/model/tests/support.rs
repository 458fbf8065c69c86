//! Searches and their reports.

use std::fmt::Debug;
use std::time::Duration;

use holdfast_model::{Checker, Explored};

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
