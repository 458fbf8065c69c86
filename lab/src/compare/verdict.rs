//! A matrix of comparisons in one sentence.

use super::judgment::Judgment;
use super::matrix::{Change, Line, Matrix};

/// Most rows that the sentence names.
const NAMED_MAX: usize = 6;
/// Ratio from which on a change is shown as a factor.
const FACTOR_MIN: f64 = 10.0;

/// Returns a change as text, without its unit.
pub fn size(change: &Change) -> String {
    match change.ratio() {
        ratio if ratio >= 1000.0 => "x >1000".to_owned(),
        ratio if ratio >= FACTOR_MIN => format!("x {ratio:.1}"),
        _ => format!("{:+.1}", change.percent),
    }
}

/// Returns the name of a row.
fn name(matrix: &Matrix, line: &Line) -> String {
    match has_cases(matrix) {
        true => format!("{} / {}", line.case, line.variant),
        false => line.variant.clone(),
    }
}

/// Returns whether the rows of `matrix` are of several cases.
pub fn has_cases(matrix: &Matrix) -> bool {
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
