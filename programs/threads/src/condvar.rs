//! The condition variable of threads on systems whose kernels have no queues of sleepers.

#![expect(unsafe_code, reason = "unlocks a mutex for which the caller vouches")]
#![cfg_attr(target_os = "linux", allow(dead_code, reason = "compiled for its tests only"))]

use std::time::Instant;

use holdfast_locks::{Condvar, CondvarSlot, CondvarTable, HybridPvQspin};

use crate::cpu::{ThisThread, ThreadAddress, ThreadWord};
use crate::raw::RawHybrid;
use crate::slot::CPUS_MAX;
use crate::{allowed, park};

/// The places of all threads in lists of waiters. Memory that is zero takes up room only once it is used.
static TABLE: CondvarTable<ThreadWord, ThreadAddress> = {
    static SLOTS: [CondvarSlot<ThreadWord, ThreadAddress>; CPUS_MAX as usize] = [const {
        CondvarSlot::from_words(
            ThreadWord::ZERO,
            ThreadWord::ZERO,
            ThreadWord::ZERO,
            ThreadAddress::ZERO,
        )
    }; CPUS_MAX as usize];
    CondvarTable::from_static(&SLOTS)
};

/// A condition variable for threads that hold a [`RawHybrid`]. It takes 12 bytes.
///
/// A broadcast wakes 64 threads for each CPU. Each of them wakes the next one, at the latest when it has got its lock.
#[derive(Debug)]
pub struct RawCondvar(Condvar<ThreadWord, HybridPvQspin>);

impl RawCondvar {
    /// Makes a condition variable for which no thread waits.
    pub const fn new() -> Self {
        RawCondvar(Condvar::from_words(
            ThreadWord::ZERO,
            ThreadWord::ZERO,
            ThreadWord::ZERO,
        ))
    }

    /// Unlocks `mutex` and waits until the calling thread is notified or `deadline` has passed, then locks `mutex`
    /// again. Returns `false` if the thread was not notified. May return `true` for no reason.
    ///
    /// # Safety
    /// The calling thread must hold `mutex`. What the mutex protects must not be borrowed.
    pub unsafe fn wait(&self, mutex: &RawHybrid, deadline: Option<Instant>) -> bool {
        let expired = || {
            let Some(deadline) = deadline else { return false };
            let left = deadline.saturating_duration_since(Instant::now());
            park::bound_next_halt(left);
            left.is_zero()
        };
        self.0
            .wait::<_, HybridPvQspin>(&ThisThread::new(), &TABLE, mutex.word(), expired)
    }

    /// Notifies the thread that has waited for longest. Returns `false` if no thread waits.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.0.notify_one(&ThisThread::new(), &TABLE)
    }

    /// Notifies all waiting threads. Returns how many there were.
    #[inline]
    pub fn notify_all(&self) -> u32 {
        self.0.notify_all(&ThisThread::new(), &TABLE, allowed::at_once())
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
