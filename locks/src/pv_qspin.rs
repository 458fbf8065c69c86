//! Paravirtual queued spinlocks: waiters halt, and the unlocker kicks the head of the queue.
//!
//! The word is that of [`Qspin`](crate::Qspin), but:
//!
//! | locked byte | |
//! |---|---|
//! | 0 | free |
//! | 1 | held |
//! | 3 | held, and the head of the queue is *listed* in the hash table: unlock must kick it |
//!
//! | pending | |
//! |---|---|
//! | 1 | the head of the queue spins: no stealing (never set by [`Unfair`]) |
//!
//! | node's state | |
//! |---|---|
//! | running | |
//! | halted | behind the head, about to halt or halted |
//! | hashed | listed, and about to halt or halted |
//!
//! - **Exclusion**: the locked byte goes from 0 to non-zero only by an atomic exchange that returns 0.
//! - **No lost kick, in the queue**: the waiter stores *halted* and then looks whether it has become the head; the owner
//!   makes it the head and then looks whether it has halted. With a full barrier between store and look on both sides at
//!   least one sees the other. The owner who sees *halted* lists the waiter; its own unlock will kick.
//! - **No lost kick, at the head**: the head lists itself, then exchanges the locked byte for 3. If that returns 0 it has
//!   the lock. Otherwise the owner's unlock, an exchange of the same byte, finds the 3 and kicks. The kick is sticky.
//! - **One entry**: a lock is listed at most once. The unlocker takes it off before it releases the lock.
//! - **Word untouched after release**: after the store of 0 unlock uses only static nodes.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::layout::{LOCKED, LOCKED_MASK, Layout, Narrow, PendingLayout};
use crate::paravirt::{halt_while, kick};
use crate::platform::{Budget, Nodes, Paravirt};
use crate::qspin::{Flavour, Turn, is_contended, lock_queued};
use crate::queue::{Node, Waiter};
use crate::raw::RawLock;
use crate::stats::{Event, Recorder};
use crate::steal::{Hybrid, StealOnce, Stealing, Unfair, take};
use crate::steps::{AllSteps, Steps, unless_omitted};

/// Value of the locked byte while the head of the queue is listed.
const LISTED: u8 = 3;

const RUNNING: u32 = 0;
const HALTED: u32 = 1;
const HASHED: u32 = 2;

/// How many iterations lie between two looks at the predecessor's state, which is on its cache line.
const PREDECESSOR_INTERVAL: u32 = 256;

/// Queued, paravirtual; a newcomer tries once to take the lock past the queue (Linux 4.5 to 4.14).
pub type PvQspin<L = Narrow, S = AllSteps> = PvQueued<StealOnce, L, S>;
/// Queued and unfair by turns: while the head of the queue is not spinning, newcomers compete for the lock and do not
/// queue (Linux since 4.15).
pub type HybridPvQspin<L = Narrow, S = AllSteps> = PvQueued<Hybrid, L, S>;
/// Queued, paravirtual, and whoever comes may take the lock at any time (Long's series of 2014, with the hash table that
/// replaced its walk along the queue).
pub type UnfairPvQspin<L = Narrow, S = AllSteps> = PvQueued<Unfair, L, S>;

/// A queued lock whose waiters halt; `T` says who may take it past the queue.
#[derive(Debug)]
pub struct PvQueued<T, L = Narrow, S = AllSteps>(PhantomData<(T, L, S)>);

impl<P: Nodes + Paravirt, T: Stealing, L: PendingLayout, S: Steps> RawLock<P> for PvQueued<T, L, S> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if !T::fast_path(cpu, word) {
            lock_queued::<P, Self>(cpu, word);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        T::try_lock(cpu, word)
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        let key = cpu.key(word);
        // ORDERING: Release; pairs with the Acquire of whoever takes the lock next. Relaxed on failure: `unlock_slow`
        // has a fence.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        if let Err(found) = cpu.compare_exchange_low8(word, LOCKED as u8, 0, release, Relaxed) {
            unlock_slow::<P, L, S>(cpu, word, key, found);
        }
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        T::refused(cpu.load(word, Relaxed))
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        is_contended(cpu, word)
    }
}

