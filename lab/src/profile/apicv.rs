//! `[apicv]` of a machine profile: Intel's APIC virtualization and its costs.

use holdfast_machine::ApicvModel;

use super::{Cost, read_cost, read_optional};
use crate::document::Reader;

/// APIC virtualization of a CPU model, as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ApicvProfile {
    /// Whether it can send IPIs.
    pub ipiv: bool,
    /// Cost of an access to a register that hardware handles alone.
    pub register: Cost,
    /// Cost of an IPI: table lookup, descriptor, notification.
    pub ipi: Cost,
    /// Cost of moving posted interrupts into the page at a notification.
    pub processing: Cost,
    /// Cost of the handler of an exit.
    pub exit: Cost,
}

impl ApicvProfile {
    /// Returns the hardware, or `None` if a cost is too large.
    pub(super) fn build(&self, frequency_hz: u64) -> Option<ApicvModel> {
        let picos = |cost: &Cost| cost.amount.picos(frequency_hz);
        Some(ApicvModel {
            ipiv: self.ipiv,
            register: picos(&self.register)?,
            ipi: picos(&self.ipi)?,
            processing: picos(&self.processing)?,
            exit: picos(&self.exit)?,
        })
    }
}

/// Reads the table, if there is one. Returns `None` after a mistake in it.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Option<Option<ApicvProfile>> {
    read_optional(reader, "apicv", read_table)
}

fn read_table(reader: &mut Reader<'_, '_>) -> Option<ApicvProfile> {
    let ipiv = reader.flag("ipiv");
    reader.text("source");
    let register = read_cost(reader, "register");
    let ipi = read_cost(reader, "ipi");
    let processing = read_cost(reader, "processing");
    let exit = read_cost(reader, "exit");
    Some(ApicvProfile {
        ipiv,
        register: register?,
        ipi: ipi?,
        processing: processing?,
        exit: exit?,
    })
}
