//! How long the operations of a workload took, as their users see it.

use hdrhistogram::Histogram;

/// Digits that a recorded time keeps.
const DIGITS: u8 = 3;

/// The times of completed operations.
#[derive(Debug, Default)]
pub struct Latencies(Option<Histogram<u64>>);

impl Latencies {
    /// Records an operation of `ns` nanoseconds.
    pub fn record(&mut self, ns: u64) {
        let histogram = self
            .0
            .get_or_insert_with(|| Histogram::new(DIGITS).expect("a histogram of 3 digits"));
        // It grows as needed, so that no time is out of its range.
        let _ = histogram.record(ns);
    }

    /// Returns the figures of these times with their names in the results: how many there are, and median, 99th
    /// percentile and maximum in nanoseconds. None of them without operations.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Some(histogram) = &self.0 else {
            return Vec::new();
        };
        vec![
            ("operation_count", histogram.len()),
            ("operation_p50_ns", histogram.value_at_quantile(0.5)),
            ("operation_p99_ns", histogram.value_at_quantile(0.99)),
            ("operation_max_ns", histogram.max()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_keep_three_digits() {
        let mut latencies = Latencies::default();
        assert!(latencies.counters().is_empty());
        for micros in 1..=1_000 {
            latencies.record(micros * 1_000);
        }
        let found: Vec<u64> = latencies.counters().into_iter().map(|(_, value)| value).collect();
        for (found, expected) in found.into_iter().zip([1_000, 500_000, 990_000, 1_000_000]) {
            assert!(
                found.abs_diff(expected) * 1_000 <= expected,
                "{found}, expected {expected}"
            );
        }
    }
}
