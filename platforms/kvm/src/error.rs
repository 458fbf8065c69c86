//! What can go wrong.

use std::fmt;
use std::io;
use std::time::Duration;

use holdfast_protocol::Corrupt;

use crate::crash::GuestState;
use crate::image::ImageError;

/// Why virtual machines did not run to their end. When one of these is returned, nothing of the run is left.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no `/dev/kvm`.
    NoKvm,
    /// `/dev/kvm` is there, but not for this user.
    NoPermission,
    /// The host's KVM lacks what every run needs.
    Unsupported(&'static str),
    /// A VM is to have more vCPUs than allowed.
    TooManyVcpus {
        /// Its name.
        vm: String,
        /// vCPUs asked for.
        asked: u32,
        /// vCPUs that this host and this VMM allow.
        allowed: u32,
    },
    /// The description of a VM makes no sense.
    Invalid {
        /// Its name.
        vm: String,
        /// What makes none.
        what: String,
    },
    /// The guest image is not one.
    Image(ImageError),
    /// The host refused something.
    Host {
        /// What was tried.
        tried: String,
        /// Its answer.
        source: io::Error,
    },
    /// A guest said that it cannot go on.
    GuestPanic {
        /// Its name.
        vm: String,
        /// What it said.
        message: String,
        /// Where it was.
        state: Box<GuestState>,
    },
    /// A guest took a triple fault.
    TripleFault {
        /// Its name.
        vm: String,
        /// Where it was.
        state: Box<GuestState>,
    },
    /// A vCPU left the guest in a way that this VMM knows no answer to.
    UnexpectedExit {
        /// The VM's name.
        vm: String,
        /// How.
        exit: String,
        /// Where it was.
        state: Box<GuestState>,
    },
    /// A guest wrote what cannot be read.
    Corrupt {
        /// Its name.
        vm: String,
        /// What.
        what: Corrupt,
    },
    /// The time limit passed before the measured guests were done.
    Hang {
        /// The limit.
        limit: Duration,
        /// Where all vCPUs of the guests that were not done are.
        states: Vec<GuestState>,
    },
    /// Called off by the caller.
    CalledOff,
}

impl Error {
    pub(crate) fn host(tried: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Host {
            tried: tried.into(),
            source: source.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoKvm => write!(
                f,
                "there is no /dev/kvm: load kvm_amd or kvm_intel; in a virtual machine its host must allow nested virtualization"
            ),
            Error::NoPermission => write!(f, "no permission for /dev/kvm: join its group (kvm, as a rule)"),
            Error::Unsupported(what) => write!(f, "the host's kvm lacks {what}"),
            Error::TooManyVcpus { vm, asked, allowed } => {
                write!(f, "{vm}: {asked} vcpus asked for, {allowed} allowed here")
            }
            Error::Invalid { vm, what } => write!(f, "{vm}: {what}"),
            Error::Image(error) => write!(f, "guest image: {error}"),
            Error::Host { tried, source } => write!(f, "{tried}: {source}"),
            Error::GuestPanic { vm, message, state } => write!(f, "{vm}: the guest panicked: {message}\n{state}"),
            Error::TripleFault { vm, state } => write!(f, "{vm}: triple fault in the guest\n{state}"),
            Error::UnexpectedExit { vm, exit, state } => write!(f, "{vm}: unexpected exit: {exit}\n{state}"),
            Error::Corrupt { vm, what } => write!(f, "{vm}: the guest is out of order: {what}"),
            Error::Hang { limit, states } => {
                write!(f, "no end after {:.1} s", limit.as_secs_f64())?;
                states.iter().try_for_each(|state| write!(f, "\n{state}"))
            }
            Error::CalledOff => write!(f, "called off"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Host { source, .. } => Some(source),
            Error::Image(error) => Some(error),
            _ => None,
        }
    }
}
