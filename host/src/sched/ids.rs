//! Numbers of entities and queues.

/// Number of an entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntityId(pub(crate) u32);

/// Number of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(pub(crate) u32);

crate::ids::id!(EntityId, QueueId);
