//! Queued spinlock for very many CPUs (Waiman Long's series of 2014, its mode for 16384 CPUs and more): joining the queue
//! exchanges the whole word.
//!
//! The word is described at [`Numerous`](crate::Numerous). A newcomer exchanges it for (its code, locked), whatever was
//! there, and so may lock a free lock by accident:
//!
//! | what was there | |
//! |---|---|
//! | free, no queue | the lock is the newcomer's |
//! | free, a queue | the lock belongs to the head of the queue: the newcomer unlocks again, and queues |
//! | locked | the newcomer queues |
//!
//! **Exclusion**: the locked byte goes from 0 to 1 only by an atomic exchange. Whose exchange returned 0 holds the lock, or
//! gives it back before it does anything else.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{LOCKED, LOCKED_MASK, Layout, Narrow, Numerous};
use crate::platform::wait_for;
use crate::qspin::{Flavour, Qspin, is_contended, is_locked, lock_queued, try_lock};
use crate::queue::{Nodes, Waiter, successor};
use crate::raw::RawLock;
use crate::steal::take;

/// Queued, for fewer than 4194304 CPUs.
#[derive(Debug)]
pub struct NumerousQspin;

impl<P: Nodes> RawLock<P> for NumerousQspin {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: nothing was taken.
        if cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed).is_err() {
            lock_queued::<P, Self>(cpu, word);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        try_lock(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        Qspin::<Narrow>::unlock(cpu, word);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        is_locked(cpu, word)
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        is_contended(cpu, word)
    }
}

impl<P: Nodes> Flavour<P> for NumerousQspin {
    type Layout = Numerous;

    fn join(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        // ORDERING: AcqRel; publishes the node and shows the predecessor's, as any exchange of the tail. If it takes a
        // free lock, Acquire pairs with the Release in `unlock`.
        let before = cpu.swap(word, me.code | LOCKED, AcqRel);
        let previous = before & Numerous::TAIL_MASK;
        if before == 0 {
            // ORDERING: Relaxed; the lock has been acquired.
            if cpu
                .compare_exchange(word, me.code | LOCKED, LOCKED, Relaxed, Relaxed)
                .is_err()
            {
                Self::hand_over(cpu, word, me, successor(cpu, me.node));
            }
            return None;
        }
        if before & LOCKED_MASK == 0 {
            // ORDERING: Release; passes on what the exchange has acquired, to whoever sees the lock free here.
            cpu.store_low8(word, 0, Release);
        }
        Some(previous)
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        loop {
            // ORDERING: Relaxed; the exchanges acquire.
            let seen = wait_for(cpu, word, Relaxed, |now| now & LOCKED_MASK == 0);
            if seen == me.code {
                // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: somebody joined.
                if cpu.compare_exchange(word, seen, LOCKED, Acquire, Relaxed).is_ok() {
                    return None;
                }
            } else if take(cpu, word) {
                return Some(seen | LOCKED);
            }
        }
    }
}
