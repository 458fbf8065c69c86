//! Standard output: tables, numbers, JSON.

use std::io::{self, Write as _};

use anyhow::Context as _;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// Prints `text` and a line break.
pub fn line(text: &str) -> anyhow::Result<()> {
    raw(&format!("{text}\n"))
}

/// Prints `text` as it is.
pub fn raw(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Prints exactly one JSON document.
pub fn json(document: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(document)?)
}

/// A table as mails and Markdown take it. The first `texts` columns are text, the others numbers.
pub fn table(header: &[&str], texts: usize) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if index < texts {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table
}

/// `value` with four significant digits, or as many as it has before its point.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = value.abs().log10().floor() as i32;
    let decimals = (3 - digits).clamp(0, 12) as usize;
    format!("{value:.decimals$}")
}

/// A number that may be missing.
pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// A share in per cent.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "-".to_owned(),
        percent if percent < 0.05 => "<0.1".to_owned(),
        percent => format!("{percent:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let shown: Vec<String> = [0.0, 0.001234567, 1.0, 38.1033, 778.622, 2399.11, 51993.5]
            .map(number)
            .to_vec();
        assert_eq!(shown, ["0", "0.001235", "1.000", "38.10", "778.6", "2399", "51994"]);
    }
}
