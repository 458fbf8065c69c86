//! Many comparisons at one sight: variants by guests.
//!
//! - **Corrected.** All comparisons of a matrix are made together: with 95 % confidence all of their intervals contain
//!   the true ratios (Bonferroni's correction).
//! - **Identical guests are one column**, since what differs between them is chance.
//! - **Sorted by worth.** In each case the rows with a proven change come first, the best for all guests on top.

use std::collections::HashMap;

use serde::Serialize;

use super::judgment::Judgment;
use crate::figure::{Figure, figures};
use crate::results::Results;
use crate::stats::{Samples, compare_among};

/// Variants by guests, each compared with another variant, or with the same variant of another file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Matrix {
    /// The variant that all rows are compared with; null if they are compared with another file.
    pub against: Option<String>,
    /// Number of comparisons that the intervals are corrected for.
    pub comparisons: usize,
    /// The columns: guests, and identical guests together.
    pub guests: Vec<String>,
    /// The metric of each column, with its unit.
    pub metrics: Vec<String>,
    /// Better direction of each column: `lower` or `higher`.
    pub better: Vec<String>,
    /// The rows.
    pub rows: Vec<Line>,
}

/// A variant in a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Change for all guests together: the geometric mean of their ratios. If some guests' figures are better when
    /// lower and some when higher, the change of their speed. Null with one guest.
    pub all: Option<Change>,
    /// Change for each guest; null where a side lacks the guest or its samples.
    pub guests: Vec<Option<Change>>,
    /// Mean change of the guests' speed as a logarithm, by which rows are sorted.
    #[serde(skip)]
    worth: f64,
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Change of the geometric mean, in percent.
    pub percent: f64,
    /// Interval of it, in percent; null with one sample.
    pub interval_percent: Option<(f64, f64)>,
    /// What is proven.
    pub judgment: Judgment,
}

impl Change {
    /// Returns the geometric mean of B over that of A.
    pub fn ratio(&self) -> f64 {
        self.percent / 100.0 + 1.0
    }

    /// Returns whether B is proven better or worse.
    pub fn is_proven(&self) -> bool {
        self.judgment.better().is_some()
    }

    fn of(count: usize, a: Samples<'_>, b: Samples<'_>, better: &str) -> Option<Change> {
        let comparison = compare_among(count, a, b)?;
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        Some(Change {
            percent: percent(comparison.ratio),
            interval_percent: comparison.interval.map(|(low, high)| (percent(low), percent(high))),
            judgment: Judgment::of(&comparison, better),
        })
    }
}

impl Line {
    /// Returns the changes of all columns, that of all guests first.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.all.iter().chain(self.guests.iter().flatten())
    }
}

/// The guests of a case with two variants, or in two files.
struct Cell<'r> {
    case: &'r str,
    variant: &'r str,
    /// For each column the guest in A and in B.
    guests: Vec<Option<(Figure<'r>, Figure<'r>)>>,
}

