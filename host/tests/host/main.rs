//! The host on its own, driven through its boundary in virtual time.

mod apic_model;
mod balance;
mod devices;
mod fairness;
mod halt;
mod hostile;
mod hostile_apic;
mod lapic;
mod migration;
mod pv;
mod spin;
mod tasks;
mod userspace;
mod windows;
mod world;
mod yields;
