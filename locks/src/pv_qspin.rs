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
//! | 1 | no stealing: the head of the queue spins, or has been overtaken for long enough (never set by [`Unfair`]) |
//!
//! | node's state | |
//! |---|---|
//! | running | not listed |
//! | halted | behind the head, about to halt or halted |
//! | hashed | listed, or about to be |
//!
//! - **Exclusion**: the locked byte goes from 0 to non-zero only by an atomic exchange that returns 0.
//! - **No lost kick, in the queue**: the waiter stores *halted* and then looks whether it has become the head; the owner
//!   makes it the head and then looks whether it has halted. With a full barrier between store and look on both sides at
//!   least one sees the other. The owner who sees *halted* lists the waiter; its own unlock will kick.
//! - **No lost kick, at the head**: the head lists itself, then exchanges the locked byte for 3. If that returns 0 it has
//!   the lock. Otherwise the owner's unlock finds the 3 and kicks. The kick is sticky. Where unlock is not an exchange it may
//!   overwrite the 3 unseen; so the head settles and looks again.
//! - **One entry**: a lock is listed at most once. The unlocker takes it off, and says so in the node's state, before it
//!   releases the lock; the head lists itself only in state running.
//! - **Word untouched after release**: after the store of 0 unlock uses only static nodes.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::layout::{LOCKED, Layout, Narrow, PendingLayout};
use crate::paravirt::{Paravirt, kick};
use crate::pv_wait::{self, HALTED, HASHED, LISTED, RUNNING};
use crate::qspin::{Flavour, Turn, is_contended, lock_queued};
use crate::queue::{Nodes, Waiter};
use crate::raw::RawLock;
use crate::stats::{Event, Recorder};
use crate::steal::{Hybrid, StealOnce, Stealing, Unfair, take};
use crate::steps::{AllSteps, Steps, unless_omitted};

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
        if let Err(seen) = T::fast_path(cpu, word) {
            // A platform with courteous heads wants the lock to stay where it is for a while: so a word that was only
            // missed because somebody queues is tried again at once.
            let eager = T::WAITS && T::sharing(cpu).courtesy.0 > 0;
            if eager && T::may_steal(seen) && take(cpu, word) {
                stolen::<P, T, L>(cpu, word);
            } else {
                lock_queued::<P, Self>(cpu, word);
            }
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
        // May overwrite a 3 that has just been stored: `pv_wait::list` sees to it.
        if let Err(found) = cpu.compare_store_low8(word, LOCKED as u8, 0, release) {
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

/// The caller has taken the lock past its queue.
#[inline]
fn stolen<P: Paravirt, T: Stealing, L: PendingLayout>(cpu: &P, word: &P::Word) {
    cpu.recorder().add(Event::PvLockStealing, 1);
    if T::WAITS && cpu.overtook() {
        // There is a queue, because there was, and none can leave it while this CPU holds the lock. Its head will clear
        // pending when it takes the lock.
        L::set_pending(cpu, word);
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
    // The head cannot leave its node: this CPU holds the lock.
    // ORDERING: Release; pairs with the Acquire in `pv_wait::at_head`: who sees the entry gone sees the 3, or what follows.
    cpu.store(&cpu.nodes().at::<L>(node).state, RUNNING, Release);
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
        let taken = T::steal(cpu, word);
        if taken {
            stolen::<P, T, L>(cpu, word);
        }
        taken
    }

    fn may_take(word: u32) -> bool {
        T::may_steal(word)
    }

    fn prepare(cpu: &P, me: &Waiter<'_, P::Word>) {
        // ORDERING: Relaxed; published by the exchange of the tail.
        cpu.store(&me.node.state, RUNNING, Relaxed);
    }

    fn wait_in_queue(cpu: &P, _word: &P::Word, me: &Waiter<'_, P::Word>, previous: u32) -> Turn {
        let previous = pv_wait::Previous {
            node: cpu.nodes().at::<L>(previous),
            cpu: L::decode(previous).0,
        };
        pv_wait::in_queue::<P, T, S>(cpu, me.node, &previous);
        Turn::Head
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        cpu.recorder().add(Event::LockSlowpath, 1);
        pv_wait::at_head::<P, T, L, S>(cpu, word, me);
        // ORDERING: Relaxed; the lock is held.
        Some(cpu.load(word, Relaxed) | LOCKED)
    }

    fn hand_over(cpu: &P, word: &P::Word, _me: &Waiter<'_, P::Word>, next: u32) {
        let node = cpu.nodes().at::<L>(next);
        // ORDERING: Release; pairs with the Acquire in `pv_wait`'s `spin_in_queue`.
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
