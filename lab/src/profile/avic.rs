//! `[avic]` of a machine profile: the costs of AMD's interrupt controller for guests.

use holdfast_machine::{AvicFeatures, AvicModel};

use super::{StatedCosts, read_optional};
use crate::document::Reader;

/// AVIC of a CPU model, as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct AvicProfile {
    /// Costs of its operations.
    pub costs: StatedCosts,
}

impl AvicProfile {
    /// Returns the hardware, or `None` if a cost is too large.
    pub(super) fn build(&self, features: AvicFeatures, frequency_hz: u64) -> Option<AvicModel> {
        let cost = |name: &str| self.costs.picos(name, frequency_hz);
        AvicModel::from_costs(cost, features.hardware, features.family)
    }
}

/// Reads the table, if there is one. Returns `None` after a mistake in it.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Option<Option<AvicProfile>> {
    read_optional(reader, "avic", read_table)
}

fn read_table(reader: &mut Reader<'_, '_>) -> Option<AvicProfile> {
    let costs = StatedCosts::read(reader, AvicModel::COSTS)?;
    Some(AvicProfile { costs })
}
