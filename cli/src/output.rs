//! Standard output: tables, numbers, JSON.

use std::io::{self, Write as _};

use anyhow::Context as _;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

pub use holdfast_lab::shown::{number, optional, percent};

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
