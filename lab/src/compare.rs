//! Comparison of results: two files cell by cell, or the variants of one file within each case.
//!
//! All comparisons of one call are made together: with 95 % confidence all of their intervals contain the true ratios.

mod judgment;
mod matrix;
mod verdict;

use std::fmt;

use serde::Serialize;

use crate::remarks::remarks as remarks_on;
use crate::results::{Case, Results};
use crate::service::{Latency, by_latency};
use crate::stats::{self, Comparison};

pub use judgment::Judgment;
pub use matrix::{Change, Line, Matrix};
pub use verdict::{has_cases, sentence, size};

/// Comparison of B with A.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Variant of A.
    pub variant_a: String,
    /// Variant of B.
    pub variant_b: String,
    /// Name of the guest.
    pub vm: String,
    /// Name of the metric: `elapsed` or `throughput`.
    pub metric: String,
    /// Unit of the means.
    pub unit: String,
    /// Mean of A.
    pub mean_a: Option<f64>,
    /// Mean of B.
    pub mean_b: Option<f64>,
    /// Statistical comparison; null if a side has no samples.
    pub comparison: Option<Comparison>,
    /// What the comparison found; null if a side has no samples.
    pub judgment: Option<Judgment>,
    /// Whether all runs of B have the histories of those of A: what differs between them had no effect at all.
    pub same_history: bool,
    /// Whether B is proven better (`true`), proven worse (`false`), or neither.
    pub better: Option<bool>,
}

impl Row {
    /// Compares `b` with `a`, as one of `count` comparisons.
    fn new(count: usize, (a, b): (&Case, &Case)) -> Row {
        let comparison = stats::compare_among(count, a.samples(), b.samples());
        let judgment = comparison.map(|comparison| Judgment::of(&comparison, &a.better));
        Row {
            case: a.case.clone(),
            variant_a: a.variant.clone(),
            variant_b: b.variant.clone(),
            vm: a.vm.clone(),
            metric: a.metric.clone(),
            unit: a.unit.clone(),
            mean_a: a.mean,
            mean_b: b.mean,
            comparison,
            judgment,
            better: judgment.and_then(Judgment::better),
            same_history: !a.history_hash.is_empty() && (&a.history_hash, &a.seeds) == (&b.history_hash, &b.seeds),
        }
    }
}

/// Comparison of two files, or of the variants of one file.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The schema, `holdfast.comparison/1`.
    pub schema: &'static str,
    /// Number of rows, for which their intervals are corrected.
    pub comparisons: usize,
    /// Cells that both sides have.
    pub rows: Vec<Row>,
    /// Variants by guests, with identical guests together.
    pub matrix: Matrix,
    /// What the matrix proves, in one sentence; empty without comparisons.
    pub verdict: String,
    /// The same matrix of the 99th percentile of the operations' times; null without operations.
    pub latency: Option<Matrix>,
    /// Remarks: cells that only one side has, and other reasons to doubt the comparison.
    pub remarks: Vec<String>,
}

/// Schema of a comparison.
pub const SCHEMA: &str = "holdfast.comparison/1";

impl Compared {
    fn new(pairs: &[(&Case, &Case)], matrix: Matrix, remarks: Vec<String>) -> Compared {
        Compared {
            schema: SCHEMA,
            comparisons: pairs.len(),
            rows: pairs.iter().map(|pair| Row::new(pairs.len(), *pair)).collect(),
            verdict: sentence(&matrix),
            latency: None,
            matrix,
            remarks,
        }
    }
}

/// Reason why two files cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareError {
    /// The files have no cell in common.
    NothingInCommon,
    /// The same cell has different metrics or units.
    OtherUnit(String),
    /// The requested baseline is not a variant of the file.
    UnknownVariant {
        /// The requested name.
        found: String,
        /// The names that exist.
        known: String,
    },
    /// The requested key was not swept.
    UnknownKey {
        /// The requested key.
        found: String,
        /// The keys that were swept.
        known: String,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompareError::NothingInCommon => {
                write!(
                    f,
                    "found no cell (case, variant, guest) that both files have, expected at least one"
                )
            }
            CompareError::OtherUnit(what) => write!(f, "{what}"),
            CompareError::UnknownKey { found, known } => write!(f, "key: found {found:?}, expected {known}"),
            CompareError::UnknownVariant { found, known } => write!(f, "baseline: found {found:?}, expected {known}"),
        }
    }
}

impl std::error::Error for CompareError {}

