//! The weighted average of a queue's virtual runtimes, kept as sums. A test for eligibility needs no division.

/// Weighted sum of virtual runtimes, relative to a fixed origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Average {
    origin: u64,
    /// Sum of weight times distance from the origin. Wide enough for any load.
    sum: i128,
    pub(super) weight: u64,
}

impl Average {
    /// Returns the average of nothing.
    pub(crate) fn new(origin: u64) -> Average {
        Average {
            origin,
            ..Average::default()
        }
    }

    fn distance(self, vruntime: u64) -> i128 {
        i128::from(vruntime.wrapping_sub(self.origin) as i64)
    }

    /// Adds an entity.
    pub(crate) fn add(&mut self, vruntime: u64, weight: u64) {
        self.sum += self.distance(vruntime) * i128::from(weight);
        self.weight += weight;
    }

    /// Removes an entity, which must be as it was added.
    pub(crate) fn sub(&mut self, vruntime: u64, weight: u64) {
        self.sum -= self.distance(vruntime) * i128::from(weight);
        self.weight -= weight;
    }

    /// Returns the average with one more entity.
    pub(crate) fn with(mut self, vruntime: u64, weight: u64) -> Average {
        self.add(vruntime, weight);
        self
    }

    /// Returns the average, rounded down, or `None` if there are no entities.
    pub(crate) fn value(self) -> Option<u64> {
        if self.weight == 0 {
            return None;
        }
        let mean = self.sum.div_euclid(i128::from(self.weight));
        Some(self.origin.wrapping_add(mean as i64 as u64))
    }

    /// Returns whether `vruntime` is not ahead of the average.
    pub(crate) fn reaches(self, vruntime: u64) -> bool {
        self.distance(vruntime) * i128::from(self.weight) <= self.sum
    }
}
