//! Settings of the benchmark.

use serde::{Deserialize, Serialize};

/// What the benchmark measures, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Number of rounds.
    pub rounds: u32,
    /// Length of each contended measurement in milliseconds.
    pub cell_ms: u64,
    /// Number of acquisitions in each uncontended measurement.
    pub uncontended_iterations: u32,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Lengths of the critical section in nanoseconds.
    pub sections_ns: Vec<u64>,
    /// Whether each thread is pinned to a CPU, in turn. Otherwise the system places the threads, and two threads on
    /// one CPU never contend.
    pub pin: bool,
    /// The locks to measure; all if empty.
    pub locks: Vec<String>,
}

impl Settings {
    /// Returns settings for a run of a few minutes.
    pub fn full() -> Self {
        Settings {
            rounds: 5,
            cell_ms: 200,
            uncontended_iterations: 200_000,
            threads: vec![1, 2, 4, 8, 16, 32],
            sections_ns: vec![100, 5000],
            pin: true,
            locks: Vec::new(),
        }
    }

    /// Returns settings for a run of half a minute, which is noisier.
    pub fn quick() -> Self {
        Settings {
            rounds: 3,
            cell_ms: 50,
            threads: vec![1, 2, 8, 32],
            ..Settings::full()
        }
    }

    pub(super) fn takes_part(&self, name: &str) -> bool {
        self.locks.is_empty() || self.locks.iter().any(|lock| lock == name)
    }
}
