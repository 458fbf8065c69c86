//! What the benchmarks of a calibration find.

use std::fmt;

use serde::Serialize;

use super::sample::Sampled;

/// A measured parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// The cost's name in profiles.
    pub name: &'static str,
    /// Its value, in nanoseconds.
    pub ns: f64,
    /// How it was measured.
    pub how: String,
    /// What it was computed from.
    pub samples: Sampled,
}

/// A small benchmark on the machine itself and in the simulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Closure {
    /// Which.
    pub benchmark: &'static str,
    /// Nanoseconds here.
    pub measured_ns: f64,
    /// Nanoseconds in the simulator, with the profile that was made of all of them; null if it could not run there.
    pub simulated_ns: Option<f64>,
}

/// Why there is no calibration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CalibrateError {
    /// Called off.
    CalledOff,
    /// Fewer than two CPUs may be used.
    OneCpu,
    /// Something could not be measured.
    Unmeasured(&'static str),
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalibrateError::CalledOff => write!(f, "called off"),
            CalibrateError::OneCpu => write!(f, "found one CPU that this process may use, expected two at least"),
            CalibrateError::Unmeasured(what) => write!(f, "cannot measure {what}: no sample came out"),
        }
    }
}

impl std::error::Error for CalibrateError {}
