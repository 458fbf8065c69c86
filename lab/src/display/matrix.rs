//! A matrix of comparisons as a table.

use crate::compare::{Change, Judgment, Line, Matrix, has_cases, size};
use crate::sheet::Sheet;

/// Heading of the matrix of the 99th percentiles.
pub const LATENCY: &str = "Slowest hundredth of the operations (p99)";

/// Returns a cell of the table: a proven change as it is, others in parentheses.
pub fn change(change: Option<&Change>) -> String {
    let Some(change) = change else {
        return "-".to_owned();
    };
    match change.judgment {
        Judgment::Better | Judgment::Worse => size(change),
        Judgment::Equal => "=".to_owned(),
        Judgment::Identical => "same".to_owned(),
        Judgment::NotProven | Judgment::TooFewSamples => format!("({})", size(change)),
    }
}

/// Returns the matrix as a table. With one guest there is room for the intervals.
pub fn matrix(matrix: &Matrix) -> Sheet {
    let unit = |vm: &str| format!("{vm}, %");
    let first = match &matrix.against {
        Some(variant) => format!("against {variant}"),
        None => "B against A".to_owned(),
    };
    let one = matrix.guests.len() == 1;
    let names = ["case".to_owned(), first];
    let figures: Vec<String> = match one {
        true => vec![unit(&matrix.guests[0]), "interval, %".to_owned(), "proven".to_owned()],
        false => std::iter::once("all guests, %".to_owned())
            .chain(matrix.guests.iter().map(|vm| unit(vm)))
            .collect(),
    };
    let mut sheet = Sheet::new(names.into_iter().chain(figures), 2);
    for line in &matrix.rows {
        let mut row = vec![line.case.clone(), line.variant.clone()];
        if one {
            let found = line.guests[0].as_ref();
            row.push(found.map_or_else(|| "-".to_owned(), size));
            row.push(
                found
                    .and_then(|change| change.interval_percent)
                    .map_or_else(|| "-".to_owned(), interval),
            );
            row.push(found.map_or("no samples", |change| proven(change.judgment)).to_owned());
        } else {
            row.push(change(line.all.as_ref()));
            row.extend(line.guests.iter().map(|found| change(found.as_ref())));
        }
        sheet.rows.push(row);
    }
    match has_cases(matrix) {
        true => sheet,
        false => sheet.without_one("case"),
    }
}

/// Returns whether a difference is proven, in one or two words.
pub fn proven(judgment: Judgment) -> &'static str {
    match judgment {
        Judgment::Better => "better",
        Judgment::Worse => "worse",
        Judgment::Equal => "equal",
        Judgment::Identical => "identical",
        Judgment::NotProven => "no",
        Judgment::TooFewSamples => "one sample",
    }
}

/// Returns an interval in percent.
fn interval((low, high): (f64, f64)) -> String {
    super::changes((low / 100.0 + 1.0, high / 100.0 + 1.0))
}

/// Returns the notes below the table.
pub fn note(matrix: &Matrix) -> String {
    let mut note = String::from("Changes of geometric means.");
    let lower = matrix.better.iter().filter(|better| *better == "lower").count();
    note.push_str(match lower {
        0 => " Higher is better.",
        lower if lower == matrix.better.len() => " Lower is better.",
        _ => " For all guests: change of their speed.",
    });
    if matrix.guests.len() > 1 {
        note.push_str(" In parentheses: not proven; =: proven to be below 0.5 %.");
    }
    let mut changes = matrix.rows.iter().flat_map(Line::changes);
    if changes.all(|change| change.interval_percent.is_none()) {
        return note;
    }
    if matrix.comparisons > 1 {
        let count = matrix.comparisons;
        note.push_str(&format!(
            " With 95 % confidence all {count} intervals hold together (Bonferroni's correction)."
        ));
    } else {
        note.push_str(" Interval: 95 % confidence.");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change_of(percent: f64, judgment: Judgment) -> Option<Change> {
        Some(Change {
            percent,
            interval_percent: Some((percent - 1.0, percent + 1.0)),
            judgment,
        })
    }

    #[test]
    fn cells_tell_proven_changes_from_others() {
        let shown = [
            change_of(-35.2, Judgment::Better),
            change_of(26.0, Judgment::Worse),
            change_of(-2.9, Judgment::NotProven),
            change_of(0.2, Judgment::Equal),
            change_of(0.0, Judgment::Identical),
            change_of(2430.0, Judgment::Worse),
            None,
        ]
        .map(|found| change(found.as_ref()));
        assert_eq!(shown, ["-35.2", "+26.0", "(-2.9)", "=", "same", "x 25.3", "-"]);
    }
}
