//! Programs over guest services: kernel build, PostgreSQL, AIM7, message broker, hackbench, unpacking an archive, booting, CPU hogs, tasks that
//! contend for one lock.
//!
//! **Common random numbers**: each work item draws from streams of its own, split by purpose, so that two runs that differ
//! in a lock do the same work. **No machine**: a program sees system calls and its own time, nothing below.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use holdfast_guest::{Config, GuestImage, Limits, Machine, Os, Program, Start};

mod aim7;
mod amqp;
mod boot;
mod contend;
mod ebizzy;
mod hackbench;
mod hog;
mod ipi;
mod kernbench;
pub mod lock_name;
mod netperf;
mod pgbench;
mod startup;
mod stream;
mod tar;

pub use aim7::Aim7;
pub use amqp::Amqp;
pub use boot::{Boot, Workload};
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
    let program: Box<dyn Program<M>> = match &boot.workload {
        Workload::Idle => Box::new(Idle),
        Workload::Hog(hog) => Box::new(hog::Hogs::new(hog, machine.cpus())),
        Workload::Contend(contend) => Box::new(contend::Contenders::new(contend, machine.cpus())),
        Workload::Hackbench(hackbench) => Box::new(hackbench::Messaging::new(hackbench)),
        Workload::Ipi(ipi) => Box::new(ipi::Calls::new(ipi, machine.cpus())),
        Workload::Ebizzy(ebizzy) => Box::new(ebizzy::Searches::new(ebizzy, machine.cpus())),
        Workload::Kernbench(kernbench) => Box::new(kernbench::Build::new(kernbench)),
        Workload::Aim7(aim7) => Box::new(aim7::Disk::new(aim7)),
        Workload::Pgbench(pgbench) => Box::new(pgbench::Database::new(pgbench)),
        Workload::Startup(startup) => Box::new(startup::Booting::new(startup, machine.cpus())),
        Workload::Tar(tar) => Box::new(tar::Extraction::new(tar)),
        Workload::Netperf(netperf) => Box::new(netperf::Client::new(netperf)),
        Workload::Amqp(amqp) => Box::new(amqp::Messaging::new(amqp, machine.cpus())),
    };
    holdfast_guest::image(machine, config, program)
}

/// Nothing to do.
struct Idle;

impl<M: Machine> Program<M> for Idle {
    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn run(&self, _: &Os<M>, _: Start) {}
}
