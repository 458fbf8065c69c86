//! `holdfast kvm doctor`: what this host can do for virtual machines that share its CPUs, what each lack means, and what to
//! change.
//!
//! All is read from files beneath a root directory, so that another machine's files can be looked at too, and from a
//! [`Probe`] of `/dev/kvm` where there is one. **Odd contents are no fault**: a file that is missing, unreadable or makes no
//! sense is said to be so, and nothing else.

mod files;
mod kvm;
mod machine;
mod probe;
mod scheduler;
mod statistics;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

pub use files::Files;
pub use machine::count as count_cpus;
pub use probe::{Probe, ask};
pub use scheduler::kernel_version;

/// Name and version of the schema.
pub const SCHEMA: &str = "holdfast.doctor/1";

/// What a finding comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As one would wish.
    Good,
    /// Neither good nor bad, but to be known.
    Note,
    /// Missing or in the way.
    Lacking,
    /// It could not be learnt.
    Unknown,
}

impl Verdict {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Lacking => "LACKING",
            Verdict::Unknown => "unknown",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about: `kvm`, `pauses`, `interrupts`, `halting`, `guest`, `scheduler`, `machine`, `statistics`.
    pub area: &'static str,
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// What that comes to.
    pub verdict: Verdict,
    /// What it means for guests that share CPUs; null where there is nothing to say.
    pub means: Option<String>,
    /// What to do about it.
    pub change: Option<String>,
}

impl Check {
    fn new(area: &'static str, name: &'static str, found: impl Into<String>, verdict: Verdict) -> Check {
        Check {
            area,
            name,
            found: found.into(),
            verdict,
            means: None,
            change: None,
        }
    }

    fn means(mut self, means: impl Into<String>) -> Check {
        self.means = Some(means.into());
        self
    }

    fn change(mut self, change: impl Into<String>) -> Check {
        self.change = Some(change.into());
        self
    }
}

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
    probe::guest(probe, &mut checks);
    scheduler::examine(&files, &mut checks);
    machine::examine(&files, &mut checks);
    statistics::examine(&files, probe, &mut checks);
    Report {
        schema: SCHEMA,
        root: root.display().to_string(),
        checks,
    }
}
