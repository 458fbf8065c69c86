//! AMD's AVIC: tables, IsRunning, exits and devices behind the IOMMU (docs/spec/interrupts.md, "AVIC tables").
//!
//! [`handshake`] has the memory operations by which senders and receivers agree, [`remap`] those of the IOMMU. The
//! other files call them at the right times.
//!
//! - **Only the VM's own vCPUs**: tables name the pages of their own VM's vCPUs, whatever the guest writes.
//! - **IsRunning is exact** (`handshake`).

mod config;
pub(super) mod deliver;
pub(super) mod devices;
pub(super) mod exits;
pub mod handshake;
pub(super) mod iommu;
pub mod remap;
pub(super) mod running;
pub(super) mod setup;
mod state;
pub(super) mod tables;
#[cfg(test)]
mod tests;

pub use config::{AvicConfig, AvicDriver, AvicEnable, SvmPart};
pub(crate) use devices::{Device, Iommu};
pub(crate) use state::{VcpuAvic, VmAvic};
