//! Programs that use a guest kernel's services: kernel build, PostgreSQL, AIM7, dbench, message broker, hackbench,
//! unpacking an archive, booting, network requests, IPIs, page faults, CPU hogs, and tasks that contend for one lock.
//!
//! **Common random numbers**: each work item draws from streams of its own, split by purpose, so that two runs that
//! differ in a lock do the same work. **No machine**: a program uses system calls and its own time, nothing below.
//!
//! `workload.rs` is the one list of programs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use holdfast_guest::{GuestImage, Machine};

mod aim7;
mod amqp;
mod boot;
mod contend;
mod dbench;
mod ebizzy;
mod hackbench;
mod hog;
mod ipi;
mod kernbench;
mod load;
mod netperf;
mod own;
mod pgbench;
mod recorded;
mod start;
mod startup;
mod stream;
mod tar;
mod workload;

pub use aim7::Aim7;
pub use amqp::Amqp;
pub use boot::Boot;
pub use contend::Contend;
pub use dbench::Dbench;
pub use ebizzy::{Allocation, Ebizzy};
pub use hackbench::{Channel, Hackbench};
pub use hog::Hog;
pub use holdfast_guest::micro::{self, Micro};
pub use holdfast_guest::{
    Config as KernelConfig, Format, Idle, MmapLock, OwnerSpinning, Placement, RwLocks, lock_name,
};
pub use holdfast_guest::{Cpus, GuestPolicy, GuestPolicyKind, Placed, StealGovernor, TaskId};
pub use holdfast_guest::{KernelProfile, LineProfile, LockClass, LockProfile, Operation, OperationProfile, Scope};
pub use holdfast_guest::{Parameter, Parameters, Place};
pub use ipi::{Ipi, Reach};
pub use kernbench::Kernbench;
pub use netperf::Netperf;
pub use own::OwnWorkload;
pub use pgbench::Pgbench;
pub use recorded::{Recorded, RecordedHost, Step, Thread, Tick, fault as recorded_fault};
pub use start::StartLine;
pub use startup::Startup;
pub use stream::stream_seed;
pub use tar::Tar;
pub use workload::{Load, Workload, share_of};

/// Makes a kernel with its workload, ready to boot on `machine`.
pub fn image<M: Machine>(machine: M, boot: &Boot) -> Box<dyn GuestImage> {
    // Recorded threads bring no program for a kernel: they are all that runs.
    if let Workload::Recorded(recorded) = &boot.workload {
        return recorded::image(machine, recorded);
    }
    let program = boot.workload.program(machine.cpus());
    holdfast_guest::image(machine, boot.kernel.clone(), program)
}
