//! Queued spinlock with a two-contender exchange (Waiman Long's x86 series of 2014, before the pending bit): the second
//! contender waits without a node, and may swap places with a third.
//!
//! ```text
//!  31        18 17 16 15     8 7      0
//! +------------+-----+--------+--------+
//! | CPU + 1    | idx | wait   | lock   |
//! +------------+-----+--------+--------+
//! ```
//!
//! A contender that finds the lock held or awaited, and no queue, exchanges lock and wait for (1, 1). What was there:
//!
//! | lock, wait | |
//! |---|---|
//! | 0, 0 | the lock is the caller's, and wait was set in error |
//! | 1, 0 | the caller is the waiter |
//! | 0, 1 | the lock is the caller's, past the waiter, who stays one |
//! | 1, 1 | nothing has changed: to the queue |
//!
//! - **Exclusion**: the lock byte goes from 0 to 1 only by an atomic exchange that returns 0.
//! - **One waiter**: the wait byte has an owner from 1, 0 to its exchange of (0, 1) for (1, 0). Set in error it has none,
//!   and who set it clears it.
//! - Three or more contenders are served in order; the waiter comes before the queue.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{LOCKED, LOCKED_MASK, Narrow};
use crate::platform::wait_for;
use crate::qspin::{Flavour, Qspin, is_contended, is_locked, lock_queued, try_lock};
use crate::queue::{Nodes, Waiter};
use crate::raw::RawLock;
use crate::stats::Event;

const WAITING: u32 = 1 << 8;
const BOTH: u16 = (LOCKED | WAITING) as u16;

/// Queued, with an exchange for two contenders.
#[derive(Debug)]
pub struct ExchangeQspin;

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
            // ORDERING: Relaxed; nobody waits on it.
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

/// The caller owns the wait byte: waits until it has the lock.
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

impl<P: Nodes> Flavour<P> for ExchangeQspin {
    type Layout = Narrow;

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        let free = |now: u32| now as u16 == 0;
        let alone = me.code | LOCKED;
        loop {
            // ORDERING: Relaxed; the exchanges acquire.
            let seen = wait_for(cpu, word, Relaxed, |now| free(now) || now == alone);
            // ORDERING: Relaxed on success for the second: it takes no lock, only the wait byte for the tail. Acquire for
            // the others; pairs with the Release in `unlock`.
            if seen == me.code {
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
