//! Test-and-set and test-and-test-and-set: the simplest locks.
//!
//! | word | |
//! |---|---|
//! | 0 | free |
//! | 1 | held |
//!
//! [`Tas`] tries by an exchange each time, so each waiter pulls the cache line to itself even if the lock is held. A
//! waiter for [`Ttas`] reads its own copy of the line and tries only when the lock looks free. A release invalidates
//! all copies and triggers as many tries as there are waiters. Linux falls back to `Ttas` in a guest whose host offers
//! no kick (`virt_spin_lock` in `arch/x86/include/asm/qspinlock.h`, there called test-and-set).
//!
//! Both are unfair: a waiter may starve. They do not suffer from lock waiter preemption: any waiter that runs can take
//! the lock. Between two tries there is one PAUSE, as in Linux.
//!
//! **Exclusion**: only a CPU that has exchanged a 0 for a 1 holds the lock, and only the holder stores 0.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::platform::{Platform, wait_for};
use crate::cpu::stats::Event;
use crate::raw::{Described, Instead, RawLock};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Test-and-set. `LOOKS`: a waiter looks before it tries.
#[derive(Debug)]
pub struct TestAndSet<const LOOKS: bool>;

/// Test-and-set: every try is a read-modify-write.
pub type Tas = TestAndSet<false>;

/// Test-and-test-and-set, Linux's fallback under a hypervisor.
pub type Ttas = TestAndSet<true>;

impl<const LOOKS: bool> Described for TestAndSet<LOOKS> {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = u32::MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = if LOOKS {
        "of guests without PV locks since Linux 4.2 (`virt_spin_lock`)"
    } else {
        "in no kernel"
    };
}

impl<P: Platform, const LOOKS: bool> RawLock<P> for TestAndSet<LOOKS> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if !exchange::<P, LOOKS>(cpu, word) {
            lock_slow::<P, LOOKS>(cpu, word);
        }
        cpu.count(Event::TasAcquired);
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        !(LOOKS && Self::is_locked(cpu, word)) && exchange::<P, LOOKS>(cpu, word)
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
fn lock_slow<P: Platform, const LOOKS: bool>(cpu: &P, word: &P::Word) {
    cpu.contention_begin(word);
    loop {
        cpu.count(Event::TasFailed);
        cpu.relax();
        if LOOKS {
            // ORDERING: Relaxed; only the exchange that follows takes the lock.
            wait_for(cpu, word, Relaxed, |value| value == FREE);
        }
        if exchange::<P, LOOKS>(cpu, word) {
            break;
        }
    }
    cpu.contention_end(word);
}

/// Takes the lock if it is free. Returns whether the lock was taken.
#[inline]
fn exchange<P: Platform, const LOOKS: bool>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Acquire, both; pairs with the Release store in `unlock`. If it were weaker, the critical section could
    // read values from before the previous critical section. Relaxed on failure: nothing was taken.
    if LOOKS {
        cpu.compare_exchange(word, FREE, HELD, Acquire, Relaxed).is_ok()
    } else {
        cpu.swap(word, HELD, Acquire) == FREE
    }
}
