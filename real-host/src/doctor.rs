//! `holdfast kvm doctor`: checks how well this host serves virtual machines that share its CPUs, and says what to
//! change.
//!
//! The checks read files below a root directory, which can hold a copy of another machine's files, and a [`Probe`] of
//! `/dev/kvm` if there is one. A file that is missing, unreadable or senseless gives the verdict "unknown" and no
//! error.

mod check;
mod features;
mod files;
mod guest;
mod inside;
mod kvm;
mod machine;
mod probe;
mod processes;
mod running;
mod scheduler;
mod statistics;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

pub use check::{Check, Verdict};
pub use files::Files;
pub use inside::Inside;
pub use machine::count as count_cpus;
pub use probe::{Probe, ask};
pub use scheduler::kernel_version;

/// Name and version of the schema.
pub const SCHEMA: &str = "holdfast.doctor/1";

/// All findings of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The schema, [`SCHEMA`].
    pub schema: &'static str,
    /// The directory that stood for the root of the file system.
    pub root: String,
    /// The findings, in the order of the table.
    pub checks: Vec<Check>,
}

impl Report {
    /// Returns whether guests can run here, as far as is known.
    pub fn has_kvm(&self) -> bool {
        let device = self.checks.iter().filter(|check| check.area == "kvm");
        device
            .filter(|check| check.name == kvm::DEVICE)
            .all(|check| check.verdict == Verdict::Good)
    }
}

/// Examines the machine whose files are below `root`. `probe`: the answers of `/dev/kvm`, if it was asked.
pub fn examine(root: &Path, probe: Option<&Probe>) -> Report {
    let files = Files::new(root);
    let mut checks = Vec::new();
    kvm::device(&files, probe, &mut checks);
    kvm::pauses(&files, &mut checks);
    kvm::interrupts(&files, &mut checks);
    kvm::halting(&files, &mut checks);
    guest::examine(probe, &mut checks);
    inside::examine(probe.and_then(|probe| probe.inside.as_ref()), &mut checks);
    scheduler::examine(&files, &mut checks);
    machine::examine(&files, &mut checks);
    running::examine(&files, &mut checks);
    statistics::examine(&files, probe, &mut checks);
    Report {
        schema: SCHEMA,
        root: root.display().to_string(),
        checks,
    }
}
