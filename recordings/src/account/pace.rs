//! How vCPUs ran and waited, to compare two accounts.

use hdrhistogram::Histogram;

/// Longest length that is told apart, in ns.
const LENGTH_MAX: u64 = 1 << 36;

/// How vCPUs ran and waited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pace {
    /// Time with a pCPU, in ns. Polling for halted vCPUs is not included.
    pub ran_ns: u64,
    /// Time ready without a pCPU, in ns.
    pub ready_ns: u64,
    /// Time recorded, in ns.
    pub recorded_ns: u64,
    /// Stretches with a pCPU. One ends with each switch away.
    pub runs: Lengths,
    /// Waits for a pCPU.
    pub waits: Lengths,
    /// How often the next stretch was on another pCPU.
    pub moves: u64,
}

impl Pace {
    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Pace) {
        for (sum, more) in [
            (&mut self.ran_ns, other.ran_ns),
            (&mut self.ready_ns, other.ready_ns),
            (&mut self.recorded_ns, other.recorded_ns),
            (&mut self.moves, other.moves),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.runs.merge(&other.runs);
        self.waits.merge(&other.waits);
    }
}

/// Lengths in ns, by their first digit in base 16: there are two of these for each vCPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lengths {
    histogram: Option<Histogram<u32>>,
}

fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LENGTH_MAX, 1).expect("the bounds are in order")
}

impl Lengths {
    /// Enters a length of `ns`.
    pub fn enter(&mut self, ns: u64) {
        let histogram = self.histogram.get_or_insert_with(histogram);
        histogram.saturating_record(ns.clamp(1, LENGTH_MAX));
    }

    /// Returns how many there are.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Lengths) {
        if let Some(other) = &other.histogram {
            // Both have the same bounds.
            let _ = self.histogram.get_or_insert_with(histogram).add(other);
        }
    }

    /// Returns the largest difference between the shares of lengths up to the same bound, here and in `other`: 0 if
    /// they are alike, 1 if they have nothing in common (Kolmogorov and Smirnov). `None` if one of them has no length.
    pub fn distance(&self, other: &Lengths) -> Option<f64> {
        let (one, other) = (self.histogram.as_ref()?, other.histogram.as_ref()?);
        // Buckets are the same in both; those without lengths in one and the other change nothing.
        let mut at: Vec<u64> = one.iter_recorded().map(|step| step.value_iterated_to()).collect();
        at.extend(other.iter_recorded().map(|step| step.value_iterated_to()));
        at.sort_unstable();
        at.dedup();
        let counts = |histogram: &Histogram<u32>| -> Vec<u64> {
            let mut sum = 0;
            let counted = at.iter().map(|value| {
                sum += u64::from(histogram.count_at(*value));
                sum
            });
            counted.collect()
        };
        let (ones, others) = (counts(one), counts(other));
        let shares = |sums: &[u64], of: u64, index: usize| sums[index] as f64 / of.max(1) as f64;
        let differences =
            (0..at.len()).map(|index| (shares(&ones, one.len(), index) - shares(&others, other.len(), index)).abs());
        Some(differences.fold(0.0, f64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(ns: impl IntoIterator<Item = u64>) -> Lengths {
        let mut lengths = Lengths::default();
        ns.into_iter().for_each(|ns| lengths.enter(ns));
        lengths
    }

    #[test]
    fn a_distance_is_the_largest_difference_of_shares() {
        let short = lengths([1_000, 1_000, 2_000, 4_000]);
        for (other, expected) in [
            (lengths([1_000, 1_000, 2_000, 4_000]), 0.0),
            // As many times as often.
            (lengths([1_000, 2_000, 1_000, 4_000, 1_000, 1_000, 2_000, 4_000]), 0.0),
            (lengths([9_000, 9_000]), 1.0),
            (lengths([1_000, 9_000]), 0.5),
            (lengths([2_000, 2_000, 4_000, 4_000]), 0.5),
        ] {
            assert_eq!(short.distance(&other), Some(expected), "{other:?}");
            assert_eq!(other.distance(&short), Some(expected), "{other:?}");
        }
        assert_eq!(short.distance(&Lengths::default()), None);
    }

    #[test]
    fn any_length_is_taken() {
        let lengths = lengths([0, 1, u64::MAX]);
        assert_eq!(lengths.count(), 3);
    }
}
