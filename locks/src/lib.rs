//! Spinlocks for virtual machines that share too few CPUs.
//!
//! Every lock is one 32-bit word and an algorithm over a [`Platform`]: the CPU that runs the caller, which performs each
//! memory operation, waits on a word, halts and kicks. The caller passes its CPU (`lock.lock(&cpu)`), so one source runs
//! on host threads, under model checkers, in virtual time and in a real guest, with no `cfg` and no global.
#![no_std]

extern crate alloc;

mod paravirt;
mod platform;
mod queue;
mod stats;
mod subword;

pub use paravirt::{LockWaiting, WaitTable};
pub use platform::{Budget, CpuId, Interrupts, Nodes, Numa, Paravirt, Platform, Word};
pub use queue::{NODES_PER_CPU, Node, NodeTable};
pub use stats::{Event, Recorder};
