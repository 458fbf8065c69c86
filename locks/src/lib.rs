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
//! | [`PreemptableTicket`] | arrival, unless waiters are preempted | spins on the word | [`Platform`] |
//! | [`PvTicket`], [`TailPvTicket`], [`OpportunisticTicket`] | arrival | spins, then halts | [`Paravirt`] |
//! | [`Qspin`] | arrival | spins on a node | [`Nodes`] |
//! | [`UnfairQspin`] | arrival, but any CPU may overtake | spins on a node | [`Nodes`] |
//! | [`SimpleUnfairQspin`] | arrival, but newcomers may overtake | spins on a node | [`Nodes`] |
//! | [`CnaQspin`] | the holder's NUMA node first | spins on a node | [`Numa`] |
//! | [`PvQspin`] | arrival, but a newcomer may overtake once | spins on a node, then halts | [`Nodes`], [`Paravirt`] |
//! | [`HybridPvQspin`] | as above, or free competition while the head of the queue is halted | likewise | likewise |
//! | [`UnfairPvQspin`] | arrival, but any CPU may overtake | likewise | likewise |
//! | [`EarlyPvQspin`] | arrival | likewise | likewise |
//! | [`AheadPvQspin`] | arrival, except for a waiter outside the queue that gives up | likewise | likewise |
//! | [`WatchingQspin`] | arrival | spins on a node, kicks absent CPUs | [`Nodes`], [`Paravirt`] |
//! | [`UnfairWatchingQspin`] | arrival, but newcomers may overtake | likewise | likewise |
//! | [`ExchangeQspin`] | arrival, except between the first two contenders | spins on a node | [`Nodes`] |
//! | [`NumerousQspin`] | arrival, on up to 4194303 CPUs | spins on a node | [`Nodes`] |
//! | [`WideQspin`] | arrival, on up to 2097151 CPUs | spins on a node | [`Nodes`] |
//! | [`WidePvQspin`] | as [`HybridPvQspin`], on up to 2097151 CPUs | spins on a node, then halts | [`Nodes`], [`Paravirt`] |
//!
//! - [`SpinLock`] protects data with one of these locks and returns guards.
//! - [`BootLock`] is a bare word whose algorithm is chosen at run time, as a [`LockKind`]. [`select()`] chooses as
//!   Linux does.
//! - [`Qrwlock`] is a reader-writer lock ([`BootRwlock`] if its kind is chosen at run time), and [`Condvar`] a
//!   condition variable, over any of these locks. [`RequeueCondvar`] is one over the kernel's queues of sleepers.
//!   [`UnqueuedRwlock`] is a reader-writer lock whose waiters all spin on one word, and [`BiasedRwlock`] one whose
//!   readers write no common cache line.
//! - [`Osq`] is the queue of CPUs that spin for a sleeping lock.
//! - [`conformance`] checks that a platform keeps the contract of these traits.
//!
//! # Where things are
//! `kind.rs` lists the kinds, and `guard.rs` has the guards. `exclusive.rs` argues for each lock why it excludes.
//! `thread.rs` says how a thread waits, halts and shares, and `changeover.rs` when its unlocks are exchanges. The tests
//! are a stepping machine over all schedules, and `conformance.rs`, which every platform calls.
#![no_std]

extern crate alloc;

mod backoff;
mod biased_rwlock;
mod cna_qspin;
mod condvar;
pub mod conformance;
mod exchange_qspin;
mod exclusive;
mod guard;
mod hash;
mod kind;
mod layout;
mod numerous_qspin;
mod osq;
mod paravirt;
mod platform;
mod preemptable_ticket;
mod pv_qspin;
mod pv_ticket;
mod pv_wait;
mod qrwlock;
mod qspin;
mod queue;
mod raw;
mod readers;
mod requeue;
mod select;
mod sharing;
mod simple_unfair_qspin;
mod slots;
#[cfg(test)]
mod solo;
mod stats;
mod steal;
mod steps;
mod subword;
mod tail_pv_ticket;
mod tas;
pub mod thread;
mod ticket;
mod ttas;
mod unfair_qspin;
mod unqueued_rwlock;
mod watching_qspin;
mod words;

pub use backoff::{Backoff, Exponential, NoBackoff};
pub use biased_rwlock::BiasedRwlock;
pub use cna_qspin::CnaQspin;
pub use condvar::{Condvar, CondvarSlot, CondvarTable};
pub use exchange_qspin::ExchangeQspin;
pub use exclusive::Exclusive;
pub use guard::{Guard, IrqGuard, SpinLock};
pub use hash::QueueHead;
pub use kind::{BootLock, LockKind, UnknownLock};
pub use layout::{Layout, Narrow, Numerous, PendingLayout, Wide};
pub use numerous_qspin::NumerousQspin;
pub use osq::{Osq, OsqTable};
pub use paravirt::{HaltedCpu, Paravirt, WaitTable};
pub use platform::{Budget, CpuId, Interrupts, Line, Platform, Word};
pub use preemptable_ticket::PreemptableTicket;
pub use pv_qspin::{AheadPvQspin, EarlyPvQspin, HybridPvQspin, PvQspin, PvQueued, UnfairPvQspin, WidePvQspin};
pub use pv_ticket::{OpportunisticTicket, PvTicket};
pub use qrwlock::{BootRwlock, Qrwlock, READERS_MAX};
pub use qspin::{Qspin, WideQspin};
pub use queue::{CpuNodes, Node, NodeTable, Nodes, Numa};
pub use raw::{RawLock, RawRwlock, TryRwlock};
pub use readers::{ReaderLine, Readers};
pub use requeue::{Futexes, RequeueCondvar};
pub use select::{Environment, Selection, select};
pub use sharing::Sharing;
pub use simple_unfair_qspin::SimpleUnfairQspin;
pub use stats::{BUCKETS, Event, LockStats, Recorder, bucket};
pub use steal::{Ahead, Early, Fair, Hybrid, StealOnce, Stealing, Unfair};
pub use steps::{AllSteps, Steps};
pub use tail_pv_ticket::TailPvTicket;
pub use tas::Tas;
pub use ticket::Ticket;
pub use ttas::Ttas;
pub use unfair_qspin::UnfairQspin;
pub use unqueued_rwlock::UnqueuedRwlock;
pub use watching_qspin::{UnfairWatchingQspin, Watching, WatchingQspin};
