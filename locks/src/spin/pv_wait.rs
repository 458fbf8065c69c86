//! The waits of the paravirtual queued locks: behind the head of the queue, and at the head.
//!
//! Names and invariants are those of [`pv_qspin`](crate::spin::pv_qspin).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::cpu::layout::{LOCKED, LOCKED_MASK, PENDING, PendingLayout};
use crate::cpu::paravirt::{Paravirt, halt_while};
use crate::cpu::platform::{Budget, CpuId};
use crate::cpu::queue::{Node, Waiter};
use crate::cpu::stats::{Event, Recorder};
use crate::cpu::steps::Steps;
use crate::spin::steal::{Stealing, take};

/// The value of the locked byte while the head of the queue is listed.
pub(crate) const LISTED: u8 = 3;

pub(crate) const RUNNING: u32 = 0;
pub(crate) const HALTED: u32 = 1;
pub(crate) const HASHED: u32 = 2;

/// The number of iterations between two looks at the predecessor's state, which is on the predecessor's cache line.
/// Linux: `PV_PREV_CHECK_MASK`.
const PREDECESSOR_INTERVAL: u32 = 256;

/// The predecessor of a waiter in the queue.
pub(crate) struct Previous<'a, W> {
    pub node: &'a Node<W>,
    pub cpu: CpuId,
}

impl<W> Previous<'_, W> {
    /// Returns whether the predecessor is halted or preempted, so that its turn, and the turn of the waiter behind it,
    /// is far off. Linux: `pv_wait_early`.
    fn is_off<P: Paravirt<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; a hint.
        cpu.load(&self.node.state, Relaxed) != RUNNING || cpu.halts_behind_preempted() && cpu.is_preempted(self.cpu)
    }
}

/// Waits behind `previous` to become the head of the queue.
pub(crate) fn in_queue<P: Paravirt, T: Stealing, S: Steps>(
    cpu: &P,
    me: &Node<P::Word>,
    previous: &Previous<'_, P::Word>,
) {
    let threshold = cpu.spin_threshold().min(T::sharing(cpu).queued);
    loop {
        let early = match spin_in_queue(cpu, threshold, me, previous) {
            Spin::Head => return,
            Spin::ThresholdReached => false,
            Spin::PredecessorOff => true,
        };
        halt_in_queue::<P, S>(cpu, me, early);
    }
}

/// The reason why a spin in the queue ended.
enum Spin {
    /// The caller is the head.
    Head,
    /// The caller has spun up to the threshold.
    ThresholdReached,
    /// The predecessor is halted or preempted: the caller's turn is far off.
    PredecessorOff,
}

