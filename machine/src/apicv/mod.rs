//! The hardware of Intel's APIC virtualization: register accesses, virtual-interrupt delivery, posted interrupts, IPIs
//! between vCPUs.
//!
//! It is written over [`Memory`], so the simulator and a model checker run the same source. Nothing here waits or takes
//! time: the caller decides when each step happens.
//!
//! - **RVI and SVI match the page**: after each step RVI is the highest vector in IRR that hardware knows of, SVI the
//!   highest in ISR. Software that changes the page between exit and entry sets both.
//! - **PIR first**: a sender sets the bit in PIR before it reads SN and ON ([`post`]). The hypervisor clears SN before
//!   it reads PIR. So at least one of the two sees the other's store.
//! - **Own table only**: a vCPU reaches only descriptors that its own VM's table names.
//!
//! Unlike with AVIC, a sender writes the target's descriptor and never the page of a running vCPU. There is no
//! *IsRunning* bit: the descriptor of a sleeping vCPU has another notification vector, so the sender never exits.
//!
//! Source: Intel SDM volume 3, chapter "APIC Virtualization and Virtual Interrupts", not verified against the manual.
//! See docs/spec/interrupts.md, "APICv".

mod access;
mod deliver;
mod ipi;
#[cfg(test)]
mod tests;

use holdfast_abi::{Memory, Vmcs};

pub use access::{Exit, WriteOutcome};
pub use ipi::{Notification, post};

/// APIC virtualization of one vCPU, as its VMCS configures it.
#[derive(Debug)]
pub struct Apicv<'m, M> {
    memory: &'m M,
    vmcs: &'m mut Vmcs,
}

impl<'m, M: Memory> Apicv<'m, M> {
    /// Returns APIC virtualization as `vmcs` configures it, or `None` if hardware does not deliver interrupts.
    #[inline]
    pub fn new(memory: &'m M, vmcs: &'m mut Vmcs) -> Option<Apicv<'m, M>> {
        vmcs.delivers_interrupts().then_some(Apicv { memory, vmcs })
    }

    fn at(&self, offset: u32) -> u64 {
        self.vmcs.virtual_apic_page & !0xfff | u64::from(offset & 0xfff)
    }

    fn get(&self, offset: u32) -> u32 {
        // A page that is not memory reads as zeros.
        self.memory.load32(self.at(offset)).unwrap_or(0)
    }

    fn set(&self, offset: u32, value: u32) {
        self.memory.store32(self.at(offset), value);
    }

    /// Returns the highest vector in the eight registers from `field`, or 0 if there is none, as RVI and SVI do.
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
