//! The result of a calibration.

use holdfast_lab::profile::MachineProfile;
use serde::Serialize;

use super::noise::Noise;
use super::parameter::{Closure, Parameter};
use super::system::Host;
use crate::machine::Machine;

/// Name and version of the schema.
pub const SCHEMA: &str = "holdfast.calibration/1";

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The schema, [`SCHEMA`].
    pub schema: &'static str,
    /// Where it was measured.
    pub machine: Machine,
    /// The profile that lent what could not be measured.
    pub base: String,
    /// How quiet it was.
    pub noise: Noise,
    /// What was measured.
    pub parameters: Vec<Parameter>,
    /// Names of the costs that were copied.
    pub copied: Vec<&'static str>,
    /// The same benchmarks on both sides.
    pub closure: Vec<Closure>,
    /// The host's own settings.
    pub host: Host,
    /// What to give `--set` beside the profile.
    pub settings: Vec<String>,
    /// The profile.
    #[serde(skip)]
    pub profile: MachineProfile,
}
