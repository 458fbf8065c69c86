//! Compact NUMA-aware queued spinlock (Dice and Kogan, EuroSys 2019; versions 13 to 15 of the Linux series): it hands
//! the lock to waiters on the holder's NUMA node first.
//!
//! It is [`Qspin`](holdfast_locks::Qspin) with another handover. While the head of the queue waits for the lock, it
//! moves waiters of other nodes from behind it to a *secondary queue*, which is a ring. The field `locked` of a node:
//!
//! | value | |
//! |---|---|
//! | 0 | waiting |
//! | 1 | head of the queue; no secondary queue |
//! | code | head of the queue; the secondary queue ends at this node, whose `next` is its first |
//!
//! - **Exclusion**: as for [`Qspin`](holdfast_locks::Qspin). Whatever the order, one waiter at a time is the head.
//! - **Head edits**: a newcomer stores only its predecessor's link to itself. All other changes of links are made by
//!   the head of the queue, and its handover, a release, publishes them.
//! - **Last stays**: the last waiter is never moved, so the tail in the word stays correct.
//! - **Bounded delay**: once the secondary queue has waited for longer than a threshold, it goes first.
//!
//! The lock has no paravirtual waits. It is meant for bare metal and for guests whose vCPUs are not preempted.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::parts::{
    Flavor, LOCKED, LOCKED_MASK, PENDING, Waiter, is_contended, is_locked, lock_slow, try_lock,
};
use holdfast_locks::{
    Budget, CpuId, Described, Exclusive, Instead, Layout, Narrow, Node, Numa, Qspin, RawLock, wait_for,
};

type Word = Narrow;

/// The NUMA node of a waiter that must not wait in favor of other nodes.
const URGENT: u32 = 0xffff;
/// For how many iterations the head waits for the lock between two checks of its queue. Linux checks in each iteration,
/// but the queue does not change so fast.
const LOOK_INTERVAL: Budget = Budget(16);

/// A queued lock that prefers waiters on the holder's NUMA node.
///
/// `THRESHOLD_NS` is for how many nanoseconds the waiters of other nodes may be passed over. `SHUFFLE_BITS`: without a
/// secondary queue, only one head in 2^`SHUFFLE_BITS` looks for waiters to move.
#[derive(Debug)]
pub struct CnaQspin<const THRESHOLD_NS: u32 = 1_000_000, const SHUFFLE_BITS: u32 = 7>;

