//! Tests that the threads platform keeps the contract of its traits, and that the locks keep theirs on it.

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod arm64;
mod conformance;
mod embedded;
#[cfg(target_os = "linux")]
mod forks;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod instructions;
mod slices;
mod slots;
mod storms;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use holdfast_locks::Platform;
use holdfast_threads::ThisThread;

/// The right to use particular CPU numbers. They belong to the process, so the tests that do so take turns.
struct Turn {
    _numbers: MutexGuard<'static, ()>,
}

fn numbers() -> Turn {
    static NUMBERS: Mutex<()> = Mutex::new(());
    Turn {
        _numbers: NUMBERS.lock().unwrap_or_else(PoisonError::into_inner),
    }
}

impl Drop for Turn {
    /// Checks that the test has waited for the *end* of its threads. Otherwise the next test would find numbers in use.
    fn drop(&mut self) {
        if !thread::panicking() {
            let first = thread::spawn(|| ThisThread::new().cpu().0).join();
            assert_eq!(
                first.expect("there are numbers"),
                0,
                "a turn is over, but CPU 0 has not ended"
            );
        }
    }
}

/// Runs each job on a thread of its own and returns when the threads have ended. The end of a scope alone waits only
/// for the jobs: the threads' last destructors, which give back CPU numbers, may run later.
fn on_threads<T: Send>(jobs: impl IntoIterator<Item = impl FnOnce() -> T + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|result| result.expect("no property is violated")).collect()
    })
}
