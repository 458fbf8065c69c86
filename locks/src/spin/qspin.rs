//! Queued spinlock: each waiter spins on a node of its own, and the lock is still one word (Linux since 4.2,
//! `kernel/locking/qspinlock.c`).
//!
//! The word is described in [`layout`](crate::cpu::layout). Its states (tail, pending, locked):
//!
//! | word | |
//! |---|---|
//! | (0, 0, 0) | free |
//! | (0, 0, 1) | held |
//! | (0, 1, 1) | held; one waiter, which spins on the word and needs no node |
//! | (0, 1, 0) | being handed to that waiter |
//! | (n, *, 1) | held; waiters queue, and n is the code of the last |
//! | (n, *, 0) | being handed to the head of the queue, or to the pending waiter before it |
//!
//! - **Exclusion**: the locked byte goes from 0 to 1 only by (a) the exchange of an all-zero word, (b) the owner of the
//!   pending bit, (c) the head of the queue while pending is clear. A pending bit or a tail makes (a) fail. Pending is
//!   set only if there is no tail, and the head waits until it is clear: so (b) and (c) exclude each other.
//! - **Handover**: a CPU that leaves the queue either is the last and clears the tail, or makes its successor the head.
//! - Queued waiters are served in order of arrival. A waiter that arrives while the pending bit is set queues, even if
//!   the bit is cleared at that moment.
//!
//! This module also has the slow path that the paravirtual, unfair and NUMA-aware locks share: a [`Flavor`] replaces
//! its waits and its handover.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::layout::{LOCKED, LOCKED_MASK, Layout, Narrow, PENDING, PendingLayout, Wide};
use crate::cpu::platform::{Budget, Platform, wait_for};
use crate::cpu::queue::{Nodes, Waiter, claim, enter, leave, successor};
use crate::cpu::stats::Event;
use crate::raw::{Described, Instead, RawLock};

/// How long a newcomer waits while the lock is handed to the pending waiter. The limit is needed because a new pending
/// waiter may follow each time. Linux on x86: `_Q_PENDING_LOOPS`.
const HANDOVER_PATIENCE: Budget = Budget(1 << 9);

/// A queued lock whose waiters spin. `L` is the layout of its word: [`Narrow`], or [`Wide`] for 16384 CPUs and more.
#[derive(Debug)]
pub struct Qspin<L = Narrow>(PhantomData<fn() -> L>);

/// [`Qspin`] for fewer than 2097152 CPUs.
pub type WideQspin = Qspin<Wide>;

impl<L: PendingLayout> Described for Qspin<L> {
    const FIFO: bool = true;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = L::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "Linux since 4.2";
}

impl<P: Nodes, L: PendingLayout> RawLock<P> for Qspin<L> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: nothing was taken.
        if let Err(seen) = cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed) {
            lock_slow::<P, Native<L>>(cpu, word, seen);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        try_lock(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        // ORDERING: Release; pairs with the Acquire of the next holder. A byte store: waiters change the rest of the
        // word.
        cpu.store_low8(word, 0, Release);
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

/// Takes the lock if the whole word is zero. Returns whether the lock was taken.
#[inline]
pub fn try_lock<P: Platform>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Relaxed load; it only avoids a needless exchange. Acquire: pairs with the Release of `unlock`.
    cpu.load(word, Relaxed) == 0 && cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed).is_ok()
}

/// Returns whether the word is not zero. Waiters without a holder count as held: one of them will soon hold the lock,
/// and `try_lock` would fail.
#[inline]
pub fn is_locked<P: Platform>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Relaxed; the answer is out of date whatever the ordering.
    cpu.load(word, Relaxed) != 0
}

/// Returns whether the word has a queue or the pending bit.
#[inline]
pub fn is_contended<P: Platform>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Relaxed; the answer is out of date whatever the ordering.
    cpu.load(word, Relaxed) & !LOCKED_MASK != 0
}

/// Waits until the caller holds the lock, first without a node if the lock has no other waiter. `seen` is the word that
/// the caller found. Linux: `queued_spin_lock_slowpath`.
#[cold]
pub fn lock_slow<P: Nodes, F: Flavor<P, Layout: PendingLayout>>(cpu: &P, word: &P::Word, seen: u32) {
    cpu.wait_begins(word, alone);
    let taken = lock_pending::<P, F>(cpu, word, seen);
    cpu.wait_ends();
    if !taken {
        lock_queued::<P, F>(cpu, word);
    }
}

/// Returns the word without queue and pending bit: held if it was held, otherwise free.
fn alone(word: u32) -> u32 {
    if word & LOCKED_MASK != 0 { LOCKED } else { 0 }
}

