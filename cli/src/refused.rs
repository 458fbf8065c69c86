//! Refusals: the user's mistake, or something that this machine lacks.

#[cfg(not(feature = "real-host"))]
use std::ffi::OsString;
use std::fmt;
use std::io;

use holdfast_lab::diagnostic::one_of;
use holdfast_lab::file::WriteError;
#[cfg(not(feature = "real-host"))]
use holdfast_lab::replay::quoted;

/// A mistake of the user: bad usage or input.
#[derive(Debug)]
pub enum Refused {
    /// Something is not what was expected.
    Instead {
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// A file cannot be read.
    Unreadable(String, io::Error),
    /// A file cannot be written, as a check before the work shows.
    Unwritable(WriteError),
    /// Parts of a plan cannot be carried out on this host, each in a line.
    #[cfg(feature = "real-host")]
    OnThisHost(Vec<String>),
    /// A kernel cannot be booted.
    #[cfg(feature = "real-host")]
    Unbootable(String),
    /// This build leaves out the command with these arguments.
    #[cfg(not(feature = "real-host"))]
    NotBuilt(Vec<OsString>),
}

impl Refused {
    /// Returns the refusal of `found`, where `expected` should be.
    pub fn instead(found: impl Into<String>, expected: impl Into<String>) -> Refused {
        Refused::Instead {
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// Returns the refusal of `name`, which is not among `known`.
    pub fn among<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> Refused {
        Refused::instead(format!("{name:?}"), one_of(name, known))
    }

    /// Returns the refusal of `option`, which has an effect only `with` something else.
    pub fn misplaced(option: &str, with: &str) -> Refused {
        Refused::instead(option, format!("it only with {with}: it changes nothing here"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Instead { found, expected } => write!(f, "found {found}, expected {expected}"),
            Refused::Unreadable(name, error) => write!(f, "{name}: cannot read it: {error}"),
            Refused::Unwritable(error) => error.fmt(f),
            #[cfg(feature = "real-host")]
            Refused::OnThisHost(faults) => {
                f.write_str("a real KVM cannot carry this out:")?;
                faults.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
            #[cfg(feature = "real-host")]
            Refused::Unbootable(why) => f.write_str(why),
            #[cfg(not(feature = "real-host"))]
            Refused::NotBuilt(arguments) => {
                write!(
                    f,
                    "this build leaves out the commands that run on the real machine; to build and run this one, type:\n  \
                     cargo run --release --features real-host --"
                )?;
                for argument in arguments {
                    write!(f, " {}", quoted(&argument.to_string_lossy()))?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Refused {}

/// A command that this machine cannot run, without a mistake of the user. Nothing was done.
#[derive(Debug)]
pub struct Skipped {
    /// What was skipped, with its number if it can be counted.
    pub what: String,
    /// What this machine lacks.
    pub lack: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.lack)
    }
}

impl std::error::Error for Skipped {}
