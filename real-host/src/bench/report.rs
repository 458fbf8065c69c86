//! Report of the benchmark, schema [`SCHEMA`].

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::machine::Machine;

/// Name and version of the schema.
pub const SCHEMA: &str = "holdfast.bench/1";

/// Where a lock comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A lock of this project.
    Holdfast,
    /// A lock of another library.
    Peer,
}

/// Bound on the time in which later threads may overtake a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overtaking {
    /// No overtaking: first come, first served.
    Never,
    /// One turn for each earlier waiter, and one for the waiter itself.
    Turns {
        /// Length of a turn.
        ns: u64,
    },
    /// No bound, or only on average.
    Unbounded,
}

/// All figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The schema, [`SCHEMA`].
    pub schema: String,
    /// The machine of the measurements.
    pub machine: Machine,
    /// The settings of the run.
    pub settings: Settings,
    /// Whether all measurements were made; `false` after an interruption.
    pub complete: bool,
    /// One thread alone; missing if the run was stopped before this.
    pub uncontended: Option<Uncontended>,
    /// Contended tables, one for each number of threads and length of section.
    pub contended: Vec<Contended>,
}

impl Report {
    /// Creates an empty report for `settings` on this machine.
    pub fn new(settings: Settings) -> Report {
        Report {
            schema: SCHEMA.to_owned(),
            machine: Machine::here(),
            settings,
            complete: false,
            uncontended: None,
            contended: Vec::new(),
        }
    }
}

/// Lock and unlock by one thread alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Uncontended {
    /// Rows, one for each lock.
    pub rows: Vec<UncontendedRow>,
}

/// A lock without contention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UncontendedRow {
    /// Name as it appears in results.
    pub lock: String,
    /// Where the lock comes from.
    pub origin: Origin,
    /// Nanoseconds for lock and unlock, median over rounds; missing if the lock is not installed.
    pub ns: Option<f64>,
    /// `ns` divided by that of the fastest peer; above 1 is slower.
    pub ratio: Option<f64>,
    /// `ns` of each round.
    pub samples: Vec<f64>,
}

/// Several threads that do nothing but take one lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contended {
    /// The number of them.
    pub threads: u32,
    /// Length of the critical section, in nanoseconds of undisturbed work.
    pub section_ns: u64,
    /// Rows, one for each lock.
    pub rows: Vec<ContendedRow>,
}

/// A lock under contention. Figures are medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContendedRow {
    /// Name as it appears in results.
    pub lock: String,
    /// Where the lock comes from.
    pub origin: Origin,
    /// Acquisitions per second by all threads together; missing if the lock is not installed.
    pub per_second: Option<f64>,
    /// `per_second` divided by that of the fastest peer; above 1 is faster.
    pub ratio: Option<f64>,
    /// Fewest acquisitions of a thread divided by the most: 1 is even, 0 is starvation.
    pub fairness: Option<f64>,
    /// The bound on overtaking.
    pub overtaking: Overtaking,
    /// Waiting times.
    pub wait: Option<Waits>,
    /// `wait.p999_ns` divided by that of the same peer as in `ratio`; above 1 waits longer.
    pub p999_ratio: Option<f64>,
    /// Time in the worst round until all threads had taken the lock once more after the end, in
    /// nanoseconds. It is large if the lock has collapsed.
    pub drain_ns: Option<u64>,
    /// `per_second` of each round. A collapsed lock has fewer samples than rounds, since it is not measured again.
    pub samples: Vec<f64>,
}

/// Percentiles of the time from asking for the lock to having it, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Half of the acquisitions waited no longer.
    pub p50_ns: u64,
    /// 99 % of the acquisitions waited no longer.
    pub p99_ns: u64,
    /// 99.9 % of the acquisitions waited no longer.
    pub p999_ns: u64,
    /// The longest wait of all rounds.
    pub max_ns: u64,
}
