//! Standard output: tables, numbers, JSON. And standard error: [`say!`].

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use holdfast_lab::file::{self, WriteError};
use holdfast_lab::results::{Results, path_in};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::refused::Refused;

pub use holdfast_lab::display::{number, optional, percent};

/// Writes a line to standard error, as `eprintln!` does, but ignores errors.
macro_rules! say {
    ($($words:tt)*) => { $crate::output::to_standard_error(format_args!($($words)*)) };
}
pub(crate) use say;

/// Writes a remark to standard error, unless the user wants none.
macro_rules! note {
    ($($words:tt)*) => { if !$crate::output::is_quiet() { $crate::output::say!($($words)*) } };
}
pub(crate) use note;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets whether progress and remarks are left out.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Returns whether progress and remarks are left out.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Implements [`say!`].
pub fn to_standard_error(words: fmt::Arguments<'_>) {
    // A full disk or a closed pipe must not end the work: results matter more than remarks about them.
    let _ = writeln!(io::stderr().lock(), "{words}");
}

/// Prints `text` and a line break.
pub fn line(text: &str) -> Result<()> {
    raw(&format!("{text}\n"))
}

/// Prints `text` as it is.
pub fn raw(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Error::of_output)
}

/// Prints exactly one JSON document.
pub fn json(document: &impl Serialize) -> Result<()> {
    line(&serde_json::to_string_pretty(document)?)
}

/// Refuses `path` before the work if no file can be written there.
pub fn check(path: Option<&Path>) -> Result<(), Refused> {
    path.map_or(Ok(()), |path| file::check(path).map_err(Refused::Unwritable))
}

/// Writes `results` to `folder`. Other results of that name are kept under another one.
pub fn keep(results: &Results, folder: &Path) -> Result<(), WriteError> {
    let path = path_in(folder, &results.experiment);
    if let Some(earlier) = file::keep(&path, results.to_json().as_bytes())? {
        // As the user names the folder, like the new results.
        let earlier = path.with_file_name(earlier.file_name().unwrap_or_default());
        note!("earlier results: {}", earlier.display());
    }
    let path = results.write(folder)?;
    note!("results: {}", path.display());
    Ok(())
}

/// Returns `value` as `show` writes it, or a dash if there is none.
pub fn dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// Creates a table in Markdown. The first `texts` columns are text, the others numbers.
pub fn table(header: impl IntoIterator<Item = impl Into<String>>, texts: usize) -> Table {
    let mut table = Table::new();
    let header: Vec<String> = header.into_iter().map(Into::into).collect();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if index < texts {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table
}
