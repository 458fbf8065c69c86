//! The hypervisor core and its host scheduler, as a step function: an event and the time go in, and commands are
//! appended to the caller's buffer.
//!
//! It has no clock, I/O, threads or callbacks. Virtual time, a fuzzer, a table-driven test or real exits can drive it.
//!
//! No guest can make it panic.
//!
//! # Where things are
//! It begins in `events.rs` `handle`. `host.rs` `Host` composes the state of its wings:
//! - `vcpu/`: entry, exit, halt, hypercalls, steal time, user space, migration, VMs that come and go, and guests that
//!   are hypervisors (`nested.rs` `vmrun`).
//! - `interrupts/`: LAPIC, MSIs, PV EOI, PV IPI. `interrupts/mod.rs` is the one door: no code outside names
//!   AVIC or APICv. `handshake.rs` and `posting.rs` have the memory operations by which hardware and hypervisor agree,
//!   over any memory, so that loom explores them.
//! - `pause/`: pause exits (`pause/mod.rs` `on_spin`), and windows. Each kernel's handling is a preset
//!   in `pause/config.rs`.
//! - `sched/`: one machinery of entities, queues and groups (`hierarchy.rs`) that asks a policy (`cfs.rs`, `eevdf.rs`)
//!   what to do within a queue. A version is a set of parameters (`sched/config.rs`).
//! - `sched/seam/`: a [`Policy`], which is asked before all of that. [`conformance`] is its contract, and [`policies`]
//!   has those of the house.
//!
//! The tests are random guests with a small clock, and a model of the APIC manual (`host/tests/host/apic_model`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod boundary;
mod config;
pub mod conformance;
mod counters;
mod dispatch;
mod error;
mod events;
#[doc(hidden)]
pub mod faults;
mod filling;
mod guests;
mod host;
mod ids;
mod interrupts;
mod linux;
mod pause;
mod pcpus;
pub mod policies;
mod quota;
mod sched;
mod step;
mod threads;
mod timers;
mod vcpu;
mod wings;

pub use boundary::{
    Command, Cost, Event, Exit, GroupId, GuestState, HardwareEvent, HostInterrupt, Nanos, PcpuId, PcpuPlace, Run,
    TaskEvent, TaskId, VcpuId, VcpuState, VmId, VmmEvent,
};
pub use config::{HostConfig, Nic, TaskConfig, TickPhase, VCPUS_MAX, VmConfig, VmGroup};
pub use error::ConfigError;
#[doc(hidden)]
pub use faults::{Planted, PlugFaults, PvFaults, SpinFaults};
pub use host::Host;
pub use ids::{Id, IdVec};
pub use interrupts::apicv::{ApicvConfig, VmxPart};
pub use interrupts::avic::{AvicConfig, AvicDriver, AvicEnable, SvmPart};
pub use interrupts::lapic::{ApicRegisters, RegisterPage, SavedTimer};
pub use interrupts::memory::HostMemory;
pub use interrupts::{Inhibit, Inhibits, apicv, avic};
pub use linux::Linux;
pub use pause::config::{PauseControls, PauseExit, PauseHandling, WindowRule, YieldFilters};
pub use quota::Quota;
pub use sched::config::{BalanceConfig, DomainConfig, Preempt, SchedConfig, SchedulerKind, ShareRule, YieldRule};
pub use sched::features::Features;
pub use sched::seam::{GuestView, GuestWord, Pause, Policy, PolicyKind, RunState, ThreadView, View, Yield};
pub use sched::{GROUP_DEPTH_MAX, Throttling};
pub use vcpu::migration::{RestoreError, SavedVcpu};
pub use vcpu::{MpState, PendingEvents};
