//! Lock and unlock by one thread, without contention.
//!
//! A second thread exists and sleeps: some C libraries leave the atomic instructions out of their mutexes while a
//! process has only one thread.

use std::hint::black_box;
use std::time::Instant;

use super::lock::Lock;

/// Returns nanoseconds for lock, increment and unlock.
pub fn once<L: Lock>(iterations: u32) -> f64 {
    let lock = black_box(Box::new(L::new()));
    let start = Instant::now();
    for _ in 0..iterations {
        lock.with(|count| *count += 1);
    }
    let elapsed = start.elapsed();
    assert_eq!(lock.with(|count| *count), u64::from(iterations), "updates were lost");
    elapsed.as_nanos() as f64 / f64::from(iterations)
}
