//! What is pending, what may be injected, what is in service: the LAPIC's side of its page's bits.

use holdfast_abi::lapic as reg;

use super::page::ApicRegisters;
use super::{Action, Lapic};

impl Lapic {
    /// Takes an interrupt into IRR. False if it is ignored, or was pending already.
    pub(crate) fn accept(&mut self, vector: u8, level: bool) -> bool {
        if !self.is_enabled() {
            return false;
        }
        self.irr_pending = true;
        self.page.request(vector, level)
    }

    /// IRR may have been written by others, and is looked at again.
    pub(crate) fn expect_requests(&mut self) {
        self.irr_pending = true;
    }

    /// Returns the vector to be injected next, if any has a priority class above the processor's.
    pub(crate) fn deliverable(&mut self) -> Option<u8> {
        // One that software has switched off accepts nothing, and keeps what it had accepted before for the processor.
        if !self.irr_pending || !self.hardware_enabled() {
            return None;
        }
        let Some(vector) = self.page.highest(reg::IRR) else {
            self.irr_pending = false;
            return None;
        };
        (u32::from(vector) & 0xf0 > self.page.processor_priority() & 0xf0).then_some(vector)
    }

    /// Returns whether the task priority alone is reason enough that the highest pending vector waits.
    pub(crate) fn is_held_back_by_task(&mut self) -> bool {
        if !self.irr_pending || !self.hardware_enabled() {
            return false;
        }
        let highest = self.page.highest(reg::IRR);
        highest.is_some_and(|vector| vector >> 4 <= self.cr8())
    }

    /// CR8: the task priority's class.
    pub(crate) fn cr8(&self) -> u8 {
        (self.page.load(reg::TPR) >> 4) as u8 & 0xf
    }

    /// Takes over CR8, which the guest can have written. If it has not, the task priority's low bits stay.
    pub(crate) fn set_cr8(&self, value: u8) {
        if value & 0xf != self.cr8() {
            self.page.store(reg::TPR, u32::from(value & 0xf) << 4);
        }
    }

    /// Arbitration priority (SDM volume 3, "Arbitration Priority Register"; P6 processors have used it).
    pub(super) fn arbitration_priority(&self) -> u32 {
        let class = |vector: Option<u8>| u32::from(vector.unwrap_or(0)) & 0xf0;
        let task = self.page.load(reg::TPR) & 0xff;
        let (requested, in_service) = (class(self.page.highest(reg::IRR)), class(self.page.highest(reg::ISR)));
        if task & 0xf0 >= requested && task & 0xf0 > in_service {
            task
        } else {
            requested.max(task & 0xf0 & in_service)
        }
    }

    /// The guest takes `vector`, which is deliverable.
    pub(crate) fn take(&mut self, vector: u8) {
        let pending = self.page.begin_service(vector);
        assert!(pending, "vector {vector} is taken without being requested");
        self.last_taken = Some(vector);
    }

    /// Ends the interrupt in service, if there is one.
    pub(super) fn end_of_interrupt(&mut self) -> Option<u8> {
        self.last_taken = None;
        self.page.end_service()
    }

    /// Returns whether the end of the interrupt in service needs nobody's attention: it is the one taken last, none is
    /// requested, and no I/O APIC waits for its end (KVM: `apic_sync_pv_eoi_to_guest`). `hides_next` is a fault planted
    /// by tests: nobody looks at what is requested.
    pub(crate) fn can_end_unseen(&self, hides_next: bool) -> bool {
        self.last_taken.is_some_and(|vector| {
            (hides_next || self.page.highest(reg::IRR).is_none()) && !self.page.has(reg::TMR, vector)
        })
    }

    /// Returns the guest has ended that interrupt.
    pub(crate) fn end_unseen(&mut self) -> Action {
        self.ended()
    }
}
