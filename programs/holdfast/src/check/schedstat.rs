//! For how long a thread was ready to run but had no CPU, as Linux counts it.
//!
//! The second number of `/proc/self/task/TID/schedstat` is the time that the thread has spent on run queues, in
//! nanoseconds (Documentation/scheduler/sched-stats.rst). Elsewhere than on Linux nothing is known.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static MEASURES: AtomicBool = AtomicBool::new(false);

/// Turns on, or off, the measurement of how long holders of locks are ready to run but have no CPU. It reads a file at
/// each acquisition and each release. Only holds that begin while it is on count.
pub fn measure_preemption(on: bool) {
    // ORDERING: Relaxed, both; the setting orders nothing.
    MEASURES.store(on, Relaxed);
}

/// Returns the waiting time of the calling thread in nanoseconds, or `None` if it is not measured.
pub(super) fn mine() -> Option<u64> {
    MEASURES
        .load(Relaxed)
        .then(|| of("/proc/thread-self/schedstat"))
        .flatten()
}

/// Returns the waiting time of thread `id` of this process in nanoseconds, or `None` if it is not known.
pub(super) fn of_thread(id: u64) -> Option<u64> {
    of(&format!("/proc/self/task/{id}/schedstat"))
}

fn of(path: &str) -> Option<u64> {
    parse(&fs::read_to_string(path).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_on_run_queues() {
        assert_eq!(parse("12345 678 9\n"), Some(678));
        for odd in [
            "",
            "1",
            "1 x 2",
            "1 -2 3",
            "99999999999999999999 99999999999999999999 1",
        ] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
