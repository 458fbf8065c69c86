//! The reader-writer locks of threads, as raw locks of `lock_api` 0.4.

#![expect(unsafe_code, reason = "implements traits on whose exclusion memory safety rests")]

use std::time::{Duration, Instant};

use holdfast_locks::{BiasedRwlock, HybridPvQspin, Qrwlock};

use crate::cpu::{ThisThread, ThreadWord};
use crate::{spin, timed};

/// Defines a raw lock for each algorithm, with its words.
macro_rules! raw_rwlocks {
    ($($(#[$doc:meta])* $raw:ident = $algorithm:ty, [$($word:expr),+];)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $raw($algorithm);

        impl $raw {
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

        // SAFETY: **Exclusion** of `$algorithm`. Its guards are `!Send`, so the thread that reads is the one that
        // unlocks. A lock may be moved or dropped while held by a forgotten guard: no thread will release it, and an
        // address that is left behind can only make a lock seem held.
        unsafe impl lock_api_04::RawRwLock for $raw {
            const INIT: Self = $raw(<$algorithm>::from_words($($word),+));

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

        // SAFETY: no other writer gets the lock in between: **Exclusion** of `$algorithm`.
        unsafe impl lock_api_04::RawRwLockDowngrade for $raw {
            #[inline]
            unsafe fn downgrade(&self) {
                self.0.downgrade(&ThisThread::new());
            }
        }

        // SAFETY: a lock taken before the timeout was taken as without one.
        unsafe impl lock_api_04::RawRwLockTimed for $raw {
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
    )+};
}

raw_rwlocks! {
    /// Queued reader-writer lock, fair between readers and writers. Waiters halt. It takes 8 bytes.
    ///
    /// A thread that reads must not take the lock again: if a writer waits, both wait forever.
    RawQueuedRwLock = Qrwlock<ThreadWord, HybridPvQspin>, [ThreadWord::ZERO, ThreadWord::ZERO];
    /// [`RawQueuedRwLock`] whose readers write no common cache line while there is no writer, for data that is hardly
    /// ever written. It takes 12 bytes.
    ///
    /// A thread that reads must not take the lock again, as above. A lock of which a read guard was forgotten
    /// (`mem::forget`) must not be moved: otherwise a writer of the next biased lock in its old place waits forever.
    ///
    /// # Cost
    /// A reader executes two locked instructions on a line of its thread. The first writer after such readers looks at
    /// one line for each thread that has been one of any lock, up to 512 lines, which take 32 KB. From then on readers
    /// take the lock as they take the plain one, until a thread has done so 1024 times with such locks.
    RawBiasedRwLock = BiasedRwlock<ThreadWord, HybridPvQspin>, [ThreadWord::ZERO, ThreadWord::ZERO, ThreadWord::ZERO];
}

impl Drop for RawBiasedRwLock {
    fn drop(&mut self) {
        self.0.retire(&ThisThread::new());
    }
}
