//! Intel's APIC virtualization as hardware does it: register accesses, virtual-interrupt delivery, posted interrupts, IPIs
//! from vCPU to vCPU.
//!
//! Written over [`Memory`], so that the source that runs in the simulator is the one that a model checker explores. Nothing
//! here waits or takes time: who calls says when each step happens.
//!
//! - **RVI and SVI are the page's**: after each step RVI is the highest vector of IRR that hardware knows of, SVI the highest of
//!   ISR. Software that changes the page between exit and entry sets both.
//! - **PIR first**: who posts sets the bit in PIR before it looks at SN and ON ([`post`]). The hypervisor clears SN before it
//!   looks at PIR, so one of both sees the other.
//! - **Nobody else's page**: a vCPU reaches only descriptors that its own VM's table names.
//!
//! Against AVIC: whoever posts writes the descriptor, never the page of a vCPU that runs; and there is no *IsRunning*: whoever
//! sleeps is reached by another vector in its descriptor, so that the sender never exits.
//!
//! Source: Intel SDM volume 3, chapter "APIC Virtualization and Virtual Interrupts"; all of it from memory.

mod access;
mod deliver;
mod ipi;
#[cfg(test)]
mod tests;

use holdfast_abi::{Memory, Vmcs};

pub use access::{Exit, WriteOutcome};
pub use ipi::{Notification, post};

/// APIC virtualization of one vCPU, as its VMCS sets it.
#[derive(Debug)]
pub struct Apicv<'m, M> {
    memory: &'m M,
    vmcs: &'m mut Vmcs,
}

impl<'m, M: Memory> Apicv<'m, M> {
    /// APIC virtualization as `vmcs` sets it; `None` if hardware does not deliver interrupts.
    #[inline]
    pub fn new(memory: &'m M, vmcs: &'m mut Vmcs) -> Option<Apicv<'m, M>> {
        vmcs.delivers_interrupts().then_some(Apicv { memory, vmcs })
    }

    fn at(&self, offset: u32) -> u64 {
        self.vmcs.virtual_apic_page & !0xfff | u64::from(offset & 0xfff)
    }

    fn get(&self, offset: u32) -> u32 {
        // A page that is not memory reads as nothing there.
        self.memory.load32(self.at(offset)).unwrap_or(0)
    }

    fn set(&self, offset: u32, value: u32) {
        self.memory.store32(self.at(offset), value);
    }

    /// The highest vector in the eight registers from `field` on; 0 if there is none, as RVI and SVI have it.
    fn highest(&self, field: u32) -> u8 {
        let found = (0..8u32).rev().find_map(|word| {
            let bits = self.get(field + word * 16);
            (bits != 0).then(|| (word * 32 + 31 - bits.leading_zeros()) as u8)
        });
        found.unwrap_or(0)
    }

    fn insert(&self, field: u32, vector: u8) {
        self.memory
            .set32(self.at(field + u32::from(vector) / 32 * 16), 1 << (vector % 32));
    }

    fn remove(&self, field: u32, vector: u8) {
        self.memory
            .clear32(self.at(field + u32::from(vector) / 32 * 16), 1 << (vector % 32));
    }
}
