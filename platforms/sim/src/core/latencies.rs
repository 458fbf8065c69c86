//! How long the operations of a workload took, as their users see it, and how long woken vCPUs waited.

use hdrhistogram::Histogram;

/// Digits that a recorded time keeps.
const DIGITS: u8 = 3;

/// Names of the figures of operations: how many there are, and median, 99th percentile and maximum in nanoseconds.
pub const OPERATIONS: [&str; 4] = [
    "operation_count",
    "operation_p50_ns",
    "operation_p99_ns",
    "operation_max_ns",
];
/// The same of the times from the wakeup of a vCPU that sleeps until it has a pCPU.
pub const WAKES: [&str; 4] = [
    "wake_to_run_count",
    "wake_to_run_p50_ns",
    "wake_to_run_p99_ns",
    "wake_to_run_max_ns",
];

/// Times of one kind.
#[derive(Debug, Default)]
pub struct Latencies(Option<Histogram<u64>>);

impl Latencies {
    /// Records a time of `ns` nanoseconds.
    pub fn record(&mut self, ns: u64) {
        let histogram = self
            .0
            .get_or_insert_with(|| Histogram::new(DIGITS).expect("a histogram of 3 digits"));
        // It grows as needed, so that no time is out of its range.
        let _ = histogram.record(ns);
    }

    /// Returns the figures of these times with their `names` in the results; none without a time.
    pub fn counters(&self, names: [&'static str; 4]) -> Vec<(&'static str, u64)> {
        let Some(histogram) = &self.0 else {
            return Vec::new();
        };
        let (median, p99) = (histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99));
        let figures = [histogram.len(), median, p99, histogram.max()];
        names.into_iter().zip(figures).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_keep_three_digits() {
        let mut latencies = Latencies::default();
        assert!(latencies.counters(OPERATIONS).is_empty());
        for micros in 1..=1_000 {
            latencies.record(micros * 1_000);
        }
        let found: Vec<u64> = latencies
            .counters(OPERATIONS)
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        for (found, expected) in found.into_iter().zip([1_000, 500_000, 990_000, 1_000_000]) {
            assert!(
                found.abs_diff(expected) * 1_000 <= expected,
                "{found}, expected {expected}"
            );
        }
    }
}
