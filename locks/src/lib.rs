//! Spinlocks for virtual machines that share too few CPUs.
//!
//! A lock is one 32-bit word and an algorithm over a [`Platform`], which stands for the CPU that executes the caller.
//! The platform performs each memory operation, waits on a word, halts and kicks. The caller passes its CPU
//! (`lock.lock(&cpu)`). So the same source runs on host threads, under model checkers, in virtual time and in a real
//! guest, without `cfg` and without globals.
//!
//! | lock | order | while it waits | needs |
//! |---|---|---|---|
//! | [`Tas`], [`Ttas`] | none | spins on the word | [`Platform`] |
//! | [`Ticket`] | arrival | spins on the word | [`Platform`] |
//! | [`PvTicket`] | arrival | spins, then halts | [`Paravirt`] |
//! | [`Qspin`] | arrival | spins on a node | [`Nodes`] |
//! | [`UnfairQspin`] | arrival, but any CPU may overtake | spins on a node | [`Nodes`] |
//! | [`PvQspin`] | arrival, but a newcomer may overtake once | spins on a node, then halts | [`Nodes`], [`Paravirt`] |
//! | [`HybridPvQspin`] | as above, or free competition while the head of the queue is halted | likewise | likewise |
//! | [`UnfairPvQspin`] | arrival, but any CPU may overtake | likewise | likewise |
//! | [`WideQspin`] | arrival, on up to 2097151 CPUs | spins on a node | [`Nodes`] |
//! | [`WidePvQspin`] | as [`HybridPvQspin`], on up to 2097151 CPUs | spins on a node, then halts | [`Nodes`], [`Paravirt`] |
//!
//! - [`SpinLock`] protects data with one of these locks and returns guards.
//! - [`BootLock`] is a bare word whose algorithm is chosen at run time, as a [`LockKind`]. [`select()`] chooses as
//!   Linux does.
//! - [`Qrwlock`] is a reader-writer lock over any of these locks ([`BootRwlock`] if its kind is chosen at run time).
//!   [`BiasedRwlock`] is one whose readers write no common cache line, [`UnqueuedRwlock`]
//!   one without a queue.
//! - [`RequeueCondvar`] is a condition variable over the kernel's queues of sleepers.
//! - [`Osq`] is the queue of CPUs that spin for a sleeping lock.
//! - [`parts`] has the queued lock in parts, for variants in other crates.
//! - [`conformance`] checks that a platform keeps the contract of these traits.
//!
//! # Where things are
//! `kind.rs` lists the kinds, and `guard.rs` has the guards. `exclusive.rs` argues for each lock why it excludes.
//! `thread.rs` says how a thread waits, halts and shares, and `changeover.rs` when its unlocks are exchanges. The tests
//! are a stepping machine over all schedules, and `conformance.rs`, which every platform calls.
#![no_std]

extern crate alloc;

pub mod conformance;
mod cpu;
pub mod parts;
mod raw;
mod rw;
mod sleep;
mod spin;

pub use cpu::*;
pub use raw::{Described, Description, Instead, RawLock, RawRwlock, TryRwlock};
pub use rw::*;
pub use sleep::*;
pub use spin::*;
