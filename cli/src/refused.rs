//! Refusals: the user's mistake, or something that this machine lacks.

#[cfg(not(all(feature = "real-host", feature = "parquet")))]
use std::ffi::OsString;
use std::fmt;
use std::io;

use holdfast_lab::diagnostic::one_of;
use holdfast_lab::file::WriteError;
#[cfg(not(all(feature = "real-host", feature = "parquet")))]
use holdfast_lab::rerun::quoted;

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
    /// A file cannot be used, in words.
    Unusable(String),
    /// A file cannot be written, as a check before the work shows.
    Unwritable(WriteError),
    /// Parts of a plan cannot be carried out on this host, each in a line.
    #[cfg(feature = "real-host")]
    OnThisHost(Vec<String>),
    /// A kernel cannot be booted.
    #[cfg(feature = "real-host")]
    Unbootable(String),
    /// This build leaves out what the command needs.
    #[cfg(not(all(feature = "real-host", feature = "parquet")))]
    NotBuilt {
        /// The feature that brings it.
        feature: &'static str,
        /// The command's arguments.
        arguments: Vec<OsString>,
    },
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

    /// Returns the refusal of this process's command, for want of a feature of the build.
    #[cfg(not(all(feature = "real-host", feature = "parquet")))]
    pub fn not_built(feature: &'static str) -> Refused {
        let arguments = std::env::args_os().skip(1).collect();
        Refused::NotBuilt { feature, arguments }
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
            Refused::Unusable(why) => f.write_str(why),
            Refused::Unwritable(error) => error.fmt(f),
            #[cfg(feature = "real-host")]
            Refused::OnThisHost(faults) => {
                f.write_str("a real KVM cannot carry this out:")?;
                faults.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
            #[cfg(feature = "real-host")]
            Refused::Unbootable(why) => f.write_str(why),
            #[cfg(not(all(feature = "real-host", feature = "parquet")))]
            Refused::NotBuilt { feature, arguments } => {
                let left_out = match *feature {
                    "real-host" => "the commands that run on the real machine",
                    _ => "tables as Parquet",
                };
                write!(
                    f,
                    "this build leaves out {left_out}; to build and run this one, type:\n  \
                     cargo run --release --features {feature} --"
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

#[cfg(feature = "real-host")]
impl Skipped {
    /// Returns that `what` is skipped, since this host's KVM opens but does not run the guests of ours. Of `failure`
    /// the first line is said, without the registers that follow it.
    pub fn guests(what: &str, failure: &str) -> Skipped {
        let first = failure.lines().next().unwrap_or_default();
        Skipped {
            what: what.to_owned(),
            lack: format!("a KVM that runs these guests: {first}"),
        }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.lack)
    }
}

impl std::error::Error for Skipped {}
