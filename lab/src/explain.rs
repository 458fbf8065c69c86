//! Where the time went, and whether a convoy took it.

use serde::Serialize;

use crate::results::{Case, Results};

/// What the longest stalls of a cell's runs say.
///
/// A preempted lock holder gets its turn again within about one scheduling period. A stall that is longer than
/// [`PERIODS`] of them is no single preemption: each new holder, or the next waiter in line, was preempted in turn. That is
/// a convoy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stalls {
    /// Runs.
    pub runs: usize,
    /// Runs with a convoy.
    pub convoys: usize,
    /// Median over the runs of the longest stall, nanoseconds.
    pub median_ns: u64,
    /// Longest stall of all, nanoseconds.
    pub max_ns: u64,
    /// The host scheduler's period, nanoseconds.
    pub period_ns: u64,
}

/// A stall is a convoy's from this many scheduling periods on.
pub const PERIODS: u64 = 2;

impl Stalls {
    /// Of a cell; `None` without runs.
    pub fn of(case: &Case) -> Option<Stalls> {
        let mut stalls = case.longest_stalls_ns.clone();
        stalls.sort_unstable();
        let limit = case.period_ns.saturating_mul(PERIODS);
        Some(Stalls {
            runs: stalls.len(),
            convoys: stalls.iter().filter(|stall| **stall > limit).count(),
            median_ns: *stalls.get(stalls.len() / 2)?,
            max_ns: *stalls.last()?,
            period_ns: case.period_ns,
        })
    }
}

/// A cell explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Case.
    pub case: String,
    /// Variant.
    pub variant: String,
    /// Guest.
    pub vm: String,
    /// Whether the guest is measured.
    pub measured: bool,
    /// Share of the vCPUs' time by cause, largest first; the shares sum to 1.
    pub lost_time: Vec<(String, f64)>,
    /// Counters: mean of the runs.
    pub counters: Vec<(String, f64)>,
    /// Stalls; null for a guest that is not measured.
    pub stalls: Option<Stalls>,
}

/// An experiment explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// `holdfast.explanation/1`.
    pub schema: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// Cells in the order of the results; guests that are not measured after those that are.
    pub rows: Vec<Row>,
}

/// Schema of an explanation.
pub const SCHEMA: &str = "holdfast.explanation/1";

/// Explains `results`.
pub fn explain(results: &Results) -> Explanation {
    let mut rows = Vec::new();
    let cells = results.cases.iter().map(|case| (&case.case, &case.variant));
    let mut seen: Vec<(&String, &String)> = Vec::new();
    for (name, variant) in cells {
        if seen.contains(&(name, variant)) {
            continue;
        }
        seen.push((name, variant));
        for case in results
            .cases
            .iter()
            .filter(|case| (&case.case, &case.variant) == (name, variant))
        {
            rows.push(Row {
                case: case.case.clone(),
                variant: case.variant.clone(),
                vm: case.vm.clone(),
                measured: true,
                lost_time: sorted(case.lost_time.iter()),
                counters: case
                    .counters
                    .iter()
                    .map(|(name, value)| (name.clone(), *value))
                    .collect(),
                stalls: Stalls::of(case),
            });
        }
        for beside in results
            .background
            .iter()
            .filter(|beside| (&beside.case, &beside.variant) == (name, variant))
        {
            rows.push(Row {
                case: beside.case.clone(),
                variant: beside.variant.clone(),
                vm: beside.vm.clone(),
                measured: false,
                lost_time: sorted(beside.lost_time.iter()),
                counters: beside
                    .counters
                    .iter()
                    .map(|(name, value)| (name.clone(), *value))
                    .collect(),
                stalls: None,
            });
        }
    }
    Explanation {
        schema: SCHEMA,
        experiment: results.experiment.clone(),
        rows,
    }
}

/// Largest share first; equal ones by name.
fn sorted<'s>(shares: impl Iterator<Item = (&'s String, &'s f64)>) -> Vec<(String, f64)> {
    let mut shares: Vec<(String, f64)> = shares.map(|(cause, share)| (cause.clone(), *share)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    shares
}
