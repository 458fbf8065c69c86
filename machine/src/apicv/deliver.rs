//! Virtual interrupts: the one that the guest takes next, its end, and the processing of posted ones.

use holdfast_abi::Memory;
use holdfast_abi::lapic as reg;
use holdfast_abi::posted::{self, Control};
use holdfast_abi::vmcs::InterruptStatus;

use super::{Apicv, WriteOutcome};

impl<M: Memory> Apicv<'_, M> {
    fn requesting(&self) -> u8 {
        self.vmcs.status.requesting()
    }

    fn servicing(&self) -> u8 {
        self.vmcs.status.servicing()
    }

    fn set_status(&mut self, requesting: u8, servicing: u8) {
        self.vmcs.status = InterruptStatus::new(requesting, servicing);
    }

    /// Carries out PPR virtualization: computes PPR from TPR and SVI.
    pub(super) fn update_priority(&self) {
        let task = self.get(reg::TPR) & 0xff;
        let servicing = u32::from(self.servicing());
        let priority = if task & 0xf0 >= servicing & 0xf0 {
            task
        } else {
            servicing & 0xf0
        };
        self.set(reg::PPR, priority);
    }

    /// Returns the vector that the guest takes as soon as it can be interrupted, if there is one.
    ///
    /// Hardware evaluates this at VM entry, at a notification, and after EOI, a self-IPI or a change of TPR or
    /// RFLAGS.IF.
    pub fn pending(&self) -> Option<u8> {
        let vector = self.requesting();
        (u32::from(vector) & 0xf0 > self.get(reg::PPR) & 0xf0).then_some(vector)
    }

    /// Delivers the interrupt that is [pending](Apicv::pending) to the guest: moves it from IRR to ISR. Returns its
    /// vector.
    pub fn take(&mut self) -> u8 {
        let vector = self.requesting();
        self.insert(reg::ISR, vector);
        self.remove(reg::IRR, vector);
        self.set(reg::PPR, u32::from(vector) & 0xf0);
        self.set_status(self.highest(reg::IRR), vector);
        vector
    }

    /// Carries out VM entry: computes PPR, before any interrupt is evaluated.
    pub fn enter(&mut self) {
        self.update_priority();
    }

    /// Carries out EOI virtualization. If no interrupt is in service SVI is 0, and vector 0 ends.
    pub(super) fn end_of_interrupt(&mut self) -> WriteOutcome {
        let vector = self.servicing();
        self.remove(reg::ISR, vector);
        self.set_status(self.requesting(), self.highest(reg::ISR));
        self.update_priority();
        WriteOutcome::Evaluate
    }

    /// Carries out self-IPI virtualization.
    pub(super) fn self_ipi(&mut self, vector: u8) -> WriteOutcome {
        self.insert(reg::IRR, vector);
        self.set_status(self.requesting().max(vector), self.servicing());
        WriteOutcome::Evaluate
    }

    /// Handles a host interrupt with `vector` while the guest runs. The notification vector moves the posted vectors to
    /// IRR without an exit. Returns `false` for another vector, which exits.
    pub fn notified(&mut self, vector: u8) -> bool {
        if !self.vmcs.processes_posted() || vector != self.vmcs.notification_vector {
            return false;
        }
        let descriptor = self.vmcs.descriptor;
        // **ON before PIR**: a sender that posts after PIR is read below finds ON clear and notifies again.
        self.clear_on(descriptor);
        let mut highest = self.requesting();
        for word in 0..8u32 {
            let address = descriptor + posted::PIR + u64::from(word) * 4;
            let bits = self.memory.clear32(address, u32::MAX).unwrap_or(0);
            if bits != 0 {
                self.memory.set32(self.at(reg::IRR + word * 16), bits);
                highest = highest.max((word * 32 + 31 - bits.leading_zeros()) as u8);
            }
        }
        self.set_status(highest, self.servicing());
        true
    }

    fn clear_on(&self, descriptor: u64) {
        let address = descriptor + posted::CONTROL;
        let mut control = self.memory.load64(address).unwrap_or(0);
        while let Some(Err(now)) =
            self.memory
                .compare_exchange64(address, control, Control(control).without(Control::ON).0)
        {
            control = now;
        }
    }
}
