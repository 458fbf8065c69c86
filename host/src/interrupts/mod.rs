//! Interrupts of guests: LAPIC, the paravirtual ends of interrupt and IPI, and APIC virtualization by hardware.
//!
//! - **One door**: code outside this folder calls what `door.rs` has, and what this file hands on. Each dispatches to
//!   emulation, AMD's AVIC ([`avic`]) or Intel's APICv ([`apicv`]); no caller names a vendor.
//! - **Below the vCPU wing**: an interrupt pends, requests and wakes. It never runs a handler of an exit or a halt.

pub mod apicv;
pub mod avic;
mod door;
pub(crate) mod exits;
mod hardware;
mod ids;
mod inhibits;
mod kick;
pub(crate) mod lapic;
pub(crate) mod memory;
pub(crate) mod mmio;
mod mode;
pub(crate) mod pv_eoi;
pub(crate) mod pv_ipi;
mod switch;
#[cfg(test)]
mod tests;

pub(crate) use apicv::deliver::posted_wakeup;
pub(crate) use avic::iommu::{add_device, device_interrupt, ga_log_interrupt, remove_devices};
pub use inhibits::{Inhibit, Inhibits};
pub(crate) use mode::{VcpuApic, VmApic};
