//! Programs over guest services: kernel build, PostgreSQL, AIM7, message broker, hackbench, unpacking an archive, booting, CPU hogs, tasks that
//! contend for one lock.
//!
//! **Common random numbers**: each work item draws from streams of its own, split by purpose, so that two runs that differ
//! in a lock do the same work. **No machine**: a program sees system calls and its own time, nothing below.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use holdfast_guest::{Config, GuestImage, Machine};

mod aim7;
mod amqp;
mod boot;
mod contend;
mod ebizzy;
mod hackbench;
mod hog;
mod ipi;
mod kernbench;
pub use holdfast_guest::lock_name;
mod netperf;
mod pgbench;
mod startup;
mod stream;
mod tar;
mod workload;

pub use aim7::Aim7;
pub use amqp::Amqp;
pub use boot::Boot;
pub use contend::Contend;
pub use ebizzy::{Allocation, Ebizzy};
pub use hackbench::{Channel, Hackbench};
pub use hog::Hog;
pub use holdfast_guest::micro::{self, Micro};
pub use holdfast_guest::{ApicOptions, Format, MmapLock, OwnerSpinning};
pub use ipi::{Ipi, Reach};
pub use kernbench::Kernbench;
pub use netperf::Netperf;
pub use pgbench::{Pgbench, Script};
pub use startup::Startup;
pub use stream::stream_seed;
pub use tar::Tar;
pub use workload::Workload;

/// A kernel with its workload, ready to boot on `machine`.
pub fn image<M: Machine>(machine: M, boot: &Boot) -> Box<dyn GuestImage> {
    let config = Config {
        lock: boot.lock,
        hz: boot.hz,
        nopvspin: boot.nopvspin,
        no_steal_acc: boot.no_steal_acc,
        shared_cache: boot.shared_cache,
        owner_spinning: boot.owner_spinning,
        mmap_lock: boot.mmap_lock,
        ttwu_queue: boot.ttwu_queue,
        wake_wide: boot.wake_wide,
        apic: boot.apic,
    };
    let program = boot.workload.program(machine.cpus());
    holdfast_guest::image(machine, config, program)
}