#[cold]
fn unlock_slow<P: Nodes + Paravirt, L: Layout, S: Steps>(cpu: &P, word: &P::Word, key: usize, found: u8) {
    assert!(
        found == LISTED,
        "unlock of a lock whose locked byte is {found}: neither held (1) nor listed (3)"
    );
    if S::LOOKUP_ACQUIRE {
        // ORDERING: Acquire fence; after the failed exchange, it pairs with the Release in `list_and_recheck`: the entry
        // is there.
        cpu.fence(Acquire);
    }
    let table = &cpu.waiting().locks;
    if !S::UNLIST_FIRST {
        cpu.store_low8(word, 0, Release);
    }
    let node = table.remove(cpu, key);
    if S::UNLIST_FIRST {
        // ORDERING: Release; pairs with the Acquire of whoever takes the lock next, and shows it the entry gone.
        cpu.store_low8(word, 0, unless_omitted(S::UNLOCK_RELEASE, Release));
    }
    if S::KICK {
        kick(cpu, L::decode(node).0);
    }
}

impl<P: Nodes + Paravirt, T: Stealing, L: PendingLayout, S: Steps> Flavour<P> for PvQueued<T, L, S> {
    type Layout = L;
    const TRY_WAITS: bool = T::WAITS;
    const COUNTED_AT_HEAD: bool = true;

    fn count(cpu: &P, event: Event) {
        cpu.recorder().add(event, 1);
    }

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        let stolen = T::steal(cpu, word);
        if stolen {
            cpu.recorder().add(Event::PvLockStealing, 1);
        }
        stolen
    }

    fn may_take(word: u32) -> bool {
        T::may_steal(word)
    }

    fn prepare(cpu: &P, me: &Waiter<'_, P::Word>) {
        // ORDERING: Relaxed; published by the exchange of the tail.
        cpu.store(&me.node.state, RUNNING, Relaxed);
    }

    fn wait_in_queue(cpu: &P, _word: &P::Word, me: &Waiter<'_, P::Word>, previous: u32) -> Turn {
        let previous = cpu.nodes().at::<L>(previous);
        loop {
            let early = match spin_in_queue(cpu, me.node, previous) {
                Spin::Head => return Turn::Head,
                Spin::Enough => false,
                Spin::PredecessorHalted => true,
            };
            halt_in_queue::<P, S>(cpu, me.node, early);
        }
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        cpu.recorder().add(Event::LockSlowpath, 1);
        let state = &me.node.state;
        // ORDERING: Relaxed; `wait_in_queue` has acquired the owner's HASHED if there was one.
        let mut listed = cpu.load(state, Relaxed) == HASHED;
        let mut again = false;
        loop {
            // ORDERING: Relaxed; the successor's hint.
            cpu.store(state, RUNNING, Relaxed);
            if spin_at_head::<P, T, L>(cpu, word) {
                break;
            }
            // ORDERING: Relaxed; an entry goes only when an unlocker finds the 3, which then is gone as well.
            if listed && T::LISTS_AGAIN && cpu.load(word, Relaxed) as u8 != LISTED {
                listed = false;
            }
            if !listed {
                if list_and_recheck::<P, S>(cpu, word, me.code) {
                    break;
                }
                listed = true;
            }
            // ORDERING: Relaxed; the successor's hint.
            cpu.store(state, HASHED, Relaxed);
            cpu.recorder().add(Event::PvWaitHead, 1);
            cpu.recorder().add(Event::PvWaitAgain, again.into());
            again = true;
            // ORDERING: Relaxed; taking the lock acquires.
            halt_while::<P, S>(cpu, || cpu.load(word, Relaxed) as u8 == LISTED);
        }
        // ORDERING: Relaxed; the lock is held.
        Some(cpu.load(word, Relaxed) | LOCKED)
    }

    fn hand_over(cpu: &P, word: &P::Word, _me: &Waiter<'_, P::Word>, next: u32) {
        let node = cpu.nodes().at::<L>(next);
        // ORDERING: Release; pairs with the Acquire in `spin_in_queue`.
        cpu.store(&node.locked, 1, Release);
        if S::HANDOVER_FENCE {
            // ORDERING: SeqCst fence; pairs with the one in `halt_in_queue`. **No lost kick, in the queue** is a store and
            // a load of another word on both sides: nothing weaker orders that.
            cpu.fence(SeqCst);
        }
        // ORDERING: Release; pairs with the Acquire in `halt_in_queue`: a waiter that finds itself HASHED is the head and
        // sees it. Relaxed on failure: the waiter is awake.
        if cpu
            .compare_exchange(&node.state, HALTED, HASHED, Release, Relaxed)
            .is_ok()
        {
            // Nobody is woken yet: the kick waits until the lock is free.
            // ORDERING: Relaxed; read by this CPU's own unlock. The new head leaves the byte alone while HASHED.
            cpu.store_low8(word, LISTED, Relaxed);
            let hops = cpu.waiting().locks.insert(cpu, cpu.key(word), next);
            cpu.recorder().add(Event::PvHashHops, hops);
        }
    }
}

