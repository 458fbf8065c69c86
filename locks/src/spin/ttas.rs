//! Test-and-test-and-set: a waiter reads the word and tries only when the lock looks free. Linux falls back to this
//! lock in a guest whose host offers no kick (`virt_spin_lock` in `arch/x86/include/asm/qspinlock.h`, there called
//! test-and-set).
//!
//! Word, fairness and **Exclusion** are those of [`tas`](crate::spin::tas). While the lock is held each waiter reads
//! its own copy of the line. A release invalidates all copies and triggers as many tries as there are waiters.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::cpu::platform::{Platform, wait_for};
use crate::cpu::stats::Event;
use crate::raw::{Described, Instead, RawLock};
use crate::spin::backoff::{Backoff, NoBackoff};
use crate::spin::tas::{FREE, HELD, Tas};

/// Test-and-test-and-set, Linux's fallback under a hypervisor. `B` is the back-off between two tries.
#[derive(Debug)]
pub struct Ttas<B = NoBackoff>(PhantomData<fn() -> B>);

impl<B: Backoff> Described for Ttas<B> {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = u32::MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "in no kernel";
}

impl<P: Platform, B: Backoff> RawLock<P> for Ttas<B> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if !exchange(cpu, word) {
            lock_slow::<P, B>(cpu, word);
        }
        cpu.count(Event::TasAcquired);
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        !Self::is_locked(cpu, word) && exchange(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        Tas::<B>::unlock(cpu, word);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        Tas::<B>::is_locked(cpu, word)
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
        // ORDERING: Relaxed; only the exchange that follows takes the lock.
        wait_for(cpu, word, Relaxed, |value| value == FREE);
        if exchange(cpu, word) {
            break;
        }
    }
    cpu.contention_end(word);
}

/// Takes the lock if it is free. Returns whether the lock was taken.
#[inline]
fn exchange<P: Platform>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Acquire; pairs with the Release store in `tas::unlock`. Relaxed on failure: nothing was taken.
    cpu.compare_exchange(word, FREE, HELD, Acquire, Relaxed).is_ok()
}
