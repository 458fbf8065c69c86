//! The types in a control group with a quota, which stops the holder of a lock for most of the time.

use std::process::Command;
use std::thread;

use holdfast::{Condvar, Mutex};

#[path = "../../benches/machine/quota.rs"]
mod group;

use group::Quota;

const THREADS: u64 = 4;
const ROUNDS: u64 = 2_000;

/// Threads count in turn and together, next to one that burns the quota.
fn count() {
    let (count, changed) = (&Mutex::new(0), &Condvar::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    *count.lock() += 1;
                    if round % 64 == 0 {
                        changed.notify_all();
                    }
                }
            });
        }
        let mut seen = count.lock();
        while *seen < THREADS * ROUNDS {
            changed.wait_for(&mut seen, std::time::Duration::from_millis(20));
        }
    });
    assert_eq!(*count.lock(), THREADS * ROUNDS);
}

/// The part of the test below that runs in the group, in a process of its own: the other tests would be slowed down.
#[test]
#[ignore = "started by the test of quotas"]
fn in_a_group() {
    let quota = match Quota::of(0.2) {
        Ok(quota) => quota,
        Err(error) => {
            println!("SKIPPED: no quota: {error}");
            return;
        }
    };
    assert_eq!(
        holdfast_threads::look_at_allowed_cpus(),
        1,
        "a fifth of a CPU counts as one"
    );
    // The quota of a period is used up after 20 ms of work.
    while quota.stops().expect("the group has statistics") < 3 {
        count();
    }
    drop(quota);
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(holdfast_threads::look_at_allowed_cpus() as usize, cpus);
}

#[test]
fn a_quota_that_stops_holders_lets_all_threads_finish() {
    let this = std::env::current_exe().expect("the test has a path");
    let ran = Command::new(this)
        .args(["--exact", "quota::in_a_group", "--ignored", "--nocapture"])
        .output()
        .expect("the test starts itself");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    if let Some(skipped) = said.lines().find(|line| line.contains("SKIPPED")) {
        println!("{skipped}");
    }
}
