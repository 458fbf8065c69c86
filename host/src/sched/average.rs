//! The weighted average of a queue's virtual runtimes, kept as sums so that no test for eligibility needs a division.

use super::entity::Entity;

/// Weighted sum of virtual runtimes, relative to a fixed origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Average {
    origin: u64,
    /// Sum of weight times distance from the origin. Wide enough for any load that lasts for ever.
    sum: i128,
    weight: u64,
}

impl Average {
    /// Of nothing.
    pub(crate) fn new(origin: u64) -> Average {
        Average {
            origin,
            sum: 0,
            weight: 0,
        }
    }

    fn distance(self, vruntime: u64) -> i128 {
        i128::from(vruntime.wrapping_sub(self.origin) as i64)
    }

    /// Adds `entity` with the virtual runtime and weight that it has.
    pub(crate) fn add(&mut self, entity: &Entity) {
        self.sum += self.distance(entity.vruntime) * i128::from(entity.weight);
        self.weight += entity.weight;
    }

    /// Takes `entity` away, which must be as it was added.
    pub(crate) fn sub(&mut self, entity: &Entity) {
        self.sum -= self.distance(entity.vruntime) * i128::from(entity.weight);
        self.weight -= entity.weight;
    }

    /// The same with `entity` added.
    pub(crate) fn with(mut self, entity: &Entity) -> Average {
        self.add(entity);
        self
    }

    /// Weight of all.
    pub(crate) fn weight(self) -> u64 {
        self.weight
    }

    /// The average, rounded down; `None` of nothing.
    pub(crate) fn value(self) -> Option<u64> {
        if self.weight == 0 {
            return None;
        }
        let mean = self.sum.div_euclid(i128::from(self.weight));
        Some(self.origin.wrapping_add(mean as i64 as u64))
    }

    /// Whether `vruntime` is not ahead of the average.
    pub(crate) fn reaches(self, vruntime: u64) -> bool {
        self.distance(vruntime) * i128::from(self.weight) <= self.sum
    }
}
