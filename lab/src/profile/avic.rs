//! `[avic]` of a machine profile: AMD's interrupt controller for guests and its costs.

use holdfast_machine::AvicModel;
use holdfast_machine::avic::AvicHardware;

use super::{StatedCosts, read_optional};
use crate::document::Reader;

/// AVIC of a CPU model, as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct AvicProfile {
    /// CPU family, by which hosts know the errata.
    pub family: u32,
    /// Whether AVIC supports x2APIC mode.
    pub x2avic: bool,
    /// Whether the CPU has erratum 1235.
    pub erratum_1235: bool,
    /// Costs of its operations.
    pub costs: StatedCosts,
}

impl AvicProfile {
    /// Returns the hardware, or `None` if a cost is too large.
    pub(super) fn build(&self, frequency_hz: u64) -> Option<AvicModel> {
        let hardware = AvicHardware {
            x2avic: self.x2avic,
            erratum_1235: self.erratum_1235,
        };
        AvicModel::from_costs(|name| self.costs.picos(name, frequency_hz), hardware, self.family)
    }
}

/// Reads the table, if there is one. Returns `None` after a mistake in it.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Option<Option<AvicProfile>> {
    read_optional(reader, "avic", read_table)
}

fn read_table(reader: &mut Reader<'_, '_>) -> Option<AvicProfile> {
    let family = match reader.whole("family", 0, 0xff) {
        None if !reader.has("family") => {
            reader.missing("family", "the family of the CPU model, as a whole number");
            None
        }
        family => family,
    };
    let (x2avic, erratum_1235) = (reader.flag("x2avic"), reader.flag("erratum_1235"));
    reader.text("source");
    let costs = StatedCosts::read(reader, AvicModel::COSTS);
    Some(AvicProfile {
        family: family?,
        x2avic,
        erratum_1235,
        costs: costs?,
    })
}
