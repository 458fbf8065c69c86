//! The hypervisor core and its host scheduler, as a step function: `(event, now)` in, commands appended to the caller's
//! buffer. No clock, no I/O, no threads, no callbacks, so that virtual time, a fuzzer, a table-driven test or real exits
//! can drive it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod apicv;
pub mod avic;
mod boundary;
mod config;
mod counters;
mod cpuid;
mod entry;
mod error;
mod events;
mod exit;
mod halt;
mod host;
mod hypercall;
mod init;
mod ioapic;
mod kick;
mod lapic;
mod migration;
mod mmio;
mod msr;
pub mod net;
mod pv_eoi;
mod pv_ipi;
mod sched;
mod spin;
mod steal_time;
mod step;
mod task;
mod timer;
mod userspace;
mod vcpu;

pub use apicv::{ApicvConfig, VmxPart};
pub use avic::{AvicConfig, AvicEnable, HostMemory, Inhibit, Inhibits, SvmPart};
pub use boundary::{
    Command, Cost, Event, Exit, GroupId, GuestState, HostInterrupt, Nanos, PcpuId, Run, TaskId, VcpuId, VcpuState, VmId,
};
#[doc(hidden)]
pub use config::PvFaults;
pub use config::{HostConfig, Nic, PcpuPlace, Quota, TaskConfig, TickPhase, VmConfig, VmGroup};
pub use error::ConfigError;
pub use host::Host;
pub use lapic::{ApicRegisters, RegisterPage, SavedTimer};
pub use migration::{RestoreError, SavedVcpu};
pub use sched::config::{BalanceConfig, DomainConfig, Features, SchedConfig, SchedulerKind, ShareRule, YieldRule};
pub use sched::favour::{FavourConfig, YieldFavour};
pub use sched::{GROUP_DEPTH_MAX, Throttling};
#[doc(hidden)]
pub use spin::config::SpinFaults;
pub use spin::config::{PauseControls, PauseExit, PauseHandling, WindowRule, YieldFilters};
pub use vcpu::{MpState, PendingEvents};
