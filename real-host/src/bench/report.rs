//! What a run of the benchmark says, schema [`SCHEMA`].

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

/// For how long later comers may take the lock before somebody who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overtaking {
    /// First come, first served.
    Never,
    /// For one turn of about so many nanoseconds for each waiter before it, and one for itself.
    Turns {
        /// Length of a turn.
        ns: u64,
    },
    /// For as long as it has bad luck: nothing is promised, or only on average.
    Unbounded,
}

/// All figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The schema, [`SCHEMA`].
    pub schema: String,
    /// Where it was measured.
    pub machine: Machine,
    /// The requested name.
    pub settings: Settings,
    /// Whether all of it was measured: `false` after an interruption.
    pub complete: bool,
    /// One thread alone; missing if the run was stopped before.
    pub uncontended: Option<Uncontended>,
    /// Several threads: one table for each number of threads and length of section.
    pub contended: Vec<Contended>,
}

impl Report {
    /// Nothing yet of what `settings` want, on this machine.
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
    /// One for each lock.
    pub rows: Vec<UncontendedRow>,
}

/// A lock without contention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UncontendedRow {
    /// Name as it appears in results.
    pub lock: String,
    /// Where the lock comes from.
    pub origin: Origin,
    /// Nanoseconds for lock and unlock: median over rounds. Missing: not installed.
    pub ns: Option<f64>,
    /// `ns` by that of the fastest peer; above 1 is slower.
    pub ratio: Option<f64>,
    /// Each round's `ns`.
    pub samples: Vec<f64>,
}

/// Several threads that do nothing but take one lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contended {
    /// How many.
    pub threads: u32,
    /// How long each holds the lock, in nanoseconds of undisturbed work.
    pub section_ns: u64,
    /// One for each lock.
    pub rows: Vec<ContendedRow>,
}

/// A lock under contention. Figures are medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContendedRow {
    /// Name as it appears in results.
    pub lock: String,
    /// Where the lock comes from.
    pub origin: Origin,
    /// Acquisitions a second, of all threads together. Missing: not installed.
    pub per_second: Option<f64>,
    /// `per_second` by that of the peer with the highest; above 1 is faster.
    pub ratio: Option<f64>,
    /// The least lucky thread's acquisitions by the luckiest's: 1 is even, 0 starves.
    pub fairness: Option<f64>,
    /// The bound on overtaking.
    pub overtaking: Overtaking,
    /// How long threads waited for the lock.
    pub wait: Option<Waits>,
    /// `wait.p999_ns` by that of the same peer as in `ratio`; above 1 waits longer.
    pub p999_ratio: Option<f64>,
    /// How long it took, in the worst round, until all threads had got the lock once more after the end, in
    /// nanoseconds: large where a lock has collapsed.
    pub drain_ns: Option<u64>,
    /// Each round's `per_second`. Fewer than rounds: it had collapsed, so the rest was left out.
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
    /// The longest of all rounds.
    pub max_ns: u64,
}
