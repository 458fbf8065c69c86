//! Interrupts of guests: the LAPIC, the I/O APIC, the paravirtual end of interrupt and IPI, and APIC virtualization by
//! hardware of either vendor.

pub mod apicv;
pub mod avic;
pub(crate) mod ioapic;
pub(crate) mod lapic;
mod mmio;
mod pv_eoi;
mod pv_ipi;
