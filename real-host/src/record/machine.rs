//! The machine that is recorded, and what can go wrong on it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The machine that is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'m> {
    /// The root directory, below which are `proc` and `sys`.
    pub root: &'m Path,
    /// Makes the folder of a tracing instance.
    pub(super) make: fn(&Path) -> io::Result<()>,
    /// Removes the folder of a tracing instance.
    pub(super) remove: fn(&Path) -> io::Result<()>,
}

impl Machine<'_> {
    /// Returns this machine.
    pub fn here() -> Machine<'static> {
        Machine {
            root: Path::new("/"),
            make: |folder| fs::create_dir(folder),
            remove: |folder| fs::remove_dir(folder),
        }
    }
}

/// Error of a recording.
#[derive(Debug)]
pub enum RecordError {
    /// This machine or this user lacks something. Nothing was done.
    Lacks(String),
    /// An access failed.
    Failed(PathBuf, io::Error),
}

impl RecordError {
    pub(super) fn of(path: &Path) -> impl FnOnce(io::Error) -> RecordError {
        move |error| RecordError::Failed(path.to_owned(), error)
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Lacks(what) => f.write_str(what),
            RecordError::Failed(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for RecordError {}
