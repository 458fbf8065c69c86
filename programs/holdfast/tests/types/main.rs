//! Tests of the types as programs use them. At most two threads are busy at a time.
#![cfg(not(feature = "model"))]

// The checker's records need memory.
#[cfg(all(target_os = "linux", not(feature = "check")))]
mod allocator;
#[cfg(feature = "check")]
mod check;
mod condvar;
mod documents;
mod each;
#[cfg(target_os = "linux")]
mod energy;
mod mutex;
mod once;
mod poison;
#[cfg(target_os = "linux")]
mod quota;
mod rwlock;
mod surface;

use std::thread;

/// Runs `work` on `count` threads at the same time.
fn on_threads(count: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..count {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}
