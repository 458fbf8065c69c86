//! The sign of a critical section.

use crate::sched::seam::GuestView;

/// Returns whether a vCPU with this `guest` holds a spinlock, as far as the host can know. Without a word, kernel mode
/// with interrupts masked is the sign of it.
pub(super) fn is_in_section(guest: &GuestView) -> bool {
    match guest.word {
        Some(word) => word.in_section,
        None => guest.in_kernel && guest.masked && !guest.spins && !guest.halted,
    }
}
