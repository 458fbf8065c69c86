//! Tables of the page.

use maud::{Markup, html};

use crate::explain::Row;
use crate::sheet::Sheet;

/// Returns the class of a column: names are text.
pub(super) fn kind(sheet: &Sheet, column: usize) -> &'static str {
    if column < sheet.texts { "text" } else { "number" }
}

/// Renders a table, behind a click if it is long.
pub(crate) fn foldable(caption: &str, sheet: &Sheet) -> Markup {
    html! {
        @if sheet.rows.len() > ROWS_MAX {
            details { summary { (caption) ": " (sheet.rows.len()) " rows" } (grid(caption, sheet)) }
        } @else {
            (grid(caption, sheet))
        }
    }
}

/// Renders a table.
pub(crate) fn grid(caption: &str, sheet: &Sheet) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for (index, head) in sheet.heads.iter().enumerate() { th scope="col" class=(kind(sheet, index)) { (head) } } } }
                tbody {
                    @for row in &sheet.rows {
                        tr { @for (index, cell) in row.iter().enumerate() { td class=(kind(sheet, index)) { (cell) } } }
                    }
                }
            }
        }
    }
}

/// Most cells that are shown without a click.
pub(super) const ROWS_MAX: usize = 24;
/// Most cells that are columns of a table. More are rows.
const COLUMNS_MAX: usize = 8;

/// Renders named figures of cells. `corner`: what the names are.
pub(super) fn by_cell(corner: &str, rows: &[&Row], names: &[String], cell: impl Fn(&Row, usize) -> String) -> Sheet {
    let mut sheet = if rows.len() <= COLUMNS_MAX {
        let heads = std::iter::once(corner.to_owned());
        Sheet::new(heads.chain(rows.iter().map(|row| label(row))), 1)
    } else {
        // Words of a name can be in several lines.
        let heads = names.iter().map(|name| name.replace(['_', '.'], " "));
        Sheet::new(
            ["case", "variant", "guest"].map(str::to_owned).into_iter().chain(heads),
            3,
        )
    };
    if sheet.texts == 1 {
        for (index, name) in names.iter().enumerate() {
            let cells = rows.iter().map(|row| cell(row, index));
            sheet.rows.push(std::iter::once(name.clone()).chain(cells).collect());
        }
    } else {
        for row in rows {
            let labels = [row.case.clone(), row.variant.clone(), row.vm.clone()];
            let cells = (0..names.len()).map(|index| cell(row, index));
            sheet.rows.push(labels.into_iter().chain(cells).collect());
        }
    }
    sheet
}

fn label(row: &Row) -> String {
    format!("{} {} {}", row.case, row.variant, row.vm)
}
