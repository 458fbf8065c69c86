//! The condition variable of threads on systems whose kernels have no queues of sleepers, over the standard library's.

#![expect(unsafe_code, reason = "unlocks a mutex for which the caller vouches")]
#![cfg_attr(target_os = "linux", allow(dead_code, reason = "compiled for its tests only"))]

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lock_api_04::RawMutex as _;

use crate::raw::RawHybrid;

/// A condition variable for threads that hold a [`RawHybrid`].
///
/// Each thread that waits has a number, and the oldest one is notified first. A notification wakes all of them, since
/// the standard library does not say which thread it would choose.
#[derive(Debug)]
pub struct RawCondvar {
    waiters: Mutex<Waiters>,
    changed: Condvar,
}

#[derive(Debug)]
struct Waiters {
    /// The number of the next thread that waits.
    next: u64,
    /// The threads that wait and have not been notified.
    waiting: VecDeque<u64>,
}

impl RawCondvar {
    /// Makes a condition variable for which no thread waits.
    pub const fn new() -> Self {
        RawCondvar {
            waiters: Mutex::new(Waiters {
                next: 0,
                waiting: VecDeque::new(),
            }),
            changed: Condvar::new(),
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks `mutex` and waits until the calling thread is notified or `deadline` has passed, then locks `mutex`
    /// again. Returns `false` if the thread was not notified. May return `true` for no reason.
    ///
    /// # Safety
    /// The calling thread must hold `mutex`. What the mutex protects must not be borrowed.
    pub unsafe fn wait(&self, mutex: &RawHybrid, deadline: Option<Instant>) -> bool {
        // A notification can only follow: the number is in the list before the mutex is free.
        let mut waiters = self.waiters();
        let number = waiters.next;
        waiters.next += 1;
        waiters.waiting.push_back(number);
        // SAFETY: the caller holds it.
        unsafe { mutex.unlock() };
        let is_notified = loop {
            let Some(place) = waiters.waiting.iter().position(|&other| other == number) else {
                break true;
            };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            waiters = match left {
                None => self.changed.wait(waiters).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    waiters.waiting.remove(place);
                    break false;
                }
                Some(left) => {
                    let woken = self.changed.wait_timeout(waiters, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        drop(waiters);
        mutex.lock();
        is_notified
    }

    /// Notifies the thread that has waited for longest. Returns `false` if no thread waits.
    pub fn notify_one(&self) -> bool {
        let notified = self.waiters().waiting.pop_front();
        self.changed.notify_all();
        notified.is_some()
    }

    /// Notifies all waiting threads. Returns how many there were.
    pub fn notify_all(&self) -> u32 {
        let count = self.waiters().waiting.drain(..).count();
        self.changed.notify_all();
        count as u32
    }
}

impl Default for RawCondvar {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use core::sync::atomic::AtomicU32;
    use core::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use lock_api_04::{RawMutex, RawRwLock};

    use super::*;
    use crate::RawQueuedRwLock;
    use crate::slot::tests::with_numbers;

    /// Two threads take turns by the condition variable `changed`, and share a reader-writer lock. Each calls `at_end`.
    pub(crate) fn take_turns<C: Sync>(
        changed: &C,
        wait: unsafe fn(&C, &RawHybrid, Option<Instant>) -> bool,
        notify_all: fn(&C) -> u32,
        at_end: impl Fn() + Sync,
    ) {
        const TURNS: u32 = 50;
        let mutex = RawHybrid::INIT;
        let (lock, turn) = (RawQueuedRwLock::INIT, AtomicU32::new(0));
        let (mutex, lock, turn, at_end) = (&mutex, &lock, &turn, &at_end);
        thread::scope(|scope| {
            let threads = [0, 1].map(|number| {
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        mutex.lock();
                        while turn.load(Relaxed) % 2 != number {
                            // SAFETY: locked above.
                            unsafe { wait(changed, mutex, None) };
                        }
                        lock.lock_exclusive();
                        turn.fetch_add(1, Relaxed);
                        // SAFETY: locked above.
                        unsafe { lock.unlock_exclusive() };
                        // SAFETY: locked above.
                        unsafe { mutex.unlock() };
                        notify_all(changed);
                        lock.lock_shared();
                        // SAFETY: locked above.
                        unsafe { lock.unlock_shared() };
                    }
                    at_end();
                })
            });
            for thread in threads {
                thread.join().expect("each takes its turns");
            }
        });
        assert_eq!(turn.load(Relaxed), 2 * TURNS);
    }

    #[test]
    fn two_threads_take_turns() {
        with_numbers(|| take_turns(&RawCondvar::new(), RawCondvar::wait, RawCondvar::notify_all, || ()));
    }
}
