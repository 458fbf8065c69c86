//! Posted interrupts, the hypervisor's side: the memory operations by which senders and the vCPU agree
//! (docs/spec/interrupts.md, "Posted interrupts").
//!
//! | sender | then | vCPU | then |
//! |---|---|---|---|
//! | PIR | ON was clear: notifies NDST with NV | enters: ON = 0 ([`Descriptor::sync`]) | moves PIR to IRR |
//! | PIR | SN is set: no notification | is loaded: SN = 0 ([`Descriptor::load`]) | reads PIR, sets ON |
//! | PIR | ON was clear: notifies NDST with NV | NV = wakeup ([`Descriptor::block`]) | reads ON, sleeps |
//! | PIR, ON | reads mode: notifies, or wakes | mode = in guest | reads ON ([`Descriptor::sync`]) |
//!
//! In every row each side writes, fences (or swaps), and reads what the other has written.
//!
//! - **No lost interrupt**: at least one of the two sides sees the other's write.
//! - **ON covers PIR**: whenever PIR is not empty, ON is set or about to be, or SN is set and the next load looks.
//! - **Spurious notifications are harmless**: the receiver reads PIR and finds nothing.
//!
//! Unlike under AVIC, a sender never exits, whatever the state of its target. The functions are generic over memory.
//! Model checkers explore the source that runs.

use holdfast_abi::posted::{self, Control};
use holdfast_abi::{Memory, lapic as reg};

/// Steps left out or done in the wrong order, for tests that must catch them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostingFaults {
    /// [`Descriptor::load`] does not fence between SN and PIR.
    pub load_without_fence: bool,
    /// [`Descriptor::load`] does not look at PIR.
    pub load_without_look: bool,
    /// [`Descriptor::load`] leaves NDST as it was.
    pub stale_destination: bool,
    /// [`Descriptor::block`] leaves NV as it was.
    pub block_keeps_vector: bool,
    /// [`Descriptor::block`] does not look at ON.
    pub block_without_look: bool,
    /// [`Descriptor::block`] suppresses notifications, as for a preempted vCPU.
    pub block_suppresses: bool,
    /// [`Descriptor::sync`] empties PIR before it clears ON.
    pub empty_before_clear: bool,
}

/// A vCPU's posted-interrupt descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'m, M> {
    /// The memory that contains it.
    pub memory: &'m M,
    /// Host-physical address, a multiple of [`posted::DESCRIPTOR_BYTES`].
    pub address: u64,
    /// Planted faults.
    #[doc(hidden)]
    pub faults: PostingFaults,
}

impl<M: Memory> Descriptor<'_, M> {
    /// Returns the address of 32 bits of PIR, from vector `32 * word` on.
    fn pir(&self, word: u32) -> u64 {
        self.address + posted::PIR + u64::from(word) * 4
    }

    /// Returns the control word.
    pub fn control(&self) -> Control {
        Control(self.memory.load64(self.address + posted::CONTROL).unwrap_or(0))
    }

    /// Changes the control word in one step. Returns its value before.
    fn update(&self, change: impl Fn(Control) -> Control) -> Control {
        let mut before = self.control();
        loop {
            let after = change(before);
            let address = self.address + posted::CONTROL;
            match self.memory.compare_exchange64(address, before.0, after.0) {
                Some(Err(now)) => before = Control(now),
                Some(Ok(_)) | None => return before,
            }
        }
    }

    /// Returns whether nothing is posted.
    pub fn is_empty(&self) -> bool {
        (0..8).all(|word| self.memory.load32(self.pir(word)).unwrap_or(0) == 0)
    }

    /// Returns whether `vector` is posted.
    pub fn holds(&self, vector: u8) -> bool {
        let (word, bit) = posted::pir_bit(vector);
        self.memory.load32(self.address + word).unwrap_or(0) & bit != 0
    }

    /// Software posts `vector` (`vmx_deliver_posted_interrupt`). Returns whether the vCPU must be notified if it is in
    /// guest mode, and woken otherwise. SN applies to hardware only.
    pub fn post(&self, vector: u8) -> bool {
        let (word, bit) = posted::pir_bit(vector);
        let before = self.memory.set32(self.address + word, bit);
        if before.is_none_or(|before| before & bit != 0) {
            return false;
        }
        !self.update(|control| control.with(Control::ON)).is_on()
    }

    /// The vCPU's thread takes the pCPU with `host_id` (`vmx_vcpu_pi_load`).
    pub fn load(&self, host_id: u32) {
        self.update(|control| {
            let host_id = if self.faults.stale_destination {
                control.destination()
            } else {
                host_id
            };
            Control::new(posted::NOTIFICATION_VECTOR, host_id).with(control.0 & Control::ON)
        });
        // Pairs with the sender's fence between PIR and SN.
        if !self.faults.load_without_fence {
            self.memory.fence();
        }
        if !self.faults.load_without_look {
            self.notice();
        }
    }

    /// Makes ON cover what was posted while notifications were suppressed.
    pub fn notice(&self) {
        if !self.is_empty() {
            self.update(|control| control.with(Control::ON));
        }
    }

    /// The vCPU's thread loses its pCPU and stays ready (`vmx_vcpu_pi_put`). Senders then do not disturb the next vCPU
    /// of the pCPU.
    pub fn preempt(&self) {
        self.update(|control| control.with(Control::SN));
    }

    /// The vCPU's thread is about to sleep on the list of its pCPU (`pi_enable_wakeup_handler`). Notifications go to
    /// the handler that walks this list. Returns whether the handler must run at once, since an interrupt was posted
    /// before.
    pub fn block(&self) -> bool {
        let before = self.update(|control| {
            let vector = if self.faults.block_keeps_vector {
                control.vector()
            } else {
                posted::WAKEUP_VECTOR
            };
            let kept = if self.faults.block_suppresses { Control::SN } else { 0 };
            Control::new(vector, control.destination()).with(control.0 & Control::ON | kept)
        });
        !self.faults.block_without_look && before.is_on()
    }

    /// Drops all posted interrupts.
    pub fn forget(&self) {
        self.update(|control| control.without(Control::ON));
        for word in 0..8 {
            self.memory.clear32(self.pir(word), u32::MAX);
        }
    }

    /// Moves posted interrupts to IRR of the page at `page` (`vmx_sync_pir_to_irr`). Returns the highest vector moved,
    /// if any.
    pub fn sync(&self, page: u64) -> Option<u8> {
        if !self.control().is_on() {
            return None;
        }
        let clear = || self.update(|control| control.without(Control::ON));
        if !self.faults.empty_before_clear {
            clear();
            // Pairs with the sender: ON after PIR there, PIR after ON here.
            self.memory.fence();
        }
        let mut highest = None;
        for word in 0..8u32 {
            let bits = self.memory.clear32(self.pir(word), u32::MAX);
            let Some(bits) = bits.filter(|&bits| bits != 0) else {
                continue;
            };
            self.memory.set32(page + u64::from(reg::IRR + word * 16), bits);
            highest = Some((word * 32 + 31 - bits.leading_zeros()) as u8);
        }
        if self.faults.empty_before_clear {
            clear();
        }
        highest
    }
}

#[cfg(test)]
mod tests;
