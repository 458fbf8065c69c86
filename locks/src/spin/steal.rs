//! Policies of the paravirtual queued locks: which CPUs may take the lock past its queue.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::cpu::layout::{LOCKED, LOCKED_MASK, Layout, PENDING};
use crate::cpu::paravirt::Paravirt;
use crate::cpu::platform::Platform;
use crate::cpu::sharing::Sharing;
use crate::raw::Instead;
use crate::spin::backoff::wait_backing_off;
use crate::spin::qspin;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::StealOnce {}
    impl Sealed for super::Hybrid {}
    impl Sealed for super::Unfair {}
}

/// A policy of a paravirtual queued lock. The trait is sealed because exclusion rests on it.
pub trait Stealing: sealed::Sealed {
    /// Whether the head of the queue blocks stealing while it spins.
    const HEAD_BLOCKS: bool;
    /// [`Described::FIFO`](crate::Described::FIFO) of the lock.
    const FIFO: bool;
    /// [`Described::WITHOUT_KICKS`](crate::Described::WITHOUT_KICKS) of the lock.
    const WITHOUT_KICKS: Instead;
    /// [`Described::ORIGIN`](crate::Described::ORIGIN) of the lock.
    const ORIGIN: &'static str;
    /// Whether [`Stealing::steal`] may wait.
    const WAITS: bool;
    /// Returns how the lock is shared between its queue and newcomers. A constant on most platforms, by which the
    /// compiler leaves branches out; as a call it would take half as long as a lock and unlock.
    #[inline(always)]
    fn sharing<P: Paravirt>(_cpu: &P) -> Sharing {
        Sharing::LINUX
    }
    /// Whether a head that was kicked and then overtaken lists itself and halts again. In Linux it spins: since it
    /// blocks stealing while it spins, it is not overtaken for long.
    const LISTS_AGAIN: bool;

    /// Executes the first try of `lock`. Returns the word that it found, as `Err` if the lock was not taken.
    #[inline]
    fn fast_path<P: Paravirt, L: Layout>(cpu: &P, word: &P::Word) -> Result<u32, u32> {
        take_idle(cpu, word)
    }
    /// Implements the lock's `try_lock`.
    fn try_lock<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        qspin::try_lock(cpu, word)
    }
    /// Returns whether `try_lock` fails on this word.
    fn refused(word: u32) -> bool {
        word != 0
    }
    /// Returns whether a lock with this word may be taken past the queue, for the default of [`steal`](Self::steal).
    fn may_steal(word: u32) -> bool {
        word & (LOCKED_MASK | PENDING) == 0
    }
    /// Tries to take the lock past its queue, before the caller queues. Returns whether the lock was taken.
    fn steal<P: Paravirt>(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the exchange decides.
        Self::may_steal(cpu.load(word, Relaxed)) && take(cpu, word)
    }
}

/// Takes the lock if no CPU holds it or waits for it. Returns the word that it found, as `Err` if that was not 0.
#[inline]
fn take_idle<P: Platform>(cpu: &P, word: &P::Word) -> Result<u32, u32> {
    // ORDERING: Acquire; pairs with the Release of the unlock. Relaxed on failure: nothing was taken.
    cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed)
}

/// Takes the lock if its locked byte is 0, whatever the rest of the word. Returns whether the lock was taken.
#[inline(always)]
pub fn take<P: Platform>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Acquire; pairs with the Release of the unlock. Relaxed on failure: nothing was taken.
    cpu.compare_exchange_low8(word, 0, LOCKED as u8, Acquire, Relaxed)
        .is_ok()
}

/// A newcomer tries once before it queues.
#[derive(Debug)]
pub struct StealOnce;

impl Stealing for StealOnce {
    const FIFO: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Native("qspin");
    const ORIGIN: &'static str = "of guests in Linux 4.5 to 4.14";
    const HEAD_BLOCKS: bool = true;
    const WAITS: bool = false;
    const LISTS_AGAIN: bool = false;
}

/// Newcomers compete as long as there is a queue whose head does not spin.
#[derive(Debug)]
pub struct Hybrid;

impl Stealing for Hybrid {
    const FIFO: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Native("qspin");
    const ORIGIN: &'static str = "of guests since Linux 4.15";
    const HEAD_BLOCKS: bool = true;
    const WAITS: bool = true;
    const LISTS_AGAIN: bool = false;

    #[inline(always)]
    fn sharing<P: Paravirt>(cpu: &P) -> Sharing {
        cpu.sharing()
    }

    /// Where a head competes on equal terms, the first try has to keep exclusion and nothing else. So it exchanges the
    /// byte that the last unlock has stored: the whole word cannot be read before that store has left the store buffer.
    /// Between the look at the queue and the exchange a queue may form. The caller then overtakes it once.
    #[inline]
    fn fast_path<P: Paravirt, L: Layout>(cpu: &P, word: &P::Word) -> Result<u32, u32> {
        if !cpu.sharing().head_competes() {
            return take_idle(cpu, word);
        }
        if L::has_queue(cpu, word) {
            return Err(L::pending(cpu, word));
        }
        if take(cpu, word) { Ok(0) } else { Err(LOCKED) }
    }

    /// Where a head competes on equal terms, newcomers compete without a queue, too.
    fn steal<P: Paravirt>(cpu: &P, word: &P::Word) -> bool {
        let sharing = cpu.sharing();
        if sharing.head_competes() {
            // Lost races use up the budget, too.
            // ORDERING: Relaxed; the exchange decides.
            return wait_backing_off(cpu, word, sharing.newcomer, Relaxed, |now| {
                now & PENDING != 0 || Self::may_steal(now) && take(cpu, word)
            })
            .is_ok_and(|seen| seen & PENDING == 0);
        }
        let must_queue = |now: u32| now <= LOCKED_MASK || now & PENDING != 0;
        loop {
            // ORDERING: Relaxed; the exchange decides.
            let seen = cpu.wait_until(word, sharing.newcomer, Relaxed, |now| {
                Self::may_steal(now) || must_queue(now)
            });
            let Ok(seen) = seen else { return false };
            if Self::may_steal(seen) && take(cpu, word) {
                return true;
            }
            if must_queue(seen) {
                return false;
            }
        }
    }
}

/// Any CPU may take the lock at any time.
#[derive(Debug)]
pub struct Unfair;

impl Stealing for Unfair {
    const FIFO: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Unfair("unfair-qspin");
    const ORIGIN: &'static str = "proposed in 2014, in later versions of the series";
    const HEAD_BLOCKS: bool = false;
    const WAITS: bool = false;
    const LISTS_AGAIN: bool = true;

    #[inline]
    fn fast_path<P: Paravirt, L: Layout>(cpu: &P, word: &P::Word) -> Result<u32, u32> {
        if take(cpu, word) { Ok(0) } else { Err(LOCKED) }
    }

    fn try_lock<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; it only avoids a needless exchange.
        Self::may_steal(cpu.load(word, Relaxed)) && take(cpu, word)
    }

    fn refused(word: u32) -> bool {
        word & LOCKED_MASK != 0
    }

    fn may_steal(word: u32) -> bool {
        word & LOCKED_MASK == 0
    }
}
