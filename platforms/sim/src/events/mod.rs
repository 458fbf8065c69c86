//! What happens at each event: methods of the engine.
//!
//! They call each other, since an exit can bring an interrupt, an interrupt a step of the host, and a step an entry.

pub mod apic;
pub mod bare_metal;
pub mod commands;
pub mod disk;
pub mod exits;
pub mod iommu;
pub mod migration;
pub mod nesting;
pub mod network;
pub mod siblings;
pub mod spins;
pub mod time;
pub mod translations;
