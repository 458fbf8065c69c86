//! Spinlocks for virtual machines that share too few CPUs.
//!
//! Every lock is one 32-bit word and an algorithm over a [`Platform`]: the CPU that runs the caller, which performs each
//! memory operation, waits on a word, halts and kicks. The caller passes its CPU (`lock.lock(&cpu)`), so one source runs
//! on host threads, under model checkers, in virtual time and in a real guest, with no `cfg` and no global.
#![no_std]

extern crate alloc;

mod backoff;
pub mod conformance;
mod guard;
mod kind;
mod paravirt;
mod platform;
mod pv_ticket;
mod queue;
mod raw;
mod select;
mod stats;
mod steps;
mod subword;
mod tas;
mod ticket;
mod ttas;

pub use backoff::{Backoff, Exponential, NoBackoff};
pub use guard::{Guard, IrqGuard, SpinLock};
pub use kind::{BootLock, LockKind, UnknownLock};
pub use paravirt::{LockWaiting, WaitTable};
pub use platform::{Budget, CpuId, Interrupts, Nodes, Numa, Paravirt, Platform, Word};
pub use pv_ticket::PvTicket;
pub use queue::{NODES_PER_CPU, Node, NodeTable};
pub use raw::{Exclusive, RawLock};
pub use select::{Environment, Selection, select};
pub use stats::{BUCKETS, Event, LockStats, PvTicketStats, Recorder, bucket};
pub use steps::{AllSteps, Steps};
pub use tas::Tas;
pub use ticket::Ticket;
pub use ttas::Ttas;
