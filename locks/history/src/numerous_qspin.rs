//! Queued spinlock for very many CPUs (Waiman Long's series of 2014, its mode for 16384 CPUs and more): a CPU joins the
//! queue by exchanging the whole word.
//!
//! The word is described at [`Numerous`](Numerous). A newcomer exchanges it for (its code, locked), whatever its
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

use holdfast_locks::parts::{
    Flavor, LOCKED, LOCKED_MASK, Waiter, is_contended, is_locked, lock_queued, successor, swap_bits, take, try_lock,
};
use holdfast_locks::{Described, Exclusive, Instead, Layout, Narrow, Nodes, Platform, Qspin, RawLock, wait_for};

/// A queued lock for fewer than 4194304 CPUs, kept for comparison with [`Qspin`](holdfast_locks::Qspin) and its layout
/// [`Wide`](holdfast_locks::Wide).
///
/// ```
/// use holdfast_history::NumerousQspin;
/// use holdfast_locks::{Nodes, SpinLock};
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

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: the locked byte leaves 0 only by an exchange. A CPU whose exchange took the lock past its
// queue releases it before its call returns.
unsafe impl<P: Nodes> Exclusive<P> for NumerousQspin {}

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

#[expect(unsafe_code, reason = "implements the steps of a queued lock")]
// SAFETY: **Exclusion**, as above. The queue is as in `Qspin`.
unsafe impl<P: Nodes> Flavor<P> for NumerousQspin {
    type Layout = Numerous;

    fn join(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        // ORDERING: AcqRel; as for any exchange of the tail, Release publishes the node and Acquire makes the
        // predecessor's node visible. If the exchange takes a free lock, Acquire pairs with the Release in `unlock`.
        let before = cpu.swap(word, me.code() | LOCKED, AcqRel);
        let previous = before & Numerous::TAIL_MASK;
        if before == 0 {
            // ORDERING: Relaxed; the lock has been acquired.
            if cpu
                .compare_exchange(word, me.code() | LOCKED, LOCKED, Relaxed, Relaxed)
                .is_err()
            {
                Self::hand_over(cpu, word, me, successor(cpu, me.node()));
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
            if seen == me.code() {
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

/// The layout of [`NumerousQspin`], for fewer than 4194304 CPUs, without a pending bit.
///
/// ```text
///  31              10 9    8 7      0
/// +------------------+------+--------+
/// | CPU + 1          | idx  | locked |
/// +------------------+------+--------+
/// ```
#[derive(Debug)]
pub struct Numerous;

#[expect(unsafe_code, reason = "implements the layout")]
// SAFETY: the tail is exchanged by its mask.
unsafe impl Layout for Numerous {
    const TAIL_SHIFT: u32 = 8;

    #[inline]
    fn swap_tail<P: Platform>(cpu: &P, word: &P::Word, code: u32) -> u32 {
        // ORDERING: AcqRel; as in `Narrow`.
        swap_bits(cpu, word, Self::TAIL_MASK, code, AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_locks::CpuId;

    use super::*;

    #[test]
    fn codes_name_the_first_and_the_last_cpu() {
        assert_eq!(Numerous::CPUS_MAX, 4_194_303);
        for cpu in [0, 1, 1 << 21, (1 << 22) - 2] {
            for index in 0..4 {
                let code = Numerous::encode(CpuId(cpu), index);
                assert_ne!(code, 0);
                assert_eq!(code & !Numerous::TAIL_MASK, 0, "code reaches out of the tail");
                assert_eq!(Numerous::decode(code), (CpuId(cpu), index));
            }
        }
    }
}
