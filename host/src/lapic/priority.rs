//! What is pending, what may be injected, what is in service: the LAPIC's side of its page's bits.

use holdfast_abi::lapic as reg;

use super::Lapic;
use super::page::ApicRegisters;

impl Lapic {
    /// Takes an interrupt into IRR. False if it is ignored, or was pending already.
    pub(crate) fn accept(&mut self, vector: u8, level: bool) -> bool {
        if !self.is_enabled() {
            return false;
        }
        self.irr_pending = true;
        self.page.request(vector, level)
    }

    /// The vector to be injected next, if any has a priority class above the processor's.
    pub(crate) fn deliverable(&mut self) -> Option<u8> {
        if !self.irr_pending || !self.is_enabled() {
            return None;
        }
        let Some(vector) = self.page.highest(reg::IRR) else {
            self.irr_pending = false;
            return None;
        };
        (u32::from(vector) & 0xf0 > self.page.processor_priority() & 0xf0).then_some(vector)
    }

    /// The guest takes `vector`, which is deliverable.
    pub(crate) fn take(&mut self, vector: u8) {
        let pending = self.page.begin_service(vector);
        assert!(pending, "vector {vector} is taken without being requested");
    }

    /// Ends the interrupt in service, if there is one.
    pub(super) fn end_of_interrupt(&mut self) -> Option<u8> {
        self.page.end_service()
    }
}
