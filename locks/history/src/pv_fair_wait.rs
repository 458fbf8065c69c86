//! The waits of the fair paravirtual queued locks: behind the head of the queue, and at the head.
//!
//! Names and invariants are those of [`pv_fair`](crate::pv_fair).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use holdfast_locks::parts::{LOCKED, LOCKED_MASK, PENDING, Waiter, halt_while, take};
use holdfast_locks::{Budget, Event, Node, Paravirt, Recorder, Steps, wait_for};

/// The value of the locked byte while the head of the queue is listed.
pub(crate) const LISTED: u8 = 3;

pub(crate) const RUNNING: u32 = 0;
pub(crate) const HALTED: u32 = 1;
pub(crate) const HASHED: u32 = 2;

/// Waits to become the head of the queue.
pub(crate) fn in_queue<P: Paravirt, S: Steps>(cpu: &P, me: &Node<P::Word>) {
    let threshold = cpu.spin_threshold();
    let mut left = threshold;
    // ORDERING: Acquire, both; pairs with the Release of the handover.
    while cpu.load(&me.locked, Acquire) == 0 {
        if left == Budget(0) {
            halt_in_queue::<P, S>(cpu, me);
            left = threshold;
        } else if cpu.wait_until(&me.locked, left, Acquire, |locked| locked != 0).is_ok() {
            return;
        } else if left != Budget::UNBOUNDED {
            left = Budget(0);
        }
    }
}

fn halt_in_queue<P: Paravirt, S: Steps>(cpu: &P, me: &Node<P::Word>) {
    // ORDERING: Relaxed; the fence below orders it.
    cpu.store(&me.state, HALTED, Relaxed);
    if S::HALT_FENCE {
        // ORDERING: SeqCst fence; pairs with the one in `hand_over`.
        cpu.fence(SeqCst);
    }
    // ORDERING: Relaxed; the fence above orders it, and the next spin acquires.
    if !S::RECHECK || cpu.load(&me.locked, Relaxed) == 0 {
        cpu.recorder().add(Event::PvWaitNode, 1);
        // ORDERING: Relaxed; the CPU that changes it will also kick.
        halt_while::<P, S>(cpu, || cpu.load(&me.state, Relaxed) == HALTED);
    }
    // Failure means HASHED, which must stay, so that the head knows that it is listed.
    // ORDERING: Acquire on failure; pairs with the Release in `hand_over`: the next look finds `locked` set. If it were
    // weaker, the waiter could overwrite HASHED and be listed twice. Relaxed on success: this CPU reads its own value.
    let _ = cpu.compare_exchange(&me.state, HALTED, RUNNING, Relaxed, Acquire);
    // ORDERING: Relaxed; for the statistics.
    if P::Recorder::ACTIVE && cpu.load(&me.locked, Relaxed) == 0 {
        cpu.recorder().add(Event::PvSpuriousWakeup, 1);
    }
}

