//! Comparison of predictions with published figures.

use serde::Serialize;

use crate::results::{Case, Results};
use crate::stats::{self, Moments, Verdict};

/// A published figure and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
}

/// Agreement of a prediction with the published order of two variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The prediction has the published order.
    Right,
    /// The order is right, but the predicted difference is less than [`SLIGHT`] of the published difference.
    Slight,
    /// A difference is published, but the runs do not prove one.
    Unproven,
    /// The opposite order, or a difference where none is published.
    Wrong,
}

/// Two variants of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// Comparison of predictions with published figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// The schema, `holdfast.validation/1`.
    pub schema: &'static str,
    /// The figures.
    pub rows: Vec<Row>,
    /// The orders of variants.
    pub orders: Vec<OrderRow>,
}

/// Schema of a validation.
pub const SCHEMA: &str = "holdfast.validation/1";

/// Means that differ by less than this share count as equal where no number of runs is published.
pub const TIE: f64 = 0.02;

/// A predicted difference below this share of the published one (of the ratios' logarithms) has the right direction and
/// the wrong size.
pub const SLIGHT: f64 = 0.25;

/// Compares predictions with published figures.
pub fn validate(all: &[Results]) -> Validation {
    let mut validation = Validation {
        schema: SCHEMA,
        rows: Vec::new(),
        orders: Vec::new(),
    };
    for results in all {
        for case in &results.cases {
            validation.rows.extend(row(&results.experiment, case));
        }
        for (index, a) in results.cases.iter().enumerate() {
            for b in &results.cases[index + 1..] {
                if a.case == b.case && a.vm == b.vm {
                    validation.orders.extend(order(&results.experiment, a, b));
                }
            }
        }
    }
    validation
}

fn row(experiment: &str, case: &Case) -> Option<Row> {
    let published = case.published.as_ref()?;
    Some(Row {
        experiment: experiment.to_owned(),
        case: case.case.clone(),
        variant: case.variant.clone(),
        vm: case.vm.clone(),
        unit: case.unit.clone(),
        predicted: case.mean,
        predicted_sd: case.sd,
        published: published.mean,
        published_sd: published.sd,
        ratio: case.ratio(),
        inside_spread: case
            .mean
            .zip(published.sd)
            .map(|(mean, sd)| (mean - published.mean).abs() <= sd),
        spread_below_mean: published.sd.is_some_and(|sd| sd < published.mean),
        calibrate: published.calibrate,
    })
}

fn order(experiment: &str, a: &Case, b: &Case) -> Option<OrderRow> {
    let (pub_a, pub_b) = (a.published.as_ref()?, b.published.as_ref()?);
    let comparison = stats::compare(a.samples(), b.samples())?;
    let published_ratio = pub_b.mean / pub_a.mean;
    let published = match (pub_a.sd, pub_a.runs, pub_b.sd, pub_b.runs) {
        (Some(sd_a), Some(runs_a), Some(sd_b), Some(runs_b)) => stats::compare_published(
            Moments {
                mean: pub_a.mean,
                sd: Some(sd_a),
                count: f64::from(runs_a),
            },
            Moments {
                mean: pub_b.mean,
                sd: Some(sd_b),
                count: f64::from(runs_b),
            },
        ),
        _ => by_means(published_ratio),
    };
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

/// Returns the order by means alone.
fn by_means(ratio: f64) -> Verdict {
    match ratio {
        ratio if ratio < 1.0 - TIE => Verdict::Lower,
        ratio if ratio > 1.0 + TIE => Verdict::Higher,
        _ => Verdict::NoDifferenceProven,
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
    if directed(published) {
        return match predicted {
            verdict if verdict == published && ratio.ln().abs() < SLIGHT * published_ratio.ln().abs() => Order::Slight,
            verdict if verdict == published => Order::Right,
            verdict if directed(verdict) => Order::Wrong,
            _ => Order::Unproven,
        };
    }
    // A simulator can prove differences that are too small to matter: these count as none.
    if directed(predicted) && directed(by_means(ratio)) {
        Order::Wrong
    } else {
        Order::Right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_right_only_if_proven() {
        use Verdict::{Higher, Identical, Lower, NoDifferenceProven, TooFewSamples};
        let published_ratio = |published| if published == Lower { 0.9 } else { 1.0 };
        for (published, predicted, ratio, expected) in [
            (Lower, Lower, 0.2, Order::Right),
            (Lower, Lower, 0.96, Order::Right),
            (Lower, Lower, 0.98, Order::Slight),
            (Lower, NoDifferenceProven, 0.9, Order::Unproven),
            (Lower, Identical, 1.0, Order::Unproven),
            (Lower, Higher, 1.2, Order::Wrong),
            (Lower, TooFewSamples, 0.5, Order::Right),
            (NoDifferenceProven, NoDifferenceProven, 1.3, Order::Right),
            (NoDifferenceProven, Lower, 0.995, Order::Right),
            (NoDifferenceProven, Lower, 0.9, Order::Wrong),
        ] {
            let judged = judge((published, published_ratio(published)), (predicted, ratio));
            assert_eq!(judged, expected, "{published:?} {predicted:?} {ratio}");
        }
    }
}
