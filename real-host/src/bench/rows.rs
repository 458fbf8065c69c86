//! Tables of text from a report.

use holdfast_lab::stats::Summary;

use super::report::{Contended, ContendedRow, Overtaking, Report, Uncontended, UncontendedRow};

/// A table of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The title.
    pub title: String,
    /// Column heads. The first column is text, the others are numbers.
    pub header: Vec<&'static str>,
    /// Rows with one cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// Returns the tables of `report` in order.
pub fn tables(report: &Report) -> Vec<Table> {
    let uncontended = report.uncontended.iter().map(uncontended);
    uncontended.chain(report.contended.iter().map(contended)).collect()
}

/// Smallest typical spread of the rounds, in percent, that is reported.
const NOISY: f64 = 15.0;

/// Returns the range of a typical row's rounds, in percent of their median, if it is large: other work has probably
/// disturbed the benchmark.
pub fn noise(report: &Report) -> Option<f64> {
    let alone = report.uncontended.iter().flat_map(|table| &table.rows);
    let together = report.contended.iter().flat_map(|table| &table.rows);
    let samples = alone.map(|row| &row.samples).chain(together.map(|row| &row.samples));
    let spreads: Vec<f64> = samples.filter_map(|samples| spread(samples)).collect();
    Summary::of(&spreads)
        .map(|summary| summary.median)
        .filter(|&spread| spread >= NOISY)
}

/// Returns the range of the rounds in percent of their median, or `None` for fewer than two rounds.
fn spread(samples: &[f64]) -> Option<f64> {
    let median = Summary::of(samples).filter(|_| samples.len() > 1)?.median;
    let (least, most) = samples.iter().fold((f64::MAX, f64::MIN), |(least, most), &sample| {
        (least.min(sample), most.max(sample))
    });
    (median > 0.0).then(|| (most - least) / median * 100.0)
}

fn shown_spread(samples: &[f64]) -> String {
    spread(samples).map_or_else(|| "-".into(), |spread| format!("{spread:.0} %"))
}

const NOT_INSTALLED: &str = "not installed";

fn uncontended(table: &Uncontended) -> Table {
    let row = |row: &UncontendedRow| match row.ns {
        Some(ns) => vec![
            row.lock.clone(),
            format!("{ns:.2}"),
            shown_spread(&row.samples),
            ratio(row.ratio),
        ],
        None => vec![row.lock.clone(), NOT_INSTALLED.into(), String::new(), String::new()],
    };
    Table {
        title: "Lock and unlock by one thread alone".into(),
        header: vec!["lock", "ns", "spread", "to fastest peer"],
        rows: table.rows.iter().map(row).collect(),
    }
}

fn contended(table: &Contended) -> Table {
    let threads = table.threads;
    Table {
        title: format!(
            "{threads} {}, each holding the lock for {}",
            if threads == 1 { "thread" } else { "threads" },
            time(table.section_ns)
        ),
        header: vec![
            "lock",
            "per second",
            "spread",
            "to best peer",
            "min/max",
            "p50",
            "p99",
            "p99.9",
            "to its p99.9",
            "max",
            "overtaken for",
        ],
        rows: table.rows.iter().map(contended_row).collect(),
    }
}

fn contended_row(row: &ContendedRow) -> Vec<String> {
    let (Some(rate), Some(fairness), Some(wait)) = (row.per_second, row.fairness, row.wait) else {
        let mut cells = vec![row.lock.clone(), NOT_INSTALLED.into()];
        cells.resize(11, String::new());
        return cells;
    };
    vec![
        row.lock.clone(),
        rate_of(rate),
        shown_spread(&row.samples),
        ratio(row.ratio),
        format!("{fairness:.2}"),
        time(wait.p50_ns),
        time(wait.p99_ns),
        time(wait.p999_ns),
        ratio(row.p999_ratio),
        time(wait.max_ns),
        match row.overtaking {
            Overtaking::Never => "0".into(),
            Overtaking::Turns { ns } => format!("{} a waiter", time(ns)),
            Overtaking::Unbounded => "ever".into(),
        },
    ]
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

/// Returns a rate, in the unit that leaves one to three digits before the point.
fn rate_of(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Returns a time, in the unit that leaves one to three digits before the point.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Origin, Settings};

    fn report(samples: &[f64]) -> Report {
        let row = UncontendedRow {
            lock: "ticket".to_owned(),
            origin: Origin::Holdfast,
            ns: Some(10.0),
            ratio: None,
            samples: samples.to_vec(),
        };
        Report {
            uncontended: Some(Uncontended { rows: vec![row] }),
            ..Report::new(Settings::quick())
        }
    }

    #[test]
    fn rounds_that_differ_are_shown_and_reported() {
        let noisy = report(&[9.0, 10.0, 15.0]);
        assert_eq!(noise(&noisy), Some(60.0));
        assert_eq!(tables(&noisy)[0].rows[0], ["ticket", "10.00", "60 %", "-"]);
        assert_eq!(noise(&report(&[10.0, 10.5, 10.0])), None);
        assert_eq!(noise(&report(&[10.0])), None);
    }
}
