//! What a fair scheduler decides within one queue; the [`Hierarchy`] asks, and does the rest.

use super::entity::{EntityId, QueueId};
use super::hierarchy::Hierarchy;

/// How an entity comes to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A new thread, to be placed for the first time.
    New,
    /// A thread that slept; its virtual runtime is relative.
    Woken,
    /// A thread that comes from another queue without having slept; its virtual runtime is relative.
    Moved,
    /// A group's entity whose queue was empty.
    GroupWoken,
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
    /// The virtual runtime with which `entity` begins on `queue`, whose load counts it already unless it is new.
    fn place(self, on: &Hierarchy, queue: QueueId, entity: EntityId, arrival: Arrival) -> u64;
    /// Which entity of `queue` runs next; none of them is running. `None` for an empty queue.
    fn pick(self, on: &Hierarchy, queue: QueueId) -> Option<EntityId>;
    /// At a tick: whether `curr`, which runs on `queue` beside others, has run long enough.
    fn tick(self, on: &Hierarchy, queue: QueueId, curr: EntityId) -> Option<SliceEnd>;
    /// Whether `woken` takes the CPU from `curr`; both stand in the same queue.
    fn preempts(self, on: &Hierarchy, curr: EntityId, woken: EntityId) -> bool;
}
