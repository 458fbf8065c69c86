//! Paravirtual queued spinlocks: waiters halt, and the unlocker kicks the head of the queue.
//!
//! The word is that of [`Qspin`](crate::Qspin), with these differences:
//!
//! | locked byte | |
//! |---|---|
//! | 0 | free |
//! | 1 | held |
//! | 3 | held, and the head of the queue is *listed* in the hash table: the unlocker must kick it |
//!
//! | pending | |
//! |---|---|
//! | 1 | no stealing: the head of the queue spins, or has been overtaken for long enough (never in [`Unfair`]) |
//!
//! | node's state | |
//! |---|---|
//! | running | not listed |
//! | halted | behind the head, halted or about to halt |
//! | hashed | listed, or about to be listed |
//!
//! - **Exclusion**: the locked byte goes from 0 to non-zero only by an atomic exchange that returns 0.
//! - **No lost kick, in the queue**: the waiter stores *halted* and then checks whether it has become the head. The
//!   owner makes it the head and then checks whether it has halted. Both sides have a full barrier between store and
//!   check, so at least one of them sees the other. If the owner sees *halted* it lists the waiter, and its own unlock
//!   will kick.
//! - **No lost kick, at the head**: the head lists itself, then exchanges the locked byte for 3. If the exchange
//!   returns 0 the head holds the lock. Otherwise the owner's unlock finds the 3 and kicks. The kick is sticky. If
//!   unlock is not an exchange it may overwrite the 3 without seeing it; so the head settles and checks again.
//! - **One entry**: a lock is listed at most once. The unlocker removes the entry and sets the node's state to running
//!   before it releases the lock. The head lists itself only in state running.
//! - **Word untouched after release**: after the store of 0 unlock accesses only static nodes.
//!
//! Sources: Linux `kernel/locking/qspinlock_paravirt.h`; the unfair lock is from Waiman Long's series of 2014.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::cpu::layout::{LOCKED, LOCKED_MASK, Layout, Narrow, PendingLayout, Wide};
use crate::cpu::paravirt::{Paravirt, kick};
use crate::cpu::platform::Budget;
use crate::cpu::queue::{Nodes, Waiter};
use crate::cpu::stats::{Event, Recorder};
use crate::cpu::steps::{AllSteps, Steps, unless_omitted};
use crate::raw::{Described, Instead, RawLock};
use crate::spin::pv_wait::{self, HALTED, HASHED, LISTED, RUNNING};
use crate::spin::qspin::{Flavor, Turn, is_contended, lock_queued};
use crate::spin::steal::{Hybrid, StealOnce, Stealing, Unfair, take};

/// A queued lock whose waiters halt. A newcomer tries once to take the lock past the queue (Linux 4.5 to 4.14).
pub type PvQspin<L = Narrow, S = AllSteps> = PvQueued<StealOnce, L, S>;
/// A queued lock whose waiters halt, queued and unfair by turns. While the head of the queue does not spin, newcomers
/// compete for the lock and do not queue (Linux since 4.15).
pub type HybridPvQspin<L = Narrow, S = AllSteps> = PvQueued<Hybrid, L, S>;
/// [`HybridPvQspin`] for fewer than 2097152 CPUs.
pub type WidePvQspin = HybridPvQspin<Wide>;
/// A queued lock whose waiters halt and that any CPU may take past the queue at any time (Long's series of 2014, with
/// the hash table that later replaced its walk along the queue).
pub type UnfairPvQspin<L = Narrow, S = AllSteps> = PvQueued<Unfair, L, S>;
/// A queued lock whose waiters halt. `T` decides which CPUs may take it past the queue.
#[derive(Debug)]
pub struct PvQueued<T, L = Narrow, S = AllSteps>(PhantomData<(T, L, S)>);

impl<T: Stealing, L: PendingLayout, S: Steps> Described for PvQueued<T, L, S> {
    const FIFO: bool = T::FIFO;
    const HALTS: bool = true;
    const KICKS: bool = true;
    const WITHOUT_KICKS: Instead = match T::WITHOUT_KICKS {
        Instead::Native(_) if L::CPUS_MAX > Narrow::CPUS_MAX => Instead::Native("wide-qspin"),
        other => other,
    };
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = L::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = T::ORIGIN;
}

