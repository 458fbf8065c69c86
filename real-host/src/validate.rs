//! Comparison of what the locks do on this machine with what the simulator predicts.

pub mod guests;
pub mod judge;
pub mod linux;
pub mod threads;

pub use holdfast_locks::LockKind;
pub use linux::Spinlock;

use std::ops::ControlFlow;

use holdfast_lab::profile::MachineProfile;
use holdfast_sim::{CallOff, Failure};
use judge::Row;

use crate::calibrate::Host;

/// Settings of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Numbers of threads or vCPUs, dealt to two CPUs in turn.
    pub contenders: Vec<u32>,
    /// Lengths of the critical section in nanoseconds; each contender then computes for as long, a guest's task on
    /// average.
    pub sections_ns: Vec<u64>,
    /// The locks to measure.
    pub locks: Vec<LockKind>,
    /// The spinlocks of stock Linux guests to measure.
    pub spinlocks: Vec<Spinlock>,
    /// Rows of an earlier comparison of the same guests, which was interrupted. Their samples are not measured again.
    pub measured: Vec<Row>,
    /// Number of measurements of each lock, and of simulated histories with guests.
    pub rounds: u32,
    /// Length of each measurement and simulation, in milliseconds.
    pub cell_ms: u64,
}

/// What a comparison predicts with, and who hears of its progress.
pub struct Session<'s> {
    /// The machine's profile.
    pub profile: &'s MachineProfile,
    /// The kernel of this machine.
    pub host: &'s Host,
    /// Ends a measurement or a prediction.
    pub call_off: &'s CallOff,
    /// Gets the name of the next step and the number of all steps. It may stop the comparison.
    pub step: &'s mut dyn FnMut(&str, u64) -> ControlFlow<()>,
    /// Gets each row as soon as it is complete.
    pub keep: &'s mut dyn FnMut(Row),
}

impl Session<'_> {
    /// Announces the next of `total` steps.
    fn next(&mut self, what: &str, total: u64) -> Result<(), Failure> {
        match (self.step)(what, total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Failure::CalledOff),
        }
    }
}

impl Settings {
    /// Returns the default settings, whose short critical section has `short_ns`.
    fn with_short(short_ns: u64) -> Settings {
        Settings {
            contenders: vec![2, 4, 8],
            sections_ns: vec![short_ns, 5_000],
            locks: LockKind::ALL.to_vec(),
            spinlocks: Vec::new(),
            measured: Vec::new(),
            rounds: 3,
            cell_ms: 100,
        }
    }

    /// Returns the default settings for threads.
    pub fn threads() -> Settings {
        Settings::with_short(200)
    }

    /// Returns the default settings for stock Linux guests, whose kernel has its own locks and sections.
    pub fn stock() -> Settings {
        Settings {
            contenders: vec![2, 4],
            sections_ns: Vec::new(),
            locks: Vec::new(),
            spinlocks: Spinlock::ALL.to_vec(),
            measured: Vec::new(),
            rounds: 3,
            cell_ms: 2_000,
        }
    }

    /// Returns the default settings for guests, whose kernel adds to each critical section.
    pub fn guests() -> Settings {
        Settings::with_short(500)
    }
}
