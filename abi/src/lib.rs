//! What guest and host must agree on (CPUID leaves, MSRs, hypercalls, LAPIC and IOAPIC registers, MSIs, the steal-time
//! record), and what hypervisor and hardware must (VMCB, AVIC and IOMMU tables).
//!
//! Values are KVM's and the x86 manuals'; each module names its source. Nothing here executes: both sides only read it.
//!
//! **Invariant**: no dependency, and no type that one side could use to reach into the other.
#![no_std]
#![forbid(unsafe_code)]

pub mod avic;
pub mod cpuid;
pub mod hypercall;
pub mod ioapic;
pub mod iommu;
pub mod lapic;
mod memory;
pub mod msi;
pub mod msr;
pub mod posted;
mod steal_time;
pub mod virtio;
pub mod vmcb;
pub mod vmcs;

pub use memory::Memory;
pub use steal_time::StealTime;
pub use vmcb::Vmcb;
pub use vmcs::Vmcs;
