//! Standard output: tables, numbers, JSON. And standard error: [`say!`].

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use holdfast_lab::file::{self, WriteError};
use holdfast_lab::results::{Results, path_in};
use holdfast_lab::sheet::Sheet;
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

/// Refuses `place` if it is a `file` and `count` files are to be written there.
pub fn check_folder(place: &Path, file: &Path, count: usize) -> Result<(), Refused> {
    if count > 1 && place == file {
        let found = format!("the file {:?} for {count} files", place.display().to_string());
        return Err(Refused::instead(found, "--out with a folder"));
    }
    Ok(())
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

/// Width in columns that tables and notes fit.
pub const WIDTH: usize = 100;

/// Creates a table in Markdown that fits [`WIDTH`]. The first `texts` columns are text, the others numbers.
pub fn table(header: impl IntoIterator<Item = impl Into<String>>, texts: usize) -> Table {
    let mut table = Table::new();
    let header: Vec<String> = header.into_iter().map(Into::into).collect();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(header)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH as u16);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if index < texts {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table
}

/// Widths of names from which on they are wrapped, in the order in which they are tried.
const NAMES_MAX: [usize; 4] = [24, 18, 14, 12];

/// Returns the length of the longest line of `cells`.
fn longest<'c>(cells: impl Iterator<Item = &'c str>) -> usize {
    cells
        .flat_map(|cell| cell.split('\n'))
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

/// Returns `text` in lines of at most `width`, which end after a space, a dash, a slash or an underscore if they can.
fn folded(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for piece in text.split_inclusive([' ', '-', '/', '_', '=', ',']) {
        let last = lines.last().map_or(0, |last: &String| last.chars().count());
        if last > 0 && last + piece.trim_end().chars().count() > width {
            lines.push(String::new());
        }
        if let Some(last) = lines.last_mut() {
            last.push_str(piece);
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// Returns `sheet` with names of at most `width`, and the heads of its figures in lines.
fn narrow(sheet: &Sheet, width: usize) -> Sheet {
    let mut narrow = sheet.clone();
    for row in &mut narrow.rows {
        for name in &mut row[..sheet.texts] {
            *name = folded(name, width);
        }
    }
    for (index, head) in narrow.heads.iter_mut().enumerate() {
        let content = longest(sheet.rows.iter().map(|row| row[index].as_str()));
        let word = longest(head.split(' '));
        *head = folded(
            head,
            if index < sheet.texts {
                width
            } else {
                content.max(word.min(width))
            },
        );
    }
    narrow
}

/// Returns the columns of figures in parts that fit [`WIDTH`] with the names.
fn parts(sheet: &Sheet) -> Vec<Vec<usize>> {
    let needed = |column: usize| {
        let cells = sheet.rows.iter().map(|row| row[column].as_str());
        longest(cells.chain([sheet.heads[column].as_str()])) + 3
    };
    let names: usize = (0..sheet.texts).map(needed).sum();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for column in sheet.texts..sheet.heads.len() {
        let width = needed(column);
        match parts.last_mut() {
            Some(part) if width <= room => part.push(column),
            _ => {
                parts.push(vec![column]);
                room = WIDTH.saturating_sub(1 + names);
            }
        }
        room = room.saturating_sub(width);
    }
    parts
}

/// Returns `sheet` as it is if it fits [`WIDTH`], or else with wrapped names and heads; and its columns of figures in
/// parts that fit.
fn arranged(sheet: &Sheet) -> (Sheet, Vec<Vec<usize>>) {
    let whole = parts(sheet);
    if whole.len() <= 1 {
        return (sheet.clone(), whole);
    }
    let tried = NAMES_MAX.map(|width| {
        let narrow = narrow(sheet, width);
        let parts = parts(&narrow);
        (narrow, parts)
    });
    let least = tried.iter().map(|(_, parts)| parts.len()).min();
    let best = tried.into_iter().find(|(_, parts)| Some(parts.len()) == least);
    best.unwrap_or_else(|| (sheet.clone(), whole))
}

/// Returns whether the columns of `sheet` fit [`WIDTH`] next to each other.
pub fn fits(sheet: &Sheet) -> bool {
    arranged(sheet).1.len() <= 1
}

/// Returns a table in Markdown, in several parts with the same names if its columns do not fit [`WIDTH`].
pub fn sheet(sheet: &Sheet) -> String {
    let (sheet, mut parts) = arranged(sheet);
    if parts.is_empty() {
        parts.push(Vec::new());
    }
    let part = |columns: &Vec<usize>| {
        let kept: Vec<bool> = (0..sheet.heads.len())
            .map(|column| column < sheet.texts || columns.contains(&column))
            .collect();
        let part = sheet.clone().only(&kept);
        let mut table = table(&part.heads, part.texts);
        table.add_rows(&part.rows);
        table.to_string()
    };
    parts.iter().map(part).collect::<Vec<String>>().join("\n\n")
}

/// Returns `text` in lines that fit [`WIDTH`]. The items of a list keep their indentation.
pub fn wrapped(text: &str) -> String {
    let line = |line: &str| {
        let words = line.trim_start_matches(' ');
        let indent = line.len() - words.len();
        let hanging = indent + if words.starts_with("- ") { 2 } else { 0 };
        let mut lines = vec![" ".repeat(indent)];
        for word in words.split(' ') {
            let last = lines.last().map_or(0, |last: &String| last.chars().count());
            if last > hanging && last + 1 + word.chars().count() > WIDTH {
                lines.push(" ".repeat(hanging));
            }
            if let Some(last) = lines.last_mut() {
                if !last.trim_start().is_empty() {
                    last.push(' ');
                }
                last.push_str(word);
            }
        }
        lines.join("\n")
    };
    // A number and its unit stay together.
    let text = text.replace(" %", "\u{a0}%");
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n").replace('\u{a0}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(text: &str) -> Vec<usize> {
        text.lines().map(|line| line.chars().count()).collect()
    }

    #[test]
    fn tables_of_any_width_fit() {
        for (names, figures) in [(1, 40), (3, 1), (3, 60), (2, 0)] {
            let heads = (0..names + figures).map(|index| format!("db-pinned-to-socket-{index} of builder"));
            let mut sheet = Sheet::new(heads, names);
            for row in 0..3 {
                let cell = |column: usize| format!("{}", 1.25_f64.powi((row * column) as i32));
                let names = (0..names).map(|name| format!("a-case-with-a-long-name-{row}-{name} hz=1000"));
                sheet.rows.push(names.chain((0..figures).map(cell)).collect());
            }
            let text = super::sheet(&sheet);
            assert!(widths(&text).iter().all(|width| *width <= WIDTH), "{text}");
            assert!(
                text.matches(" of ").count() + text.matches("of").count() >= names + figures,
                "{text}"
            );
        }
    }

    #[test]
    fn notes_fit_and_numbers_keep_their_unit() {
        let text = wrapped(&"change of 0.5 % and more, ".repeat(20));
        assert!(widths(&text).iter().all(|width| *width <= WIDTH), "{text}");
        assert!(!text.contains("0.5\n"), "{text}");
        let text = wrapped(&format!("- all\n  - {}", "two words ".repeat(12).trim_end()));
        assert!(text.starts_with("- all\n  - two words"), "{text}");
        assert!(text.lines().skip(2).all(|line| line.starts_with("    ")), "{text}");
    }

    #[test]
    fn names_break_after_their_parts() {
        assert_eq!(folded("db-pinned-to-one-socket", 12), "db-pinned-\nto-one-\nsocket");
        assert_eq!(folded("2x hz=250", 24), "2x hz=250");
    }
}
