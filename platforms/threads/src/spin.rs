//! For how long threads spin and overtake: what a program may set, and each thread's own account. How they do it is
//! [`holdfast_locks::thread`]'s.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::Duration;

use holdfast_locks::Budget;
use holdfast_locks::thread::{NAP_DIVISOR, SPIN_THRESHOLD, TURN_NS, Turns};

use crate::cpu::now_ns;

/// The default of [`set_spin_threshold`].
pub const SPIN_THRESHOLD_DEFAULT: Budget = SPIN_THRESHOLD;

/// The default of [`set_turn`].
pub const TURN_DEFAULT: Duration = Duration::from_nanos(TURN_NS);

static THRESHOLD: AtomicU32 = AtomicU32::new(SPIN_THRESHOLD_DEFAULT.0);
static TURN: AtomicU64 = AtomicU64::new(TURN_NS);

/// How long a thread now spins before it halts.
#[inline]
pub fn spin_threshold() -> Budget {
    // ORDERING: Relaxed, here and below; settings.
    Budget(THRESHOLD.load(Relaxed))
}

/// Sets how long each thread of this process spins before it halts, from its next wait on.
///
/// # Units
/// Iterations of load, compare, PAUSE; from the 64th on, each second one yields the CPU instead of pausing.
pub fn set_spin_threshold(threshold: Budget) {
    THRESHOLD.store(threshold.0, Relaxed);
}

/// For how long running threads may overtake the head of a hybrid lock's queue.
pub fn turn() -> Duration {
    Duration::from_nanos(TURN.load(Relaxed))
}

/// Sets for how long running threads of this process may overtake the head of a hybrid lock's queue. Shorter is fairer, longer
/// is faster.
pub fn set_turn(turn: Duration) {
    TURN.store(u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}

/// The head of a queue leaves the lock to others for a while.
pub(crate) fn nap() {
    end_streak();
    thread::sleep(Duration::from_nanos(TURN.load(Relaxed) / NAP_DIVISOR));
}

thread_local! {
    static TURNS: Turns = const { Turns::new() };
}

/// The calling thread has overtaken a queue. True: it has done so for a turn, without waiting in between.
#[inline]
pub(crate) fn overtook() -> bool {
    TURNS.with(|turns| turns.overtook(|| (TURN.load(Relaxed), now_ns())))
}

/// The calling thread waits: others have their chance.
pub(crate) fn end_streak() {
    TURNS.with(Turns::end_streak);
}
