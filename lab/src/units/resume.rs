//! Resumes a file of records whose writer was killed.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::lines::{self, Line};
use super::{Header, Id};
use crate::diagnostic::{Place, Problem};
use crate::file::{self, WriteError};

/// The units whose records a file has.
#[derive(Debug, Default)]
pub struct Resumed {
    /// Identities of the units.
    pub ids: HashSet<Id>,
    /// Damaged lines, which are no longer in the file. Their units are to be run again.
    pub damaged: Vec<Problem>,
}

/// Prepares the file at `path` for further records of the plan `header`. A new file gets the line of the plan. In an
/// existing file damaged lines are left out; the file as it was is kept under another name then.
///
/// # Errors
/// If the file has records of another plan or build, or cannot be read or written.
pub fn resume(path: &Path, header: &Header) -> Result<Result<Resumed, Problem>, WriteError> {
    let mut resumed = Resumed::default();
    let mut text = header.line();
    if path.exists() {
        let read = match lines::read(path) {
            Ok(read) => read,
            Err(problem) => return Ok(Err(problem)),
        };
        for (place, line) in read {
            match line {
                Ok(Line::Plan(other)) if *other != *header => return Ok(Err(foreign(&place, &other, header))),
                Ok(Line::Record(record)) if record.build == header.build => {
                    text.push_str(&record.line());
                    resumed.ids.insert(record.id);
                }
                Ok(Line::Plan(_) | Line::Unit(_)) => {}
                Ok(Line::Record(_)) => {
                    let found = "a record of another build";
                    resumed.damaged.push(Problem::new(&place, found, &header.build));
                }
                Err(problem) => resumed.damaged.push(problem),
            }
        }
        if fs::read(path).is_ok_and(|bytes| bytes == text.as_bytes()) {
            return Ok(Ok(resumed));
        }
        if !resumed.damaged.is_empty() {
            file::keep(path, text.as_bytes())?;
        }
    }
    file::write(path, text.as_bytes())?;
    Ok(Ok(resumed))
}

fn foreign(place: &Place, other: &Header, header: &Header) -> Problem {
    let name = |header: &Header| format!("{} of the build {}", header.experiment, header.build);
    let found = format!("records of another plan ({})", name(other));
    let expected = format!("those of this plan ({}), or another --out", name(header));
    Problem::new(place, found, expected)
}
