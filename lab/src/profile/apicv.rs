//! `[apicv]` of a machine profile: Intel's APIC virtualization and its costs.

use holdfast_machine::ApicvModel;

use super::{StatedCosts, read_optional};
use crate::document::Reader;

/// APIC virtualization of a CPU model, as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ApicvProfile {
    /// Whether it can send IPIs.
    pub ipiv: bool,
    /// Costs of its operations.
    pub costs: StatedCosts,
}

impl ApicvProfile {
    /// Returns the hardware, or `None` if a cost is too large.
    pub(super) fn build(&self, frequency_hz: u64) -> Option<ApicvModel> {
        ApicvModel::from_costs(|name| self.costs.picos(name, frequency_hz), self.ipiv)
    }
}

/// Reads the table, if there is one. Returns `None` after a mistake in it.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Option<Option<ApicvProfile>> {
    read_optional(reader, "apicv", read_table)
}

fn read_table(reader: &mut Reader<'_, '_>) -> Option<ApicvProfile> {
    let ipiv = reader.flag("ipiv");
    reader.text("source");
    let costs = StatedCosts::read(reader, ApicvModel::COSTS)?;
    Some(ApicvProfile { ipiv, costs })
}
