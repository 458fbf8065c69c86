//! Fair paravirtual queued spinlocks: that of Linux 4.2, and that of Waiman Long's series of July 2015, of which Linux
//! took the listing by the owner.
//!
//! The word, the states of a node and the invariants are those of [`PvQspin`](holdfast_locks::PvQspin), but no CPU
//! takes the lock past its queue: the pending bit never blocks stealing. No waiter looks at its predecessor.
//!
//! - **Kicked as head** ([`EarlyPvQspin`]): the owner kicks a halted waiter as soon as that becomes the head. The new
//!   head spins, lists itself and halts, and is kicked again.
//! - **The waiter outside the queue** ([`AheadPvQspin`]) has the pending bit as in [`Qspin`](holdfast_locks::Qspin),
//!   and is the only CPU that may take the lock. The head waits until the bit is clear before it takes the lock or
//!   lists itself. Once there is a queue, no CPU can become that waiter.
//! - **Kicked ahead** ([`AheadPvQspin`]): an unlock that finds a listed head sets the state of halted waiters behind it
//!   to running, while it still holds the lock, so that they cannot leave the queue. It kicks them after the release.
//!
//! From memory of the series of 2015: the number of waiters, and 2^10 iterations outside the queue (uncertain).

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use holdfast_locks::parts::{
    Flavor, LOCKED, LOCKED_MASK, PENDING, Turn, Waiter, is_contended, is_locked, kick, lock_queued, try_lock,
    unless_omitted,
};
use holdfast_locks::{
    AllSteps, Budget, CpuId, Described, Event, Exclusive, Instead, Layout, Narrow, Nodes, Paravirt, PendingLayout,
    RawLock, Recorder, Steps,
};

use crate::pv_fair_wait::{self, HALTED, HASHED, LISTED, RUNNING};

/// When the waiters of a fair lock are woken, and where the first one waits.
pub trait Waking {
    /// [`Described::FIFO`] of the lock.
    const FIFO: bool;
    /// [`Described::ORIGIN`] of the lock.
    const ORIGIN: &'static str;
    /// For how long the first waiter waits outside the queue, as the owner of the pending bit, before it queues. 0 if
    /// every waiter queues.
    const OUTSIDE: Budget = Budget(0);
    /// Whether the owner kicks a halted waiter as soon as that becomes the head. Otherwise the owner lists it, and the
    /// unlock kicks it.
    const KICKED_AS_HEAD: bool = false;
    /// The greatest number of halted waiters behind the head that an unlock kicks together with it.
    const AHEAD_MAX: usize = 0;
}

/// A waiter is kicked twice: as the new head, and when the lock is free.
#[derive(Debug)]
pub struct Early;

impl Waking for Early {
    const FIFO: bool = true;
    const ORIGIN: &'static str =
        "of guests in Linux 4.2 (4.3 and 4.4 are between it and pv-qspin: fair, and each waiter is kicked once)";
    const KICKED_AS_HEAD: bool = true;
}

/// The first waiter waits outside the queue for a while, and an unlock kicks waiters behind the head, too.
#[derive(Debug)]
pub struct Ahead;

impl Waking for Ahead {
    const FIFO: bool = false;
    const ORIGIN: &'static str = "proposed in July 2015: wakes waiters ahead";
    const OUTSIDE: Budget = Budget(1 << 10);
    const AHEAD_MAX: usize = 4;
}

/// A queued lock whose waiters halt, first come, first served. A waiter is kicked when it becomes the head, and again
/// when the lock is free (Linux 4.2).
pub type EarlyPvQspin<L = Narrow, S = AllSteps> = PvFair<Early, L, S>;
/// A queued lock whose waiters halt. The first one waits outside the queue for a while, and an unlock kicks up to four
/// waiters behind the head, too.
pub type AheadPvQspin<L = Narrow, S = AllSteps> = PvFair<Ahead, L, S>;

/// A queued lock whose waiters halt, and that no CPU takes past its queue. `W` decides when waiters are woken.
#[derive(Debug)]
pub struct PvFair<W, L = Narrow, S = AllSteps>(PhantomData<(W, L, S)>);

