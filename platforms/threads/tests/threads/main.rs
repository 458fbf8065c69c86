//! The platform keeps the contract of its traits; the locks keep theirs on it.

mod conformance;
mod embedded;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod instructions;
mod slots;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use holdfast_locks::Platform;
use holdfast_threads::ThisThread;

/// The right to name CPU numbers, which belong to the process: tests that do take turns.
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
    /// Whose turn it was must have waited for its threads to *end*; or the next test finds numbers in use.
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

/// Runs jobs, each on a thread of its own, and returns when the threads have ended. A scope's end alone does not wait
/// for that, only for what they do: their last destructors, which give CPU numbers back, may come later.
fn on_threads<T: Send>(jobs: impl IntoIterator<Item = impl FnOnce() -> T + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|result| result.expect("no property is violated")).collect()
    })
}