/// Waits at the head of the queue until the caller holds the lock. `outside`: a waiter may wait outside the queue.
pub(crate) fn at_head<P: Paravirt, S: Steps>(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>, outside: bool) {
    // The byte counts, too: an unlocker writes RUNNING, then overwrites the 3. If the head stored its own 3 in between,
    // that announcement would be lost.
    // ORDERING: Acquire; pairs with the Release of that RUNNING: a head that sees RUNNING sees the 3, or a later value.
    // Relaxed for the byte, which publishes nothing.
    let is_listed = || cpu.load(&me.node().state, Acquire) == HASHED || cpu.load(word, Relaxed) as u8 == LISTED;
    // If the owner handed over to a halted waiter, it has listed this waiter or is about to.
    let mut may_list = !is_listed();
    let mut again = false;
    // Whether an unlocker may still overwrite this head's 3, as in `PvQspin`. So the head bounds each halt, and looks
    // after it and after it has taken the lock.
    let mut unsettled = false;
    loop {
        let taken = spin_first(cpu, word);
        if unsettled && is_overwritten(cpu, word, me.node()) {
            unlist(cpu, word, me.node());
        }
        if taken {
            return;
        }
        if !is_listed() {
            if may_list {
                if outside {
                    // **The waiter outside the queue** would not see that this head has taken the lock. It gives the
                    // bit up after a while.
                    // ORDERING: Relaxed; coherence keeps the bit clear for this head from here on.
                    wait_for(cpu, word, Relaxed, |now| now & PENDING == 0);
                }
                may_list = false;
                match list::<P, S>(cpu, word, me) {
                    Listing::Done => unsettled = cpu.is_unsettled(),
                    Listing::Overwritten => continue,
                    Listing::LockTaken => return,
                }
            }
        } else if unsettled {
            // Bounds the next halt, too.
            cpu.settle();
        }
        cpu.recorder().add(Event::PvWaitHead, 1);
        cpu.recorder().add(Event::PvWaitAgain, again.into());
        again = true;
        halt_while::<P, S>(cpu, is_listed);
        may_list = false;
    }
}

/// Spins for the lock, before which no other CPU may take it but the waiter outside the queue. Returns whether the
/// caller holds the lock; `false` if the threshold is reached.
fn spin_first<P: Paravirt>(cpu: &P, word: &P::Word) -> bool {
    // ORDERING: Relaxed; the exchange acquires.
    cpu.wait_until(word, cpu.spin_threshold(), Relaxed, |now| {
        now & (LOCKED_MASK | PENDING) == 0
    })
    .is_ok()
        && take(cpu, word)
}

/// The result of an attempt of the head to list itself.
enum Listing {
    /// The head is listed.
    Done,
    /// The lock was free, and the head now holds it.
    LockTaken,
    /// An unlocker has released the lock and overwritten the 3 without seeing it.
    Overwritten,
}

/// Lists the head of the queue, which will then halt.
fn list<P: Paravirt, S: Steps>(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Listing {
    // ORDERING: Relaxed; published by the exchange below.
    cpu.store(&me.node().state, HASHED, Relaxed);
    let hops = cpu.waiting().list(cpu, cpu.key(word), me.code());
    cpu.recorder().add(Event::PvHashHops, hops);
    // ORDERING: Release pairs with the Acquire fence in `unlock_slow`: an unlocker that sees the 3 sees the entry.
    // Acquire pairs with the Release in `unlock` if the lock is free.
    let order = if S::ANNOUNCE_RELEASE { AcqRel } else { Acquire };
    let outcome = if cpu.swap_low8(word, LISTED, order) == 0 && S::RECHECK {
        // ORDERING: Relaxed; the lock is held, and only its owner looks at this byte.
        cpu.store_low8(word, LOCKED as u8, Relaxed);
        Listing::LockTaken
    } else if cpu.settle() && is_overwritten(cpu, word, me.node()) {
        Listing::Overwritten
    } else {
        return Listing::Done;
    };
    unlist(cpu, word, me.node());
    outcome
}

/// Removes the entry of the head, which no unlocker has seen.
fn unlist<P: Paravirt>(cpu: &P, word: &P::Word, me: &Node<P::Word>) {
    cpu.waiting().unlist(cpu, cpu.key(word));
    // ORDERING: Relaxed; only a hint from here on.
    cpu.store(&me.state, RUNNING, Relaxed);
}

/// Returns whether the 3 was overwritten by an unlocker that had not seen it: the 3 is gone but the entry is still in
/// the table. An unlocker that sees the 3 removes the entry before it overwrites the 3.
fn is_overwritten<P: Paravirt>(cpu: &P, word: &P::Word, me: &Node<P::Word>) -> bool {
    // ORDERING: Acquire; pairs with the Release of the unlock that removed the entry: then its RUNNING is visible.
    cpu.load(word, Acquire) as u8 != LISTED && cpu.load(&me.state, Relaxed) == HASHED
}
