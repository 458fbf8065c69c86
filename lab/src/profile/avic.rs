//! `[avic]` of a machine profile: AMD's interrupt controller for guests and its costs.

use holdfast_machine::AvicModel;
use holdfast_machine::avic::AvicHardware;

use super::{Cost, read_cost, read_optional};
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
    /// Cost of an access to a register that hardware handles alone.
    pub register: Cost,
    /// Cost of an IPI, for each target.
    pub ipi: Cost,
    /// Cost of ringing a doorbell by software.
    pub doorbell: Cost,
    /// Time from ringing a doorbell to the evaluation in the guest.
    pub doorbell_latency: Cost,
    /// Cost of the handler of an exit.
    pub exit: Cost,
}

impl AvicProfile {
    /// Returns the hardware, or `None` if a cost is too large.
    pub(super) fn build(&self, frequency_hz: u64) -> Option<AvicModel> {
        let picos = |cost: &Cost| cost.amount.picos(frequency_hz);
        Some(AvicModel {
            hardware: AvicHardware {
                x2avic: self.x2avic,
                erratum_1235: self.erratum_1235,
            },
            family: self.family,
            register: picos(&self.register)?,
            ipi: picos(&self.ipi)?,
            doorbell: picos(&self.doorbell)?,
            doorbell_latency: picos(&self.doorbell_latency)?,
            exit: picos(&self.exit)?,
        })
    }
}

/// Reads the table, if there is one. Returns `None` after a mistake in it.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Option<Option<AvicProfile>> {
    read_optional(reader, "avic", read_table)
}

fn read_table(reader: &mut Reader<'_, '_>) -> Option<AvicProfile> {
    let family = match reader.whole("family", 0, 0xff) {
        None if !reader.has("family") => {
            reader.missing("family", "the part's family, as a whole number");
            None
        }
        family => family,
    };
    let (x2avic, erratum_1235) = (reader.flag("x2avic"), reader.flag("erratum_1235"));
    reader.text("source");
    let register = read_cost(reader, "register");
    let ipi = read_cost(reader, "ipi");
    let doorbell = read_cost(reader, "doorbell");
    let doorbell_latency = read_cost(reader, "doorbell_latency");
    let exit = read_cost(reader, "exit");
    Some(AvicProfile {
        family: family?,
        x2avic,
        erratum_1235,
        register: register?,
        ipi: ipi?,
        doorbell: doorbell?,
        doorbell_latency: doorbell_latency?,
        exit: exit?,
    })
}
