//! Tidy tables of results as CSV: one row for each sample, for each guest and cause, for each guest and counter.
//!
//! The schema is `holdfast.tables/1`: columns are only added at the end, and never change their meaning.

use std::collections::BTreeMap;

use csv::Writer;

use crate::results::Results;

/// A tidy table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tidy {
    /// One row for each sample.
    Samples,
    /// One row for each guest and cause of lost time.
    LostTime,
    /// One row for each guest and counter.
    Counters,
}

impl Tidy {
    /// All tables.
    pub const ALL: [Tidy; 3] = [Tidy::Samples, Tidy::LostTime, Tidy::Counters];

    /// Returns the name in file names.
    pub fn name(self) -> &'static str {
        match self {
            Tidy::Samples => "samples",
            Tidy::LostTime => "lost-time",
            Tidy::Counters => "counters",
        }
    }

    /// Returns the table of `results` as CSV with a head line.
    pub fn csv(self, results: &Results) -> String {
        let mut table = Writer::from_writer(Vec::new());
        let rows = match self {
            Tidy::Samples => samples(results),
            Tidy::LostTime => shares(results),
            Tidy::Counters => counters(results),
        };
        for row in rows {
            table
                .write_record(&row)
                .expect("memory takes all, and all rows have as many fields");
        }
        let bytes = table.into_inner().expect("memory takes all");
        String::from_utf8(bytes).expect("fields are text")
    }
}

/// Returns a field; an empty one for a value that is not known.
fn field(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn owned<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn samples(results: &Results) -> Vec<Vec<String>> {
    let mut rows = vec![owned([
        "experiment",
        "case",
        "variant",
        "vm",
        "seed",
        "metric",
        "unit",
        "value",
        "work_share",
        "preempted_spin_share",
        "convoy_since_ns",
        "convoy_share",
        "longest_stall_ns",
        "history_hash",
    ])];
    for case in &results.cases {
        for (index, (seed, value)) in case.seeds.iter().zip(&case.samples).enumerate() {
            let convoy = case.convoys.get(index).copied().flatten();
            rows.push(vec![
                results.experiment.clone(),
                case.case.clone(),
                case.variant.clone(),
                case.vm.clone(),
                seed.to_string(),
                case.metric.clone(),
                case.unit.clone(),
                value.to_string(),
                field(case.work_shares.get(index)),
                field(case.preempted_spin_shares.get(index)),
                field(convoy.map(|convoy| convoy.since_ns)),
                field(convoy.map(|convoy| convoy.share)),
                field(case.longest_stalls_ns.get(index)),
                field(case.history_hashes.get(index)),
            ]);
        }
    }
    rows
}

fn shares(results: &Results) -> Vec<Vec<String>> {
    let head = owned(["experiment", "case", "variant", "vm", "measured", "cause", "share"]);
    long(results, head, |guest| guest.lost_time.clone())
}

fn counters(results: &Results) -> Vec<Vec<String>> {
    let head = owned(["experiment", "case", "variant", "vm", "measured", "counter", "mean"]);
    long(results, head, |guest| guest.counters.clone())
}

/// A guest with its maps of figures.
struct Guest<'r> {
    names: [&'r str; 3],
    measured: bool,
    lost_time: &'r BTreeMap<String, f64>,
    counters: &'r BTreeMap<String, f64>,
}

/// Returns one row for each guest and entry of a map: the measured guests first.
fn long(results: &Results, head: Vec<String>, figures: fn(&Guest<'_>) -> BTreeMap<String, f64>) -> Vec<Vec<String>> {
    let measured = results.cases.iter().map(|case| Guest {
        names: [&case.case, &case.variant, &case.vm],
        measured: true,
        lost_time: &case.lost_time,
        counters: &case.counters,
    });
    let others = results.background.iter().map(|guest| Guest {
        names: [&guest.case, &guest.variant, &guest.vm],
        measured: false,
        lost_time: &guest.lost_time,
        counters: &guest.counters,
    });
    let mut rows = vec![head];
    for guest in measured.chain(others) {
        for (name, figure) in figures(&guest) {
            let [case, variant, vm] = guest.names;
            let mut row = owned([&results.experiment, case, variant, vm]);
            row.extend([guest.measured.to_string(), name, figure.to_string()]);
            rows.push(row);
        }
    }
    rows
}
