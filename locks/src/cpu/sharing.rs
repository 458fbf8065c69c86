//! How a hybrid queued lock is shared between its queue and newcomers.

use crate::cpu::platform::Budget;

/// How long the CPUs that compete for a hybrid queued lock spin: chosen by the platform.
///
/// [`Sharing::LINUX`] suits vCPUs, which are woken by a hypercall and spin on physical CPUs of their own. On other
/// platforms a wakeup costs as much as a hundred critical sections, and threads outnumber CPUs. There the lock should
/// stay longer with the CPUs that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// How long a newcomer competes for a lock that has a queue before it joins the queue. If [`Sharing::head`] is not
    /// 0, it competes without a queue, too, and this is a number of PAUSEs between which it looks at the lock less and
    /// less often.
    pub newcomer: Budget,
    /// How long a waiter behind the head of the queue spins before it halts, if that is less than the
    /// [threshold](crate::Paravirt::spin_threshold).
    pub queued: Budget,
    /// How long the head of the queue competes with newcomers on equal terms before it blocks them: once before its
    /// first halt and once after it. With 0 it blocks them as soon as it spins.
    pub head: Budget,
}

impl Sharing {
    /// The behavior of Linux: newcomers compete only while the head of the queue is halted.
    pub const LINUX: Sharing = Sharing {
        newcomer: Budget::UNBOUNDED,
        queued: Budget::UNBOUNDED,
        head: Budget(0),
    };

    /// Returns whether the head of the queue competes with newcomers on equal terms.
    #[inline]
    pub(crate) fn head_competes(&self) -> bool {
        self.head > Budget(0)
    }
}