impl<W: Waking, L: PendingLayout, S: Steps> Described for PvFair<W, L, S> {
    const FIFO: bool = W::FIFO;
    const HALTS: bool = true;
    const KICKS: bool = true;
    const WITHOUT_KICKS: Instead = if L::CPUS_MAX > Narrow::CPUS_MAX {
        Instead::Native("wide-qspin")
    } else {
        Instead::Native("qspin")
    };
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = L::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = W::ORIGIN;
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: the locked byte leaves 0 only by an exchange that returns 0, or by the store of the waiter
// outside the queue, before which no other CPU exchanges it.
unsafe impl<P: Nodes + Paravirt, W: Waking, L: PendingLayout, S: Steps> Exclusive<P> for PvFair<W, L, S> {}

impl<P: Nodes + Paravirt, W: Waking, L: PendingLayout, S: Steps> RawLock<P> for PvFair<W, L, S> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; pairs with the Release of the unlock. Relaxed on failure: nothing was taken.
        if let Err(seen) = cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed)
            && (W::OUTSIDE == Budget(0) || !lock_outside::<P, W, L>(cpu, word, seen))
        {
            lock_queued::<P, Self>(cpu, word);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        try_lock(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        let key = cpu.key(word);
        // ORDERING: Release; pairs with the Acquire of the next holder. Relaxed on failure: `unlock_slow` has a fence.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        // May overwrite a 3 that has just been stored: `pv_fair_wait::list` checks for that.
        if let Err(found) = cpu.compare_store_low8(word, LOCKED as u8, 0, release) {
            unlock_slow::<P, W, L, S>(cpu, word, key, found);
        }
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

/// How long a newcomer waits while the lock is handed to the waiter outside the queue.
const HANDOVER_PATIENCE: Budget = Budget(1 << 9);

/// Waits outside the queue if the caller is the first waiter. Returns whether the caller holds the lock; if not, it
/// must queue.
#[cold]
fn lock_outside<P: Paravirt, W: Waking, L: PendingLayout>(cpu: &P, word: &P::Word, seen: u32) -> bool {
    cpu.wait_begins(word, alone);
    let taken = wait_outside::<P, W, L>(cpu, word, seen);
    cpu.wait_ends();
    taken
}

/// Returns the word without queue and pending bit: held if it was held, otherwise free.
fn alone(word: u32) -> u32 {
    if word & LOCKED_MASK != 0 { LOCKED } else { 0 }
}

fn wait_outside<P: Paravirt, W: Waking, L: PendingLayout>(cpu: &P, word: &P::Word, mut seen: u32) -> bool {
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
            L::clear_pending(cpu, word);
        }
        return false;
    }
    if before & LOCKED_MASK != 0 {
        cpu.contention_begin(word);
        // ORDERING: Acquire; pairs with the Release in `unlock`.
        let free = cpu.wait_until(word, W::OUTSIDE, Acquire, |now| now & LOCKED_MASK == 0);
        cpu.contention_end(word);
        if free.is_err() {
            L::clear_pending(cpu, word);
            return false;
        }
    }
    L::take_as_pending(cpu, word);
    cpu.recorder().add(Event::LockPending, 1);
    true
}

#[cold]
fn unlock_slow<P: Nodes + Paravirt, W: Waking, L: Layout, S: Steps>(cpu: &P, word: &P::Word, key: usize, found: u8) {
    assert!(
        found == LISTED,
        "cannot unlock: the locked byte is {found}, neither 1 (held) nor 3 (held, with a listed waiter)"
    );
    if S::LOOKUP_ACQUIRE {
        // ORDERING: Acquire fence; after the failed exchange it pairs with the Release in `pv_fair_wait::list`: the
        // entry is visible.
        cpu.fence(Acquire);
    }
    if !S::UNLIST_FIRST {
        cpu.store_low8(word, 0, Release);
    }
    let node = cpu.waiting().unlist(cpu, key);
    #[expect(unsafe_code, reason = "names a node")]
    // SAFETY: the caller holds the lock, whose head waits at this node.
    let head = unsafe { Waiter::listed::<L, P>(cpu, node) };
    let ahead = wake_ahead::<P, W, L>(cpu, &head);
    // The head cannot leave its node: this CPU holds the lock.
    // ORDERING: Release; pairs with the Acquire in `pv_fair_wait::at_head`: a head that sees RUNNING sees the 3, or a
    // later value.
    cpu.store(&head.node().state, RUNNING, Release);
    if S::UNLIST_FIRST {
        // ORDERING: Release; pairs with the Acquire of the next holder, to which it also makes visible that the entry
        // is gone.
        cpu.store_low8(word, 0, unless_omitted(S::UNLOCK_RELEASE, Release));
    }
    if S::KICK {
        kick(cpu, L::decode(node).0);
        ahead.into_iter().flatten().for_each(|next| kick(cpu, next));
    }
}

