//! The boundary: what happens to the host, and what it wants done.
//!
//! - **Order is time.** Commands take effect in the order in which they were appended. Each follows, in time, the
//!   [`Command::Charge`]s that precede it for the pCPU whose event is being handled; so a [`Command::State`] or
//!   [`Command::Ipi`] between two charges happens between them.
//! - **One `Run` per event.** [`Host::handle`](crate::Host::handle) appends exactly one [`Command::Run`] for the
//!   event's pCPU, last of all that concerns this pCPU. Other pCPUs hear of changes by [`Command::Ipi`]. The one
//!   exception is a pCPU that polls for a halted vCPU: its loop sees changes in memory, so it may get charges and a
//!   `Run` at any event, even before its own `Run::Poll` has begun (the newer `Run` replaces the older one).
//! - **Host code is not interruptible.** Interrupts that come while a pCPU executes host code are to be delivered right
//!   after its next `Run` begins: as an exit in guest mode, as [`HardwareEvent::Interrupt`] otherwise.
//! - **A fault precedes the guest's next step.** Replies and faults stand before the `Run` that enters their vCPU.

mod command;
mod cost;
mod event;
mod exit;

pub use command::{Command, Run, VcpuState};
pub use cost::Cost;
pub use event::{Event, HardwareEvent, TaskEvent, VmmEvent};
pub use exit::{Exit, GuestState, HostInterrupt};

/// Host time in nanoseconds since the machine's power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A physical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PcpuId(pub u32);

/// A virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub u32);

/// A virtual CPU: dense over all VMs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuId(pub u32);

/// A schedulable thread of the host: a vCPU's or any other task's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// A task group (cgroup of the cpu controller). Group 0 is the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Where a pCPU sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PcpuPlace {
    /// Socket; one last-level cache each.
    pub socket: u32,
    /// Core within the socket.
    pub core: u32,
    /// Hardware thread within the core.
    pub thread: u32,
}
