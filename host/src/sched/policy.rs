//! The decisions of a fair scheduler within one queue. The [`Hierarchy`] asks for them, and does the rest.
//!
//! Queues, weights, groups, placement on pCPUs, balancing and bandwidth are common to all policies. Differences between
//! versions of one algorithm are named features of it.

use super::cfs::Cfs;
use super::config::SchedConfig;
use super::eevdf::Eevdf;
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};

/// How an entity arrives at its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A new thread, placed by [`Rules::fork`]. Its virtual runtime is relative.
    New,
    /// A thread that slept. Its virtual runtime is relative.
    Woken,
    /// A thread from another queue that did not sleep. Its virtual runtime is relative.
    Moved,
    /// A group's entity whose queue was empty or throttled.
    GroupWoken,
}

/// How an entity leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It sleeps, or its group's queue is empty. Its virtual runtime stays the same until it returns.
    Sleep,
    /// It moves to another queue. Its virtual runtime becomes relative.
    Move,
    /// It leaves for good: its thread ended, its group is throttled, or its delay is over.
    Final,
}

/// Why a running entity has run long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// Its slice is spent.
    Spent,
    /// It is too far ahead of the others.
    Unfair,
}

/// One of the policies, with its parameters. It has no state: that is all in entities and queues.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rules {
    Cfs(Cfs),
    Eevdf(Eevdf),
}

macro_rules! ask {
    ($self:ident, $ask:ident($($argument:expr),*)) => {
        match $self {
            Rules::Cfs(cfs) => cfs.$ask($($argument),*),
            Rules::Eevdf(eevdf) => eevdf.$ask($($argument),*),
        }
    };
}

impl Rules {
    pub(crate) fn new(config: &SchedConfig, pcpus: u32, tick_ns: u64) -> Rules {
        if config.is_eevdf() {
            Rules::Eevdf(Eevdf::new(config, pcpus, tick_ns))
        } else {
            Rules::Cfs(Cfs::new(config, pcpus))
        }
    }

    /// Returns whether queues keep the average of their virtual runtimes.
    pub(crate) fn averages(self) -> bool {
        matches!(self, Rules::Eevdf(_))
    }

    /// Gives a new thread the virtual runtime with which it begins on `queue`.
    pub(crate) fn fork(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId) {
        ask!(self, fork(on, queue, entity))
    }

    /// Gives `entity` its virtual runtime on `queue`, whose load counts it already.
    pub(crate) fn arrive(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, arrival: Arrival) {
        ask!(self, arrive(on, queue, entity, arrival))
    }

    /// Handles that `entity` is about to leave `queue`. Returns `false` if it stays for now, delayed.
    pub(crate) fn leave(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, departure: Departure) -> bool {
        match self {
            Rules::Cfs(_) => true,
            Rules::Eevdf(eevdf) => eevdf.leave(on, queue, entity, departure),
        }
    }

    /// Handles that the running entity of `queue` was charged for its run time. Returns whether its slice is over.
    pub(crate) fn charged(self, on: &mut Hierarchy, queue: QueueId, curr: EntityId) -> bool {
        match self {
            // Slices end on ticks only.
            Rules::Cfs(_) => false,
            Rules::Eevdf(eevdf) => eevdf.charged(on, queue, curr),
        }
    }

    /// Returns the time until the slice of the running entity `curr` is over, counted from when it was last charged.
    /// Nanoseconds. `None` if slices end on ticks only.
    pub(crate) fn rest(self, on: &Hierarchy, curr: EntityId) -> Option<u64> {
        match self {
            Rules::Cfs(_) => None,
            Rules::Eevdf(eevdf) => Some(eevdf.rest(on, curr)),
        }
    }

    /// Returns the entity of `queue` that runs next, or `None` if the queue is empty. None of them is running. `prev`
    /// is the thread that ran until now.
    pub(crate) fn pick(self, on: &Hierarchy, queue: QueueId, prev: Option<EntityId>) -> Option<EntityId> {
        match self {
            Rules::Cfs(cfs) => cfs.pick(on, queue),
            Rules::Eevdf(eevdf) => eevdf.pick(on, queue, prev),
        }
    }

    /// Handles that `entity` was picked.
    pub(crate) fn picked(self, on: &mut Hierarchy, entity: EntityId) {
        if let Rules::Eevdf(eevdf) = self {
            eevdf.picked(on, entity);
        }
    }

    /// Returns whether `curr`, which runs on `queue` next to others, has run long enough at this tick.
    pub(crate) fn tick(self, on: &Hierarchy, queue: QueueId, curr: EntityId) -> Option<SliceEnd> {
        match self {
            Rules::Cfs(cfs) => cfs.tick(on, queue, curr),
            // Slices end when time is charged, not at ticks.
            Rules::Eevdf(_) => None,
        }
    }

    /// Returns whether `woken` takes the CPU from `curr`. Both are in the same queue.
    pub(crate) fn preempts(self, on: &Hierarchy, curr: EntityId, woken: EntityId) -> bool {
        ask!(self, preempts(on, curr, woken))
    }

    /// Makes the running thread's entity yield. `alone`: no other thread is runnable on its pCPU.
    pub(crate) fn give_way(self, on: &mut Hierarchy, entity: EntityId, alone: bool) {
        ask!(self, give_way(on, entity, alone))
    }

    /// Prepares `entity` for the new weight `weight`. Its queue has this `average`, and it is in no timeline.
    pub(crate) fn reweigh(self, on: &mut Hierarchy, average: u64, entity: EntityId, weight: u64) {
        if let Rules::Eevdf(eevdf) = self {
            eevdf.reweigh(on, average, entity, weight);
        }
    }

    /// Returns whether no entity gains lag by being delayed.
    pub(crate) fn zeroes_delay(&self) -> bool {
        match self {
            Rules::Cfs(_) => false,
            Rules::Eevdf(eevdf) => eevdf.features.delay_zero,
        }
    }

    /// Returns the number of entities from which a queue counts as crowded. Buddies are preferred then.
    pub(crate) fn crowd(&self) -> u64 {
        match self {
            Rules::Cfs(cfs) => cfs.nr_latency,
            Rules::Eevdf(_) => 0,
        }
    }
}
