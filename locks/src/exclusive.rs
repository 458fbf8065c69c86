//! The promise of mutual exclusion, and why each lock keeps it.

#![expect(
    unsafe_code,
    reason = "`Exclusive` promises exclusion, on which the guards' memory safety rests"
)]

use crate::backoff::Backoff;
use crate::cna_qspin::CnaQspin;
use crate::exchange_qspin::ExchangeQspin;
use crate::layout::{Layout, PendingLayout};
use crate::numerous_qspin::NumerousQspin;
use crate::paravirt::Paravirt;
use crate::platform::Platform;
use crate::preemptable_ticket::PreemptableTicket;
use crate::pv_qspin::PvQueued;
use crate::pv_ticket::PvTicket;
use crate::qspin::Qspin;
use crate::queue::{Nodes, Numa};
use crate::raw::RawLock;
use crate::steal::Stealing;
use crate::steps::Steps;
use crate::tas::Tas;
use crate::ticket::Ticket;
use crate::ttas::Ttas;
use crate::unfair_qspin::UnfairQspin;

/// A [`RawLock`] that keeps its promise.
///
/// # Safety
/// **Exclusion**: from the return of `lock`, or of `try_lock` with true, until `unlock` is called, no other call returns
/// so; and the next holder sees what was written before `unlock`.
pub unsafe trait Exclusive<P: Platform>: RawLock<P> {}

// SAFETY: **Exclusion** of `tas`: only who exchanges a 0 for a 1 holds it.
unsafe impl<P: Platform, B: Backoff> Exclusive<P> for Tas<B> {}
// SAFETY: **Exclusion** of `ttas`, which is that of `tas`.
unsafe impl<P: Platform, B: Backoff> Exclusive<P> for Ttas<B> {}
// SAFETY: **Exclusion** of `ticket`: one ticket is served, and it has one owner.
unsafe impl<P: Platform> Exclusive<P> for Ticket {}
// SAFETY: **Exclusion** of `pv_ticket`: as `ticket`; halting only delays a waiter. With steps left out, whoever
// implemented `Steps` answers for it.
unsafe impl<P: Paravirt, S: Steps> Exclusive<P> for PvTicket<S> {}
// SAFETY: **Exclusion** of `qspin`: three ways to set the locked byte, which exclude each other.
unsafe impl<P: Nodes, L: PendingLayout> Exclusive<P> for Qspin<L> {}
// SAFETY: **Exclusion** of `pv_qspin`: the locked byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes + Paravirt, T: Stealing, L: PendingLayout, S: Steps> Exclusive<P> for PvQueued<T, L, S> {}
// SAFETY: **Exclusion** of `unfair_qspin`: the locked byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes, L: Layout> Exclusive<P> for UnfairQspin<L> {}
// SAFETY: **Exclusion** of `cna_qspin`, which is that of `qspin`: there is one head of the queue.
unsafe impl<P: Numa, const T: u32, const S: u32> Exclusive<P> for CnaQspin<T, S> {}
// SAFETY: **Exclusion** of `exchange_qspin`: the lock byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes> Exclusive<P> for ExchangeQspin {}
// SAFETY: **Exclusion** of `numerous_qspin`: as before, and what is taken by accident is given back.
unsafe impl<P: Nodes> Exclusive<P> for NumerousQspin {}
// SAFETY: **Exclusion** of `preemptable_ticket`: the hold bit has one setter.
unsafe impl<P: Platform, const SHIFT: u32> Exclusive<P> for PreemptableTicket<SHIFT> {}
