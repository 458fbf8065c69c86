//! How waiters of the paravirtual queued locks wait: behind the head, and at the head.
//!
//! Names and invariants as in [`pv_qspin`](crate::pv_qspin).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::layout::{LOCKED, LOCKED_MASK, PendingLayout};
use crate::paravirt::halt_while;
use crate::platform::{Budget, Paravirt};
use crate::pv_qspin::{HALTED, HASHED, LISTED, RUNNING};
use crate::queue::{Node, Waiter};
use crate::stats::{Event, Recorder};
use crate::steal::{Stealing, take};
use crate::steps::Steps;

/// How many iterations lie between two looks at the predecessor's state, which is on its cache line.
const PREDECESSOR_INTERVAL: u32 = 256;

/// Waits behind `previous` to become the head of the queue.
pub(crate) fn in_queue<P: Paravirt, S: Steps>(cpu: &P, me: &Node<P::Word>, previous: &Node<P::Word>) {
    loop {
        let early = match spin_in_queue(cpu, me, previous) {
            Spin::Head => return,
            Spin::Enough => false,
            Spin::PredecessorHalted => true,
        };
        halt_in_queue::<P, S>(cpu, me, early);
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

/// What the head knows of its entry in the hash table. **One entry** rests on it.
#[derive(PartialEq)]
enum Listing {
    /// There is none.
    Absent,
    /// The owner who handed over has made it, or is about to.
    Promised,
    /// The locked byte has been seen to be 3 since then.
    Seen,
}

impl Listing {
    /// What follows from the locked byte. An unlocker takes the entry off before it overwrites the 3.
    fn given(self, locked: u8) -> Listing {
        match (self, locked) {
            (Listing::Absent, _) => Listing::Absent,
            (_, LISTED) => Listing::Seen,
            (Listing::Seen, _) => Listing::Absent,
            // Not yet, or not any more: who knows.
            (Listing::Promised, _) => Listing::Promised,
        }
    }
}

/// Waits at the head of the queue until the lock is the caller's.
pub(crate) fn at_head<P: Paravirt, T: Stealing, L: PendingLayout, S: Steps>(
    cpu: &P,
    word: &P::Word,
    me: &Waiter<'_, P::Word>,
) {
    let state = &me.node.state;
    // ORDERING: Relaxed; `halt_in_queue` has acquired the owner's HASHED if there was one.
    let promised = cpu.load(state, Relaxed) == HASHED;
    let mut listing = if promised { Listing::Promised } else { Listing::Absent };
    let mut again = false;
    loop {
        // ORDERING: Relaxed; the successor's hint.
        cpu.store(state, RUNNING, Relaxed);
        if spin_at_head::<P, T, L>(cpu, word) {
            return;
        }
        if T::LISTS_AGAIN {
            // ORDERING: Acquire; pairs with the Release of the unlock that overwrote the 3: the entry is gone.
            listing = listing.given(cpu.load(word, Acquire) as u8);
        }
        if listing == Listing::Absent {
            if list_and_recheck::<P, S>(cpu, word, me.code) {
                return;
            }
            listing = Listing::Seen;
        }
        // ORDERING: Relaxed; the successor's hint.
        cpu.store(state, HASHED, Relaxed);
        cpu.recorder().add(Event::PvWaitHead, 1);
        cpu.recorder().add(Event::PvWaitAgain, again.into());
        again = true;
        // ORDERING: Relaxed; taking the lock acquires.
        halt_while::<P, S>(cpu, || cpu.load(word, Relaxed) as u8 == LISTED);
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
