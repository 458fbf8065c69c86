//! What threads did, in two readings.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_workloads::{RecordedHost, Step};

/// How the waits of the threads ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Waits that another thread of the guest ended.
    pub by_threads: u64,
    /// Waits that the thread's own timer ended.
    pub by_timers: u64,
    /// Waits that an interrupt of a device ended.
    pub by_devices: u64,
    /// Waits whose waker is unknown. They keep their recorded length.
    pub unknown: u64,
}

/// What the threads of guests did.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// With waits that end when the thread that ended them gets that far.
    pub tied: RecordedHost,
    /// The recorded lengths of those waits in ns, by guest and thread.
    pub(super) lengths: BTreeMap<String, Vec<Vec<u64>>>,
    /// How the waits ended.
    pub waits: Waits,
}

impl Repeated {
    /// Returns the names of guests in which threads ended each other's waits.
    pub fn with_tied_waits(&self) -> BTreeSet<String> {
        let has_waits = |(_, threads): &(&String, &Vec<Vec<u64>>)| threads.iter().any(|waits| !waits.is_empty());
        self.lengths
            .iter()
            .filter(has_waits)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns the threads, with all waits of the guests `timed` of their recorded lengths.
    pub fn timed(&self, timed: &BTreeSet<String>) -> RecordedHost {
        let mut host = self.tied.clone();
        for (name, threads) in host.guests.iter_mut().filter(|(name, _)| timed.contains(*name)) {
            for (thread, lengths) in threads.iter_mut().zip(&self.lengths[name]) {
                let mut lengths = lengths.iter();
                let timed = thread.steps.drain(..).filter_map(|step| match step {
                    Step::Woken => lengths.next().map(|ns| Step::After(*ns)),
                    Step::Wake { .. } => None,
                    step => Some(step),
                });
                thread.steps = join(timed.collect::<Vec<Step>>().into_iter());
            }
        }
        host
    }
}

/// Joins runs that follow each other.
pub(super) fn join(steps: impl Iterator<Item = Step>) -> Vec<Step> {
    let mut joined: Vec<Step> = Vec::new();
    for step in steps {
        match (joined.last_mut(), step) {
            (Some(Step::Run(before)), Step::Run(ns)) => *before += ns,
            _ => joined.push(step),
        }
    }
    joined
}
