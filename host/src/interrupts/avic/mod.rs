//! AMD's AVIC: tables, IsRunning, exits and devices behind the IOMMU (docs/spec/interrupts.md, "AVIC tables").
//!
//! [`handshake`] has the memory operations by which senders and receivers agree, [`remap`] those of the IOMMU. The
//! other files call them at the right times.
//!
//! - **Only the VM's own vCPUs**: tables name the pages of their own VM's vCPUs, whatever the guest writes.
//! - **IsRunning is exact** (`handshake`).

mod config;
mod deliver;
mod devices;
mod exits;
pub mod handshake;
mod iommu;
pub mod remap;
mod running;
mod setup;
mod state;
mod tables;
#[cfg(test)]
mod tests;

pub use config::{AvicConfig, AvicDriver, AvicEnable, NestedInhibit, SvmPart};
pub(crate) use devices::{Device, Iommu};
pub(crate) use state::{VcpuAvic, VmAvic};
