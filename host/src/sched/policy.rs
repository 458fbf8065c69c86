//! What a fair scheduler decides within one queue; the [`Hierarchy`] asks, and does the rest.
//!
//! What all share (queues, weights, groups, placement on pCPUs, balancing, bandwidth) is no policy's business; what
//! differs between versions of one algorithm is a named feature of it.

use super::cfs::Cfs;
use super::config::SchedConfig;
use super::eevdf::Eevdf;
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};

/// How an entity comes to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A new thread, placed by [`Policy::fork`]; its virtual runtime is relative.
    New,
    /// A thread that slept; its virtual runtime is relative.
    Woken,
    /// A thread that comes from another queue without having slept; its virtual runtime is relative.
    Moved,
    /// A group's entity whose queue was empty, or throttled.
    GroupWoken,
}

/// How an entity leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It sleeps, or a group's queue is empty: its virtual runtime stays as it is until it comes back.
    Sleep,
    /// It moves to another queue: its virtual runtime becomes relative.
    Move,
    /// Its thread ended, its group is throttled, or it has been delayed for long enough: it goes now.
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

/// A scheduler's decisions. Implementations keep no state: it is all in entities and queues.
pub(crate) trait Policy: Copy {
    /// Returns whether queues keep the average of their virtual runtimes.
    fn averages(self) -> bool;
    /// Gives a new thread the virtual runtime with which it begins on `queue`.
    fn fork(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId);
    /// Gives `entity` its virtual runtime on `queue`, whose load counts it already.
    fn arrive(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, arrival: Arrival);
    /// `entity` is about to leave `queue`; false: it stays for now, delayed.
    fn leave(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, departure: Departure) -> bool;
    /// Returns the running entity of `queue` was charged for what it ran; whether its slice is over.
    fn charged(self, on: &mut Hierarchy, queue: QueueId, curr: EntityId) -> bool;
    /// Returns which entity of `queue` runs next; none of them is running, `prev` is the thread that ran until now.
    /// `None` for an empty queue.
    fn pick(self, on: &Hierarchy, queue: QueueId, prev: Option<EntityId>) -> Option<EntityId>;
    /// `entity` was picked.
    fn picked(self, on: &mut Hierarchy, entity: EntityId);
    /// At a tick: whether `curr`, which runs on `queue` beside others, has run long enough.
    fn tick(self, on: &Hierarchy, queue: QueueId, curr: EntityId) -> Option<SliceEnd>;
    /// Returns whether `woken` takes the CPU from `curr`; both stand in the same queue.
    fn preempts(self, on: &Hierarchy, curr: EntityId, woken: EntityId) -> bool;
    /// The running thread's entity yields; `alone`: no other thread is runnable on its pCPU.
    fn give_way(self, on: &mut Hierarchy, entity: EntityId, alone: bool);
    /// `entity`, on its queue of this average but in no timeline, is about to weigh `weight`.
    fn reweigh(self, on: &mut Hierarchy, average: u64, entity: EntityId, weight: u64);
}

/// One of the policies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rules {
    Cfs(Cfs),
    Eevdf(Eevdf),
}

impl Rules {
    pub(crate) fn new(config: &SchedConfig, pcpus: u32, tick_ns: u64) -> Rules {
        if config.is_eevdf() {
            Rules::Eevdf(Eevdf::new(config, pcpus, tick_ns))
        } else {
            Rules::Cfs(Cfs::new(config, pcpus))
        }
    }

    /// Returns whether nobody gains lag by being delayed.
    pub(crate) fn zeroes_delay(&self) -> bool {
        match self {
            Rules::Cfs(_) => false,
            Rules::Eevdf(eevdf) => eevdf.delay_zero,
        }
    }

    /// From how many entities on a queue is considered crowded: buddies are favored then.
    pub(crate) fn crowd(&self) -> u64 {
        match self {
            Rules::Cfs(cfs) => cfs.nr_latency,
            Rules::Eevdf(_) => 0,
        }
    }
}

macro_rules! ask {
    ($self:ident, $ask:ident($($argument:expr),*)) => {
        match $self {
            Rules::Cfs(cfs) => cfs.$ask($($argument),*),
            Rules::Eevdf(eevdf) => eevdf.$ask($($argument),*),
        }
    };
}

impl Policy for Rules {
    fn averages(self) -> bool {
        ask!(self, averages())
    }

    fn fork(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId) {
        ask!(self, fork(on, queue, entity))
    }

    fn arrive(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, arrival: Arrival) {
        ask!(self, arrive(on, queue, entity, arrival))
    }

    fn leave(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, departure: Departure) -> bool {
        ask!(self, leave(on, queue, entity, departure))
    }

    fn charged(self, on: &mut Hierarchy, queue: QueueId, curr: EntityId) -> bool {
        ask!(self, charged(on, queue, curr))
    }

    fn pick(self, on: &Hierarchy, queue: QueueId, prev: Option<EntityId>) -> Option<EntityId> {
        ask!(self, pick(on, queue, prev))
    }

    fn picked(self, on: &mut Hierarchy, entity: EntityId) {
        ask!(self, picked(on, entity))
    }

    fn tick(self, on: &Hierarchy, queue: QueueId, curr: EntityId) -> Option<SliceEnd> {
        ask!(self, tick(on, queue, curr))
    }

    fn preempts(self, on: &Hierarchy, curr: EntityId, woken: EntityId) -> bool {
        ask!(self, preempts(on, curr, woken))
    }

    fn give_way(self, on: &mut Hierarchy, entity: EntityId, alone: bool) {
        ask!(self, give_way(on, entity, alone))
    }

    fn reweigh(self, on: &mut Hierarchy, average: u64, entity: EntityId, weight: u64) {
        ask!(self, reweigh(on, average, entity, weight))
    }
}
