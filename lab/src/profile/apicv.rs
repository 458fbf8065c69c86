//! `[apicv]` of a machine profile: the costs of Intel's APIC virtualization.

use holdfast_machine::{ApicvFeatures, ApicvModel};

use super::{StatedCosts, read_optional};
use crate::document::Reader;

/// APIC virtualization of a CPU model, as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ApicvProfile {
    /// Costs of its operations.
    pub costs: StatedCosts,
}

impl ApicvProfile {
    /// Returns the hardware, or `None` if a cost is too large.
    pub(super) fn build(&self, features: ApicvFeatures, frequency_hz: u64) -> Option<ApicvModel> {
        ApicvModel::from_costs(|name| self.costs.picos(name, frequency_hz), features.ipiv)
    }
}

/// Reads the table, if there is one. Returns `None` after a mistake in it.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Option<Option<ApicvProfile>> {
    read_optional(reader, "apicv", read_table)
}

fn read_table(reader: &mut Reader<'_, '_>) -> Option<ApicvProfile> {
    let costs = StatedCosts::read(reader, ApicvModel::COSTS)?;
    Some(ApicvProfile { costs })
}
