//! Errors, each with its place in the file.

use std::{fmt, io};

/// An error at a place of the file.
#[derive(Debug)]
pub struct Error {
    /// The place, in bytes from the begin of the file.
    pub offset: u64,
    /// What was wrong there.
    pub kind: ErrorKind,
}

/// What was wrong at a place of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file could not be read.
    Io(io::Error),
    /// It is no trace.dat.
    Foreign,
    /// It has something that is not supported. The text says what.
    Unsupported(String),
    /// It ends within something. The text says what.
    Truncated(&'static str),
    /// Its contents contradict themselves. The text says how.
    Damaged(String),
}

impl Error {
    pub(crate) fn new(offset: u64, kind: ErrorKind) -> Self {
        Self { offset, kind }
    }

    pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> Self {
        Self::new(offset, ErrorKind::Damaged(what.into()))
    }

    pub(crate) fn unsupported(offset: u64, what: impl Into<String>) -> Self {
        Self::new(offset, ErrorKind::Unsupported(what.into()))
    }

    pub(crate) fn truncated(offset: u64, what: &'static str) -> Self {
        Self::new(offset, ErrorKind::Truncated(what))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: ", self.offset)?;
        match &self.kind {
            ErrorKind::Io(error) => write!(f, "cannot read: {error}"),
            ErrorKind::Foreign => f.write_str("not a trace.dat"),
            ErrorKind::Unsupported(what) => write!(f, "{what} cannot be read"),
            ErrorKind::Truncated(what) => write!(f, "the file ends within {what}"),
            ErrorKind::Damaged(what) => write!(f, "damaged: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}
