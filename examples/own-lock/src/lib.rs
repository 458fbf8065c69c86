//! A spinlock whose word says whether CPUs wait: 0 is free, 1 held, 2 held while others wait.
//!
//! **Exclusion**: the word leaves 0 only by an exchange that returns 0, and its CPU holds the lock.

mod informed;

pub use informed::Informed;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Budget, Described, Exclusive, Instead, Platform, RawLock};

const FREE: u32 = 0;
const HELD: u32 = 1;
const MARKED: u32 = 2;

/// The lock.
#[derive(Debug)]
pub struct Marked;

impl Described for Marked {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = u32::MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "in no kernel";
}

impl<P: Platform> RawLock<P> for Marked {
    fn lock(cpu: &P, word: &P::Word) {
        if <Self as RawLock<P>>::try_lock(cpu, word) {
            return;
        }
        cpu.contention_begin(word);
        // A CPU that has waited leaves the mark, since others may wait as well.
        while cpu.swap(word, MARKED, Acquire) != FREE {
            let _ = cpu.wait_until(word, Budget::UNBOUNDED, Relaxed, |now| now == FREE);
        }
        cpu.contention_end(word);
    }

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        cpu.compare_exchange(word, FREE, HELD, Acquire, Relaxed).is_ok()
    }

    fn unlock(cpu: &P, word: &P::Word) {
        cpu.store(word, FREE, Release);
    }

    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        cpu.load(word, Relaxed) != FREE
    }

    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        cpu.load(word, Relaxed) == MARKED
    }
}

// SAFETY: **Exclusion**. Each exchange that takes the lock acquires what the store that freed it released.
unsafe impl<P: Platform> Exclusive<P> for Marked {}
