//! What a guest says of locks, and which of its vCPUs others wait for.

use crate::boundary::TaskId;
use crate::sched::seam::{GuestView, RunState, ThreadView, View};

/// How far a thread may be ahead of its turn until no other one gets it a pCPU, or behind it until it gives none away.
/// Nanoseconds.
pub(super) const DEBT_MAX_NS: i64 = 3_000_000;

/// Returns whether a vCPU with this `guest` holds a spinlock, as far as the host can know. Without a word, kernel mode
/// with interrupts masked is the sign of it.
pub(super) fn is_in_section(guest: &GuestView) -> bool {
    match guest.word {
        Some(word) => word.in_section,
        None => guest.in_kernel && guest.masked && !guest.spins && !guest.halted,
    }
}

/// Returns whether a vCPU with this `guest` says that it waits for a spinlock, maybe with others behind it.
pub(super) fn is_in_queue(guest: &GuestView) -> bool {
    guest.word.is_some_and(|word| word.in_queue)
}

/// Returns whether siblings may wait for a vCPU with this `guest`: it holds a spinlock, or is in the queue of one.
pub(super) fn holds_up(guest: &GuestView) -> bool {
    is_in_section(guest) || is_in_queue(guest)
}

/// Returns `task` if it is ready and not too far ahead of its turn.
pub(super) fn ready(view: &View<'_>, task: TaskId) -> Option<ThreadView> {
    let thread = view.thread(task)?;
    let free = thread.run == RunState::Ready && thread.lag > -DEBT_MAX_NS;
    free.then_some(thread)
}

/// Returns the thread for which `waiter` most likely waits, of those that `can` run: the receiver of its IPI if its
/// word names one, else, of the siblings that were preempted, the one in a critical section that has waited longest,
/// and after that one in the queue of a lock.
pub(super) fn awaited(
    view: &View<'_>,
    waiter: TaskId,
    can: impl Fn(TaskId) -> Option<ThreadView>,
) -> Option<(TaskId, ThreadView)> {
    let word = view.thread(waiter)?.guest.word.unwrap_or_default();
    let receiver = word.waits_for.and_then(|vcpu| view.thread_of(vcpu));
    if let Some(receiver) = receiver {
        return can(receiver).map(|thread| (receiver, thread));
    }
    let siblings = view.siblings(waiter).filter_map(|task| Some((task, can(task)?)));
    let ranked = siblings.filter(|(_, thread)| holds_up(&thread.guest));
    let rank = |thread: &ThreadView| (is_in_section(&thread.guest), thread.waited);
    // Of equals the first.
    ranked.reduce(|best, other| if rank(&other.1) > rank(&best.1) { other } else { best })
}
