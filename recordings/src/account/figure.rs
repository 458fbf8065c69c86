//! A figure, and how far it can be believed.

use serde::Serialize;

/// How a figure came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The recording says it.
    Known,
    /// It follows from the recording with an assumption, or events that it needs are missing.
    Inferred,
    /// The recording does not have what it needs.
    Unknown,
}

/// A figure of an account.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, with its unit at the end.
    pub name: &'static str,
    /// Its value; null if it is not known.
    pub value: Option<f64>,
    /// How it came about.
    pub basis: Basis,
    /// The assumption, or what is missing; empty if it is known.
    pub why: &'static str,
}

impl Figure {
    /// Returns a figure that the recording says.
    pub fn known(name: &'static str, value: f64) -> Figure {
        Figure {
            name,
            value: Some(value),
            basis: Basis::Known,
            why: "",
        }
    }

    /// Returns a figure that follows with the assumption `why`.
    pub fn inferred(name: &'static str, value: f64, why: &'static str) -> Figure {
        Figure {
            name,
            value: Some(value),
            basis: Basis::Inferred,
            why,
        }
    }

    /// Returns a figure that cannot be said, since `why`.
    pub fn unknown(name: &'static str, why: &'static str) -> Figure {
        Figure {
            name,
            value: None,
            basis: Basis::Unknown,
            why,
        }
    }

    /// Returns the figure, inferred at best, since `why`.
    #[must_use]
    pub fn at_best(self, doubt: Option<&'static str>) -> Figure {
        match (self.basis, doubt) {
            (Basis::Known, Some(why)) => Figure {
                basis: Basis::Inferred,
                why,
                ..self
            },
            _ => self,
        }
    }
}