/// The most waiters that any lock kicks ahead.
const AHEAD_MAX: usize = 4;

/// Marks halted waiters behind `head` as running: **Kicked ahead**. Returns their CPUs, which the caller must kick. It
/// looks at one waiter for every four CPUs, at most at [`Waking::AHEAD_MAX`].
fn wake_ahead<P: Nodes + Paravirt, W: Waking, L: Layout>(
    cpu: &P,
    head: &Waiter<'_, P::Word>,
) -> [Option<CpuId>; AHEAD_MAX] {
    let mut woken = [None; AHEAD_MAX];
    let looks = W::AHEAD_MAX.min(cpu.waiting().cpus() / 4);
    let mut last = head.node();
    for each in woken.iter_mut().take(looks) {
        // ORDERING: Acquire; pairs with the Release store that linked the successor. An older link would lead to a
        // waiter for another lock, which would be woken in vain.
        let next = cpu.load(&last.next, Acquire);
        if next == 0 {
            break;
        }
        last = head.at::<L, P>(cpu, next);
        // ORDERING: Relaxed, both; the waiter goes on to wait for its turn, which publishes what it needs.
        if cpu
            .compare_exchange(&last.state, HALTED, RUNNING, Relaxed, Relaxed)
            .is_ok()
        {
            *each = Some(L::decode(next).0);
        }
    }
    woken
}

#[expect(unsafe_code, reason = "implements the steps of a queued lock")]
// SAFETY: **Exclusion**, as above. The queue is as in `PvQspin`. If `S` leaves steps out, the unsafe implementation of
// `Steps` answers for the consequences.
unsafe impl<P: Nodes + Paravirt, W: Waking, L: PendingLayout, S: Steps> Flavor<P> for PvFair<W, L, S> {
    type Layout = L;
    const COUNTED_AT_HEAD: bool = true;

    fn count(cpu: &P, event: Event) {
        cpu.recorder().add(event, 1);
    }

    fn may_take(word: u32) -> bool {
        word & (LOCKED_MASK | PENDING) == 0
    }

    fn prepare(cpu: &P, me: &Waiter<'_, P::Word>) {
        // ORDERING: Relaxed; published by the exchange of the tail.
        cpu.store(&me.node().state, RUNNING, Relaxed);
    }

    fn wait_in_queue(cpu: &P, _word: &P::Word, me: &Waiter<'_, P::Word>, _previous: u32) -> Turn {
        pv_fair_wait::in_queue::<P, S>(cpu, me.node());
        Turn::Head
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        cpu.recorder().add(Event::LockSlowpath, 1);
        pv_fair_wait::at_head::<P, S>(cpu, word, me, W::OUTSIDE > Budget(0));
        // ORDERING: Relaxed; the lock is held.
        Some(cpu.load(word, Relaxed) | LOCKED)
    }

    fn hand_over(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>, next: u32) {
        let node = me.at::<L, P>(cpu, next);
        // ORDERING: Release; pairs with the Acquire in `spin_in_queue`.
        cpu.store(&node.locked, 1, Release);
        if S::HANDOVER_FENCE {
            // ORDERING: SeqCst fence; pairs with the one in `halt_in_queue`. **No lost kick, in the queue** needs a
            // store ordered before a load of another word, on both sides: no weaker ordering provides that.
            cpu.fence(SeqCst);
        }
        if W::KICKED_AS_HEAD {
            // ORDERING: Relaxed, both; the waiter spins again, and sees that it is the head: the fences order that.
            let halted = cpu.compare_exchange(&node.state, HALTED, RUNNING, Relaxed, Relaxed);
            if halted.is_ok() && S::KICK {
                kick(cpu, L::decode(next).0);
            }
            return;
        }
        // ORDERING: Release; pairs with the Acquire in `halt_in_queue`: a waiter that finds itself HASHED also sees
        // that it is the head. Relaxed on failure: the waiter is awake.
        if cpu
            .compare_exchange(&node.state, HALTED, HASHED, Release, Relaxed)
            .is_ok()
        {
            // The kick is sent later, when the lock is free.
            // ORDERING: Relaxed; read by this CPU's own unlock. The new head leaves the byte alone while HASHED.
            cpu.store_low8(word, LISTED, Relaxed);
            let hops = cpu.waiting().list(cpu, cpu.key(word), next);
            cpu.recorder().add(Event::PvHashHops, hops);
        }
    }
}
