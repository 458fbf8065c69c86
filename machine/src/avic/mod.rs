//! The hardware of AMD's AVIC: a guest's LAPIC accesses, IPIs between vCPUs, virtual interrupts.
//!
//! It is written over [`Memory`], so the simulator and a model checker run the same source. Nothing here waits or takes
//! time: the caller decides when each step happens.
//!
//! - **IRR first**: a sender sets the target's IRR bit before it reads whether the target runs ([`Avic::post`]). The
//!   hypervisor clears IsRunning before it reads IRR. So at least one of the two sees the other's store.
//! - **Own tables only**: a vCPU reaches only pages that its own VM's tables name.
//!
//! Source: AMD64 Architecture Programmer's Manual volume 2, section 15.29. *Uncertain* marks what the manual leaves
//! open or what was not verified against it. See docs/spec/interrupts.md, "AVIC tables".

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

/// The AVIC features and errata of a CPU model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvicHardware {
    /// Whether AVIC has an x2APIC mode (Zen 4 and later).
    pub x2avic: bool,
    /// Whether the model has erratum 1235 (family 17h): a sender may act on a stale IsRunning bit.
    pub erratum_1235: bool,
    /// Whether tables under x2AVIC have 4096 entries instead of 512.
    pub extended_tables: bool,
    /// Whether HLT can exit only if no virtual interrupt is pending.
    pub idle_hlt: bool,
}

/// AVIC of one vCPU, as its VMCB configures it.
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
    /// Returns AVIC as `vmcb` configures it on a CPU model with `hardware`, or `None` if `vmcb` has it off.
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

    /// Returns whether the guest's LAPIC is in x2APIC mode.
    #[inline]
    pub fn is_x2apic(&self) -> bool {
        self.x2apic
    }

    fn get(&self, offset: u32) -> u32 {
        // A backing page that is not memory reads as zeros.
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

/// Returns the place of `vector` in the eight registers from offset `base` of the page at `page`: the register's
/// address and the bit.
pub(crate) fn bit_of(page: u64, base: u32, vector: u8) -> (u64, u32) {
    let register = base + u32::from(vector) / 32 * 16;
    (page & PAGE_ADDRESS | u64::from(register), 1 << (vector % 32))
}

/// Makes the edge-triggered `vector` pending in the page at `page`. Returns `false` if the page is not memory.
pub(crate) fn request<M: Memory>(memory: &M, page: u64, vector: u8) -> bool {
    let (irr, bit) = bit_of(page, reg::IRR, vector);
    if memory.set32(irr, bit).is_none() {
        return false;
    }
    let (tmr, bit) = bit_of(page, reg::TMR, vector);
    memory.clear32(tmr, bit);
    true
}
