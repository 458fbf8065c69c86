//! The result of a calibration.

use holdfast_lab::profile::MachineProfile;
use serde::Serialize;

use super::host::Host;
use super::noise::Noise;
use super::parameter::{Closure, Parameter};
use crate::machine::Machine;

/// Name and version of the schema.
pub const SCHEMA: &str = "holdfast.calibration/1";

/// Result of a calibration.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The schema, [`SCHEMA`].
    pub schema: &'static str,
    /// The machine of the measurements.
    pub machine: Machine,
    /// Name of the profile that supplied the costs that could not be measured.
    pub base: String,
    /// Noise of the machine.
    pub noise: Noise,
    /// The measured costs.
    pub parameters: Vec<Parameter>,
    /// Names of the costs that were copied.
    pub copied: Vec<&'static str>,
    /// The benchmarks on the machine and in the simulator.
    pub closure: Vec<Closure>,
    /// The host's own settings.
    pub host: Host,
    /// Values of `--set` that belong to the profile.
    pub settings: Vec<String>,
    /// The machine profile.
    #[serde(skip)]
    pub profile: MachineProfile,
}
