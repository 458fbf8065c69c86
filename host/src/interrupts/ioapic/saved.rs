//! The I/O APIC's state, saved and restored with its VM (KVM_GET_IRQCHIP, `struct kvm_ioapic_state`).

use holdfast_abi::ioapic as reg;

use super::{ID_BITS, Ioapic, PINS, WRITABLE};

/// State of a VM's I/O APIC. Which pins are [resampled](crate::Host::resample_line) is not part of it: the VMM says so
/// on the other host, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedIoapic {
    /// The register IOREGSEL.
    pub select: u8,
    /// The register IOAPICID.
    pub id: u32,
    /// The redirection table. Remote IRR says that a LAPIC has the interrupt and its end is to come.
    pub entries: [u64; PINS],
    /// The pins that are asserted: pin `p` is bit `p`.
    pub asserted: u32,
}

impl Ioapic {
    /// Returns the state.
    pub(crate) fn save(&self) -> SavedIoapic {
        SavedIoapic {
            select: self.select,
            id: self.id,
            entries: self.entries,
            asserted: self.asserted,
        }
    }

    /// Takes over the state `saved`. Bits that no guest and no device can have set are left out.
    pub(crate) fn load(&mut self, saved: &SavedIoapic) {
        self.select = saved.select;
        self.id = saved.id & ID_BITS;
        self.asserted = saved.asserted & ((1 << reg::PINS) - 1);
        for (entry, &given) in self.entries.iter_mut().zip(&saved.entries) {
            let level = given & reg::ENTRY_LEVEL != 0;
            *entry = given & (WRITABLE | if level { reg::ENTRY_REMOTE_IRR } else { 0 });
        }
    }
}
