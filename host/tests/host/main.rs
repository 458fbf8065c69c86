//! The host on its own, driven through its boundary in virtual time.

mod affinity;
mod apic_model;
mod balance;
mod cpuid;
mod devices;
mod fairness;
mod halt;
mod hardware;
mod hostile;
mod hostile_apic;
mod hostile_hardware;
mod iommu;
mod lapic;
mod migration;
mod plug;
mod pv;
mod registers;
mod restored;
mod rig;
mod spin;
mod storm;
mod tasks;
mod userspace;
mod windows;
mod world;
mod yields;
