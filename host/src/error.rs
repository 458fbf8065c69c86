//! Why a host cannot be built.

use core::fmt;

use crate::boundary::{GroupId, PcpuPlace};

/// Why a host cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A host needs at least one pCPU.
    NoPcpus,
    /// Two pCPUs sit at the same place.
    SamePlace(PcpuPlace),
    /// A parameter is out of its range.
    OutOfRange {
        /// The parameter's name.
        name: &'static str,
        /// The value found.
        found: i64,
        /// Lowest value allowed.
        min: i64,
        /// Highest value allowed.
        max: i64,
    },
    /// An affinity names a pCPU that does not exist.
    UnknownPcpu {
        /// The pCPU found.
        found: u32,
        /// The number of pCPUs.
        pcpus: u32,
    },
    /// An affinity list has more entries than the VM has vCPUs.
    AffinityWithoutVcpu {
        /// The number of entries.
        found: usize,
        /// The number of vCPUs.
        vcpus: u32,
    },
    /// There is no such task group.
    UnknownGroup(GroupId),
    /// A parameter that multiplies or divides is 1.
    FactorOfOne(&'static str),
    /// The quota is given with a scheduler from before bandwidth control.
    NoBandwidth,
    /// The host already runs.
    Started,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::NoPcpus => write!(f, "host without pcpus: expected at least 1"),
            ConfigError::SamePlace(place) => write!(
                f,
                "two pcpus at socket {}, core {}, thread {}: expected one",
                place.socket, place.core, place.thread
            ),
            ConfigError::OutOfRange { name, found, min, max } => {
                write!(f, "{name}: found {found}, expected {min} to {max}")
            }
            ConfigError::UnknownPcpu { found, pcpus } => {
                write!(f, "affinity names pcpu {found}: expected 0 to {}", pcpus - 1)
            }
            ConfigError::AffinityWithoutVcpu { found, vcpus } => {
                write!(f, "affinity for {found} vcpus, vm has {vcpus}")
            }
            ConfigError::UnknownGroup(group) => write!(f, "task group {} does not exist", group.0),
            ConfigError::FactorOfOne(name) => write!(f, "{name}: found 1, expected 0 (back to the base) or 2 and more"),
            ConfigError::NoBandwidth => write!(f, "quota with a scheduler without bandwidth control: expected none"),
            ConfigError::Started => write!(f, "host runs already: expected configuration before its start"),
        }
    }
}

impl core::error::Error for ConfigError {}

/// Checks that `min <= found <= max` for the parameter `name`. A value beyond `i64` is reported as the greatest one.
pub(crate) fn in_range(name: &'static str, found: impl TryInto<i64>, min: i64, max: i64) -> Result<(), ConfigError> {
    let found = found.try_into().unwrap_or(i64::MAX);
    if !(min..=max).contains(&found) {
        return Err(ConfigError::OutOfRange { name, found, min, max });
    }
    Ok(())
}
