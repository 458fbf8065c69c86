//! Comparison of predictions with published figures.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::results::{Case, PublishedFigure, Results};
use crate::stats::{self, Moments, Verdict};

/// A published figure and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// Unit of the figures.
    pub unit: String,
    /// Predicted mean; null if every run failed.
    pub predicted: Option<f64>,
    /// Standard deviation of the prediction over its seeds.
    pub predicted_sd: Option<f64>,
    /// Published mean.
    pub published: f64,
    /// Published standard deviation.
    pub published_sd: Option<f64>,
    /// Predicted over published.
    pub ratio: Option<f64>,
    /// Whether the prediction is within one published standard deviation of the published mean.
    pub inside_spread: Option<bool>,
    /// Whether the spread is narrow enough to be meaningful. A spread as wide as its mean contains nearly every
    /// prediction.
    pub spread_below_mean: bool,
    /// Whether the workload was calibrated on this row, so that it is not a prediction.
    pub calibrate: bool,
    /// Where the published figure lies among the predicted runs, if it is of a single run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single: Option<Single>,
}

/// Where a published single run lies among the predicted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Single {
    /// Predicted runs whose figure is below the published one.
    pub below: usize,
    /// All predicted runs.
    pub runs: usize,
}

impl Single {
    /// Returns the place of `published`, a figure of `runs` runs, among the `predicted` ones.
    fn of(published: f64, runs: Option<u32>, predicted: &[f64]) -> Option<Single> {
        (runs == Some(1) && !predicted.is_empty()).then(|| Single {
            below: predicted.iter().filter(|run| **run < published).count(),
            runs: predicted.len(),
        })
    }

    /// Returns whether predicted runs lie on both sides of the published one.
    pub fn is_among(&self) -> bool {
        (1..self.runs).contains(&self.below)
    }
}

impl Row {
    /// Returns the factor, at least 1, between the predicted and the published level.
    pub fn miss(&self) -> Option<f64> {
        self.ratio.map(factor)
    }
}

/// Returns `ratio` or its reciprocal, whichever is at least 1.
fn factor(ratio: f64) -> f64 {
    ratio.max(ratio.recip())
}

/// Agreement of a prediction with the published order of two variants. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The opposite order, or a difference where the published means are equal.
    Wrong,
    /// A difference is published, but the runs do not prove one.
    Unproven,
    /// The order is right, but the predicted difference is less than [`SLIGHT`] of the published difference.
    Slight,
    /// The prediction has the published order.
    Right,
    /// The published figures prove no difference: neither right nor wrong, whatever is predicted. "Not proven" is not
    /// "equal".
    Uncertain,
}

/// Two variants of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderRow {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the case.
    pub case: String,
    /// Name of the guest.
    pub vm: String,
    /// The first variant.
    pub variant_a: String,
    /// The second variant.
    pub variant_b: String,
    /// Published mean of B over that of A.
    pub published_ratio: f64,
    /// Predicted mean of B over that of A.
    pub predicted_ratio: f64,
    /// Whether the order is right.
    pub order: Order,
}

impl OrderRow {
    /// Returns the factor, at least 1, between the predicted and the published effect.
    pub fn miss(&self) -> f64 {
        factor(self.predicted_ratio / self.published_ratio)
    }

    /// Returns whether the published figures say which order is right.
    pub fn is_judged(&self) -> bool {
        self.order != Order::Uncertain
    }

    /// Returns whether the prediction has the published direction.
    pub fn is_ordered(&self) -> bool {
        matches!(self.order, Order::Slight | Order::Right)
    }

    /// Returns whether the published effect is proven and large.
    pub fn is_large(&self) -> bool {
        self.is_judged() && factor(self.published_ratio) > LARGE
    }

    /// Returns whether direction and size of the effect are right.
    pub fn is_sized(&self) -> bool {
        self.is_ordered() && self.miss() <= SIZE
    }
}

/// Comparison of predictions with published figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// The schema, `holdfast.validation/2`.
    pub schema: String,
    /// The figures, the largest misses first and those calibrated on last.
    pub rows: Vec<Row>,
    /// The orders of variants, the worst first.
    pub orders: Vec<OrderRow>,
    /// The parameters that were calibrated on published rows, each with its experiment.
    pub fitted: BTreeSet<(String, String)>,
}