fn spin_in_queue<P: Paravirt>(
    cpu: &P,
    threshold: Budget,
    me: &Node<P::Word>,
    previous: &Previous<'_, P::Word>,
) -> Spin {
    let mut left = threshold;
    loop {
        // ORDERING: Acquire, here and below; pairs with the Release of the handover.
        if cpu.load(&me.locked, Acquire) != 0 {
            return Spin::Head;
        }
        if left.0 == 0 {
            return Spin::ThresholdReached;
        }
        if previous.is_off(cpu) {
            return Spin::PredecessorOff;
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

/// The number of waits in which a head with [`Sharing::head`](crate::Sharing::head) competes on equal terms: one before
/// its first halt and one after it.
const EQUAL_WAITS: u32 = 2;

/// Waits at the head of the queue until the caller holds the lock.
pub(crate) fn at_head<P: Paravirt, T: Stealing, L: PendingLayout, S: Steps>(
    cpu: &P,
    word: &P::Word,
    me: &Waiter<'_, P::Word>,
) {
    let shares = T::sharing(cpu).head;
    // The byte counts, too: an unlocker writes RUNNING, then overwrites the 3. If the head stored its own 3 in between,
    // that announcement would be lost.
    // ORDERING: Acquire; pairs with the Release of that RUNNING: a head that sees RUNNING sees the 3, or a later value.
    // Relaxed for the byte, which publishes nothing.
    let is_listed = || cpu.load(&me.node.state, Acquire) == HASHED || cpu.load(word, Relaxed) as u8 == LISTED;
    // If the owner handed over to a halted waiter, it has listed this waiter or is about to.
    let mut waits = u32::from(is_listed());
    let mut again = false;
    // **Unsettled**: whether an unlocker may still overwrite this head's 3. Then the 3 may vanish at any time, without
    // a kick, and this head may take the lock with its entry still in the table. So the head bounds each halt, and
    // looks after it and after it has taken the lock. No other CPU touches the entry then: only an unlocker that sees
    // the 3.
    let mut unsettled = false;
    loop {
        let equal = shares.0 > 0 && waits < EQUAL_WAITS;
        if shares.0 > 0 && waits == EQUAL_WAITS {
            wake_successor::<P, L, S>(cpu, me.node);
        }
        let taken = if equal || !T::HEAD_BLOCKS {
            compete::<P, L>(cpu, word, if equal { shares } else { cpu.spin_threshold() })
        } else {
            spin_alone::<P, L>(cpu, word)
        };
        if unsettled && is_overwritten(cpu, word, me.node) {
            unlist(cpu, word, me.node);
        }
        if taken {
            return;
        }
        if !is_listed() {
            if equal && waits > 0 {
                cpu.nap();
                waits += 1;
                continue;
            }
            if waits == 0 || T::LISTS_AGAIN || shares.0 > 0 {
                match list::<P, S>(cpu, word, me, shares) {
                    Listing::Done => unsettled = cpu.is_unsettled(),
                    Listing::Overwritten => {
                        waits += 1;
                        continue;
                    }
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
        waits += 1;
    }
}

/// Wakes the successor of a head that is about to take the lock, so that it runs when it becomes the head. The kick
/// costs less now than later, when it would delay the CPUs that want the lock.
fn wake_successor<P: Paravirt, L: PendingLayout, S: Steps>(cpu: &P, me: &Node<P::Word>) {
    // ORDERING: Relaxed; the code only names a CPU, whose node is not accessed.
    let next = cpu.load(&me.next, Relaxed);
    if next != 0 && S::KICK {
        cpu.kick(L::decode(next).0);
    }
}

/// Spins for the lock at the head of the queue, on equal terms with newcomers. Returns whether the caller holds the
/// lock; `false` if the budget is spent.
fn compete<P: Paravirt, L: PendingLayout>(cpu: &P, word: &P::Word, budget: Budget) -> bool {
    let mut left = budget;
    // ORDERING: Relaxed; the exchange acquires.
    while let Ok(seen) = cpu.wait_until(word, left, Relaxed, |now| now & LOCKED_MASK == 0) {
        // A newcomer may have set the pending bit while it held the lock (`Paravirt::overtook`).
        let taken = if seen & PENDING == 0 {
            take(cpu, word)
        } else {
            L::try_take_as_pending(cpu, word)
        };
        if taken {
            return true;
        }
        // Each lost race counts as an iteration.
        if left != Budget::UNBOUNDED {
            let Some(rest) = left.0.checked_sub(1) else {
                return false;
            };
            left.0 = rest;
        }
    }
    false
}

/// Spins for the lock at the head of the queue, with stealing blocked. Returns whether the caller holds the lock;
/// `false` if the threshold is reached.
fn spin_alone<P: Paravirt, L: PendingLayout>(cpu: &P, word: &P::Word) -> bool {
    let threshold = cpu.spin_threshold();
    L::set_pending(cpu, word);
    // A newcomer may have read the pending bit just before it was set: hence the exchange, and the loop.
    // ORDERING: Relaxed; the exchange acquires.
    while cpu
        .wait_until(word, threshold, Relaxed, |now| now & LOCKED_MASK == 0)
        .is_ok()
    {
        if L::try_take_as_pending(cpu, word) {
            return true;
        }
    }
    L::clear_pending(cpu, word);
    false
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
///
/// A head that competes on equal terms first spins for `shares` iterations: if the lock is busy, the next unlock
/// removes the entry at once, and the head need not settle.
fn list<P: Paravirt, S: Steps>(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>, shares: Budget) -> Listing {
    let table = &cpu.waiting().locks;
    let key = cpu.key(word);
    // ORDERING: Relaxed; published by the exchange below. It is also a hint for the successor.
    cpu.store(&me.node.state, HASHED, Relaxed);
    let hops = table.insert(cpu, key, me.code);
    cpu.recorder().add(Event::PvHashHops, hops);
    // ORDERING: Release pairs with the Acquire fence in `unlock_slow`: an unlocker that sees the 3 sees the entry.
    // Acquire pairs with the Release in `unlock` if the lock is free.
    let order = if S::ANNOUNCE_RELEASE { AcqRel } else { Acquire };
    let outcome = if cpu.swap_low8(word, LISTED, order) == 0 && S::RECHECK {
        // ORDERING: Relaxed; the lock is held, and only its owner looks at this byte.
        cpu.store_low8(word, LOCKED as u8, Relaxed);
        Listing::LockTaken
    } else if shares.0 > 0 && is_unlisted_within(cpu, word, shares) || cpu.settle() {
        if !is_overwritten(cpu, word, me.node) {
            return Listing::Done;
        }
        Listing::Overwritten
    } else {
        return Listing::Done;
    };
    unlist(cpu, word, me.node);
    outcome
}

/// Removes the entry of the head, which no unlocker has seen.
fn unlist<P: Paravirt>(cpu: &P, word: &P::Word, me: &Node<P::Word>) {
    cpu.waiting().locks.remove(cpu, cpu.key(word));
    // ORDERING: Relaxed; only a hint from here on.
    cpu.store(&me.state, RUNNING, Relaxed);
}

fn is_unlisted_within<P: Paravirt>(cpu: &P, word: &P::Word, budget: Budget) -> bool {
    // ORDERING: Relaxed; `is_overwritten` looks again.
    cpu.wait_until(word, budget, Relaxed, |now| now as u8 != LISTED).is_ok()
}

/// Returns whether the 3 was overwritten by an unlocker that had not seen it: the 3 is gone but the entry is still in
/// the table. An unlocker that sees the 3 removes the entry before it overwrites the 3.
fn is_overwritten<P: Paravirt>(cpu: &P, word: &P::Word, me: &Node<P::Word>) -> bool {
    // ORDERING: Acquire; pairs with the Release of the unlock that removed the entry: then its RUNNING is visible.
    cpu.load(word, Acquire) as u8 != LISTED && cpu.load(&me.state, Relaxed) == HASHED
}
