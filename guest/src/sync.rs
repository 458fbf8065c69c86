//! The kernel's spinlocks.

/// Which spinlock algorithm the kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Test-and-set.
    Tas,
    /// Native ticket lock.
    Ticket,
    /// Paravirtual ticket lock.
    PvTicket,
}
