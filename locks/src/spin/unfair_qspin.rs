//! Unfair queued spinlock (Waiman Long's series of 2014): waiters queue, and may take the lock from within the queue.
//!
//! The word is that of [`Qspin`](crate::Qspin) without the pending bit, which would block stealing. A newcomer takes a
//! free lock even if other CPUs wait. A waiter behind the head tries in some iterations: directly behind the head in
//! one of 8, further back half as often as its predecessor, down to one of 1024. The head tries whenever it sees the
//! lock free. So the lock prefers CPUs that have waited for long, and no preempted waiter can block it.
//!
//! - **Exclusion**: the locked byte goes from 0 to 1 only by an exchange that returns 0.
//! - **One editor**: only the holder of the lock changes links of the queue, and it does so in a handover, too.
//!   Newcomers append themselves without the lock: they exchange the tail, then store their predecessor's link.
//! - **True neighbors**: for a waiter in the queue `extra` is its predecessor, as the holder of the lock sees it.
//!
//! Starvation is unlikely, not impossible.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::cpu::layout::{LOCKED, LOCKED_MASK, Layout, Narrow};
use crate::cpu::platform::{Budget, wait_for};
use crate::cpu::queue::{Nodes, Waiter, successor};
use crate::raw::{Described, Instead, RawLock};
use crate::spin::qspin::{Flavor, Turn, is_contended, lock_queued};
use crate::spin::steal::{Stealing, Unfair, take};

/// One iteration in 8.
const MASK_MIN: u32 = 7;
/// One iteration in 1024.
const MASK_MAX: u32 = 1023;

/// A queued lock whose waiters spin and that any CPU may take past the queue.
#[derive(Debug)]
pub struct UnfairQspin<L = Narrow>(PhantomData<L>);

impl<L: Layout> Described for UnfairQspin<L> {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = L::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "proposed in 2014, in later versions of the series";
}

impl<P: Nodes, L: Layout> RawLock<P> for UnfairQspin<L> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if !take(cpu, word) {
            lock_queued::<P, Self>(cpu, word);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        Unfair::try_lock(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        // ORDERING: Release; pairs with the Acquire in `take`, and makes this holder's changes of the queue visible to
        // the next.
        cpu.store_low8(word, 0, Release);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        cpu.load(word, Relaxed) & LOCKED_MASK != 0
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        is_contended(cpu, word)
    }
}

#[expect(unsafe_code, reason = "implements the steps")]
// SAFETY: **Exclusion** and **One editor** in the module's documentation.
unsafe impl<P: Nodes, L: Layout> Flavor<P> for UnfairQspin<L> {
    type Layout = L;

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        Unfair::try_lock(cpu, word)
    }

    fn may_take(word: u32) -> bool {
        Unfair::may_steal(word)
    }

    fn prepare(cpu: &P, me: &Waiter<'_, P::Word>) {
        // ORDERING: Relaxed; a hint.
        cpu.store(&me.node.state, MASK_MIN, Relaxed);
    }

    fn link(cpu: &P, me: &Waiter<'_, P::Word>, previous: u32) {
        // ORDERING: Relaxed; published with the link that follows. From then on only the holder of the lock changes it.
        cpu.store(&me.node.extra, previous, Relaxed);
    }

    fn wait_in_queue(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>, _previous: u32) -> Turn {
        loop {
            let iterations = Budget(adjust_mask::<P, L>(cpu, me) + 1);
            // ORDERING: Acquire; pairs with the Release of the handover.
            if cpu
                .wait_until(&me.node.locked, iterations, Acquire, |locked| locked != 0)
                .is_ok()
            {
                return Turn::Head;
            }
            if !Unfair::try_lock(cpu, word) {
                continue;
            }
            // The previous holder may have handed over just before.
            // ORDERING: Relaxed; taking the lock has acquired what its holders wrote.
            if cpu.load(&me.node.locked, Relaxed) != 0 {
                return Turn::HeadHolding;
            }
            leave_queue::<P, L>(cpu, word, me);
            return Turn::Left;
        }
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        // Shows the successor that it is directly behind the head, even if the queue was empty and there was no
        // handover.
        // ORDERING: Relaxed; a hint.
        cpu.store(&me.node.locked, 1, Relaxed);
        loop {
            // ORDERING: Relaxed; taking the lock acquires.
            wait_for(cpu, word, Relaxed, Unfair::may_steal);
            if take(cpu, word) {
                // Successors may have left meanwhile and moved the tail back: the caller needs the current word.
                // ORDERING: Relaxed; the lock is held.
                return Some(cpu.load(word, Relaxed));
            }
        }
    }
}

/// Updates and returns the mask of the caller, which says how often it may try: from its predecessor's current mask.
fn adjust_mask<P: Nodes, L: Layout>(cpu: &P, me: &Waiter<'_, P::Word>) -> u32 {
    // ORDERING: Relaxed, all; a hint. The predecessor may have left and queued elsewhere.
    let previous = cpu.nodes().at::<L>(cpu.load(&me.node.extra, Relaxed));
    let mask = if cpu.load(&previous.locked, Relaxed) != 0 {
        MASK_MIN
    } else {
        (2 * cpu.load(&previous.state, Relaxed) + 1).min(MASK_MAX)
    };
    cpu.store(&me.node.state, mask, Relaxed);
    mask
}

/// Removes the caller, which holds the lock and is not the head, from the queue.
fn leave_queue<P: Nodes, L: Layout>(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) {
    // ORDERING: Relaxed; **One editor**: the caller holds the lock, so it sees all earlier changes of the queue.
    let previous_code = cpu.load(&me.node.extra, Relaxed);
    let previous = cpu.nodes().at::<L>(previous_code);
    // ORDERING: Release; pairs with the AcqRel exchange of a newcomer that finds `previous` as the tail and then stores
    // to its link: that store comes after the caller's own store there. Acquire costs nothing here, and keeps the
    // changes that follow after it.
    if cpu
        .compare_exchange(word, me.code | LOCKED, previous_code | LOCKED, AcqRel, Relaxed)
        .is_ok()
    {
        // The caller was the last. A newcomer may already have linked itself to `previous`; its link must stay.
        // ORDERING: Relaxed; nothing is published.
        let _ = cpu.compare_exchange(&previous.next, me.code, 0, Relaxed, Relaxed);
        return;
    }
    let next = successor(cpu, me.node);
    // ORDERING: Relaxed; the successor reads it when it holds the lock, or as a hint.
    cpu.store(&cpu.nodes().at::<L>(next).extra, previous_code, Relaxed);
    // ORDERING: Release; pairs with the Acquire in `successor`: a CPU that follows the link may write to the node.
    cpu.store(&previous.next, next, Release);
}
