//! Waiting by the standard library, on systems without futexes of their own here: Windows, macOS, other Unix.
//!
//! A sleeping thread waits in one of 64 *buckets*, chosen by the word's address. **No lost wakeup**: the sleeper looks
//! at the word with the bucket locked. The waker has changed the word before it locks the bucket. So the sleeper either
//! sees the change, or sleeps before the waker notifies.
//!
//! What Linux has and these systems do not: a wait is a cancellation point where the standard library's is one. A child
//! of `fork` may use only locks for which no thread waited. A plugin that contains this code must stay loaded as long
//! as threads that have waited exist. NUMA nodes are unknown.

#![cfg_attr(target_os = "linux", allow(dead_code, reason = "compiled for its tests only"))]

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_locks::{CpuId, Platform};

use crate::cpu::{ThisThread, ThreadWord};
use crate::slot;

/// Where the threads sleep whose words have addresses with the same remainder.
struct Bucket {
    looking: Mutex<()>,
    changed: Condvar,
}

static BUCKETS: [Bucket; 64] = [const {
    Bucket {
        looking: Mutex::new(()),
        changed: Condvar::new(),
    }
}; 64];

fn bucket(word: &ThreadWord) -> &'static Bucket {
    // Each parker has 64 bytes of its own.
    &BUCKETS[ptr::from_ref(word).addr() / 64 % BUCKETS.len()]
}

/// Sleeps while `word` holds `value`, for at most `bound`. May return earlier.
pub(crate) fn wait(word: &ThreadWord, value: u32, bound: Option<Duration>) {
    let bucket = bucket(word);
    // Nothing panics with the bucket locked, so there is no poison to find.
    let looking = bucket.looking.lock().unwrap_or_else(PoisonError::into_inner);
    // ORDERING: Relaxed; the bucket's mutex orders it: **No lost wakeup**.
    if ThisThread::new().load(word, Relaxed) != value {
        return;
    }
    match bound {
        Some(bound) => drop(bucket.changed.wait_timeout(looking, bound)),
        None => drop(bucket.changed.wait(looking)),
    }
}

/// Wakes the thread that sleeps on `word`, and any others of its bucket.
pub(crate) fn wake(word: &ThreadWord) {
    let bucket = bucket(word);
    drop(bucket.looking.lock());
    bucket.changed.notify_all();
}

/// Returns `None`: affinities are unknown.
pub(crate) fn cpus_by_affinity() -> Option<u32> {
    None
}

/// Sleeps for `time`.
pub(crate) fn sleep(time: Duration) {
    thread::sleep(time);
}

/// Returns the time of a clock that never goes back, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Calls `look`. Linux keeps cancellation away meanwhile.
pub(crate) fn without_cancellation<R>(look: impl FnOnce() -> R) -> R {
    look()
}

/// Does nothing: a thread that ends gives its number back itself.
pub(crate) fn give_back_of_gone_threads() {}

/// Gives back the number of a thread that ends.
struct GiveBack(Cell<Option<CpuId>>);

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Some(cpu) = self.0.take() {
            slot::give_back(cpu);
        }
    }
}

/// Arranges that [`slot::give_back`] is called when the calling thread ends. Only the last call of a thread counts.
/// Returns `false` if the thread has ended so far that it cannot be arranged.
pub(crate) fn give_back_at_exit(cpu: CpuId) -> bool {
    thread_local! {
        static GIVE_BACK: GiveBack = const { GiveBack(Cell::new(None)) };
    }
    GIVE_BACK.try_with(|number| number.0.set(Some(cpu))).is_ok()
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::{AcqRel, Acquire};

    use holdfast_locks::Word;
    use holdfast_locks::thread::Parker;

    use super::*;

    /// The two words may share a bucket: the addresses of a pair of words are 4 bytes apart.
    #[test]
    fn no_wakeup_is_lost_between_two_threads_that_take_turns() {
        const TURNS: u32 = 2_000;
        let words = &[ThreadWord::new(0), ThreadWord::new(0)];
        thread::scope(|scope| {
            for me in 0..2 {
                scope.spawn(move || {
                    let this = ThisThread::new();
                    let (mine, other) = (&words[me], &words[1 - me]);
                    for turn in 0..TURNS {
                        if me == 1 || turn > 0 {
                            // ORDERING: Acquire; pairs with the AcqRel below.
                            while this.load(mine, Acquire) == 0 {
                                wait(mine, 0, None);
                            }
                            this.store(mine, 0, Relaxed);
                        }
                        this.swap(other, 1, AcqRel);
                        wake(other);
                    }
                });
            }
        });
    }

    #[test]
    fn a_wait_ends_if_the_word_differs_or_the_time_is_over() {
        let word = ThreadWord::new(1);
        wait(&word, 0, None);
        wait(&word, 1, Some(Duration::from_millis(1)));
    }

    /// A clock that goes back, or stands still for longer than a sleep, would break turns.
    #[test]
    fn the_clock_advances_while_a_thread_sleeps() {
        let before = now_ns();
        sleep(Duration::from_millis(1));
        assert!(now_ns() >= before + 1_000_000);
    }

    #[test]
    fn a_parker_fits_a_bucket() {
        assert_eq!(align_of::<Parker<ThreadWord>>(), 64);
    }
}
