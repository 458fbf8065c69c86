//! AMD's AVIC as hardware does it: what a guest's LAPIC access turns into, IPIs between vCPUs, virtual interrupts.
//!
//! Written over [`Memory`], so that the source that runs in the simulator is the one that a model checker explores. Nothing
//! here waits or takes time: who calls says when each step happens.
//!
//! - **IRR first**: a target's IRR bit is set before it is read whether that target runs ([`Avic::post`]). The hypervisor
//!   clears IsRunning before it looks at IRR; so one of both sees the other.
//! - **Nobody else's page**: a vCPU reaches only pages that its own VM's tables name.
//!
//! Source: AMD64 Architecture Programmer's Manual volume 2, section 15.29; where the manual is silent, or was not at hand, the
//! text says *uncertain*.

mod access;
mod interrupt;
mod ipi;
#[cfg(test)]
mod tests;

use holdfast_abi::avic::PAGE_ADDRESS;
use holdfast_abi::lapic as reg;
use holdfast_abi::{Memory, Vmcb};

pub(crate) use access::by_msr;
pub use access::{Access, WriteOutcome, accepts_wrmsr, access};
pub use ipi::{IpiOutcome, Targets};

/// What a part has of AVIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvicHardware {
    /// It can be in x2APIC mode (Zen 4 and later).
    pub x2avic: bool,
    /// Erratum 1235 (family 17h): a sender may act on an IsRunning bit that is no longer set.
    pub erratum_1235: bool,
}

/// AVIC of one vCPU, as its VMCB sets it.
#[derive(Clone, Copy, Debug)]
pub struct Avic<'m, M> {
    memory: &'m M,
    page: u64,
    logical_table: u64,
    physical_table: u64,
    max_index: u32,
    x2apic: bool,
    erratum_1235: bool,
}

impl<'m, M: Memory> Avic<'m, M> {
    /// AVIC as `vmcb` sets it on a part that has `hardware`; `None` if it is off, or the part has none.
    #[inline]
    pub fn new(memory: &'m M, vmcb: &Vmcb, hardware: AvicHardware) -> Option<Avic<'m, M>> {
        if !vmcb.has_avic() {
            return None;
        }
        Some(Avic {
            memory,
            page: vmcb.backing_page(),
            logical_table: vmcb.logical_table(),
            physical_table: vmcb.physical_table(),
            max_index: vmcb.max_index(),
            x2apic: vmcb.has_x2avic() && hardware.x2avic,
            erratum_1235: hardware.erratum_1235,
        })
    }

    /// Whether the guest's LAPIC is in x2APIC mode.
    #[inline]
    pub fn is_x2apic(&self) -> bool {
        self.x2apic
    }

    fn get(&self, offset: u32) -> u32 {
        // A backing page that is not memory reads as nothing there.
        self.memory.load32(self.page | u64::from(offset)).unwrap_or(0)
    }

    fn set(&self, offset: u32, value: u32) {
        self.memory.store32(self.page | u64::from(offset), value);
    }

    fn entry(&self, id: u32) -> holdfast_abi::avic::PhysicalEntry {
        let address = self.physical_table + u64::from(id) * holdfast_abi::avic::PhysicalEntry::BYTES;
        holdfast_abi::avic::PhysicalEntry(self.memory.load64(address).unwrap_or(0))
    }
}

/// The register and the bit of `vector` in the set of eight registers from `base`, of the page at `page`.
fn bit_of(page: u64, base: u32, vector: u8) -> (u64, u32) {
    let register = base + u32::from(vector) / 32 * 16;
    (page & PAGE_ADDRESS | u64::from(register), 1 << (vector % 32))
}

/// Pends `vector`, edge-triggered, in the page at `page`; false if that is not memory.
pub(crate) fn request<M: Memory>(memory: &M, page: u64, vector: u8) -> bool {
    let (irr, bit) = bit_of(page, reg::IRR, vector);
    if memory.set32(irr, bit).is_none() {
        return false;
    }
    let (tmr, bit) = bit_of(page, reg::TMR, vector);
    memory.clear32(tmr, bit);
    true
}
