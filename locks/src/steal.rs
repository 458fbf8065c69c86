//! Who may take a paravirtual queued lock past its queue.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{LOCKED, LOCKED_MASK, PENDING};
use crate::paravirt::Paravirt;
use crate::platform::Platform;
use crate::qspin;
use crate::sharing::Sharing;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::StealOnce {}
    impl Sealed for super::Hybrid {}
    impl Sealed for super::Unfair {}
}

/// A policy. Sealed: exclusion rests on it.
pub trait Stealing: sealed::Sealed {
    /// Whether the head of the queue keeps others from stealing while it spins.
    const HEAD_BLOCKS: bool;
    /// Whether [`Stealing::steal`] may wait.
    const WAITS: bool;
    /// How the lock is shared between its queue and newcomers.
    fn sharing<P: Paravirt>(_cpu: &P) -> Sharing {
        Sharing::LINUX
    }
    /// Whether a head that was kicked and overtaken halts again. In Linux it spins: with stealing blocked while it does,
    /// it is not overtaken for long.
    const LISTS_AGAIN: bool;

    /// First try of `lock`. Returns the word, as `Err` if the lock was not taken.
    #[inline]
    fn fast_path<P: Platform>(cpu: &P, word: &P::Word) -> Result<u32, u32> {
        // ORDERING: Acquire; pairs with the Release of the unlock. Relaxed on failure: nothing was taken.
        cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed)
    }
    /// The lock's `try_lock`.
    fn try_lock<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        qspin::try_lock(cpu, word)
    }
    /// Whether `try_lock` fails on this word.
    fn refused(word: u32) -> bool {
        word != 0
    }
    /// Whether the lock may be taken past the queue now.
    fn may_steal(word: u32) -> bool {
        word & (LOCKED_MASK | PENDING) == 0
    }
    /// Try of the slow path, before it queues.
    fn steal<P: Paravirt>(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the exchange decides.
        Self::may_steal(cpu.load(word, Relaxed)) && take(cpu, word)
    }
}

/// Takes the lock if its locked byte is 0, whatever the rest of the word.
pub(crate) fn take<P: Platform>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Acquire; pairs with the Release of the unlock. Relaxed on failure: nothing was taken.
    cpu.compare_exchange_low8(word, 0, LOCKED as u8, Acquire, Relaxed)
        .is_ok()
}

/// One try on the way into the queue.
#[derive(Debug)]
pub struct StealOnce;

impl Stealing for StealOnce {
    const HEAD_BLOCKS: bool = true;
    const WAITS: bool = false;
    const LISTS_AGAIN: bool = false;
}

/// Newcomers compete while there is a queue whose head is not spinning.
#[derive(Debug)]
pub struct Hybrid;

impl Stealing for Hybrid {
    const HEAD_BLOCKS: bool = true;
    const WAITS: bool = true;
    const LISTS_AGAIN: bool = false;

    fn sharing<P: Paravirt>(cpu: &P) -> Sharing {
        cpu.sharing()
    }

    fn steal<P: Paravirt>(cpu: &P, word: &P::Word) -> bool {
        let must_queue = |now: u32| now <= LOCKED_MASK || now & PENDING != 0;
        let patience = cpu.sharing().newcomer;
        loop {
            // ORDERING: Relaxed; the exchange decides.
            let seen = cpu.wait_until(word, patience, Relaxed, |now| Self::may_steal(now) || must_queue(now));
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

/// Anybody, at any time.
#[derive(Debug)]
pub struct Unfair;

impl Stealing for Unfair {
    const HEAD_BLOCKS: bool = false;
    const WAITS: bool = false;
    const LISTS_AGAIN: bool = true;

    #[inline]
    fn fast_path<P: Platform>(cpu: &P, word: &P::Word) -> Result<u32, u32> {
        if take(cpu, word) { Ok(0) } else { Err(LOCKED) }
    }

    fn try_lock<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; only to spare the line.
        Self::may_steal(cpu.load(word, Relaxed)) && take(cpu, word)
    }

    fn refused(word: u32) -> bool {
        word & LOCKED_MASK != 0
    }

    fn may_steal(word: u32) -> bool {
        word & LOCKED_MASK == 0
    }
}
