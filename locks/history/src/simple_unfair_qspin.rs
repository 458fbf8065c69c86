//! Queued spinlock that newcomers may take past its queue (version 5 of Waiman Long's series of 2014, its simple unfair
//! lock): stealing happens on arrival only.
//!
//! The word is that of [`Qspin`](holdfast_locks::Qspin) without the pending bit, which would block stealing. A newcomer
//! tries once, takes a free lock even if other CPUs wait, and otherwise queues. A waiter behind the head never tries:
//! in this the lock differs from [`UnfairQspin`](holdfast_locks::UnfairQspin), which a later patch of the series made
//! of it.
//!
//! - **Exclusion**: the locked byte goes from 0 to 1 only by an exchange that returns 0.
//! - Waiters become the head in order of arrival. The head competes with newcomers and may be overtaken without limit.

use core::sync::atomic::Ordering::{Relaxed, Release};

use holdfast_locks::parts::{Flavor, LOCKED, LOCKED_MASK, Waiter, is_contended, lock_queued, take};
use holdfast_locks::{
    Described, Exclusive, Instead, Layout, Narrow, Nodes, Platform, RawLock, Stealing, Unfair, wait_for,
};

/// A queued lock whose waiters spin, and that newcomers may take past the queue. For fewer than 16384 CPUs.
#[derive(Debug)]
pub struct SimpleUnfairQspin;

impl Described for SimpleUnfairQspin {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = Narrow::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "proposed in 2014, in later versions of the series";
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: the locked byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes> Exclusive<P> for SimpleUnfairQspin {}

impl<P: Nodes> RawLock<P> for SimpleUnfairQspin {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if !take(cpu, word) {
            lock_queued::<P, Self>(cpu, word);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        Unfair::try_lock(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        // ORDERING: Release; pairs with the Acquire in `take`.
        cpu.store_low8(word, 0, Release);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        cpu.load(word, Relaxed) & LOCKED_MASK != 0
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        is_contended(cpu, word)
    }
}

#[expect(unsafe_code, reason = "implements the steps of a queued lock")]
// SAFETY: **Exclusion**, as above. The queue is as in `Qspin`.
unsafe impl<P: Nodes> Flavor<P> for SimpleUnfairQspin {
    type Layout = Narrow;

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        Unfair::try_lock(cpu, word)
    }

    fn may_take(word: u32) -> bool {
        Unfair::may_steal(word)
    }

    fn wait_at_head(cpu: &P, word: &P::Word, _me: &Waiter<'_, P::Word>) -> Option<u32> {
        loop {
            // ORDERING: Relaxed; the exchange acquires.
            wait_for(cpu, word, Relaxed, Unfair::may_steal);
            if take(cpu, word) {
                return Some(held(cpu, word));
            }
        }
    }
}

/// Returns the word of a lock that the caller holds.
pub(crate) fn held<P: Platform>(cpu: &P, word: &P::Word) -> u32 {
    // ORDERING: Relaxed; the lock is held.
    cpu.load(word, Relaxed) | LOCKED
}
