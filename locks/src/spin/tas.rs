//! Test-and-set: the simplest lock, with the most cache-line traffic.
//!
//! | word | |
//! |---|---|
//! | 0 | free |
//! | 1 | held |
//!
//! Every try is an exchange, so each waiter pulls the cache line to itself even if the lock is held. The lock is
//! unfair: a waiter may starve. It does not suffer from lock waiter preemption: any waiter that runs can take it.
//!
//! **Exclusion**: only a CPU that has exchanged a 0 for a 1 holds the lock, and only the holder stores 0.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::platform::Platform;
use crate::cpu::stats::Event;
use crate::raw::{Described, Instead, RawLock};
use crate::spin::backoff::{Backoff, NoBackoff};

pub(crate) const FREE: u32 = 0;
pub(crate) const HELD: u32 = 1;

/// Test-and-set: every try is a read-modify-write. `B` is the back-off between two tries.
#[derive(Debug)]
pub struct Tas<B = NoBackoff>(PhantomData<fn() -> B>);

impl<B: Backoff> Described for Tas<B> {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = u32::MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "of guests without PV locks since Linux 4.2 (`virt_spin_lock`)";
}

impl<P: Platform, B: Backoff> RawLock<P> for Tas<B> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if !exchange(cpu, word) {
            lock_slow::<P, B>(cpu, word);
        }
        cpu.count(Event::TasAcquired);
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        exchange(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        // ORDERING: Release; pairs with the Acquire of the next holder, which otherwise could miss what this holder
        // wrote.
        cpu.store(word, FREE, Release);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        cpu.load(word, Relaxed) != FREE
    }

    /// Returns `false`: the word does not show waiters.
    #[inline]
    fn is_contended(_cpu: &P, _word: &P::Word) -> bool {
        false
    }
}

#[cold]
fn lock_slow<P: Platform, B: Backoff>(cpu: &P, word: &P::Word) {
    cpu.contention_begin(word);
    let mut attempt = 0u32;
    loop {
        cpu.count(Event::TasFailed);
        attempt = attempt.saturating_add(1);
        B::wait(cpu, attempt);
        if exchange(cpu, word) {
            break;
        }
    }
    cpu.contention_end(word);
}

#[inline]
fn exchange<P: Platform>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Acquire; pairs with the Release store in `unlock`. If it were weaker, the critical section could read
    // values from before the previous critical section.
    cpu.swap(word, HELD, Acquire) == FREE
}
