//! The promise of mutual exclusion, and for each lock the argument why it holds.

#![expect(
    unsafe_code,
    reason = "`Exclusive` promises exclusion, on which the guards' memory safety rests"
)]

use crate::cpu::layout::{Layout, PendingLayout};
use crate::cpu::paravirt::Paravirt;
use crate::cpu::platform::Platform;
use crate::cpu::queue::Nodes;
use crate::cpu::steps::Steps;
use crate::raw::RawLock;
use crate::spin::pv_qspin::PvQueued;
use crate::spin::pv_ticket::PvTicket;
use crate::spin::qspin::Qspin;
use crate::spin::steal::Stealing;
use crate::spin::tas::TestAndSet;
use crate::spin::ticket::Ticket;
use crate::spin::unfair_qspin::UnfairQspin;

/// A [`RawLock`] that guarantees mutual exclusion.
///
/// # Safety
/// **Exclusion**: a CPU holds the lock from the return of `lock`, or of `try_lock` with `true`, until it calls
/// `unlock`. At most one CPU holds the lock at a time. The next holder sees every write that the previous one made
/// before `unlock`.
pub unsafe trait Exclusive<P: Platform>: RawLock<P> {}

// SAFETY: **Exclusion** of `tas`: only a CPU that has exchanged a 0 for a 1 holds the lock.
unsafe impl<P: Platform, const LOOKS: bool> Exclusive<P> for TestAndSet<LOOKS> {}
// SAFETY: **Exclusion** of `ticket`: one ticket is served at a time, and it has one owner.
unsafe impl<P: Platform> Exclusive<P> for Ticket {}
// SAFETY: **Exclusion** of `ticket`: halting only delays a waiter. If `S` leaves steps out, the unsafe implementation
// of `Steps` answers for the consequences.
unsafe impl<P: Paravirt, S: Steps> Exclusive<P> for PvTicket<S> {}
// SAFETY: **Exclusion** of `qspin`: there are three ways to set the locked byte, and they exclude each other.
unsafe impl<P: Nodes, L: PendingLayout> Exclusive<P> for Qspin<L> {}
// SAFETY: **Exclusion** of `pv_qspin`: the locked byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes + Paravirt, T: Stealing, L: PendingLayout, S: Steps> Exclusive<P> for PvQueued<T, L, S> {}
// SAFETY: **Exclusion** of `unfair_qspin`: the locked byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes, L: Layout> Exclusive<P> for UnfairQspin<L> {}
