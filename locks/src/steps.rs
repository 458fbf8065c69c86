//! Steps of the locks that tests leave out, to see that something then breaks.
//!
//! A race is only closed if some checker finds it open once the closing step is gone. So the paravirtual locks ask a
//! type for each re-check, ordering and kick that their correctness rests on. The answer is a constant: [`AllSteps`]
//! costs nothing.

#![expect(
    unsafe_code,
    reason = "a lock without one of its steps may not exclude: unsafe to ask for"
)]

use core::sync::atomic::Ordering;

/// Which steps a lock takes. All of them, unless a test plants a fault.
///
/// # Safety
/// A lock with a step left out may hang or admit two holders. Only for tests whose memory safety does not rest on it.
pub unsafe trait Steps {
    /// Waiter: look again at what it waits for after it has announced that it will halt. Without: it may sleep for ever.
    const RECHECK: bool = true;
    /// Waiter: announce itself with a release, so that who sees the announcement sees the record. Without: the record
    /// may be missed.
    const ANNOUNCE_RELEASE: bool = true;
    /// Unlocker: acquire before it looks for the waiter. Without: the record may be missed.
    const LOOKUP_ACQUIRE: bool = true;
    /// Unlocker: kick the waiter that it found. Without: it sleeps for ever.
    const KICK: bool = true;
    /// Unlocker of a ticket lock: look on after a match, which may be half one record of a CPU and half its next. Without: a
    /// CPU that waits for something else is kicked, and who should have been sleeps for ever.
    const LOOK_ON: bool = true;
    /// Waiter: enable interrupts and halt in one indivisible step. Without: an interrupt in between may use up the
    /// record and the kick.
    const ATOMIC_HALT: bool = true;
    /// Waiter in a queue: a full barrier between its announcement and its second look. Without: it may sleep for ever.
    const HALT_FENCE: bool = true;
    /// Owner: a full barrier between its handover and its look at the next waiter's state. Without: the same.
    const HANDOVER_FENCE: bool = true;
    /// Waiter: test once more, with interrupts masked, what it halts for. Without: it may halt after its kick was used.
    const RETEST: bool = true;
    /// Unlocker: take the lock off the hash table before it releases it. Without: another waiter may be kicked, or none.
    const UNLIST_FIRST: bool = true;
    /// Unlocker: keep the carry of a wrapping head out of the tail. Without: tickets are lost after 32768 unlocks.
    const STOP_CARRY: bool = true;
    /// Unlocker: release what the critical section wrote.
    const UNLOCK_RELEASE: bool = true;
    /// Locker: acquire what earlier critical sections wrote.
    const LOCK_ACQUIRE: bool = true;
    /// Optimistic spinner that leaves its queue: see that it has become the head meanwhile. Without: it tries for ever.
    const LEAVE_RECHECK: bool = true;
    /// Optimistic spinner that leaves its queue: join its neighbours. Without: nobody hands over to those behind.
    const LEAVE_RELINK: bool = true;
    /// Optimistic spinner: take the successor off its node by an exchange. Without: the successor may leave meanwhile.
    const TAKE_SUCCESSOR: bool = true;
}

/// Leaves nothing out.
#[derive(Debug)]
pub struct AllSteps;

// SAFETY: every step is taken.
unsafe impl Steps for AllSteps {}

/// `order`, or [`Ordering::Relaxed`] where a test has it left out.
#[inline(always)]
pub(crate) const fn unless_omitted(taken: bool, order: Ordering) -> Ordering {
    if taken { order } else { Ordering::Relaxed }
}
