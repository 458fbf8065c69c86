//! Raw locks for `lock_api`: one type for each lock, which is a raw mutex of versions 0.5 and 0.4.

#![expect(unsafe_code, reason = "implements traits on whose exclusion memory safety rests")]

use std::time::{Duration, Instant};

use holdfast_locks::{
    Exclusive, HybridPvQspin, PvQspin, PvTicket, Qspin, RawLock, Tas, Ticket, Ttas, UnfairPvQspin, UnfairQspin,
};

use crate::cpu::{ThisThread, ThreadWord};
use crate::timed;

/// Compiles only for an algorithm that keeps **Exclusion**: no other may become a raw lock.
const fn assert_exclusive<L: Exclusive<ThisThread>>() {}

/// Defines a raw lock for each algorithm.
macro_rules! raw_locks {
    ($($(#[$doc:meta])* $raw:ident = $algorithm:ty;)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $raw(ThreadWord);

        const _: () = {
            assert_exclusive::<$algorithm>();
            assert!(size_of::<$raw>() == 4);
            assert!(size_of::<lock_api_04::Mutex<$raw, ()>>() == 4);
        };

        // SAFETY: **Exclusion** of `$algorithm`, asserted above. Neither the guard nor the library keeps the address of
        // a lock for which no thread waits: such a lock may be moved or dropped while held.
        unsafe impl lock_api_04::RawMutex for $raw {
            const INIT: Self = $raw(ThreadWord::ZERO);

            type GuardMarker = lock_api_04::GuardNoSend;

            #[inline]
            fn lock(&self) {
                <$algorithm>::lock(&ThisThread::new(), &self.0);
            }

            #[inline]
            fn try_lock(&self) -> bool {
                <$algorithm>::try_lock(&ThisThread::new(), &self.0)
            }

            #[inline]
            unsafe fn unlock(&self) {
                <$algorithm>::unlock(&ThisThread::new(), &self.0);
            }

            #[inline]
            fn is_locked(&self) -> bool {
                <$algorithm>::is_locked(&ThisThread::new(), &self.0)
            }
        }

        // SAFETY: as above, since this is the same lock. Its guards are `!Send`, too.
        #[cfg(feature = "lock_api_05")]
        unsafe impl lock_api::RawMutex for $raw {
            const INIT: Self = <$raw as lock_api_04::RawMutex>::INIT;

            type Guard = lock_api::GuardNoSend;

            #[inline]
            fn lock(&self) -> Self::Guard {
                lock_api_04::RawMutex::lock(self);
                lock_api::GuardNoSend::new()
            }

            #[inline]
            fn try_lock(&self) -> Option<Self::Guard> {
                lock_api_04::RawMutex::try_lock(self).then(lock_api::GuardNoSend::new)
            }

            #[inline]
            unsafe fn unlock(&self, _guard: Self::Guard) {
                // SAFETY: the caller holds the lock.
                unsafe { lock_api_04::RawMutex::unlock(self) };
            }

            #[inline]
            fn is_locked(&self) -> bool {
                lock_api_04::RawMutex::is_locked(self)
            }
        }
    )+};
}

/// Calls the macro `$callback` with the list of the raw locks: for each its documentation, its name and its algorithm.
///
/// Tests and benchmarks of every raw lock are made this way.
#[macro_export]
macro_rules! for_each_raw_lock {
    ($callback:ident) => {
        $callback! {
            /// Test-and-set: every try is an exchange. Waiters spin; unfair.
            RawTas = Tas;
            /// Test-and-test-and-set: a waiter tries only when the lock looks free. Waiters spin; unfair.
            RawTtas = Ttas;
            /// Ticket lock: first come, first served. Waiters spin.
            RawTicket = Ticket;
            /// Ticket lock: first come, first served. Waiters spin, then halt.
            RawPvTicket = PvTicket;
            /// Queued lock: each waiter spins on a cache line of its own.
            RawQspin = Qspin;
            /// Queued lock. Waiters spin, then halt.
            RawPvQspin = PvQspin;
            /// Queued lock that any thread may take past the queue. Waiters spin.
            RawUnfairQspin = UnfairQspin;
            /// Queued lock that any thread may take past the queue. Waiters spin, then halt.
            RawUnfairPvQspin = UnfairPvQspin;
            /// Queued lock that newcomers may take past the queue while its head does not run. Waiters halt.
            /// **Recommended** for programs: it stays fast when threads outnumber CPUs.
            RawHybrid = HybridPvQspin;
        }
    };
}

for_each_raw_lock!(raw_locks);

impl RawHybrid {
    pub(crate) fn word(&self) -> &ThreadWord {
        &self.0
    }
}

// SAFETY: a lock taken before the timeout was taken as by `lock`.
unsafe impl lock_api_04::RawMutexTimed for RawHybrid {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        lock_api_04::RawMutex::try_lock(self) || timed::lock_until(&self.0, timed::after(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        lock_api_04::RawMutex::try_lock(self) || timed::lock_until(&self.0, Some(timeout))
    }
}

// SAFETY: as above.
#[cfg(feature = "lock_api_05")]
unsafe impl lock_api::RawMutexTimed for RawHybrid {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> Option<Self::Guard> {
        lock_api_04::RawMutexTimed::try_lock_for(self, timeout).then(lock_api::GuardNoSend::new)
    }

    fn try_lock_until(&self, timeout: Instant) -> Option<Self::Guard> {
        lock_api_04::RawMutexTimed::try_lock_until(self, timeout).then(lock_api::GuardNoSend::new)
    }
}
