//! Binary interfaces between guest and host, and between hypervisor and hardware.
//!
//! Guest and host share CPUID leaves, MSRs, hypercalls, registers of interrupt controllers and of the interval timer,
//! MSIs, the steal-time record and virtio queues. Hypervisor and hardware share VMCB, VMCS, posted-interrupt
//! descriptors and the tables of AVIC and the IOMMU.
//!
//! Values are those of KVM and of the x86 manuals; each module names its source. The crate has constants and layouts,
//! and no behavior.
//!
//! **Invariant**: no dependency, and no type by which one side could reach into the other.
//!
//! # Where things are
//! `memory.rs` has the only trait: words that hypervisor and hardware share. Tests are next to the code.
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