/// Waits without a node if the caller is the first waiter. Returns whether the caller holds the lock; if not, it must
/// queue.
fn lock_pending<P: Nodes, F: Flavor<P, Layout: PendingLayout>>(cpu: &P, word: &P::Word, mut seen: u32) -> bool {
    if seen == PENDING {
        // ORDERING: Relaxed; only what to try next depends on it.
        let gone = cpu.wait_until(word, HANDOVER_PATIENCE, Relaxed, |now| now != PENDING);
        seen = gone.unwrap_or_else(|last| last);
    }
    if seen & !LOCKED_MASK != 0 {
        return false;
    }
    // ORDERING: Acquire; if the lock has become free this takes it, and pairs with the Release in `unlock`.
    let before = cpu.fetch_or(word, PENDING, Acquire);
    if before & !LOCKED_MASK != 0 {
        if before & PENDING == 0 {
            F::Layout::clear_pending(cpu, word);
        }
        return false;
    }
    if before & LOCKED_MASK != 0 {
        cpu.contention_begin(word);
        // ORDERING: Acquire; pairs with the Release in `unlock`.
        wait_for(cpu, word, Acquire, |now| now & LOCKED_MASK == 0);
        cpu.contention_end(word);
    }
    F::Layout::take_as_pending(cpu, word);
    F::count(cpu, Event::LockPending);
    true
}

/// The result of a wait behind the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The waiter is the head, and must still wait for the lock.
    Head,
    /// The waiter is the head and holds the lock.
    HeadHolding,
    /// The waiter holds the lock and has left the queue.
    Left,
}

/// The steps of the slow path in which queued locks differ.
///
/// # Safety
/// - A step returns that the caller holds the lock only if it does, by **Exclusion** of the lock that uses this flavor.
/// - [`wait_in_queue`](Flavor::wait_in_queue) returns once the caller is the head, or has left the queue. One waiter at
///   a time is the head, and [`hand_over`](Flavor::hand_over) and [`clear_tail`](Flavor::clear_tail) keep it so.
/// - A node is written only by its waiter and by those that this waiter's queue knows, as the fields of [`Node`] say.
///
/// [`Node`]: crate::Node
#[expect(
    unsafe_code,
    reason = "exclusion rests on what implements this trait: it is unsafe to implement"
)]
pub unsafe trait Flavor<P: Nodes> {
    /// The layout of the word.
    type Layout: Layout;
    /// Whether [`Flavor::try_lock`] may wait.
    const TRY_WAITS: bool = false;
    /// Whether this lock counts [`Event::LockSlowpath`] itself, at the head of the queue.
    const COUNTED_AT_HEAD: bool = false;

