//! Joins guest, host and machine in virtual time.
//!
//! Guest code really executes, on stacks of its own. Time is charged, and another pCPU may run, at each shared-memory
//! operation, pause loop, HLT, hypercall and LAPIC access. The hypervisor is the `host` crate, the hardware the
//! `machine` crate. This crate joins them, and keeps the ledger of where the vCPUs' time went.
//!
//! Rooms, from below: `core` (time, the engine), `memory`, `cpus`, `apic`, `flows`, `guests`, `nested`, and `run` on
//! top. The engine emits what happens to `books`, which change nothing but themselves.

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
pub use guests::lock::{SimLock, lock_kind};
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
