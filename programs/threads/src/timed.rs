//! Waits for a lock with a time limit.
//!
//! A waiter with a time limit does not queue, because no waiter can leave the queue from its middle. It competes as a
//! newcomer, and sleeps between its attempts. So it is not served in order, and it may notice a free lock late by the
//! length of a sleep.

use std::time::{Duration, Instant};

use holdfast_locks::{HybridPvQspin, Narrow, RawLock};

use crate::cpu::{ThisThread, ThreadWord};
use crate::{os, spin};

/// The first sleep between two attempts. Each further one is twice as long.
const SLEEP_MIN: Duration = Duration::from_micros(50);
/// The longest sleep between two attempts: a turn of the default length.
const SLEEP_MAX: Duration = spin::TURN_DEFAULT;

/// Returns the moment after `timeout`, or `None` if that is too far away for the clock.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Waits for a hybrid lock until `deadline`; without a deadline, for as long as it takes. Returns whether the caller
/// holds the lock.
#[cold]
pub(crate) fn lock_until(word: &ThreadWord, deadline: Option<Instant>) -> bool {
    let this = ThisThread::new();
    let Some(deadline) = deadline else {
        HybridPvQspin::<Narrow>::lock(&this, word);
        return true;
    };
    attempt_until(deadline, || {
        HybridPvQspin::<Narrow>::steal(&this, word, spin::spin_threshold())
    })
}

/// Repeats `attempt` until it returns `true` or the time is over. Returns whether it has returned `true`.
pub(crate) fn attempt_until(deadline: Instant, attempt: impl Fn() -> bool) -> bool {
    let mut sleep = SLEEP_MIN;
    loop {
        if attempt() {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        spin::end_streak();
        os::sleep(sleep.min(left));
        sleep = SLEEP_MAX.min(2 * sleep);
    }
}
