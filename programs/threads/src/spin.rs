//! For how long threads spin and overtake: the settings of a program, and the record of each thread. The mechanism is
//! in [`holdfast_locks::thread`].

use core::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast_locks::Budget;
use holdfast_locks::thread::{NAP_DIVISOR, SPIN_THRESHOLD, TURN_NS, Turns};

use crate::os::{self, now_ns};
use crate::process::process;

/// The default of [`set_spin_threshold`].
pub const SPIN_THRESHOLD_DEFAULT: Budget = SPIN_THRESHOLD;

/// The default of [`set_turn`].
pub const TURN_DEFAULT: Duration = Duration::from_nanos(TURN_NS);

/// Returns how long a thread spins before it halts; see [`set_spin_threshold`].
#[inline]
pub fn spin_threshold() -> Budget {
    // ORDERING: Relaxed, here and below; the settings order nothing.
    Budget(process().spin_threshold.load(Relaxed))
}

/// Sets how long each thread of this process spins before it halts. It applies from the next wait of each thread on.
///
/// # Units
/// Iterations of load, compare, PAUSE. After 64 iterations every second one yields the CPU instead of pausing.
pub fn set_spin_threshold(threshold: Budget) {
    process().spin_threshold.store(threshold.0, Relaxed);
}

/// Returns for how long running threads may overtake the head of a hybrid lock's queue; see [`set_turn`].
pub fn turn() -> Duration {
    Duration::from_nanos(turn_ns())
}

fn turn_ns() -> u64 {
    process().turn_ns.load(Relaxed)
}

/// Sets for how long running threads of this process may overtake the head of a hybrid lock's queue. A shorter turn is
/// fairer, a longer one faster.
pub fn set_turn(turn: Duration) {
    process()
        .turn_ns
        .store(u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}

/// Lets the head of a queue sleep for a part of a turn, so that running threads may use the lock.
pub(crate) fn nap() {
    end_streak();
    os::sleep(Duration::from_nanos(turn_ns() / NAP_DIVISOR));
}

thread_local! {
    static TURNS: Turns = const { Turns::new() };
}

/// Records that the calling thread has overtaken a queue. Returns `true` if it has overtaken for a whole turn without
/// waiting in between.
#[inline(always)]
pub(crate) fn overtook() -> bool {
    // Never an error, since the record is not dropped. The compiler inlines this, and not `with`.
    TURNS
        .try_with(|turns| turns.overtook(|| (turn_ns(), now_ns())))
        .unwrap_or_default()
}

/// Ends the streak of the calling thread, which waits, so that other threads can take the lock.
pub(crate) fn end_streak() {
    TURNS.with(Turns::end_streak);
}
