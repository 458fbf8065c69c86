//! Judges predictions by measurements: ratios, and the order of the locks.

use holdfast_lab::stats::Summary;
use serde::{Deserialize, Serialize};

/// A lock in one topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Number of threads or vCPUs, on two CPUs.
    pub threads: u32,
    /// Length of the critical section in nanoseconds.
    pub section_ns: u64,
    /// The path of a stock Linux that the threads call; null for our own kernel and for threads of this machine.
    pub path: Option<String>,
    /// Name of the lock.
    pub lock: String,
    /// Predicted acquisitions per second; null if the simulation failed.
    pub predicted: Option<f64>,
    /// The failure of the simulation.
    pub failure: Option<String>,
    /// Measured acquisitions per second, median over the rounds.
    pub measured: f64,
    /// Measured acquisitions per second of each round.
    pub samples: Vec<f64>,
    /// Number of measurements that failed and were repeated.
    pub retries: u32,
    /// Failures of these measurements.
    pub lost: Vec<String>,
}

impl Row {
    /// Returns the natural logarithm of predicted over measured.
    pub fn log_ratio(&self) -> Option<f64> {
        let ratio = self.predicted? / self.measured;
        (ratio > 0.0 && ratio.is_finite()).then(|| ratio.ln())
    }

    /// Returns the smallest and the largest sample.
    pub fn range(&self) -> Option<(f64, f64)> {
        Summary::of(&self.samples).map(|summary| (summary.min, summary.max))
    }

    /// Returns whether this is the row of `path` with `lock` in a guest of `vcpus`.
    pub fn is_of(&self, path: &str, vcpus: u32, lock: &str) -> bool {
        self.path.as_deref() == Some(path) && self.threads == vcpus && self.lock == lock
    }

    fn is_beside(&self, other: &Row) -> bool {
        self.place() == other.place()
    }

    fn place(&self) -> (u32, u64, Option<&str>) {
        (self.threads, self.section_ns, self.path.as_deref())
    }
}

/// Summary of the rows of one topology.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Topology {
    /// Number of threads or vCPUs, on two CPUs.
    pub threads: u32,
    /// Length of the critical section in nanoseconds.
    pub section_ns: u64,
    /// The path of a stock Linux.
    pub path: Option<String>,
    /// Median of the absolute logarithms of predicted over measured.
    pub median_log_ratio: Option<f64>,
    /// Number of pairs of locks that the measurement distinguishes: their samples do not overlap, and their medians
    /// differ by a tenth.
    pub pairs: u32,
    /// Number of these pairs whose order is predicted correctly.
    pub pairs_right: u32,
}

impl Topology {
    fn place(&self) -> (u32, u64, Option<&str>) {
        (self.threads, self.section_ns, self.path.as_deref())
    }
}

/// Judgment of all predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgment {
    /// Rows, one for each lock in each topology.
    pub rows: Vec<Row>,
    /// Summaries, one for each topology.
    pub topologies: Vec<Topology>,
    /// Median of the absolute logarithms of predicted over measured, over all rows.
    pub median_log_ratio: Option<f64>,
    /// Whether the median is within the goal, ln 1.5.
    pub goal_reached: bool,
}

/// The goal: half of the predictions within this factor.
pub const GOAL: f64 = 1.5;
/// Medians that differ by less than this factor count as equal.
const EQUAL: f64 = 1.1;

/// Judges `rows`.
pub fn judge(rows: Vec<Row>) -> Judgment {
    let mut topologies: Vec<Topology> = Vec::new();
    for row in &rows {
        let known = |topology: &Topology| topology.place() == row.place();
        if !topologies.iter().any(known) {
            let beside: Vec<&Row> = rows.iter().filter(|other| other.is_beside(row)).collect();
            topologies.push(topology(&beside));
        }
    }
    let median = median(rows.iter());
    Judgment {
        goal_reached: median.is_some_and(|median| median <= GOAL.ln()),
        median_log_ratio: median,
        topologies,
        rows,
    }
}

fn median<'r>(rows: impl Iterator<Item = &'r Row>) -> Option<f64> {
    let logs: Vec<f64> = rows.filter_map(Row::log_ratio).map(f64::abs).collect();
    Summary::of(&logs).map(|summary| summary.median)
}

fn topology(rows: &[&Row]) -> Topology {
    let (mut pairs, mut right) = (0, 0);
    for (index, one) in rows.iter().enumerate() {
        for other in &rows[index + 1..] {
            let Some(faster) = faster(one, other) else { continue };
            let Some((a, b)) = one.predicted.zip(other.predicted) else {
                continue;
            };
            pairs += 1;
            right += u32::from((a > b) == faster);
        }
    }
    Topology {
        threads: rows[0].threads,
        section_ns: rows[0].section_ns,
        path: rows[0].path.clone(),
        median_log_ratio: median(rows.iter().copied()),
        pairs,
        pairs_right: right,
    }
}

/// Returns whether `one` was measured to be faster than `other`, or `None` if the measurement does not distinguish
/// them.
fn faster(one: &Row, other: &Row) -> Option<bool> {
    let ((low, high), (other_low, other_high)) = (one.range()?, other.range()?);
    let differ = (one.measured / other.measured).ln().abs() > EQUAL.ln();
    if !differ {
        return None;
    }
    if low > other_high {
        Some(true)
    } else if high < other_low {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(lock: &str, predicted: f64, samples: &[f64]) -> Row {
        Row {
            threads: 4,
            section_ns: 200,
            path: None,
            lock: lock.to_owned(),
            predicted: Some(predicted),
            failure: None,
            measured: Summary::of(samples).map_or(0.0, |summary| summary.median),
            samples: samples.to_vec(),
            retries: 0,
            lost: Vec::new(),
        }
    }

    #[test]
    fn locks_that_the_measurement_does_not_tell_apart_have_no_order() {
        let rows = vec![
            row("a", 1.0, &[100.0, 110.0, 120.0]),
            row("b", 2.0, &[115.0, 130.0, 140.0]),
            row("c", 9.0, &[10.0, 11.0, 12.0]),
        ];
        let judgment = judge(rows);
        let topology = &judgment.topologies[0];
        assert_eq!(
            (topology.pairs, topology.pairs_right),
            (2, 0),
            "a and b overlap; c was predicted fastest"
        );
        assert!(!judgment.goal_reached);
    }

    #[test]
    fn half_within_a_factor_of_one_and_a_half_is_the_goal() {
        let rows = vec![
            row("a", 149.0, &[100.0]),
            row("b", 1000.0, &[100.0]),
            row("c", 67.0, &[100.0]),
        ];
        let judgment = judge(rows);
        assert!(judgment.goal_reached, "{:?}", judgment.median_log_ratio);
        assert!((judgment.median_log_ratio.unwrap_or(0.0) - (100.0f64 / 67.0).ln()).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn whatever_was_measured_is_judged_without_panic_and_never_more_right_than_there_are_pairs(
            figures in proptest::collection::vec((any::<f64>(), proptest::collection::vec(any::<f64>(), 0..4), 0u32..3), 0..12)
        ) {
            let rows = figures.iter().map(|(predicted, samples, threads)| Row { threads: *threads, ..row("x", *predicted, samples) });
            for topology in judge(rows.collect()).topologies {
                prop_assert!(topology.pairs_right <= topology.pairs);
            }
        }
    }
}