impl<const T: u32, const S: u32> Described for CnaQspin<T, S> {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = Narrow::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "proposed from 2019 to 2021";
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: as for `Qspin`. Reordering the queue leaves it with one head at a time.
unsafe impl<P: Numa, const T: u32, const S: u32> Exclusive<P> for CnaQspin<T, S> {}

impl<P: Numa, const T: u32, const S: u32> RawLock<P> for CnaQspin<T, S> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: nothing was taken.
        if let Err(seen) = cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed) {
            lock_slow::<P, Self>(cpu, word, seen);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        try_lock(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        Qspin::<Word>::unlock(cpu, word);
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

#[expect(unsafe_code, reason = "implements the steps of a queued lock")]
// SAFETY: **Exclusion**, **Head edits** and **Last stays** in the module's documentation.
unsafe impl<P: Numa, const T: u32, const S: u32> Flavor<P> for CnaQspin<T, S> {
    type Layout = Word;

    fn prepare(cpu: &P, me: &Waiter<'_, P::Word>) {
        let numa = if cpu.is_urgent() {
            URGENT
        } else {
            cpu.numa_node(cpu.cpu())
        };
        // ORDERING: Relaxed; published by the exchange of the tail.
        cpu.store(&me.node().numa, numa, Relaxed);
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        // ORDERING: Relaxed, all; **Head edits**: the caller is the head, and has acquired the handover.
        if cpu.load(&me.node().numa, Relaxed) == URGENT {
            cpu.store(&me.node().numa, cpu.numa_node(cpu.cpu()), Relaxed);
        }
        let passed_over = secondary(cpu, me.node());
        let sort = match passed_over {
            Some(_) => !overdue::<P, T>(cpu, me.node()),
            None => draw::<P, S>(cpu, me),
        };
        let free = |now: u32| now & (LOCKED_MASK | PENDING) == 0;
        // The head sorts its queue during the time in which it would only spin.
        while sort && !free(cpu.load(word, Relaxed)) && move_next(cpu, me) {
            let _ = cpu.wait_until(word, LOOK_INTERVAL, Relaxed, free);
        }
        // ORDERING: Acquire; pairs with the Release of the unlock.
        Some(wait_for(cpu, word, Acquire, free))
    }

    fn clear_tail(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>, seen: u32) -> bool {
        let Some(last_code) = secondary(cpu, me.node()) else {
            // ORDERING: Relaxed; the lock has been acquired already.
            return cpu.compare_exchange(word, seen, LOCKED, Relaxed, Relaxed).is_ok();
        };
        // The caller is the only CPU in the queue: the secondary queue takes its place.
        let last = me.at::<Word, P>(cpu, last_code);
        // ORDERING: Relaxed, both; **Head edits**.
        let first = cpu.load(&last.next, Relaxed);
        cpu.store(&last.next, 0, Relaxed);
        // ORDERING: Release; pairs with the AcqRel exchange of a newcomer that finds `last` as the tail: its link must
        // come after the 0 above.
        if cpu
            .compare_exchange(word, seen, last_code | LOCKED, Release, Relaxed)
            .is_err()
        {
            // A newcomer has queued behind the caller. ORDERING: Relaxed; the ring is private to the head.
            cpu.store(&last.next, first, Relaxed);
            return false;
        }
        make_head(cpu, me, first, 1);
        true
    }

    fn hand_over(cpu: &P, _word: &P::Word, me: &Waiter<'_, P::Word>, next: u32) {
        let Some(last_code) = secondary(cpu, me.node()) else {
            return make_head(cpu, me, next, 1);
        };
        if overdue::<P, T>(cpu, me.node()) {
            let last = me.at::<Word, P>(cpu, last_code);
            // ORDERING: Relaxed, both; **Head edits**. The handover publishes them.
            let first = cpu.load(&last.next, Relaxed);
            cpu.store(&last.next, next, Relaxed);
            return make_head(cpu, me, first, 1);
        }
        let heir = me.at::<Word, P>(cpu, next);
        // The preferred node stays the same, even if the next head is on another node.
        // ORDERING: Relaxed, all; the handover publishes them.
        cpu.store(&heir.numa, cpu.load(&me.node().numa, Relaxed), Relaxed);
        cpu.store(&heir.extra, cpu.load(&me.node().extra, Relaxed), Relaxed);
        make_head(cpu, me, next, last_code);
    }
}

/// Returns the code of the last waiter in the head's secondary queue.
fn secondary<P: Numa>(cpu: &P, head: &Node<P::Word>) -> Option<u32> {
    // ORDERING: Relaxed; the head's own.
    let locked = cpu.load(&head.locked, Relaxed);
    (locked > 1).then_some(locked)
}

fn make_head<P: Numa>(cpu: &P, me: &Waiter<'_, P::Word>, code: u32, secondary: u32) {
    // ORDERING: Release; pairs with the Acquire in `wait_in_queue`, and publishes the links.
    cpu.store(&me.at::<Word, P>(cpu, code).locked, secondary, Release);
}

/// Returns the time in units of 1.024 microseconds, which wraps after 73 minutes.
fn ticks<P: Numa>(cpu: &P) -> u32 {
    (cpu.monotonic_ns() >> 10) as u32
}

/// Returns whether the secondary queue has waited for longer than the threshold.
fn overdue<P: Numa, const THRESHOLD_NS: u32>(cpu: &P, head: &Node<P::Word>) -> bool {
    // ORDERING: Relaxed; the head's own.
    ticks(cpu).wrapping_sub(cpu.load(&head.extra, Relaxed)) >= THRESHOLD_NS >> 10
}

/// Moves the waiter behind the head to the secondary queue if it is on another node. Returns `false` if that waiter
/// should stay, so that there is nothing more to do for this head.
fn move_next<P: Numa>(cpu: &P, me: &Waiter<'_, P::Word>) -> bool {
    // ORDERING: Acquire; pairs with the Release of the link: the waiter's node may be read.
    let next_code = cpu.load(&me.node().next, Acquire);
    if next_code == 0 {
        return true;
    }
    let next = me.at::<Word, P>(cpu, next_code);
    // ORDERING: Relaxed, both; acquired with the link.
    let numa = cpu.load(&next.numa, Relaxed);
    if numa == URGENT || numa == cpu.load(&me.node().numa, Relaxed) {
        return false;
    }
    // ORDERING: Acquire; as above.
    let after = cpu.load(&next.next, Acquire);
    if after == 0 {
        // **Last stays**.
        return true;
    }
    // ORDERING: Relaxed, all below; **Head edits**.
    cpu.store(&me.node().next, after, Relaxed);
    let first = match secondary(cpu, me.node()) {
        Some(last_code) => {
            let last = me.at::<Word, P>(cpu, last_code);
            let first = cpu.load(&last.next, Relaxed);
            cpu.store(&last.next, next_code, Relaxed);
            first
        }
        None => {
            cpu.store(&me.node().extra, ticks(cpu), Relaxed);
            next_code
        }
    };
    cpu.store(&next.next, first, Relaxed);
    cpu.store(&me.node().locked, next_code, Relaxed);
    true
}

/// Returns true once in 2^`BITS` calls, at random (Marsaglia's xorshift, one stream for each CPU).
fn draw<P: Numa, const BITS: u32>(cpu: &P, me: &Waiter<'_, P::Word>) -> bool {
    let state = me.random(cpu);
    // ORDERING: Relaxed, both; only this CPU uses it. If an interrupt draws in between, a number is repeated.
    let random = following(match cpu.load(state, Relaxed) {
        0 => first(cpu.cpu()),
        state => state,
    });
    cpu.store(state, random, Relaxed);
    random & ((1 << BITS) - 1) == 0
}

/// Returns the number from which the stream of `cpu` begins. It is never 0.
fn first(cpu: CpuId) -> u32 {
    cpu.0.wrapping_mul(0x9e37_79b9) | 1
}

fn following(mut random: u32) -> u32 {
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    random
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn random_numbers_are_those_of_the_published_generator() {
        // Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8 (14), 2003: shifts of 13, 17 and 5, from 1.
        let published = [270_369, 67_634_689, 2_647_435_461, 307_599_695, 2_398_689_233];
        let mut random = first(CpuId(0));
        for number in published {
            random = following(random);
            assert_eq!(random, number);
        }
    }

    #[test]
    fn each_cpu_has_a_stream_of_its_own() {
        let streams: BTreeSet<u32> = (0..1024).map(|cpu| first(CpuId(cpu))).collect();
        assert!(!streams.contains(&0), "a stream from 0 stays at 0");
        // The lowest bit is set, so CPUs whose numbers differ only there may share a stream.
        assert!(streams.len() >= 1000, "{} streams", streams.len());
    }
}
