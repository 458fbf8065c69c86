//! Joins guest, host and machine in virtual time.
//!
//! Guest code really executes, on stacks of its own. Time is charged, and another pCPU may run, at each shared-memory
//! operation, pause loop, HLT, hypercall and LAPIC access. The hypervisor is the `host` crate, the hardware the
//! `machine` crate. This crate joins them, and keeps the ledger of where the vCPUs' time went.
//!
//! # Rooms
//! Each room names only rooms above it in this list:
//! - values: `core` (virtual time, what it is spent on, why a run ends), `memory` (words, lines, TLBs), `stacks`,
//!   `network` (the host's side of a guest's network device);
//! - state: `parts` (CPUs, hardware, guests), `migration`, `config` (what a run is made of), `tasks` (of the host);
//! - `books`: what is written down. They change nothing but themselves;
//! - `engine`: one run's whole state, and how flows of guest code reach it;
//! - `events`: what happens, as methods of the engine;
//! - `flows`: what guest code does between two events;
//! - `guests`: what guest code sees, and `nested`, guests with guests of their own;
//! - `run`: builds the machine, plays the events, and gathers the outcome.
//!
//! A lower room reaches a higher one only where a flow executes a guest's kernel, which is an image to it
//! ([`GuestImage`](holdfast_guest::GuestImage)).
//!
//! All flows of a run execute on one thread, one at a time. A run begins in `run/mod.rs` `run`.
//! `cargo run --release -p holdfast-sim --example torture` looks for faults in random machines.
//!
//! # What it charges
//! - A flow may be ahead by at most one microsecond of private work, so an interrupt is taken at most that much late.
//! - While a vCPU waits for a lock, all of its guest time is waiting, and the lock's own clock of culprits divides it.
//!   A holder that itself waits for a preempted one passes the blame on.
//! - After a switch a thread fetches again what others can have displaced: for at most as long as they ran, up to
//!   `cache_refill`.
//! - A program's thread is a task of the host's scheduler: a halt is a sleep in a futex, a kick its wakeup, giving way
//!   is `sched_yield`. No vCPU stands in between.
//! - On bare metal the host's run-queue locks are not contended. A pCPU that leaves for a vCPU keeps its loaded tables,
//!   as an idle one does. The ledger has a record per pCPU: its flows' work, *runnable*, *idle*.

mod books;
mod config;
mod core;
mod engine;
mod events;
mod flows;
mod guests;
mod memory;
mod migration;
mod nested;
mod network;
mod parts;
mod run;
mod stacks;
mod tasks;

pub use self::core::cause::Cause;
pub use self::core::failure::{CallOff, Failure};
pub use books::audit::Fate;
pub use books::convoy::Convoy;
pub use books::timeline;
pub use config::{Config, DiskConfig, Group, HostTask, Stay, Vm, VmmConfig};
pub use guests::cpu::SimCpu;
pub use guests::lock::{SimLock, lock_kind};
pub use guests::machine::{SimContext, SimMachine};
pub use guests::process::Waits;
pub use guests::thread::SimThread;
pub use memory::dirty::DirtyLog;
pub use memory::word::{Shared, SimAddress, SimWord};
pub use migration::journey::{Destination, Journey, Migration, MigrationFaults, Move};
pub use migration::precopy::{Migrated, Precopy};
#[doc(hidden)]
pub use network::DeviceQueue;
pub use run::migrating::{Audited, run_migrating};
pub use run::outcome::{Outcome, VmOutcome};
pub use run::{record, record_images, run, run_images, run_threads};
