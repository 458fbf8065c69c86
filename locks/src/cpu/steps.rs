//! Steps of the locks that tests leave out, to prove that a checker then finds an error.
//!
//! A test of a race is only good if it fails once the step that closes the race is left out. So the paravirtual locks
//! ask a type parameter before each re-check, ordering and kick that their correctness rests on. The answers are
//! constants: [`AllSteps`] costs nothing.

#![expect(
    unsafe_code,
    reason = "a lock that leaves a step out may not exclude: it is unsafe to ask for one"
)]

use core::sync::atomic::Ordering;

/// The steps that a lock takes: all of them, unless a test plants a fault.
///
/// # Safety
/// A lock that leaves out a step may hang or admit two holders. Leave steps out only in tests whose memory safety does
/// not rest on the lock.
pub unsafe trait Steps {
    /// The waiter reads again what it waits for after it has announced that it will halt. Without this it may sleep
    /// forever.
    const RECHECK: bool = true;
    /// The waiter announces itself with a Release, so that an unlocker that sees the announcement also sees the record.
    /// Without this the unlocker may miss the record.
    const ANNOUNCE_RELEASE: bool = true;
    /// The unlocker acquires before it looks for the waiter. Without this it may miss the record.
    const LOOKUP_ACQUIRE: bool = true;
    /// The unlocker kicks the waiter that it found. Without this the waiter sleeps forever.
    const KICK: bool = true;
    /// The unlocker of a ticket lock keeps searching after a match, which may be half of one record of a CPU and half
    /// of its next record. Without this it may kick only a CPU that waits for another lock, and the real waiter sleeps
    /// forever.
    const KEEP_SEARCHING: bool = true;
    /// The waiter enables interrupts and halts in one indivisible step. Without this an interrupt in between may
    /// consume the record and the kick.
    const ATOMIC_HALT: bool = true;
    /// The waiter in a queue has a full barrier between its announcement and its second look. Without this it may sleep
    /// forever.
    const HALT_FENCE: bool = true;
    /// The owner has a full barrier between its handover and its look at the next waiter's state. Without this the next
    /// waiter may sleep forever.
    const HANDOVER_FENCE: bool = true;
    /// The waiter tests once more, with interrupts masked, whether it still has to halt. Without this it may halt after
    /// its kick was consumed.
    const RETEST: bool = true;
    /// The unlocker removes the lock from the hash table before it releases the lock. Without this it may kick another
    /// waiter, or none.
    const UNLIST_FIRST: bool = true;
    /// The unlocker keeps the carry of a wrapping head out of the tail. Without this tickets are lost after 32768
    /// unlocks.
    const STOP_CARRY: bool = true;
    /// The unlocker releases what the critical section wrote.
    const UNLOCK_RELEASE: bool = true;
    /// The new holder acquires what earlier critical sections wrote.
    const LOCK_ACQUIRE: bool = true;
    /// An optimistic spinner that leaves its queue checks whether it has become the head meanwhile. Without this it
    /// tries forever. Likewise the last waiter for a condition checks whether the condition variable is being
    /// destroyed.
    const LEAVE_RECHECK: bool = true;
    /// An optimistic spinner that leaves its queue links its neighbors. Without this the spinners behind it never
    /// become the head.
    const LEAVE_RELINK: bool = true;
    /// An optimistic spinner removes its successor from its node by an exchange. Without this the successor may leave
    /// meanwhile.
    const TAKE_SUCCESSOR: bool = true;
    /// A CPU that waits for a condition reads the number of notifications before it unlocks the mutex. Without this a
    /// notification in between is lost.
    const ENLIST_FIRST: bool = true;
    /// A waiter that a broadcast has woken wakes the next one. Without this only the first ones wake.
    const PASS_ON: bool = true;
    /// The head of a reader-writer lock's queue blocks newcomers. Without this readers may overtake a writer without
    /// end.
    const BLOCK: bool = true;
    /// A CPU that has added itself to a reader-writer lock in vain subtracts itself again. Without this the lock is
    /// never free again.
    const TAKE_BACK: bool = true;
}

/// Every step: the default of all locks.
#[derive(Debug)]
pub struct AllSteps;

// SAFETY: every step is taken.
unsafe impl Steps for AllSteps {}

/// Returns `order`, or [`Ordering::Relaxed`] if a test leaves the ordering out.
#[inline(always)]
pub const fn unless_omitted(taken: bool, order: Ordering) -> Ordering {
    if taken { order } else { Ordering::Relaxed }
}
