//! Queued spinlock that newcomers may take past its queue (version 5 of Waiman Long's series of 2014, its simple unfair
//! lock): stealing happens on arrival only.
//!
//! The word is that of [`Qspin`](crate::Qspin) without the pending bit, which would block stealing. A newcomer tries
//! once, takes a free lock even if other CPUs wait, and otherwise queues. A waiter behind the head never tries: in this
//! the lock differs from [`UnfairQspin`](crate::UnfairQspin), which a later patch of the series made of it.
//!
//! - **Exclusion**: the locked byte goes from 0 to 1 only by an exchange that returns 0.
//! - Waiters become the head in order of arrival. The head competes with newcomers and may be overtaken without limit.

use core::sync::atomic::Ordering::Relaxed;

use crate::cpu::layout::{LOCKED, Narrow};
use crate::cpu::platform::{Platform, wait_for};
use crate::cpu::queue::{Nodes, Waiter};
use crate::spin::qspin::Flavor;
use crate::spin::steal::{Stealing, Unfair, take};
use crate::spin::unfair_qspin::UnfairQueued;

/// A queued lock whose waiters spin, and that newcomers may take past the queue. For fewer than 16384 CPUs.
pub type SimpleUnfairQspin = UnfairQueued<OnArrival>;

/// The flavor of [`SimpleUnfairQspin`]: a CPU tries once, when it arrives, and then keeps its place in the queue.
#[derive(Debug)]
pub struct OnArrival;

impl<P: Nodes> Flavor<P> for OnArrival {
    type Layout = Narrow;

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        Unfair::try_lock(cpu, word)
    }

    fn may_take(word: u32) -> bool {
        Unfair::may_steal(word)
    }

    fn wait_at_head(cpu: &P, word: &P::Word, _me: &Waiter<'_, P::Word>) -> Option<u32> {
        loop {
            // ORDERING: Relaxed; the exchange acquires.
            wait_for(cpu, word, Relaxed, Unfair::may_steal);
            if take(cpu, word) {
                return Some(held(cpu, word));
            }
        }
    }
}

/// Returns the word of a lock that the caller holds.
pub(crate) fn held<P: Platform>(cpu: &P, word: &P::Word) -> u32 {
    // ORDERING: Relaxed; the lock is held.
    cpu.load(word, Relaxed) | LOCKED
}
