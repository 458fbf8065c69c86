//! `holdfast kvm doctor`: what this host can do for virtual machines that share its CPUs, what each lack means, and what to
//! change.
//!
//! All is read from files beneath a root directory, so that another machine's files can be looked at too, and from a
//! [`Probe`] of `/dev/kvm` where there is one. **Odd contents are no fault**: a file that is missing, unreadable or makes no
//! sense is said to be so, and nothing else.

mod check;
mod files;
mod guest;
mod kvm;
mod machine;
mod probe;
mod scheduler;
mod statistics;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

pub use check::{Check, Verdict};
pub use files::Files;
pub use machine::count as count_cpus;
pub use probe::{Probe, ask};
pub use scheduler::kernel_version;

/// Name and version of the schema.
pub const SCHEMA: &str = "holdfast.doctor/1";

/// All findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The directory that was looked at as the root of the file system.
    pub root: String,
    /// One for each thing that was looked at.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether guests can run here at all, as far as could be learnt.
    pub fn has_kvm(&self) -> bool {
        let device = self.checks.iter().filter(|check| check.area == "kvm");
        device
            .filter(|check| check.name == kvm::DEVICE)
            .all(|check| check.verdict == Verdict::Good)
    }
}

/// Looks at the machine whose files are beneath `root`; `probe` is what `/dev/kvm` itself said, if it was asked.
pub fn examine(root: &Path, probe: Option<&Probe>) -> Report {
    let files = Files::new(root);
    let mut checks = Vec::new();
    kvm::device(&files, probe, &mut checks);
    kvm::pauses(&files, &mut checks);
    kvm::interrupts(&files, &mut checks);
    kvm::halting(&files, &mut checks);
    guest::examine(probe, &mut checks);
    scheduler::examine(&files, &mut checks);
    machine::examine(&files, &mut checks);
    statistics::examine(&files, probe, &mut checks);
    Report {
        schema: SCHEMA,
        root: root.display().to_string(),
        checks,
    }
}
