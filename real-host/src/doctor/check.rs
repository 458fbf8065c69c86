//! One finding of the doctor.

use serde::Serialize;

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

    pub(super) fn means(mut self, means: impl Into<String>) -> Check {
        self.means = Some(means.into());
        self
    }

    pub(super) fn change(mut self, change: impl Into<String>) -> Check {
        self.change = Some(change.into());
        self
    }
}
