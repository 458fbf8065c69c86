//! Queued spinlock for very many CPUs (Waiman Long's series of 2014, its mode for 16384 CPUs and more): a CPU joins the
//! queue by exchanging the whole word.
//!
//! The word is described at [`Numerous`](crate::Numerous). A newcomer exchanges it for (its code, locked), whatever its
//! previous value, and so may lock a free lock by accident:
//!
//! | previous value | |
//! |---|---|
//! | free, no queue | the newcomer holds the lock |
//! | free, a queue | the lock belongs to the head of the queue: the newcomer unlocks it again and queues |
//! | locked | the newcomer queues |
//!
//! **Exclusion**: the locked byte goes from 0 to 1 only by an atomic exchange. The CPU whose exchange returned 0 holds
//! the lock, or releases it before it does anything else.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::cpu::layout::{LOCKED, LOCKED_MASK, Layout, Narrow, Numerous};
use crate::cpu::platform::wait_for;
use crate::cpu::queue::{Nodes, Waiter, successor};
use crate::raw::{Described, Instead, RawLock};
use crate::spin::qspin::{Flavor, Qspin, is_contended, is_locked, lock_queued, try_lock};
use crate::spin::steal::take;

/// A queued lock for fewer than 4194304 CPUs, kept for comparison with [`Qspin`](crate::Qspin) and its layout
/// [`Wide`](crate::Wide).
///
/// ```
/// use holdfast_locks::{Nodes, NumerousQspin, SpinLock};
///
/// fn count<P: Nodes>(cpu: &P, events: &SpinLock<u64, NumerousQspin, P::Word>) {
///     *events.lock(cpu) += 1;
/// }
/// ```
#[derive(Debug)]
pub struct NumerousQspin;

impl Described for NumerousQspin {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = Numerous::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "proposed in 2014, for 16384 CPUs and more";
}

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

impl<P: Nodes> Flavor<P> for NumerousQspin {
    type Layout = Numerous;

    fn join(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        // ORDERING: AcqRel; as for any exchange of the tail, Release publishes the node and Acquire makes the
        // predecessor's node visible. If the exchange takes a free lock, Acquire pairs with the Release in `unlock`.
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
            // ORDERING: Release; passes on what the exchange has acquired to the CPU that sees the lock free here.
            cpu.store_low8(word, 0, Release);
        }
        Some(previous)
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        loop {
            // ORDERING: Relaxed; the exchanges acquire.
            let seen = wait_for(cpu, word, Relaxed, |now| now & LOCKED_MASK == 0);
            if seen == me.code {
                // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: another CPU has joined.
                if cpu.compare_exchange(word, seen, LOCKED, Acquire, Relaxed).is_ok() {
                    return None;
                }
            } else if take(cpu, word) {
                return Some(seen | LOCKED);
            }
        }
    }
}
