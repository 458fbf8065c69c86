//! The runnable entities of a queue, ordered by virtual runtime. Equal ones keep the order of their arrival.
//!
//! It is a sorted vector with the leftmost entity last, since almost all changes happen at that end. Queues hold few
//! entities, and nothing is allocated once a queue has reached its largest length.

use alloc::vec::Vec;

use super::ids::EntityId;

/// Returns whether virtual time `a` is before `b`. Virtual time may wrap.
pub(crate) fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// Returns the later of two virtual times.
pub(crate) fn later(a: u64, b: u64) -> u64 {
    if before(a, b) { b } else { a }
}

/// Returns the earlier of two virtual times.
pub(crate) fn earlier(a: u64, b: u64) -> u64 {
    if before(a, b) { a } else { b }
}

/// Runnable entities in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    /// Descending: the leftmost is the last.
    sorted: Vec<(u64, EntityId)>,
}

impl Timeline {
    /// Adds `entity` behind all of the same `vruntime`.
    pub(crate) fn insert(&mut self, vruntime: u64, entity: EntityId) {
        let at = self.sorted.partition_point(|&(other, _)| before(vruntime, other));
        self.sorted.insert(at, (vruntime, entity));
    }

    /// Removes `entity`, which must be here with this `vruntime`.
    pub(crate) fn remove(&mut self, vruntime: u64, entity: EntityId) {
        let from = self.sorted.partition_point(|&(other, _)| before(vruntime, other));
        let found = self.sorted[from..].iter().position(|&(_, other)| other == entity);
        let Some(offset) = found else {
            panic!("entity {} is not in its timeline", entity.0)
        };
        self.sorted.remove(from + offset);
    }

    /// Returns the entity with the least virtual runtime.
    pub(crate) fn leftmost(&self) -> Option<EntityId> {
        self.sorted.last().map(|&(_, entity)| entity)
    }

    /// Returns the entity after the leftmost.
    pub(crate) fn second(&self) -> Option<EntityId> {
        self.sorted.len().checked_sub(2).map(|at| self.sorted[at].1)
    }

    /// Returns the greatest virtual runtime.
    pub(crate) fn greatest(&self) -> Option<u64> {
        self.sorted.first().map(|&(vruntime, _)| vruntime)
    }

    /// Returns all entities from the leftmost on, each with its virtual runtime.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, EntityId)> + '_ {
        self.sorted.iter().rev().copied()
    }

    /// Returns the least virtual runtime.
    pub(crate) fn least(&self) -> Option<u64> {
        self.sorted.last().map(|&(vruntime, _)| vruntime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_vruntime_then_arrival() {
        let mut timeline = Timeline::default();
        for (vruntime, id) in [(5, 0), (3, 1), (5, 2), (4, 3), (3, 4)] {
            timeline.insert(vruntime, EntityId(id));
        }
        let mut order = Vec::new();
        while let (Some(least), Some(entity)) = (timeline.least(), timeline.leftmost()) {
            order.push(entity.0);
            timeline.remove(least, entity);
        }
        assert_eq!(order, [1, 4, 3, 0, 2]);
    }

    #[test]
    fn order_survives_wrapping() {
        let mut timeline = Timeline::default();
        timeline.insert(2, EntityId(0));
        timeline.insert(u64::MAX - 2, EntityId(1));
        assert_eq!(timeline.leftmost(), Some(EntityId(1)));
        assert_eq!(timeline.second(), Some(EntityId(0)));
    }
}
