//! The errors of a run.

use std::fmt;
use std::io;
use std::time::Duration;

use holdfast_protocol::Corrupt;

use crate::state::GuestState;

/// The host's errors that may not occur at another attempt: resources that others use, and interruptions.
const PASSING: [i32; 6] = [
    libc::EAGAIN,
    libc::EBUSY,
    libc::EINTR,
    libc::EMFILE,
    libc::ENFILE,
    libc::ENOMEM,
];

/// The reason why virtual machines did not run to completion. After an error nothing of the run is left.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The host has no `/dev/kvm`.
    NoKvm,
    /// This user may not open `/dev/kvm`.
    NoPermission,
    /// The host's KVM lacks this feature, which every run needs.
    Unsupported(&'static str),
    /// A VM has no vCPU or more than the allowed number.
    TooManyVcpus {
        /// Name of the VM.
        vm: String,
        /// Requested number of vCPUs.
        asked: u32,
        /// Largest number of vCPUs that this host and this VMM support.
        allowed: u32,
    },
    /// The description of a VM is invalid.
    Invalid {
        /// Name of the VM.
        vm: String,
        /// The invalid part and its value.
        what: String,
    },
    /// An operation of the host failed.
    Host {
        /// The operation.
        tried: String,
        /// The host's error.
        source: io::Error,
    },
    /// A guest panicked.
    GuestPanic {
        /// Name of the VM.
        vm: String,
        /// The guest's message.
        message: String,
        /// State of the vCPU that panicked.
        state: Box<GuestState>,
    },
    /// A guest caused a triple fault.
    TripleFault {
        /// Name of the VM.
        vm: String,
        /// State of the vCPU.
        state: Box<GuestState>,
    },
    /// A vCPU exited in a way that this VMM does not handle.
    UnexpectedExit {
        /// Name of the VM.
        vm: String,
        /// The exit.
        exit: String,
        /// State of the vCPU.
        state: Box<GuestState>,
    },
    /// KVM refuses to run the guest.
    Refused {
        /// Name of the VM.
        vm: String,
        /// KVM's reason.
        why: String,
        /// State of the vCPU.
        state: Box<GuestState>,
    },
    /// A guest's report is unreadable.
    Corrupt {
        /// Name of the VM.
        vm: String,
        /// The defect.
        what: Corrupt,
    },
    /// The time limit passed before the measured guests were done.
    Hang {
        /// The time limit.
        limit: Duration,
        /// States of all vCPUs of the guests that were not done.
        states: Vec<GuestState>,
    },
    /// The caller called the run off.
    CalledOff,
}

impl Error {
    /// Returns whether the same virtual machines fail on this host however often they are tried. They do if KVM or this
    /// VMM refuses them, or if a guest fails before it begins its workload.
    pub fn is_lasting(&self) -> bool {
        match self {
            Error::NoKvm
            | Error::NoPermission
            | Error::Unsupported(_)
            | Error::TooManyVcpus { .. }
            | Error::Invalid { .. }
            | Error::Refused { .. } => true,
            Error::Host { source, .. } => source.raw_os_error().is_some_and(|code| !PASSING.contains(&code)),
            Error::TripleFault { state, .. } | Error::UnexpectedExit { state, .. } => state.booting,
            Error::GuestPanic { .. } | Error::Corrupt { .. } | Error::Hang { .. } | Error::CalledOff => false,
        }
    }

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
                "there is no /dev/kvm: load the module kvm_amd or kvm_intel; in a virtual machine, enable nested \
                 virtualization on its host"
            ),
            Error::NoPermission => write!(
                f,
                "no permission to open /dev/kvm: add this user to its group, usually kvm"
            ),
            Error::Unsupported(what) => write!(f, "the host's kvm does not support {what}"),
            Error::TooManyVcpus { vm, asked, allowed } => {
                write!(f, "{vm}: {asked} vcpus requested, 1 to {allowed} supported here")
            }
            Error::Invalid { vm, what } => write!(f, "{vm}: {what}"),
            Error::Host { tried, source } => write!(f, "{tried}: {source}"),
            Error::GuestPanic { vm, message, state } => write!(f, "{vm}: the guest panicked: {message}\n{state}"),
            Error::TripleFault { vm, state } => write!(f, "{vm}: triple fault in the guest\n{state}"),
            Error::UnexpectedExit { vm, exit, state } => write!(f, "{vm}: unexpected exit: {exit}\n{state}"),
            Error::Refused { vm, why, state } => write!(f, "{vm}: kvm refuses to run the guest: {why}\n{state}"),
            Error::Corrupt { vm, what } => write!(f, "{vm}: unreadable report from the guest: {what}"),
            Error::Hang { limit, states } => {
                write!(f, "the guests are not done after {:.1} s", limit.as_secs_f64())?;
                states.iter().try_for_each(|state| write!(f, "\n{state}"))
            }
            Error::CalledOff => write!(f, "the run was called off"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Host { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
