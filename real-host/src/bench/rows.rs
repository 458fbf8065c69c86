//! Tables of text from a report.

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

const NOT_INSTALLED: &str = "not installed";

fn uncontended(table: &Uncontended) -> Table {
    let row = |row: &UncontendedRow| match row.ns {
        Some(ns) => vec![row.lock.clone(), format!("{ns:.2}"), ratio(row.ratio)],
        None => vec![row.lock.clone(), NOT_INSTALLED.into(), String::new()],
    };
    Table {
        title: "Lock and unlock by one thread alone".into(),
        header: vec!["lock", "ns", "to fastest peer"],
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
        cells.resize(10, String::new());
        return cells;
    };
    vec![
        row.lock.clone(),
        rate_of(rate),
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
