//! A matrix of comparisons in one sentence and as a table.

use crate::compare::{Change, Judgment, Line, Matrix};
use crate::sheet::Sheet;

/// Most rows that the sentence names.
const NAMED_MAX: usize = 6;
/// Ratio from which on a change is shown as a factor.
const FACTOR_MIN: f64 = 10.0;

/// Returns a change as text, without its unit.
fn size(change: &Change) -> String {
    match change.ratio() {
        ratio if ratio >= 1000.0 => "x >1000".to_owned(),
        ratio if ratio >= FACTOR_MIN => format!("x {ratio:.1}"),
        _ => format!("{:+.1}", change.percent),
    }
}

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

/// Returns the name of a row.
fn name(matrix: &Matrix, line: &Line) -> String {
    match has_cases(matrix) {
        true => format!("{} / {}", line.case, line.variant),
        false => line.variant.clone(),
    }
}

fn has_cases(matrix: &Matrix) -> bool {
    matrix.rows.windows(2).any(|pair| pair[0].case != pair[1].case)
}

/// Returns the verdict in one sentence: what is proven, the largest change first. Empty without comparisons.
pub fn sentence(matrix: &Matrix) -> String {
    if matrix.rows.is_empty() {
        return String::new();
    }
    let extent = |line: &Line| {
        let proven = line.changes().filter(|change| change.is_proven());
        proven.map(|change| change.ratio().ln().abs()).fold(0.0, f64::max)
    };
    let mut proven: Vec<&Line> = matrix.rows.iter().filter(|line| extent(line) > 0.0).collect();
    proven.sort_by(|a, b| extent(b).total_cmp(&extent(a)));
    let against = match &matrix.against {
        Some(variant) => format!("Against \"{variant}\": "),
        None => "B against A: ".to_owned(),
    };
    let all = |judgment: Judgment| {
        let mut changes = matrix.rows.iter().flat_map(Line::changes);
        changes.all(|change| change.judgment == judgment)
    };
    if proven.is_empty() {
        let found = match () {
            () if all(Judgment::Identical) => "all samples are identical",
            () if all(Judgment::TooFewSamples) => "one sample proves nothing",
            () => "nothing is proven to matter",
        };
        return format!("{against}{found}.");
    }
    let mut parts: Vec<String> = proven.iter().take(NAMED_MAX).map(|line| said(matrix, line)).collect();
    match proven.len().saturating_sub(NAMED_MAX) {
        0 => {}
        1 => parts.push("and one more row".to_owned()),
        more => parts.push(format!("and {more} more rows")),
    }
    if proven.len() < matrix.rows.len() {
        parts.push("nothing else is proven to matter".to_owned());
    }
    format!("{against}{}.", parts.join("; "))
}

/// Returns what is proven of a row.
fn said(matrix: &Matrix, line: &Line) -> String {
    let text = |vm: &str, change: &Change| match change.ratio() < FACTOR_MIN {
        true => format!("{vm} {} %", size(change)),
        false => format!("{vm} {}", size(change)),
    };
    let guests = matrix.guests.iter().zip(&line.guests);
    let guests = guests.filter_map(|(vm, change)| Some((vm, change.as_ref().filter(|change| change.is_proven())?)));
    let mut said: Vec<String> = guests.map(|(vm, change)| text(vm, change)).collect();
    if said.is_empty() {
        said.extend(line.all.iter().map(|change| text("all guests", change)));
    }
    format!("{}: {}", name(matrix, line), said.join(", "))
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
