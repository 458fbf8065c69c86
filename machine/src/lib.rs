//! Simulated hardware in virtual time: cache lines, pause-loop detection, APIC virtualization, the event queue, and the
//! costs of a machine profile.
//!
//! Nothing here waits or advances a clock. The caller passes the time and charges the costs.
//!
//! # Where things are
//! `queue.rs` orders events, `lines.rs` charges cache lines, `pause.rs` computes skipped spins, `profile.rs` has the
//! costs. `avic/`, `apicv/` and `iommu.rs` do what the hardware does. Tests are next to the code, and under
//! loom in `platforms/model`.
#![forbid(unsafe_code)]

pub mod apicv;
pub mod avic;
mod cpu_model;
pub mod iommu;
mod lines;
mod pause;
mod profile;
mod queue;
#[cfg(test)]
mod ram;
mod spin;
mod time;
mod topology;

pub use cpu_model::{ApicvFeatures, AvicFeatures, CpuModel};
pub use lines::{Access, Charge, LineId, Lines, overlapped};
pub use pause::{PauseDetector, PauseHardware, PauseLimit};
pub use profile::{ApicvModel, AvicModel, Costs, IdleState, Profile, idle_exit_latency};
pub use queue::EventQueue;
pub use spin::Spin;
pub use time::{Picos, Time};
pub use topology::{Numbering, Topology};