/// How good the predictions of a [`Validation`] are, as counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Pairs of variants whose published figures prove a difference, or whose prediction contradicts published means
    /// that are equal.
    pub orders: usize,
    /// Further pairs, whose published figures prove nothing.
    pub uncertain: usize,
    /// Pairs in the right order.
    pub ordered: usize,
    /// Pairs in the right order whose effect is within [`SIZE`] of the published one.
    pub sized: usize,
    /// Pairs with a large published effect.
    pub large: usize,
    /// Large effects in the right direction.
    pub large_ordered: usize,
    /// Large effects in the right direction and within [`SIZE`].
    pub large_sized: usize,
    /// Figures that were not calibrated on.
    pub levels: usize,
    /// Median factor between predicted and published level, over these figures.
    pub level: Option<f64>,
    /// Figures whose published spread says whether they are met.
    pub spreads: usize,
    /// Those within the spread.
    pub inside: usize,
    /// Figures that were calibrated on.
    pub calibrated: usize,
    /// Figures of single runs that were not calibrated on.
    pub singles: usize,
    /// Those that lie among the predicted runs.
    pub among: usize,
}

impl Validation {
    /// Counts what is right.
    pub fn summary(&self) -> Summary {
        let orders = |of: fn(&OrderRow) -> bool| self.orders.iter().filter(|row| of(row)).count();
        let levels = || self.rows.iter().filter(|row| !row.calibrate);
        let misses: Vec<f64> = levels().filter_map(Row::miss).collect();
        let spreads = || levels().filter(|row| row.spread_below_mean);
        Summary {
            orders: orders(OrderRow::is_judged),
            uncertain: orders(|row| !row.is_judged()),
            ordered: orders(OrderRow::is_ordered),
            sized: orders(OrderRow::is_sized),
            large: orders(OrderRow::is_large),
            large_ordered: orders(|row| row.is_large() && row.is_ordered()),
            large_sized: orders(|row| row.is_large() && row.is_sized()),
            levels: levels().count(),
            level: stats::Summary::of(&misses).map(|summary| summary.median),
            spreads: spreads().count(),
            inside: spreads().filter(|row| row.inside_spread == Some(true)).count(),
            calibrated: self.rows.len() - levels().count(),
            singles: levels().filter_map(|row| row.single).count(),
            among: levels().filter_map(|row| row.single).filter(Single::is_among).count(),
        }
    }
}

/// Schema of a validation.
pub const SCHEMA: &str = "holdfast.validation/2";

/// Means that differ by less than this share count as equal where no number of runs is published.
pub const TIE: f64 = 0.02;

/// A predicted difference below this share of the published one (of the ratios' logarithms) has the right direction and
/// the wrong size.
pub const SLIGHT: f64 = 0.25;

/// Largest factor between a predicted and a published effect of the same size.
pub const SIZE: f64 = 1.5;

/// Published effects above this factor are large.
pub const LARGE: f64 = 1.5;

/// Compares predictions with published figures.
pub fn validate(all: &[Results]) -> Validation {
    let mut validation = Validation {
        schema: SCHEMA.to_owned(),
        rows: Vec::new(),
        orders: Vec::new(),
        fitted: BTreeSet::new(),
    };
    for results in all {
        for case in &results.cases {
            validation.rows.extend(rows(&results.experiment, case));
            let fitted = case
                .published
                .as_ref()
                .and_then(|published| published.fitted.as_deref());
            let parameters = fitted.into_iter().flat_map(|text| text.split("; "));
            validation
                .fitted
                .extend(parameters.map(|parameter| (results.experiment.clone(), parameter.to_owned())));
        }
        for (index, a) in results.cases.iter().enumerate() {
            for b in &results.cases[index + 1..] {
                if a.case == b.case && a.vm == b.vm {
                    validation.orders.extend(order(&results.experiment, a, b));
                }
            }
        }
    }
    let level = |row: &Row| row.miss().unwrap_or(f64::INFINITY);
    let worst_first = |a: f64, b: f64| b.total_cmp(&a);
    let by_level = |a: &Row, b: &Row| a.calibrate.cmp(&b.calibrate).then(worst_first(level(a), level(b)));
    validation.rows.sort_by(by_level);
    let by_order = |a: &OrderRow, b: &OrderRow| a.order.cmp(&b.order).then(worst_first(a.miss(), b.miss()));
    validation.orders.sort_by(by_order);
    validation
}

