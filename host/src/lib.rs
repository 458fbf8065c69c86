//! The hypervisor core and its host scheduler, as a step function: an event and the time go in, and commands are
//! appended to the caller's buffer.
//!
//! It has no clock, I/O, threads or callbacks. Virtual time, a fuzzer, a table-driven test or real exits can drive it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod boundary;
mod config;
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
mod pause;
mod pcpus;
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
pub use config::{HostConfig, Nic, Quota, TaskConfig, TickPhase, VCPUS_MAX, VmConfig, VmGroup};
pub use error::ConfigError;
#[doc(hidden)]
pub use faults::{Planted, PlugFaults, PvFaults, SpinFaults};
pub use host::Host;
pub use ids::{Id, IdVec};
pub use interrupts::apicv::{ApicvConfig, VmxPart};
pub use interrupts::avic::{AvicConfig, AvicDriver, AvicEnable, NestedInhibit, SvmPart};
pub use interrupts::lapic::{ApicRegisters, RegisterPage, SavedTimer};
pub use interrupts::memory::HostMemory;
pub use interrupts::{Inhibit, Inhibits, SavedIoapic, apicv, avic};
pub use pause::config::{PauseControls, PauseExit, PauseHandling, WindowRule, YieldFilters};
pub use sched::config::{BalanceConfig, DomainConfig, Preempt, SchedConfig, SchedulerKind, ShareRule, YieldRule};
pub use sched::features::Features;
pub use sched::{GROUP_DEPTH_MAX, Throttling};
pub use vcpu::migration::{RestoreError, SavedVcpu};
pub use vcpu::{MpState, PendingEvents};
