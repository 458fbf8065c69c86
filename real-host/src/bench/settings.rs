//! What a run of the benchmark measures.

use serde::{Deserialize, Serialize};

/// What is measured, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How often everything is repeated.
    pub rounds: u32,
    /// How long each contended measurement of each round lasts.
    pub cell_ms: u64,
    /// Lock and unlock so many times in each uncontended measurement of each round.
    pub uncontended_iterations: u32,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Lengths of the critical section.
    pub sections_ns: Vec<u64>,
    /// Keep each thread on one CPU, threads dealt to CPUs in turn. Otherwise the system places them, and two threads that
    /// it puts on one CPU never meet.
    pub pin: bool,
    /// Only these locks; all if empty.
    pub locks: Vec<String>,
}

impl Settings {
    /// A few minutes.
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

    /// Half a minute; noisy.
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
