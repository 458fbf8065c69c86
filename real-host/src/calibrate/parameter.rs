//! Measured costs, and errors of a calibration.

use std::fmt;

use serde::Serialize;

use super::sample::Sampled;

/// A measured parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// The cost's name in profiles.
    pub name: &'static str,
    /// The cost in nanoseconds.
    pub ns: f64,
    /// The method of measurement.
    pub how: String,
    /// The samples of the measurement.
    pub samples: Sampled,
}

/// A small benchmark on the machine and in the simulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Closure {
    /// Name of the benchmark.
    pub benchmark: &'static str,
    /// Nanoseconds on the machine.
    pub measured_ns: f64,
    /// Nanoseconds in the simulator with the new profile; null if the benchmark cannot run there.
    pub simulated_ns: Option<f64>,
}

/// Error of a calibration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CalibrateError {
    /// The calibration was called off.
    CalledOff,
    /// This process may use fewer than two CPUs.
    OneCpu,
    /// This host's KVM opens, but does not run the guests that measure a figure.
    Guests {
        /// Name of the figure.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// A figure could not be measured.
    Unmeasured {
        /// Name of the figure.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

impl CalibrateError {
    /// Returns the error of the figure `what` without samples.
    pub(super) fn no_sample(what: &'static str) -> CalibrateError {
        CalibrateError::Unmeasured {
            what,
            why: "no sample came out".to_owned(),
        }
    }
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalibrateError::CalledOff => write!(f, "called off"),
            CalibrateError::OneCpu => write!(f, "found one CPU that this process may use, expected two at least"),
            CalibrateError::Guests { what, why } | CalibrateError::Unmeasured { what, why } => {
                write!(f, "cannot measure {what}: {why}")
            }
        }
    }
}

impl std::error::Error for CalibrateError {}
