//! Tidy tables of results: one row for each sample, for each guest and cause, for each guest and counter.
//!
//! The schema is `holdfast.tables/1`: columns are only added at the end, and never change their meaning.

use std::collections::BTreeMap;
use std::fmt;

use csv::Writer;

use crate::results::Results;
use crate::service::Service;

#[cfg(feature = "parquet")]
mod parquet;

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

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Count,
    Figure,
    Truth,
}

use Kind::{Count, Figure, Text, Truth};

/// A value in a column of its kind.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    Count(u64),
    Figure(f64),
    Truth(bool),
}

/// A row: `None` is a value that is not known.
type Row = Vec<Option<Value>>;

/// The names and kinds of columns.
type Columns = &'static [(&'static str, Kind)];

const SAMPLES: Columns = &[
    ("experiment", Text),
    ("case", Text),
    ("variant", Text),
    ("vm", Text),
    ("seed", Count),
    ("metric", Text),
    ("unit", Text),
    ("value", Figure),
    ("work_share", Figure),
    ("preempted_spin_share", Figure),
    ("convoy_since_ns", Count),
    ("convoy_share", Figure),
    ("longest_stall_ns", Count),
    ("history_hash", Text),
    ("rate", Figure),
    ("p50_ms", Figure),
    ("p99_ms", Figure),
];

const LOST_TIME: Columns = &[
    ("experiment", Text),
    ("case", Text),
    ("variant", Text),
    ("vm", Text),
    ("measured", Truth),
    ("cause", Text),
    ("share", Figure),
];

const COUNTERS: Columns = &[
    ("experiment", Text),
    ("case", Text),
    ("variant", Text),
    ("vm", Text),
    ("measured", Truth),
    ("counter", Text),
    ("mean", Figure),
];

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

    /// Returns the table of `results` as CSV with a head line. A value that is not known is an empty field.
    pub fn csv(self, results: &Results) -> String {
        let mut table = Writer::from_writer(Vec::new());
        table
            .write_record(self.columns().iter().map(|(name, _)| name))
            .expect("memory takes all");
        for row in self.rows(results) {
            let fields = row
                .iter()
                .map(|value| value.as_ref().map(Value::to_string).unwrap_or_default());
            table
                .write_record(fields)
                .expect("memory takes all, and all rows have as many fields");
        }
        let bytes = table.into_inner().expect("memory takes all");
        String::from_utf8(bytes).expect("fields are text")
    }

    /// Returns the table of `results` as a Parquet file, uncompressed. Version, command and schema are in its metadata.
    #[cfg(feature = "parquet")]
    pub fn parquet(self, results: &Results) -> Vec<u8> {
        parquet::file(self.columns(), &self.rows(results), results).expect("memory takes all, and kinds agree")
    }

    fn columns(self) -> Columns {
        match self {
            Tidy::Samples => SAMPLES,
            Tidy::LostTime => LOST_TIME,
            Tidy::Counters => COUNTERS,
        }
    }

    fn rows(self, results: &Results) -> Vec<Row> {
        match self {
            Tidy::Samples => samples(results),
            Tidy::LostTime => long(results, |guest| guest.lost_time),
            Tidy::Counters => long(results, |guest| guest.counters),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => text.fmt(f),
            Value::Count(count) => count.fmt(f),
            Value::Figure(figure) => figure.fmt(f),
            Value::Truth(truth) => truth.fmt(f),
        }
    }
}

fn text(text: &str) -> Option<Value> {
    Some(Value::Text(text.to_owned()))
}

fn samples(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in &results.cases {
        for (index, (seed, value)) in case.seeds.iter().zip(&case.samples).enumerate() {
            let convoy = case.convoys.get(index).copied().flatten();
            let figure = |values: &[f64]| values.get(index).copied().map(Value::Figure);
            let served = |of: fn(&Service) -> &[f64]| case.service.as_ref().and_then(|service| figure(of(service)));
            rows.push(vec![
                text(&results.experiment),
                text(&case.case),
                text(&case.variant),
                text(&case.vm),
                Some(Value::Count(*seed)),
                text(&case.metric),
                text(&case.unit),
                Some(Value::Figure(*value)),
                figure(&case.work_shares),
                figure(&case.preempted_spin_shares),
                convoy.map(|convoy| Value::Count(convoy.since_ns)),
                convoy.map(|convoy| Value::Figure(convoy.share)),
                case.longest_stalls_ns.get(index).copied().map(Value::Count),
                case.history_hashes.get(index).and_then(|hash| text(hash)),
                served(|service| &service.rates),
                served(|service| &service.p50_ms),
                served(|service| &service.p99_ms),
            ]);
        }
    }
    rows
}

/// A guest with its maps of figures.
struct Guest<'r> {
    names: [&'r str; 3],
    measured: bool,
    lost_time: &'r BTreeMap<String, f64>,
    counters: &'r BTreeMap<String, f64>,
}

/// Returns one row for each guest and entry of a map: the measured guests first.
fn long(results: &Results, figures: for<'r> fn(&Guest<'r>) -> &'r BTreeMap<String, f64>) -> Vec<Row> {
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
    let mut rows = Vec::new();
    for guest in measured.chain(others) {
        for (name, figure) in figures(&guest) {
            let mut row = vec![text(&results.experiment)];
            row.extend(guest.names.map(text));
            row.extend([
                Some(Value::Truth(guest.measured)),
                text(name),
                Some(Value::Figure(*figure)),
            ]);
            rows.push(row);
        }
    }
    rows
}
