//! Published figures of an experiment.

use serde::{Deserialize, Serialize};

use super::Metric;
use crate::diagnostic::Place;
use crate::document::{Reader, join};

/// What a published figure tells of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The experiment's metric, in its unit.
    Metric,
    /// Share of the guest's time on pCPUs in which it takes spinlocks, in percent: what a profiler in the guest sees in
    /// the lock functions. That includes locks that are free.
    TakingLocks,
    /// pCPUs that the guest has on average over the whole run, in percent of one.
    CpuTime,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Quantity; 3] = [Quantity::Metric, Quantity::TakingLocks, Quantity::CpuTime];

    /// Returns its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Quantity::Metric => "metric",
            Quantity::TakingLocks => "taking-locks",
            Quantity::CpuTime => "cpu-time",
        }
    }
}

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What it tells.
    pub of: Quantity,
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// Mean, in the experiment's unit or in percent.
    pub mean: f64,
    /// Standard deviation, if published.
    pub sd: Option<f64>,
    /// Number of runs, if published.
    pub runs: Option<u32>,
    /// The publication and the place in it.
    pub source: String,
    /// The workload's parameters that were calibrated on this row, separated by "; ". Such a row is not a prediction.
    pub calibrate: Option<String>,
}

/// Reads the published figures of an experiment of `metric` in `unit`.
pub(super) fn published(
    reader: &mut Reader<'_, '_>,
    metric: Option<Metric>,
    unit: Option<&str>,
) -> Vec<(Published, Place)> {
    let metric_unit = unit.unwrap_or(match metric {
        Some(Metric::Throughput) => "1/s",
        _ => "s",
    });
    let mut published = Vec::new();
    for (table, place) in reader.tables("published") {
        if metric == Some(Metric::Own) {
            let expected = "figures only with metric = \"elapsed\" or \"throughput\"";
            let found = "figures of guests that each have a metric of their own";
            reader.findings().add(place, "published", found, expected);
        }
        let mut inner = Reader::new(table, place.clone(), reader.findings());
        let (case, variant, vm) = (inner.text("case"), inner.text("variant"), inner.text("vm"));
        let (mean, sd) = (inner.number("mean"), inner.optional_number("sd"));
        let runs = inner.whole("runs", 1, u32::MAX);
        let (unit, source) = (inner.text("unit"), inner.text("source"));
        let calibrate = inner.optional_text("calibrate").map(str::to_owned);
        let choices = Quantity::ALL.map(|of| (of.name(), of));
        let named = inner
            .optional_text("of")
            .and_then(|name| inner.choose("of", name, &choices));
        let of = named.unwrap_or(Quantity::Metric);
        let expected_unit = if of == Quantity::Metric { metric_unit } else { "%" };
        let unit_place = inner.place_of("unit");
        if let Some(unit) = unit.filter(|unit| *unit != expected_unit) {
            let found = format!("{unit:?}");
            inner.findings().add(
                &unit_place,
                join(&table.path, "unit"),
                found,
                format!("{expected_unit:?}"),
            );
        }
        for (key, value, least) in [("mean", mean, f64::MIN_POSITIVE), ("sd", sd, 0.0)] {
            if let Some(value) = value.filter(|value| *value < least) {
                inner
                    .findings()
                    .add(place, join(&table.path, key), value.to_string(), "a positive number");
            }
        }
        inner.finish();
        if let (Some(case), Some(variant), Some(vm), Some(mean), Some(source)) = (case, variant, vm, mean, source) {
            let (case, variant, vm) = (case.to_owned(), variant.to_owned(), vm.to_owned());
            let row = Published {
                of,
                case,
                variant,
                vm,
                mean,
                sd,
                runs,
                source: source.to_owned(),
                calibrate,
            };
            published.push((row, place.clone()));
        }
    }
    published
}