/// How a spin in the queue ended.
enum Spin {
    /// The caller is the head.
    Head,
    /// The threshold is reached.
    Enough,
    /// The predecessor has given up: the caller's turn is far off.
    PredecessorHalted,
}

fn spin_in_queue<P: Paravirt>(cpu: &P, me: &Node<P::Word>, previous: &Node<P::Word>) -> Spin {
    let mut left = cpu.spin_threshold();
    loop {
        // ORDERING: Acquire, here and below; pairs with the Release of the handover.
        if cpu.load(&me.locked, Acquire) != 0 {
            return Spin::Head;
        }
        if left.0 == 0 {
            return Spin::Enough;
        }
        // ORDERING: Relaxed; a hint.
        if cpu.load(&previous.state, Relaxed) != RUNNING {
            return Spin::PredecessorHalted;
        }
        let chunk = Budget(left.0.min(PREDECESSOR_INTERVAL));
        if cpu.wait_until(&me.locked, chunk, Acquire, |locked| locked != 0).is_ok() {
            return Spin::Head;
        }
        if left != Budget::UNBOUNDED {
            left.0 -= chunk.0;
        }
    }
}

fn halt_in_queue<P: Paravirt, S: Steps>(cpu: &P, me: &Node<P::Word>, early: bool) {
    // ORDERING: Relaxed; the fence below orders it.
    cpu.store(&me.state, HALTED, Relaxed);
    if S::HALT_FENCE {
        // ORDERING: SeqCst fence; pairs with the one in `hand_over`.
        cpu.fence(SeqCst);
    }
    // ORDERING: Relaxed; the fence above orders it, and the next spin acquires.
    if !S::RECHECK || cpu.load(&me.locked, Relaxed) == 0 {
        cpu.recorder().add(Event::PvWaitNode, 1);
        cpu.recorder().add(Event::PvWaitEarly, early.into());
        // ORDERING: Relaxed; whoever changes it will also kick.
        halt_while::<P, S>(cpu, || cpu.load(&me.state, Relaxed) == HALTED);
    }
    // Failure means HASHED, which must stay: the head must know that it is listed.
    // ORDERING: Acquire on failure; pairs with the Release in `hand_over`: the next look finds `locked` set. Weaker, the
    // waiter could overwrite HASHED and be listed twice. Relaxed on success: this CPU's own value comes back.
    let _ = cpu.compare_exchange(&me.state, HALTED, RUNNING, Relaxed, Acquire);
    // ORDERING: Relaxed; for the statistics.
    if P::Recorder::ACTIVE && cpu.load(&me.locked, Relaxed) == 0 {
        cpu.recorder().add(Event::PvSpuriousWakeup, 1);
    }
}

/// Spins for the lock at the head of the queue. False: long enough.
fn spin_at_head<P: Paravirt, T: Stealing, L: PendingLayout>(cpu: &P, word: &P::Word) -> bool {
    let threshold = cpu.spin_threshold();
    if T::HEAD_BLOCKS {
        L::set_pending(cpu, word);
    }
    // A stealer may have looked at pending just before it was set: hence the exchange, and the loop.
    // ORDERING: Relaxed; the exchange acquires.
    while cpu
        .wait_until(word, threshold, Relaxed, |now| now & LOCKED_MASK == 0)
        .is_ok()
    {
        let taken = if T::HEAD_BLOCKS {
            L::try_take_as_pending(cpu, word)
        } else {
            take(cpu, word)
        };
        if taken {
            return true;
        }
    }
    if T::HEAD_BLOCKS {
        L::clear_pending(cpu, word);
    }
    false
}

/// Lists the head of the queue, which will then halt. True: the lock was free, and is the caller's.
fn list_and_recheck<P: Paravirt, S: Steps>(cpu: &P, word: &P::Word, code: u32) -> bool {
    let table = &cpu.waiting().locks;
    let key = cpu.key(word);
    let hops = table.insert(cpu, key, code);
    cpu.recorder().add(Event::PvHashHops, hops);
    // ORDERING: Release pairs with the Acquire fence in `unlock_slow`: who sees the 3 sees the entry. Acquire pairs with
    // the Release in `unlock`, if the lock is free.
    let order = if S::ANNOUNCE_RELEASE { AcqRel } else { Acquire };
    if cpu.swap_low8(word, LISTED, order) != 0 || !S::RECHECK {
        return false;
    }
    // ORDERING: Relaxed; the lock is held, and only its owner looks at this byte.
    cpu.store_low8(word, LOCKED as u8, Relaxed);
    table.remove(cpu, key);
    true
}
