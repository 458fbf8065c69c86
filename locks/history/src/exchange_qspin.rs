//! Queued spinlock with an exchange for two contenders (Waiman Long's x86 series of 2014, before the pending bit): the
//! second contender waits without a node, and a third one may overtake it.
//!
//! ```text
//!  31        18 17 16 15     8 7      0
//! +------------+-----+--------+--------+
//! | CPU + 1    | idx | wait   | lock   |
//! +------------+-----+--------+--------+
//! ```
//!
//! If a contender finds no queue, but the lock held or a waiter, it exchanges lock and wait for (1, 1). The previous
//! values decide:
//!
//! | lock, wait | |
//! |---|---|
//! | 0, 0 | the caller holds the lock, and has set wait in error |
//! | 1, 0 | the caller is the waiter |
//! | 0, 1 | the caller holds the lock and has overtaken the waiter, which keeps waiting |
//! | 1, 1 | nothing has changed: the caller queues |
//!
//! - **Exclusion**: the lock byte goes from 0 to 1 only by an atomic exchange that returns 0.
//! - **One waiter**: the CPU that found (1, 0) owns the wait byte until it exchanges (0, 1) for (1, 0). If the byte was
//!   set in error it has no owner, and the CPU that set it clears it.
//! - Queued contenders are served in order, after the waiter.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use holdfast_locks::parts::{Flavor, LOCKED, LOCKED_MASK, Waiter, is_contended, is_locked, lock_queued, try_lock};
use holdfast_locks::{Described, Event, Exclusive, Instead, Layout, Narrow, Nodes, Qspin, RawLock, wait_for};

const WAITING: u32 = 1 << 8;
const BOTH: u16 = (LOCKED | WAITING) as u16;

/// A queued lock with an exchange for two contenders, kept for comparison with [`Qspin`](holdfast_locks::Qspin).
///
/// For fewer than 16384 CPUs.
///
/// ```
/// use holdfast_history::ExchangeQspin;
/// use holdfast_locks::{Nodes, SpinLock};
///
/// fn count<P: Nodes>(cpu: &P, events: &SpinLock<u64, ExchangeQspin, P::Word>) {
///     *events.lock(cpu) += 1;
/// }
/// ```
///
/// # Cost
/// Two contenders share only the lock's cache line. A waiter may be overtaken once by each newcomer that finds the lock
/// free.
#[derive(Debug)]
pub struct ExchangeQspin;

impl Described for ExchangeQspin {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = Narrow::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "proposed in 2014: the queued lock of version 5";
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: the lock byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes> Exclusive<P> for ExchangeQspin {}

impl<P: Nodes> RawLock<P> for ExchangeQspin {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: nothing was taken.
        if let Err(seen) = cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed) {
            lock_slow(cpu, word, seen);
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

#[cold]
fn lock_slow<P: Nodes>(cpu: &P, word: &P::Word, seen: u32) {
    if seen != LOCKED && seen != WAITING {
        return lock_queued::<P, ExchangeQspin>(cpu, word);
    }
    // ORDERING: Acquire; if the lock is free this takes it, and pairs with the Release in `unlock`.
    match u32::from(cpu.swap_low16(word, BOTH, Acquire)) {
        0 => {
            // ORDERING: Relaxed; no CPU waits for it.
            cpu.store_byte1(word, 0, Relaxed);
        }
        LOCKED => {
            cpu.contention_begin(word);
            wait_alone(cpu, word);
            cpu.contention_end(word);
        }
        WAITING => {}
        _ => return lock_queued::<P, ExchangeQspin>(cpu, word),
    }
    cpu.count(Event::LockPending);
}

/// Waits as the owner of the wait byte until the caller holds the lock.
fn wait_alone<P: Nodes>(cpu: &P, word: &P::Word) {
    loop {
        // ORDERING: Relaxed; the exchange acquires.
        wait_for(cpu, word, Relaxed, |now| now & LOCKED_MASK == 0);
        // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: overtaken.
        if cpu
            .compare_exchange_low16(word, WAITING as u16, LOCKED as u16, Acquire, Relaxed)
            .is_ok()
        {
            return;
        }
    }
}

#[expect(unsafe_code, reason = "implements the steps of a queued lock")]
// SAFETY: **Exclusion**, as above. The queue is as in `Qspin`.
unsafe impl<P: Nodes> Flavor<P> for ExchangeQspin {
    type Layout = Narrow;

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        let free = |now: u32| now as u16 == 0;
        let alone = me.code() | LOCKED;
        loop {
            // ORDERING: Relaxed; the exchanges acquire.
            let seen = wait_for(cpu, word, Relaxed, |now| free(now) || now == alone);
            // ORDERING: Acquire for the first and the last exchange; pairs with the Release in `unlock`. Relaxed for
            // the second: it does not take the lock but only replaces the tail by the wait byte.
            if seen == me.code() {
                if cpu.compare_exchange(word, seen, LOCKED, Acquire, Relaxed).is_ok() {
                    return None;
                }
            } else if seen == alone {
                if cpu
                    .compare_exchange(word, seen, LOCKED | WAITING, Relaxed, Relaxed)
                    .is_ok()
                {
                    wait_alone(cpu, word);
                    return None;
                }
            } else if cpu
                .compare_exchange_low16(word, 0, LOCKED as u16, Acquire, Relaxed)
                .is_ok()
            {
                return Some(seen | LOCKED);
            }
        }
    }
}