/// Returns a row for each published figure of `case`.
fn rows(experiment: &str, case: &Case) -> Vec<Row> {
    let metric = case.published.iter().map(|published| {
        (
            case.unit.clone(),
            published,
            case.samples.as_slice(),
            (case.mean, case.sd),
        )
    });
    let others = case.also_published.iter().map(|other| {
        let summary = stats::Summary::of(&other.samples);
        let moments = (summary.map(|of| of.mean), summary.and_then(|of| of.sd));
        (
            format!("% {}", other.of.name()),
            &other.published,
            other.samples.as_slice(),
            moments,
        )
    });
    type Figures<'c> = (String, &'c PublishedFigure, &'c [f64], (Option<f64>, Option<f64>));
    let row = |(unit, published, samples, (predicted, predicted_sd)): Figures<'_>| Row {
        experiment: experiment.to_owned(),
        case: case.case.clone(),
        variant: case.variant.clone(),
        vm: case.vm.clone(),
        unit,
        predicted,
        predicted_sd,
        published: published.mean,
        published_sd: published.sd,
        ratio: predicted.map(|mean| mean / published.mean),
        inside_spread: predicted
            .zip(published.sd)
            .map(|(mean, sd)| (mean - published.mean).abs() <= sd),
        spread_below_mean: published.sd.is_some_and(|sd| sd < published.mean),
        calibrate: published.calibrate,
        single: Single::of(published.mean, published.runs, samples),
    };
    metric.chain(others).map(row).collect()
}

fn order(experiment: &str, a: &Case, b: &Case) -> Option<OrderRow> {
    let (pub_a, pub_b) = (a.published.as_ref()?, b.published.as_ref()?);
    let comparison = stats::compare(a.samples(), b.samples())?;
    let published_ratio = pub_b.mean / pub_a.mean;
    let published = published_order(pub_a, pub_b);
    Some(OrderRow {
        experiment: experiment.to_owned(),
        case: a.case.clone(),
        vm: a.vm.clone(),
        variant_a: a.variant.clone(),
        variant_b: b.variant.clone(),
        published_ratio,
        predicted_ratio: comparison.ratio_of_means,
        order: judge(
            (published, published_ratio),
            (comparison.verdict, comparison.ratio_of_means),
        ),
    })
}

/// Returns which difference of B from A the published figures prove.
///
/// Single runs prove none. Where the source gives no number of runs, the means count.
pub fn published_order(a: &PublishedFigure, b: &PublishedFigure) -> Verdict {
    let moments = |figure: &PublishedFigure| {
        figure.runs.map(|runs| Moments {
            mean: figure.mean,
            sd: figure.sd,
            count: f64::from(runs),
        })
    };
    match (moments(a), moments(b)) {
        (Some(a), Some(b)) if a.count < 2.0 || b.count < 2.0 => Verdict::TooFewSamples,
        (Some(a), Some(b)) if a.sd.is_some() && b.sd.is_some() => stats::compare_published(a, b),
        _ => by_means(b.mean / a.mean),
    }
}

/// Returns the order by means alone.
fn by_means(ratio: f64) -> Verdict {
    match ratio {
        ratio if ratio < 1.0 - TIE => Verdict::Lower,
        ratio if ratio > 1.0 + TIE => Verdict::Higher,
        _ => Verdict::Identical,
    }
}

fn judge((published, published_ratio): (Verdict, f64), (predicted, ratio): (Verdict, f64)) -> Order {
    let directed = |verdict| matches!(verdict, Verdict::Lower | Verdict::Higher);
    // One seed proves nothing, but its direction is worth showing.
    let predicted = if predicted == Verdict::TooFewSamples {
        by_means(ratio)
    } else {
        predicted
    };
    match (published, predicted) {
        (Verdict::Lower | Verdict::Higher, verdict) if verdict == published => {
            let is_slight = ratio.ln().abs() < SLIGHT * published_ratio.ln().abs();
            if is_slight { Order::Slight } else { Order::Right }
        }
        (Verdict::Lower | Verdict::Higher, verdict) if directed(verdict) => Order::Wrong,
        (Verdict::Lower | Verdict::Higher, _) => Order::Unproven,
        // A simulator can prove differences that are too small to matter: these count as none.
        (Verdict::Identical, verdict) if directed(verdict) && directed(by_means(ratio)) => Order::Wrong,
        _ => Order::Uncertain,
    }
}

#[cfg(test)]
mod tests;