impl Matrix {
    /// Compares each variant with `base` within its case.
    pub(super) fn of_variants(results: &Results, base: &str) -> Matrix {
        let figures = figures(results);
        let of_base = |figure: &Figure<'_>| {
            let same = |other: &&Figure<'_>| other.case.case == figure.case.case && other.vm() == figure.vm();
            let mut of_base = figures.iter().filter(|other| other.case.variant == base);
            of_base.find(same).copied()
        };
        let others = figures.iter().filter(|figure| figure.case.variant != base);
        let pairs = others.filter_map(|figure| Some((of_base(figure)?, *figure)));
        Matrix::of(Some(base.to_owned()), &pairs.collect::<Vec<_>>())
    }

    /// Compares each cell of `b` with that of `a`.
    pub(super) fn of_files(a: &Results, b: &Results) -> Matrix {
        let (of_a, of_b) = (figures(a), figures(b));
        let names = |figure: &Figure<'_>| (figure.case.case.clone(), figure.case.variant.clone(), figure.vm());
        let twin = |figure: &Figure<'_>| of_b.iter().find(|other| names(other) == names(figure)).copied();
        let pairs = of_a.iter().filter_map(|figure| Some((*figure, twin(figure)?)));
        Matrix::of(None, &pairs.collect::<Vec<_>>())
    }

    fn of(against: Option<String>, pairs: &[(Figure<'_>, Figure<'_>)]) -> Matrix {
        let mut guests: Vec<String> = Vec::new();
        let (mut metrics, mut better) = (Vec::new(), Vec::new());
        let mut cells: Vec<Cell<'_>> = Vec::new();
        let mut known: HashMap<(&str, &str), usize> = HashMap::new();
        for (a, b) in pairs {
            let vm = b.vm();
            let column = guests.iter().position(|known| *known == vm).unwrap_or_else(|| {
                guests.push(vm);
                metrics.push(format!("{}, {}", b.case.metric, b.case.unit));
                better.push(b.case.better.clone());
                guests.len() - 1
            });
            let (case, variant) = (b.case.case.as_str(), b.case.variant.as_str());
            let index = *known.entry((case, variant)).or_insert_with(|| {
                cells.push(Cell {
                    case,
                    variant,
                    guests: Vec::new(),
                });
                cells.len() - 1
            });
            let row = &mut cells[index].guests;
            row.resize(row.len().max(column + 1), None);
            row[column] = Some((*a, *b));
        }
        for cell in &mut cells {
            cell.guests.resize(guests.len(), None);
        }
        let with_all = guests.len() > 1;
        let comparisons = pairs.len() + if with_all { cells.len() } else { 0 };
        let mut rows: Vec<Line> = cells.iter().map(|cell| line(cell, comparisons, with_all)).collect();
        let mut order: Vec<&str> = Vec::new();
        for cell in &cells {
            if !order.contains(&cell.case) {
                order.push(cell.case);
            }
        }
        let place = |line: &Line| order.iter().position(|case| *case == line.case);
        let is_unproven = |line: &Line| !line.changes().any(Change::is_proven);
        rows.sort_by(|a, b| {
            let by_case = place(a).cmp(&place(b)).then(is_unproven(a).cmp(&is_unproven(b)));
            by_case.then(b.worth.total_cmp(&a.worth))
        });
        Matrix {
            against,
            comparisons,
            guests,
            metrics,
            better,
            rows,
        }
    }
}

/// Compares the guests of `cell`, as some of `count` comparisons.
fn line(cell: &Cell<'_>, count: usize, with_all: bool) -> Line {
    let change = |pair: &Option<(Figure<'_>, Figure<'_>)>| {
        let (a, b) = pair.as_ref()?;
        Change::of(count, a.samples(), b.samples(), &b.case.better)
    };
    let pairs: Vec<&(Figure<'_>, Figure<'_>)> = cell.guests.iter().flatten().collect();
    let speeds = pairs.iter().filter_map(|(a, b)| {
        let change = Change::of(count, a.samples(), b.samples(), &b.case.better)?;
        let sign = if b.case.better == "lower" { -1.0 } else { 1.0 };
        Some(sign * change.ratio().max(f64::MIN_POSITIVE).ln())
    });
    let speeds: Vec<f64> = speeds.collect();
    Line {
        case: cell.case.to_owned(),
        variant: cell.variant.to_owned(),
        all: if with_all { together(&pairs, count) } else { None },
        guests: cell.guests.iter().map(change).collect(),
        worth: speeds.iter().sum::<f64>() / speeds.len().max(1) as f64,
    }
}

/// Compares all guests together. `None` if they have not the same seeds, or one of them has no samples.
fn together(pairs: &[&(Figure<'_>, Figure<'_>)], count: usize) -> Option<Change> {
    let (first_a, first_b) = pairs.first()?;
    let is_mixed = pairs.iter().any(|(_, b)| b.case.better != first_b.case.better);
    let mean = |side: &[Figure<'_>], seeds: &[u64]| -> Option<Vec<f64>> {
        let mut sums = vec![0.0; seeds.len()];
        for figure in side {
            let samples = figure.samples();
            if samples.seeds != seeds || samples.values.len() != seeds.len() {
                return None;
            }
            let sign = if is_mixed && figure.case.better == "lower" {
                -1.0
            } else {
                1.0
            };
            for (sum, value) in sums.iter_mut().zip(samples.values) {
                *sum += sign * value.ln() / side.len() as f64;
            }
        }
        Some(sums.into_iter().map(f64::exp).collect())
    };
    let (a, b): (Vec<Figure<'_>>, Vec<Figure<'_>>) = pairs.iter().map(|(a, b)| (*a, *b)).unzip();
    let (seeds_a, seeds_b) = (first_a.samples().seeds, first_b.samples().seeds);
    let (values_a, values_b) = (mean(&a, seeds_a)?, mean(&b, seeds_b)?);
    let samples = |figure: &Figure<'_>| figure.case.samples().paired;
    let side = |seeds, values, paired| Samples { seeds, values, paired };
    let better = if is_mixed { "higher" } else { &first_b.case.better };
    Change::of(
        count,
        side(seeds_a, &values_a, samples(first_a)),
        side(seeds_b, &values_b, samples(first_b)),
        better,
    )
}
