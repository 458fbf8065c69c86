//! The reader-writer lock of threads, as a raw lock of `lock_api` 0.4 and 0.5.

#![expect(unsafe_code, reason = "implements traits on whose exclusion memory safety rests")]

use std::time::{Duration, Instant};

use holdfast_locks::{HybridPvQspin, Qrwlock};

use crate::cpu::{ThisThread, ThreadWord};
use crate::{spin, timed};

/// Queued reader-writer lock, fair between readers and writers. Waiters halt. It takes 8 bytes.
///
/// A thread that reads must not take the lock again: if a writer waits, both wait forever.
#[derive(Debug)]
pub struct RawQueuedRwLock(Qrwlock<ThreadWord, HybridPvQspin>);

impl RawQueuedRwLock {
    fn until(&self, deadline: Option<Instant>, attempt: impl Fn(&Self) -> bool, wait: impl Fn(&Self)) -> bool {
        match deadline {
            Some(deadline) => timed::attempt_until(deadline, || attempt(self)),
            None => {
                wait(self);
                true
            }
        }
    }

    #[cold]
    fn lock_shared_until(&self, deadline: Option<Instant>) -> bool {
        let attempt = |lock: &Self| lock.0.steal_shared(&ThisThread::new(), spin::spin_threshold());
        self.until(deadline, attempt, |lock| lock.0.lock_shared(&ThisThread::new()))
    }

    #[cold]
    fn lock_exclusive_until(&self, deadline: Option<Instant>) -> bool {
        let attempt = |lock: &Self| lock.0.steal_exclusive(&ThisThread::new(), spin::spin_threshold());
        self.until(deadline, attempt, |lock| lock.0.lock_exclusive(&ThisThread::new()))
    }
}

// SAFETY: **Exclusion** of `qrwlock`. Neither the guard nor the library keeps the address of a lock for which no thread
// waits: such a lock may be moved or dropped while held.
unsafe impl lock_api_04::RawRwLock for RawQueuedRwLock {
    const INIT: Self = RawQueuedRwLock(Qrwlock::from_words(ThreadWord::ZERO, ThreadWord::ZERO));

    type GuardMarker = lock_api_04::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.0.lock_shared(&ThisThread::new());
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared(&ThisThread::new())
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.0.unlock_shared(&ThisThread::new());
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.0.lock_exclusive(&ThisThread::new());
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive(&ThisThread::new())
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        self.0.unlock_exclusive(&ThisThread::new());
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked(&ThisThread::new())
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive(&ThisThread::new())
    }
}

// SAFETY: no other writer gets the lock in between: **Exclusion** of `qrwlock`.
unsafe impl lock_api_04::RawRwLockDowngrade for RawQueuedRwLock {
    #[inline]
    unsafe fn downgrade(&self) {
        self.0.downgrade(&ThisThread::new());
    }
}

// SAFETY: a lock taken before the timeout was taken as without one.
unsafe impl lock_api_04::RawRwLockTimed for RawQueuedRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_shared(&ThisThread::new()) || self.lock_shared_until(timed::after(timeout))
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_shared(&ThisThread::new()) || self.lock_shared_until(Some(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_exclusive(&ThisThread::new()) || self.lock_exclusive_until(timed::after(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_exclusive(&ThisThread::new()) || self.lock_exclusive_until(Some(timeout))
    }
}
