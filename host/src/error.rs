//! Why a host cannot be built.

use core::fmt;

use crate::boundary::GroupId;
use crate::boundary::PcpuPlace;

/// Why a host cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A host needs at least one pCPU.
    NoPcpus,
    /// Two pCPUs sit at the same place.
    SamePlace(PcpuPlace),
    /// A parameter is out of its range.
    OutOfRange {
        /// Its name.
        name: &'static str,
        /// What was found.
        found: i64,
        /// Lowest value allowed.
        min: i64,
        /// Highest value allowed.
        max: i64,
    },
    /// An affinity names a pCPU that does not exist.
    UnknownPcpu {
        /// What was found.
        found: u32,
        /// How many there are.
        pcpus: u32,
    },
    /// An affinity list has more entries than the VM has vCPUs.
    AffinityWithoutVcpu {
        /// Entries.
        found: usize,
        /// vCPUs.
        vcpus: u32,
    },
    /// No such task group.
    UnknownGroup(GroupId),
    /// A parameter that multiplies or divides is 1.
    FactorOfOne(&'static str),
    /// A quota, and a scheduler from before bandwidth control.
    NoBandwidth,
    /// A directed yield that moves virtual deadlines, and a scheduler without any.
    FavorWithoutEevdf,
    /// The host runs already.
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
            ConfigError::FavorWithoutEevdf => {
                write!(
                    f,
                    "yield favor with a scheduler without virtual deadlines: expected none, or EEVDF"
                )
            }
            ConfigError::Started => write!(f, "host runs already: expected configuration before its start"),
        }
    }
}

impl core::error::Error for ConfigError {}

/// Checks `min <= found <= max` for the parameter `name`.
pub(crate) fn in_range(name: &'static str, found: i64, min: i64, max: i64) -> Result<(), ConfigError> {
    if (min..=max).contains(&found) {
        Ok(())
    } else {
        Err(ConfigError::OutOfRange { name, found, min, max })
    }
}