impl<P: Nodes + Paravirt, T: Stealing, L: PendingLayout, S: Steps> RawLock<P> for PvQueued<T, L, S> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if let Err(seen) = T::fast_path::<P, L>(cpu, word) {
            // On a platform whose heads compete on equal terms the lock should stay with running CPUs for a while. So
            // if the fast path failed only because CPUs queue, the caller tries again at once.
            let eager = T::WAITS && T::sharing(cpu).head_competes();
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
        // ORDERING: Release; pairs with the Acquire of the next holder. Relaxed on failure: `unlock_slow` has a fence.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        // May overwrite a 3 that has just been stored: `pv_wait::list` checks for that.
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

impl<T: Stealing, L: PendingLayout, S: Steps> PvQueued<T, L, S> {
    /// Takes the lock past its queue, without ever queueing: waits for at most `patience` iterations until the lock
    /// is free, then competes as a newcomer. Returns whether the caller now holds the lock.
    ///
    /// It is meant for a waiter that must not queue, for example because its time is limited.
    pub fn steal<P: Nodes + Paravirt>(cpu: &P, word: &P::Word, patience: Budget) -> bool {
        // ORDERING: Relaxed; only a hint when to try.
        let _ = cpu.wait_until(word, patience, Relaxed, |now| now & LOCKED_MASK == 0);
        <Self as Flavor<P>>::try_lock(cpu, word)
    }
}

/// Counts a lock taken past its queue and, if the platform asks for it, blocks further stealing.
#[inline(always)]
fn stolen<P: Paravirt, T: Stealing, L: PendingLayout>(cpu: &P, word: &P::Word) {
    cpu.recorder().add(Event::PvLockStealing, 1);
    if T::WAITS && cpu.overtook() {
        block_stealing::<P, L>(cpu, word);
    }
}

/// Blocks stealing for the head of the queue, if there still is one: it may have ended before this CPU took the lock.
/// No CPU can leave it while this CPU holds the lock, and its head will clear the pending bit when it takes the lock.
/// Without a queue no CPU would.
///
/// Inlined, it would take registers that each acquisition saves.
#[cold]
#[inline(never)]
fn block_stealing<P: Paravirt, L: PendingLayout>(cpu: &P, word: &P::Word) {
    if L::has_queue(cpu, word) {
        L::set_pending(cpu, word);
    }
}

#[cold]
fn unlock_slow<P: Nodes + Paravirt, L: Layout, S: Steps>(cpu: &P, word: &P::Word, key: usize, found: u8) {
    assert!(
        found == LISTED,
        "cannot unlock the lock at {key:#x}: it is not held (its locked byte is {found}, neither 1 nor 3)"
    );
    if S::LOOKUP_ACQUIRE {
        // ORDERING: Acquire fence; after the failed exchange it pairs with the Release in `pv_wait::list`: the entry is
        // visible.
        cpu.fence(Acquire);
    }
    let table = &cpu.waiting().locks;
    if !S::UNLIST_FIRST {
        cpu.store_low8(word, 0, Release);
    }
    let node = table.remove(cpu, key);
    // The head cannot leave its node: this CPU holds the lock.
    // ORDERING: Release; pairs with the Acquire in `pv_wait::at_head`: a head that sees RUNNING sees the 3, or a later
    // value.
    cpu.store(&cpu.nodes().at::<L>(node).state, RUNNING, Release);
    if S::UNLIST_FIRST {
        // ORDERING: Release; pairs with the Acquire of the next holder, to which it also makes visible that the entry
        // is gone.
        cpu.store_low8(word, 0, unless_omitted(S::UNLOCK_RELEASE, Release));
    }
    if S::KICK {
        kick(cpu, L::decode(node).0);
    }
}

#[expect(unsafe_code, reason = "implements the steps")]
// SAFETY: **Exclusion** in the module's documentation. If `S` leaves steps out, the unsafe implementation of `Steps`
// answers for the consequences.
unsafe impl<P: Nodes + Paravirt, T: Stealing, L: PendingLayout, S: Steps> Flavor<P> for PvQueued<T, L, S> {
    type Layout = L;
    const TRY_WAITS: bool = T::WAITS;
    const COUNTED_AT_HEAD: bool = true;

    fn count(cpu: &P, event: Event) {
        cpu.recorder().add(event, 1);
    }

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        let taken = T::steal(cpu, word);
        // Where newcomers compete without a queue, too, one that did so has overtaken no other CPU.
        let overtook = || !T::sharing(cpu).head_competes() || L::has_queue(cpu, word);
        if taken && overtook() {
            stolen::<P, T, L>(cpu, word);
        }
        taken
    }

    #[inline(always)]
    fn competes_first(cpu: &P) -> bool {
        T::WAITS && T::sharing(cpu).head_competes()
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
            // ORDERING: SeqCst fence; pairs with the one in `halt_in_queue`. **No lost kick, in the queue** needs a
            // store ordered before a load of another word, on both sides: no weaker ordering provides that.
            cpu.fence(SeqCst);
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
            let hops = cpu.waiting().locks.insert(cpu, cpu.key(word), next);
            cpu.recorder().add(Event::PvHashHops, hops);
        }
    }
}