    /// Counts an event in this lock's statistics.
    fn count(cpu: &P, event: Event) {
        cpu.count(event);
    }
    /// Takes the lock past the queue if that is allowed now. Returns whether the lock was taken.
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        try_lock(cpu, word)
    }
    /// Returns whether a waiter tries to take the lock past the queue before it prepares a node, and not after. For
    /// tries that wait.
    #[inline(always)]
    fn competes_first(_cpu: &P) -> bool {
        false
    }
    /// Returns whether [`Flavor::try_lock`] may succeed on this word.
    fn may_take(word: u32) -> bool {
        word == 0
    }
    /// Prepares the node before other CPUs can see it.
    fn prepare(_cpu: &P, _me: &Waiter<'_, P::Word>) {}
    /// Makes the caller the tail of the queue and returns the previous tail. Returns `None` if the caller holds the
    /// lock instead and is not in the queue.
    fn join(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        Some(Self::Layout::swap_tail(cpu, word, me.code))
    }
    /// Prepares the node for its link behind `previous`, which follows.
    fn link(_cpu: &P, _me: &Waiter<'_, P::Word>, _previous: u32) {}
    /// Waits behind `previous` to become the head of the queue.
    fn wait_in_queue(cpu: &P, _word: &P::Word, me: &Waiter<'_, P::Word>, _previous: u32) -> Turn {
        // ORDERING: Acquire; pairs with the Release of the handover.
        wait_for(cpu, &me.node.locked, Acquire, |locked| locked != 0);
        Turn::Head
    }
    /// Waits at the head of the queue. Returns the word in which the caller saw the lock free, or, with the locked byte
    /// set, the word when it held the lock. Returns `None` if the caller holds the lock and has left the queue.
    fn wait_at_head(cpu: &P, word: &P::Word, _me: &Waiter<'_, P::Word>) -> Option<u32> {
        // ORDERING: Acquire; pairs with the Release of the unlock.
        let free = |now| now & (LOCKED_MASK | PENDING) == 0;
        Some(wait_for(cpu, word, Acquire, free))
    }
    /// Clears the tail. The caller holds the lock and is the last in the queue according to `seen`. Returns `false` if
    /// another CPU has queued behind it.
    fn clear_tail(cpu: &P, word: &P::Word, _me: &Waiter<'_, P::Word>, seen: u32) -> bool {
        // ORDERING: Relaxed; the lock has been acquired already.
        cpu.compare_exchange(word, seen, LOCKED, Relaxed, Relaxed).is_ok()
    }
    /// Makes `next` the head of the queue. The caller holds the lock.
    fn hand_over(cpu: &P, _word: &P::Word, _me: &Waiter<'_, P::Word>, next: u32) {
        // ORDERING: Release; pairs with the Acquire in `wait_in_queue`.
        cpu.store(&cpu.nodes().at::<Self::Layout>(next).locked, 1, Release);
    }
}

/// The flavor of [`Qspin`]: all defaults.
struct Native<L>(PhantomData<L>);

#[expect(unsafe_code, reason = "implements the steps")]
// SAFETY: **Exclusion** and **Handover** in the module's documentation.
unsafe impl<P: Nodes, L: PendingLayout> Flavor<P> for Native<L> {
    type Layout = L;
}

/// Queues and waits until the caller holds the lock. Linux: `queued_spin_lock_slowpath`, from the label `queue`.
#[cold]
pub fn lock_queued<P: Nodes, F: Flavor<P>>(cpu: &P, word: &P::Word) {
    // What a waiter makes ready in order to queue costs as much as a short critical section.
    let competes = F::competes_first(cpu);
    if competes {
        cpu.contention_begin(word);
        if F::try_lock(cpu, word) {
            cpu.contention_end(word);
            return;
        }
    }
    cpu.wait_begins(word, alone);
    let level = enter(cpu);
    if !F::COUNTED_AT_HEAD {
        F::count(cpu, Event::LockSlowpath);
    }
    if F::TRY_WAITS && !competes {
        cpu.contention_begin(word);
    }
    let waited = match level.and_then(|level| Some((level, claim::<F::Layout, P>(cpu, level)?))) {
        Some((level, me)) => {
            count_nesting::<P, F>(cpu, level);
            F::prepare(cpu, &me);
            // The node was not in the cache: the lock may have become free meanwhile.
            (competes || !F::try_lock(cpu, word)) && wait_through_queue::<P, F>(cpu, word, &me)
        }
        None => {
            wait_without_node::<P, F>(cpu, word);
            true
        }
    };
    if let Some(level) = level {
        leave(cpu, level);
    }
    cpu.wait_ends();
    if waited || F::TRY_WAITS {
        cpu.contention_end(word);
    }
}

fn count_nesting<P: Nodes, F: Flavor<P>>(cpu: &P, level: usize) {
    match level {
        1 => F::count(cpu, Event::LockUseNode2),
        2 => F::count(cpu, Event::LockUseNode3),
        3 => F::count(cpu, Event::LockUseNode4),
        _ => {}
    }
}

/// Takes the lock past the queue, because this CPU has no nodes or all its nodes are in use.
fn wait_without_node<P: Nodes, F: Flavor<P>>(cpu: &P, word: &P::Word) {
    F::count(cpu, Event::LockNoNode);
    if !F::TRY_WAITS {
        cpu.contention_begin(word);
    }
    while !F::try_lock(cpu, word) {
        // ORDERING: Relaxed; `try_lock` acquires.
        wait_for(cpu, word, Relaxed, F::may_take);
    }
}

/// Queues and waits until the caller holds the lock. Returns `false` if there was nothing to wait for.
fn wait_through_queue<P: Nodes, F: Flavor<P>>(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> bool {
    let Some(previous) = F::join(cpu, word, me) else {
        return false;
    };
    if !F::TRY_WAITS {
        cpu.contention_begin(word);
    }
    let mut turn = Turn::Head;
    if previous != 0 {
        F::link(cpu, me, previous);
        // ORDERING: Release; pairs with the Acquire in `successor`: the predecessor may then write to the node.
        cpu.store(&cpu.nodes().at::<F::Layout>(previous).next, me.code, Release);
        turn = F::wait_in_queue(cpu, word, me, previous);
    }
    let seen = match turn {
        Turn::Head => F::wait_at_head(cpu, word, me),
        // ORDERING: Relaxed; the lock is held.
        Turn::HeadHolding => Some(cpu.load(word, Relaxed) | LOCKED),
        Turn::Left => None,
    };
    if let Some(seen) = seen {
        leave_as_head::<P, F>(cpu, word, me, seen);
    }
    true
}

/// Takes the lock and leaves the queue: **Handover**. The caller is the head of the queue. According to `seen` it
/// already holds the lock, or the lock is free and no other CPU may take it.
fn leave_as_head<P: Nodes, F: Flavor<P>>(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>, seen: u32) {
    let last = seen & F::Layout::TAIL_MASK == me.code;
    if last && F::clear_tail(cpu, word, me, seen) {
        return;
    }
    if seen & LOCKED_MASK == 0 {
        // ORDERING: Relaxed; the load that saw the lock free has acquired it. A byte store: other CPUs may be changing
        // the tail and the pending bit.
        cpu.store_low8(word, LOCKED as u8, Relaxed);
    }
    let next = successor(cpu, me.node);
    F::hand_over(cpu, word, me, next);
}
