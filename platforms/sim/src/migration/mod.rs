//! Live migration and its copy of memory: plans and state. What happens is in `events/migration.rs`.

pub mod journey;
pub mod precopy;

use std::collections::VecDeque;

use holdfast_host::Host;
use holdfast_workloads::stream_seed;

use crate::migration::journey::{Journey, Migration, MigrationFaults, Move};
use crate::migration::precopy::{Copied, Copying, Migrated};
use crate::parts::hardware::Part;

/// The migrations and moves to come.
#[derive(Debug)]
pub struct Migrations {
    /// The next migrations.
    pub planned: VecDeque<Migration>,
    /// The migration that follows the planned ones, again and again.
    then_every: Option<Migration>,
    /// The next moves.
    pub moves: VecDeque<Move>,
    /// The host where the guests go next, at power-on.
    pub next: (Host, Part),
    /// The one after that.
    pub other: (Host, Part),
    /// The state of the stream that decides which guest continues first.
    random: u64,
    /// The guests are stopped.
    pub stopped: bool,
    /// What is copied of each guest.
    pub migrated: Vec<Migrated>,
    /// The copy under way.
    pub copying: Option<Copying>,
    /// What copies took.
    pub copied: Copied,
    /// Number of migrations that took place.
    pub done: u64,
    /// Number of vCPUs that were sent to another pCPU.
    pub sent: u64,
    /// Number of latched kicks that did not arrive.
    pub kicks_lost: u64,
    /// Faults planted by tests.
    pub faults: MigrationFaults,
}

impl Migrations {
    /// Plans `journey` from a host like `here` to one like `there`, or to another one like `here`.
    pub fn new(journey: &Journey, here: (Host, Part), there: Option<(Host, Part)>, seed: u64) -> Migrations {
        Migrations {
            planned: journey.migrations.iter().copied().collect(),
            then_every: journey.then_every,
            moves: journey.moves.iter().copied().collect(),
            next: there.unwrap_or_else(|| here.clone()),
            other: here,
            random: stream_seed(seed, u32::MAX, "migration"),
            stopped: false,
            migrated: Vec::new(),
            copying: None,
            copied: Copied::default(),
            done: 0,
            sent: 0,
            kicks_lost: 0,
            faults: journey.faults,
        }
    }

    /// Returns the next migration.
    pub fn next(&self) -> Option<Migration> {
        self.planned.front().copied().or(self.then_every)
    }

    /// Returns whether any of the hosts is `like`.
    pub fn passes(&self, like: impl Fn(&Host) -> bool) -> bool {
        like(&self.next.0) || like(&self.other.0)
    }

    /// Returns a random number below `count`.
    pub fn draw(&mut self, count: usize) -> usize {
        self.random = stream_seed(self.random, 0, "draw");
        (self.random % count as u64) as usize
    }
}
