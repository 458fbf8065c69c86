//! Pending, deliverable and in-service interrupts, from the bits of the register page.

use holdfast_abi::lapic as reg;

use super::Lapic;
use super::page::ApicRegisters;

impl Lapic {
    /// Accepts an interrupt into IRR. Returns `false` if it is ignored, or was pending already.
    pub(crate) fn accept(&mut self, vector: u8, level: bool) -> bool {
        if !self.is_enabled() {
            return false;
        }
        self.irr_pending = true;
        self.page.request(vector, level)
    }

    /// Notes that senders may have written IRR, which must be read again.
    pub(crate) fn expect_requests(&mut self) {
        self.irr_pending = true;
    }

    /// Notes that hardware begins or ceases to change IRR and ISR: nothing known of them holds any more.
    pub(crate) fn hardware_switched(&mut self) {
        self.irr_pending = true;
        self.last_taken = None;
    }

    /// Returns the vector to inject next, if its priority class is above the processor's.
    pub(crate) fn deliverable(&mut self) -> Option<u8> {
        // A LAPIC that software has disabled accepts nothing. Vectors accepted earlier stay pending.
        if !self.irr_pending || !self.hardware_enabled() {
            return None;
        }
        let Some(vector) = self.page.highest(reg::IRR) else {
            self.irr_pending = false;
            return None;
        };
        (u32::from(vector) & 0xf0 > self.page.processor_priority() & 0xf0).then_some(vector)
    }

    /// Returns whether only the task priority holds back the highest pending vector.
    pub(crate) fn is_held_back_by_task(&mut self) -> bool {
        if !self.irr_pending || !self.hardware_enabled() {
            return false;
        }
        let highest = self.page.highest(reg::IRR);
        highest.is_some_and(|vector| vector >> 4 <= self.cr8())
    }

    /// Returns CR8, the class of the task priority.
    pub(crate) fn cr8(&self) -> u8 {
        (self.page.load(reg::TPR) >> 4) as u8 & 0xf
    }

    /// Takes over CR8, which the guest may have written. If it has not, the low bits of the task priority stay.
    pub(crate) fn set_cr8(&self, value: u8) {
        if value & 0xf != self.cr8() {
            self.page.store(reg::TPR, u32::from(value & 0xf) << 4);
        }
    }

    /// Returns the arbitration priority (SDM volume 3, "Arbitration Priority Register"; used by P6 processors).
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

    /// Moves `vector`, which is deliverable, into service.
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

    /// Returns whether the host need not see the end of the interrupt in service: it is the one taken last, no other is
    /// requested, and it is edge-triggered (KVM: `apic_sync_pv_eoi_to_guest`). `hides_next` is a fault planted
    /// by tests: requests are ignored.
    pub(crate) fn can_end_unseen(&self, hides_next: bool) -> bool {
        self.last_taken.is_some_and(|vector| {
            (hides_next || self.page.highest(reg::IRR).is_none()) && !self.page.has(reg::TMR, vector)
        })
    }
}
