//! How long a thread spins before it halts.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::Budget;

/// The default of [`set_spin_threshold`].
pub const SPIN_THRESHOLD_DEFAULT: Budget = Budget(128);

static THRESHOLD: AtomicU32 = AtomicU32::new(SPIN_THRESHOLD_DEFAULT.0);

/// How long a thread now spins before it halts.
#[inline]
pub fn spin_threshold() -> Budget {
    // ORDERING: Relaxed; a setting.
    Budget(THRESHOLD.load(Relaxed))
}

/// Sets how long each thread of this process spins before it halts, from its next wait on.
pub fn set_spin_threshold(threshold: Budget) {
    // ORDERING: Relaxed; a setting.
    THRESHOLD.store(threshold.0, Relaxed);
}

pub(crate) use spin_threshold as threshold;
