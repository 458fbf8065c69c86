//! Joins guest, host and machine in virtual time.
//!
//! Guest code really executes, on stacks of its own. Time is charged, and another pCPU may run, at each shared-memory
//! operation, pause loop, HLT, hypercall and LAPIC access. The hypervisor is the `host` crate, the hardware the
//! `machine` crate. This crate joins them, and keeps the ledger of where the vCPUs' time went.
//!
//! Rooms, from below: `core` (time, the engine), `memory`, `cpus`, `apic`, `flows`, `guests`, `nested`, and `run` on
//! top. The engine emits what happens to `books`, which change nothing but themselves.
//!
//! # Where things are
//! All flows of a run execute on one thread, one at a time. A run begins in `run/mod.rs` `run`.
//! - `run/` builds, plays and gathers; `core/` is clock and engine; `flows/` stacks and the switch between them.
//! - `cpus/`: pCPUs, threads of a core, vCPUs, exits, commands and entries. `memory/`: lines, words, parked spins,
//!   TLBs, nested walks, nodes and records. `apic/`: hardware that delivers interrupts.
//! - `guests/`: the guest's view, bare metal, threads of a program, devices. `nested/`: guests whose kernel is the
//!   `host` crate again (`nested/kernel.rs` `run_guest`).
//! - `books/`: what is written down (hash, ledger, blame, convoys, audit, counters, timeline). They are folds over the
//!   values of `happened.rs` `Happened` (`core/engine.rs` `emit`, `fold.rs` `observe`).
//!
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

mod apic;
mod books;
mod core;
mod cpus;
mod flows;
mod guests;
mod memory;
mod nested;
mod run;

pub use self::core::failure::{CallOff, Failure};
pub use books::audit::Fate;
pub use books::cause::Cause;
pub use books::convoy::Convoy;
pub use books::timeline;
pub use guests::cpu::SimCpu;
pub use guests::machine::{SimContext, SimMachine};
pub use guests::migration::{Destination, Journey, Migration, MigrationFaults, Move};
pub use guests::precopy::Precopy;
pub use guests::process::Waits;
pub use guests::thread::SimThread;
pub use memory::dirty::DirtyLog;
pub use memory::word::{Shared, SimAddress, SimWord};
pub use run::config::{Config, Group, HostTask, Stay, Vm};
pub use run::migrating::{Audited, run_migrating};
pub use run::outcome::{Outcome, VmOutcome};
pub use run::{record, record_images, run, run_images, run_threads};
