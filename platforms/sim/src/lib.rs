//! Guest, host and machine joined in virtual time.
//!
//! Guest code really executes, on stacks of its own; each shared-memory operation, pause loop, HLT, hypercall and LAPIC
//! access is where time is charged and another pCPU may run. The hypervisor is the `host` crate, the hardware the
//! `machine` crate; this crate lets them meet, and keeps the ledger of where the vCPUs' time went.

mod account;
mod api;
mod apicv;
mod audit;
mod avic;
mod blame;
mod cause;
mod context;
mod convoy;
mod costs;
mod cpu;
mod engine;
mod exits;
mod flow;
mod hash;
mod iommu;
mod ledger;
mod machine;
mod migration;
mod native;
mod net;
mod park;
mod pcpu;
mod probe;
mod process;
mod records;
mod run;
mod stack;
mod thread;
pub mod timeline;
mod tlb;
mod vcpu;
mod watch;
mod word;
mod yields;

pub use api::{CallOff, Config, Convoy, Failure, Group, HostTask, Outcome, Vm, VmOutcome};
pub use audit::Fate;
pub use cause::Cause;
pub use cpu::SimCpu;
pub use machine::{SimContext, SimMachine};
pub use migration::{Audited, Journey, Migration, MigrationFaults, Move, run_migrating};
pub use process::{Waits, run_threads};
pub use run::{record, record_images, run, run_images};
pub use thread::SimThread;
pub use word::{Shared, SimAddress, SimWord};
