//! Buddies: marks by which a queue prefers an entity, or passes it over, within the bounds of fairness
//! (docs/spec/host.md, "Yield and directed yield").

use super::entity::{Mark, Queue};
use super::fault::Fault;
use super::hierarchy::Hierarchy;
use super::ids::EntityId;

impl Queue {
    fn marked(&mut self, mark: Mark) -> &mut Option<EntityId> {
        match mark {
            Mark::Next => &mut self.next,
            Mark::Last => &mut self.last,
            Mark::Skip => &mut self.skip,
        }
    }
}

impl Hierarchy {
    /// Returns the ancestors of `a` and `b` that are in the same queue.
    pub(crate) fn siblings(&self, a: EntityId, b: EntityId) -> (EntityId, EntityId) {
        let (mut a, mut b) = (a, b);
        let (mut depth_a, mut depth_b) = (self.path(a).count(), self.path(b).count());
        while self.entities[a].queue != self.entities[b].queue {
            if depth_a >= depth_b {
                a = self.parent(a).expect("entities of one pcpu meet at its root queue");
                depth_a -= 1;
            }
            if depth_b > depth_a {
                b = self.parent(b).expect("entities of one pcpu meet at its root queue");
                depth_b -= 1;
            }
        }
        (a, b)
    }

    /// Sets `mark` for `entity` on every queue from its own to the root.
    pub(crate) fn mark(&mut self, entity: EntityId, mark: Mark) {
        let mut at = Some(entity);
        while let Some(id) = at {
            let queue = self.entities[id].queue;
            *self.queues[queue].marked(mark) = Some(id);
            at = self.parent(id).filter(|_| !self.has(Fault::LevelSkipped));
        }
    }

    /// Clears the marks of `entity`, each on all levels up to the first where another entity is marked.
    pub(crate) fn clear_buddies(&mut self, entity: EntityId) {
        if self.has(Fault::BuddyKept) {
            return;
        }
        for mark in [Mark::Next, Mark::Last, Mark::Skip] {
            let mut at = Some(entity);
            while let Some(id) = at {
                let queue = self.entities[id].queue;
                let marked = self.queues[queue].marked(mark);
                if *marked != Some(id) {
                    break;
                }
                *marked = None;
                at = self.parent(id);
            }
        }
    }
}