/// Compares `b` with `a`, cell by cell.
///
/// # Errors
/// If the files have no cell in common, or not in the same unit.
pub fn files(a: &Results, b: &Results) -> Result<Compared, CompareError> {
    let mut remarks = doubts(a, b);
    let mut pairs = Vec::new();
    for left in &a.cases {
        let (case, variant, vm) = left.id();
        let Some(right) = b.cases.iter().find(|right| right.id() == left.id()) else {
            remarks.push(format!("only in A: {case} / {variant} / {vm}"));
            continue;
        };
        if (&left.metric, &left.unit) != (&right.metric, &right.unit) {
            let what = format!("{case} / {variant} / {vm}: found {} in {}", right.metric, right.unit);
            return Err(CompareError::OtherUnit(format!(
                "{what}, expected {} in {} as in A",
                left.metric, left.unit
            )));
        }
        pairs.push((left, right));
    }
    for right in b
        .cases
        .iter()
        .filter(|right| !a.cases.iter().any(|left| left.id() == right.id()))
    {
        let (case, variant, vm) = right.id();
        remarks.push(format!("only in B: {case} / {variant} / {vm}"));
    }
    if pairs.is_empty() {
        return Err(CompareError::NothingInCommon);
    }
    for (name, results) in [("A", a), ("B", b)] {
        remarks.extend(
            remarks_on(results)
                .into_iter()
                .map(|remark| format!("{name}: {remark}")),
        );
    }
    let latency = of_latency([a, b]).map(|[a, b]| Matrix::of_files(&a, &b));
    Ok(Compared {
        latency: latency.filter(|matrix| !matrix.rows.is_empty()),
        ..Compared::new(&pairs, Matrix::of_files(a, b), remarks)
    })
}

/// Returns `all` results with the 99th percentile as their metric. `None` if a latency is their metric already.
fn of_latency<const N: usize>(all: [&Results; N]) -> Option<[Results; N]> {
    let is_latency = |case: &Case| {
        [Latency::P50, Latency::P99]
            .iter()
            .any(|known| known.name() == case.metric)
    };
    let asked = all.iter().flat_map(|results| &results.cases).any(is_latency);
    (!asked).then(|| all.map(|results| by_latency(results, Latency::P99)))
}

/// Remark about samples from a real host.
const REAL_HOST: &str =
    "from a real host, where runs cannot be repeated exactly: seeds do not pair samples, and lost time is not recorded";

/// Returns the reasons to doubt a comparison of `a` and `b`.
fn doubts(a: &Results, b: &Results) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut differ = |what: &str, left: String, right: String| {
        if left != right {
            doubts.push(format!("{what} differs: {left} in A, {right} in B"));
        }
    };
    differ("experiment", a.experiment.clone(), b.experiment.clone());
    differ("machine", a.machine.clone(), b.machine.clone());
    differ("scale", a.scale.to_string(), b.scale.to_string());
    differ("version", a.version.clone(), b.version.clone());
    match (a.are_of_real_host(), b.are_of_real_host()) {
        (false, false) => {}
        (true, true) => doubts.push(format!("A and B are {REAL_HOST}")),
        (true, false) => doubts.push(format!("A is {REAL_HOST}; B is simulated")),
        (false, true) => doubts.push(format!("A is simulated; B is {REAL_HOST}")),
    }
    for (name, results) in [("A", a), ("B", b)] {
        if !results.complete {
            doubts.push(format!("{name} was interrupted"));
        }
        if !results.failures.is_empty() {
            doubts.push(format!("{name} has {} failed runs", results.failures.len()));
        }
    }
    doubts
}

/// Compares the variants of one file with `baseline` (its first variant by default), within each case and guest.
///
/// # Errors
/// If there is no such variant.
pub fn variants(results: &Results, baseline: Option<&str>) -> Result<Compared, CompareError> {
    let mut known: Vec<&str> = Vec::new();
    for case in &results.cases {
        if !known.contains(&case.variant.as_str()) {
            known.push(&case.variant);
        }
    }
    let base = baseline.or(known.first().copied()).unwrap_or_default();
    // Without any cell there is no first variant either, and nothing to compare.
    if baseline.is_some() && !known.contains(&base) {
        let known = crate::diagnostic::one_of(base, known);
        return Err(CompareError::UnknownVariant {
            found: base.to_owned(),
            known,
        });
    }
    let others = results.cases.iter().filter(|case| case.variant != base);
    let pairs = others.filter_map(|case| {
        let twin = |other: &&Case| other.case == case.case && other.vm == case.vm && other.variant == base;
        Some((results.cases.iter().find(twin)?, case))
    });
    let mut remarks = Vec::new();
    if results.are_of_real_host() {
        remarks.push(format!("these are {REAL_HOST}"));
    }
    let matrix = Matrix::of_variants(results, base);
    let latency = of_latency([results]).map(|[results]| Matrix::of_variants(&results, base));
    let mut compared = Compared {
        latency: latency.filter(|matrix| !matrix.rows.is_empty()),
        ..Compared::new(&pairs.collect::<Vec<_>>(), matrix, remarks)
    };
    let without = without_effect(&compared.rows);
    compared.remarks.extend(without);
    compared.remarks.extend(remarks_on(results));
    Ok(compared)
}

/// Returns a remark for each variant that differs from the baseline by name only: its runs have the same histories.
fn without_effect(rows: &[Row]) -> Vec<String> {
    let mut variants: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.variant_b, &*row.variant_a)).collect();
    variants.sort_unstable();
    variants.dedup();
    let is_same = |(b, _): &(&str, &str)| {
        rows.iter()
            .filter(|row| row.variant_b == *b)
            .all(|row| row.same_history)
    };
    variants
        .into_iter()
        .filter(is_same)
        .map(|(b, a)| format!("{b} has the same histories as {a}: what it sets did nothing in these runs"))
        .collect()
}
