//! Variants by guests as a heat table, below the verdict.

use maud::{Markup, html};

use super::tables::kind;
use super::words::prose;
use crate::compare::{self, Change, Line, Matrix};
use crate::display;
use crate::results::Results;

/// Renders what is proven of the variants: a sentence, and the matrix as a heat table.
pub(super) fn summary(results: &Results) -> Markup {
    // Files with one variant have nothing to compare.
    let compared = compare::variants(results, None).ok();
    let compared = compared.filter(|compared| !compared.matrix.rows.is_empty());
    html! {
        @if let Some(compared) = &compared {
            (section("Summary", &compared.matrix))
            @if let Some(latency) = &compared.latency {
                (section(display::matrix::LATENCY, latency))
            }
        }
    }
}

fn section(head: &str, matrix: &Matrix) -> Markup {
    html! {
        section {
            h2 { (head) }
            p class="verdict" { (prose(&compare::sentence(matrix))) }
            (heat(matrix))
            p class="note" { (prose(&display::matrix::note(matrix))) }
        }
    }
}

/// Renders the matrix. The stronger the color of a cell, the larger the change that is proven.
fn heat(matrix: &Matrix) -> Markup {
    let sheet = display::matrix::matrix(matrix);
    // The table has the changes of a row in the order of the columns, with one guest only its own.
    let change = |line: &Line, column: usize| -> Option<Change> {
        match (line.guests.len(), column) {
            (1, 0) => line.guests[0],
            (1, _) => None,
            (_, 0) => line.all,
            (_, column) => *line.guests.get(column - 1)?,
        }
    };
    let marked = |line: &Line, column: usize| {
        let found = column.checked_sub(sheet.texts).and_then(|column| change(line, column));
        let better = found.and_then(|change| change.judgment.better());
        let (Some(change), Some(better)) = (found, better) else {
            return ("", String::new());
        };
        let strength = change.ratio().ln().abs() / HEAT_RANGE.ln();
        let style = format!("--size: {:.0}%", 8.0 + strength.min(1.0) * 42.0);
        (if better { " better" } else { " worse" }, style)
    };
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Variants by guests" {
            table class="matrix" {
                thead { tr { @for (index, head) in sheet.heads.iter().enumerate() { th scope="col" class=(kind(&sheet, index)) { (head) } } } }
                tbody {
                    @for (line, row) in matrix.rows.iter().zip(&sheet.rows) {
                        tr {
                            @for (index, cell) in row.iter().enumerate() {
                                @let (class, style) = marked(line, index);
                                td class={ (kind(&sheet, index)) (class) } style=[(!style.is_empty()).then_some(&style)] { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Ratio of two means that has the strongest color.
const HEAT_RANGE: f64 = 2.0;
