//! One finding of the doctor.

use serde::Serialize;

/// Judgment of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Neither good nor bad, but worth knowing.
    Note,
    /// Missing, or harmful.
    Lacking,
    /// It could not be determined.
    Unknown,
}

impl Verdict {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Lacking => "LACKING",
            Verdict::Unknown => "unknown",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its subject: `kvm`, `pauses`, `interrupts`, `halting`, `guest`, `this guest`, `scheduler`, `machine`,
    /// `running guests`, `statistics`.
    pub area: &'static str,
    /// The thing that was checked.
    pub name: &'static str,
    /// The state that was found.
    pub found: String,
    /// Judgment of that state.
    pub verdict: Verdict,
    /// Consequence for guests that share CPUs, if any.
    pub means: Option<String>,
    /// How to change it.
    pub change: Option<String>,
}

impl Check {
    pub(super) fn new(area: &'static str, name: &'static str, found: impl Into<String>, verdict: Verdict) -> Check {
        Check {
            area,
            name,
            found: found.into(),
            verdict,
            means: None,
            change: None,
        }
    }

    pub(super) fn good(area: &'static str, name: &'static str, found: impl Into<String>) -> Check {
        Check::new(area, name, found, Verdict::Good)
    }

    pub(super) fn note(area: &'static str, name: &'static str, found: impl Into<String>) -> Check {
        Check::new(area, name, found, Verdict::Note)
    }

    pub(super) fn lacking(area: &'static str, name: &'static str, found: impl Into<String>) -> Check {
        Check::new(area, name, found, Verdict::Lacking)
    }

    pub(super) fn unknown(area: &'static str, name: &'static str, found: impl Into<String>) -> Check {
        Check::new(area, name, found, Verdict::Unknown)
    }

    pub(super) fn means(mut self, means: impl Into<String>) -> Check {
        self.means = Some(means.into());
        self
    }

    pub(super) fn change(mut self, change: impl Into<String>) -> Check {
        self.change = Some(change.into());
        self
    }
}
