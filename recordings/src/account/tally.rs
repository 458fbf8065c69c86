//! Sums of one vCPU, or of several.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::pace::Pace;
use crate::event::{Name, Tid};
use crate::hosts::names::Role;
use crate::timeline::{How, Occupant, State, VcpuIndex};

/// Longest time between wakeup and run that is told apart, in ns.
const WAKE_MAX: u64 = 1 << 36;

/// A count, and a time in ns.
pub type Sum = (u64, u64);

/// Adds to a sum. Times in a file can be as large as a number can be.
pub fn add(sum: &mut Sum, count: u64, ns: u64) {
    *sum = (sum.0.saturating_add(count), sum.1.saturating_add(ns));
}

/// Sums by key, of at most so many keys: what a file holds decides how many there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Capped<K> {
    sums: BTreeMap<K, Sum>,
    rest: Sum,
}

impl<K> Default for Capped<K> {
    fn default() -> Capped<K> {
        Capped {
            sums: BTreeMap::new(),
            rest: (0, 0),
        }
    }
}

impl<K: Ord + Copy> Capped<K> {
    /// Most keys.
    pub const KEYS_MAX: usize = 512;

    /// Adds `count` and `ns` to `key`.
    pub fn add(&mut self, key: K, count: u64, ns: u64) {
        let full = self.sums.len() >= Self::KEYS_MAX && !self.sums.contains_key(&key);
        let sum = if full {
            &mut self.rest
        } else {
            self.sums.entry(key).or_default()
        };
        add(sum, count, ns);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Capped<K>) {
        for (key, (count, ns)) in &other.sums {
            self.add(*key, *count, *ns);
        }
        add(&mut self.rest, other.rest.0, other.rest.1);
    }

    /// Returns the keys with their counts and times in ns.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64, u64)> {
        self.sums.iter().map(|(key, (count, ns))| (*key, *count, *ns))
    }

    /// Returns the count and the time in ns of keys that were too many.
    pub fn rest(&self) -> Sum {
        self.rest
    }

    /// Returns the sums over all keys.
    pub fn total(&self) -> Sum {
        let mut total = self.rest;
        self.iter().for_each(|(_, count, ns)| add(&mut total, count, ns));
        total
    }
}

/// A thread other than a vCPU that had a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostThread {
    /// What it does, by its name.
    pub role: Role,
    /// Its process, if known.
    pub process: Option<Tid>,
    /// Its name.
    pub name: Name,
}

/// Sums of one vCPU, or of several.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Time by [`State`], in ns.
    pub ns: [u64; State::ALL.len()],
    /// Waits for a pCPU.
    pub waits: u64,
    /// The longest wait, in ns, and when it began.
    pub longest: (u64, u64),
    /// Waiting time behind other vCPUs.
    pub behind_vcpus: Capped<VcpuIndex>,
    /// Waiting time behind other threads.
    pub behind_threads: Capped<HostThread>,
    /// Waiting time in which the pCPU was idle, in ns.
    pub behind_idle: u64,
    /// Of that, in waits with at least a millisecond of it.
    pub behind_idle_long: u64,
    /// Waits of woken vCPUs for a pCPU that idled, and their time in ns: those of less than a millisecond, and others,
    /// which look like throttling.
    pub idle_exits: [Sum; 2],
    /// Waiting time in which what had the pCPU is not known, in ns.
    pub behind_unknown: u64,
    /// Waits in which a vCPU stayed in its guest and gave up the pCPU at its first exit, and their time up to it in ns.
    pub until_exit: Sum,
    /// Times from wakeup to run, in ns.
    pub wakes: Option<Histogram<u32>>,
    /// Exits by kind of CPU and reason, with the time that the host had the pCPU for them.
    pub exits: Capped<(u32, u32)>,
    /// Pause exits, and the guest's time since the entry before each.
    pub pauses: Sum,
    /// Halts that polling ended, and the time polled in them in ns.
    pub polls_won: Sum,
    /// Halts that slept in spite of polling, and the time polled in them in ns.
    pub polls_paid: Sum,
    /// Halts that slept and ended with a kick, and their time in ns.
    pub kicked: Sum,
    /// IPIs by destination.
    pub ipis: Capped<u32>,
    /// Kicks by APIC ID of the target.
    pub kicks: Capped<u32>,
    /// Wakeups by what woke it.
    pub wakers: Capped<(How, Occupant)>,
    /// How it ran and waited.
    pub pace: Pace,
}

impl Tally {
    /// Returns the time in `state`, in ns.
    pub fn of(&self, state: State) -> u64 {
        self.ns[state as usize]
    }

    /// Returns the recorded time, in ns.
    pub fn recorded(&self) -> u64 {
        self.ns.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns))
    }

    /// Returns the time with a pCPU, in ns.
    pub fn ran(&self) -> u64 {
        let states = State::ALL.into_iter().filter(|state| state.has_pcpu());
        states.fold(0, |sum: u64, state| sum.saturating_add(self.of(state)))
    }

    /// Enters a time from wakeup to run, in ns.
    pub fn woke(&mut self, ns: u64) {
        let wakes = self.wakes.get_or_insert_with(histogram);
        wakes.saturating_record(ns.clamp(1, WAKE_MAX));
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Tally) {
        for (sum, ns) in self.ns.iter_mut().zip(other.ns) {
            *sum = sum.saturating_add(ns);
        }
        self.waits = self.waits.saturating_add(other.waits);
        if other.longest.0 > self.longest.0 {
            self.longest = other.longest;
        }
        self.behind_vcpus.merge(&other.behind_vcpus);
        self.behind_threads.merge(&other.behind_threads);
        self.behind_idle = self.behind_idle.saturating_add(other.behind_idle);
        self.behind_idle_long = self.behind_idle_long.saturating_add(other.behind_idle_long);
        self.behind_unknown = self.behind_unknown.saturating_add(other.behind_unknown);
        if let Some(wakes) = &other.wakes {
            // Both have the same bounds.
            let _ = self.wakes.get_or_insert_with(histogram).add(wakes);
        }
        self.exits.merge(&other.exits);
        let [short, long] = &mut self.idle_exits;
        for (sum, pair) in [
            (&mut self.until_exit, other.until_exit),
            (short, other.idle_exits[0]),
            (long, other.idle_exits[1]),
            (&mut self.pauses, other.pauses),
            (&mut self.polls_won, other.polls_won),
            (&mut self.polls_paid, other.polls_paid),
            (&mut self.kicked, other.kicked),
        ] {
            add(sum, pair.0, pair.1);
        }
        self.ipis.merge(&other.ipis);
        self.kicks.merge(&other.kicks);
        self.wakers.merge(&other.wakers);
        self.pace.merge(&other.pace);
    }
}

fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, WAKE_MAX, 2).expect("the bounds are in order")
}
