//! How a command ends: done, or with an error, whose kind decides the exit status ([`Error::status`]).

use std::fmt;
use std::io;

use holdfast_lab::compare::CompareError;
use holdfast_lab::diagnostic::Problems;
use holdfast_lab::file::WriteError;
use holdfast_lab::results::ReadError;
use holdfast_lab::trace::TraceError;
#[cfg(feature = "real-host")]
use holdfast_real_host::calibrate::CalibrateError;
#[cfg(feature = "real-host")]
use holdfast_real_host::scheduler::play::PlayError;

use crate::refused::{Refused, Skipped};

/// Outcome of a command that had no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Everything was done.
    Whole,
    /// A run failed, or was not deterministic.
    Failed,
    /// Ctrl-C, SIGTERM or SIGHUP came before the end; finished work was kept.
    Interrupted,
}

/// Outcome of a step of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a command ended early.
#[derive(Debug)]
pub enum Error {
    /// Bad usage.
    Refused(Refused),
    /// Mistakes in a file of the user.
    Problems(Problems),
    /// Results that cannot be read.
    Read(ReadError),
    /// Results that cannot be compared.
    Compare(CompareError),
    /// This machine cannot run the command. Nothing was done.
    Skipped(Skipped),
    /// The reader of standard output closed it, as `| head` does.
    Closed,
    /// A fault of the world, such as a full disk: what was tried, and the reason.
    Failed(String),
}

impl Error {
    /// Exit status of bad usage or input.
    pub const BAD_INPUT: u8 = 2;
    /// Exit status of a command that this machine cannot run, as test harnesses expect it.
    const SKIPPED: u8 = 77;

    /// Returns what makes an error of `tried` and the reason why it failed.
    pub fn of<E: fmt::Display>(tried: impl fmt::Display) -> impl FnOnce(E) -> Error {
        move |reason| Error::Failed(format!("{tried}: {reason}"))
    }

    /// Returns the error of a write to standard output.
    pub fn of_output(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Error::Closed,
            _ => Error::of("cannot write to standard output")(error),
        }
    }

    /// Returns the exit status.
    pub fn status(&self) -> u8 {
        match self {
            Error::Closed => 0,
            Error::Failed(_) => 1,
            Error::Refused(_) | Error::Problems(_) | Error::Read(_) | Error::Compare(_) => Error::BAD_INPUT,
            Error::Skipped(_) => Error::SKIPPED,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(error) => error.fmt(f),
            Error::Problems(error) => error.fmt(f),
            Error::Read(error) => error.fmt(f),
            Error::Compare(error) => error.fmt(f),
            Error::Skipped(error) => error.fmt(f),
            Error::Closed => f.write_str("standard output was closed"),
            Error::Failed(words) => f.write_str(words),
        }
    }
}

/// The conversions for `?`.
macro_rules! from {
    ($($kind:ident: $error:ty),* $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::$kind(error)
            }
        }
    )*};
}

from!(
    Refused: Refused,
    Problems: Problems,
    Read: ReadError,
    Compare: CompareError,
    Skipped: Skipped,
);

/// The conversions of errors that say themselves what was tried.
macro_rules! failed {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::Failed(error.to_string())
            }
        }
    )*};
}

failed!(WriteError, serde_json::Error);
#[cfg(feature = "real-host")]
failed!(CalibrateError, PlayError);

impl From<TraceError> for Error {
    fn from(error: TraceError) -> Error {
        match error {
            TraceError::Input(problems) => Error::Problems(problems),
            TraceError::Run(_) | TraceError::NotDeterministic => Error::Failed(error.to_string()),
        }
    }
}
