//! How a hybrid queued lock is shared between its queue and those who come later.

use crate::platform::Budget;

/// A platform's choice. [`Sharing::LINUX`] suits vCPUs, which are woken by a hypercall and spin on CPUs of their own.
/// Where waking costs as much as a hundred critical sections, and threads outnumber CPUs, the lock should stay where it is
/// for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// How long a newcomer competes for a lock that has a queue, before it joins the queue.
    pub newcomer: Budget,
    /// How long a waiter behind the head of the queue spins before it halts, if that is less than the
    /// [threshold](crate::Paravirt::spin_threshold).
    pub queued: Budget,
    /// How long the head competes with newcomers on equal terms, before its first halt and after it, before it blocks
    /// them. 0: it blocks them as soon as it spins.
    pub courtesy: Budget,
}

impl Sharing {
    /// As Linux has it: newcomers compete while the head of the queue halts, and no longer.
    pub const LINUX: Sharing = Sharing {
        newcomer: Budget::UNBOUNDED,
        queued: Budget::UNBOUNDED,
        courtesy: Budget(0),
    };
}
