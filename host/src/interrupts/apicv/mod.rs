//! Intel's APICv, posted interrupts and IPI virtualization (docs/spec/interrupts.md, "APICv").
//!
//! [`posting`] has the memory operations by which senders and receivers agree. The other files call them at the right
//! times.
//!
//! Compared with AVIC ([`avic`](super::avic)): only the vCPU itself writes its virtual-APIC page, senders write its
//! descriptor. Posted interrupts reach the page when the vCPU enters, or by the notification. x2APIC is always offered.
//! No sender exits because a target does not run.
//!
//! - **RVI and SVI follow the page**: each entry sets both, after posted interrupts have been moved to the page.
//! - **Only the VM's own vCPUs**: the PID-pointer table names the descriptors of the VM's own vCPUs.

mod config;
pub(super) mod deliver;
pub(super) mod exits;
pub mod posting;
pub(super) mod running;
pub(super) mod setup;
mod state;

pub use config::{ApicvConfig, VmxPart};
pub(crate) use state::{VcpuApicv, VmApicv};
