//! The informed spinlock (Ouyang, Gopalan and others, "I-Spinlock", VEE 2018): no CPU takes the lock shortly before its
//! slice ends, since it could be preempted while it holds it.
//!
//! The paper's lock keeps the order of its waiters and passes over those with too little time. Here they have no order.
//!
//! **Exclusion**: the word leaves 0 only by an exchange that returns 0, and its CPU holds the lock.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Budget, Described, Exclusive, Instead, Paravirt, RawLock};

/// The time that a section gets at least. Nanoseconds.
const SECTION_NS: u64 = 30_000;
/// How long a CPU waits until it looks at the time again.
const LOOKS: Budget = Budget(64);

/// The lock.
#[derive(Debug)]
pub struct Informed;

impl Described for Informed {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = u32::MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "of a paper (2018)";
}

impl<P: Paravirt> RawLock<P> for Informed {
    fn lock(cpu: &P, word: &P::Word) {
        loop {
            // The end passes, and then the host says nothing more until this vCPU has its next slice.
            while cpu.slice_left_ns().is_some_and(|left| left < SECTION_NS) {
                let _ = cpu.wait_until(word, LOOKS, Relaxed, |_| false);
            }
            if Self::try_lock(cpu, word) {
                return;
            }
            cpu.contention_begin(word);
            let _ = cpu.wait_until(word, Budget::UNBOUNDED, Relaxed, |now| now == 0);
            cpu.contention_end(word);
        }
    }

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        cpu.compare_exchange(word, 0, 1, Acquire, Relaxed).is_ok()
    }

    fn unlock(cpu: &P, word: &P::Word) {
        cpu.store(word, 0, Release);
    }

    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        cpu.load(word, Relaxed) != 0
    }

    fn is_contended(_: &P, _: &P::Word) -> bool {
        false
    }
}

// SAFETY: **Exclusion**. Each exchange that takes the lock acquires what the store that freed it released.
unsafe impl<P: Paravirt> Exclusive<P> for Informed {}
