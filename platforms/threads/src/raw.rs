//! Raw locks for `lock_api`, 0.5 and 0.4: one type for each lock, which is a raw mutex of both.

#![expect(unsafe_code, reason = "implements traits on whose exclusion memory safety rests")]

use holdfast_locks::{
    CnaQspin, Exclusive, HybridPvQspin, PreemptableTicket, PvQspin, PvTicket, Qspin, RawLock, Tas, Ticket, Ttas,
    UnfairPvQspin, UnfairQspin,
};

use crate::cpu::{ThisThread, ThreadWord};

/// Nothing but algorithms that keep **Exclusion** may become raw locks.
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
            assert!(size_of::<lock_api::Mutex<$raw, ()>>() == 4);
            assert!(size_of::<lock_api_04::Mutex<$raw, ()>>() == 4);
        };

        // SAFETY: **Exclusion** of `$algorithm`, asserted above. The guard says nothing about where the lock is, nor
        // does anybody else remember a lock that nobody waits for: it may be moved or dropped while held.
        unsafe impl lock_api::RawMutex for $raw {
            const INIT: Self = $raw(ThreadWord::ZERO);

            type Guard = lock_api::GuardNoSend;

            #[inline]
            fn lock(&self) -> Self::Guard {
                <$algorithm>::lock(&ThisThread::new(), &self.0);
                lock_api::GuardNoSend::new()
            }

            #[inline]
            fn try_lock(&self) -> Option<Self::Guard> {
                <$algorithm>::try_lock(&ThisThread::new(), &self.0).then(lock_api::GuardNoSend::new)
            }

            #[inline]
            unsafe fn unlock(&self, _guard: Self::Guard) {
                <$algorithm>::unlock(&ThisThread::new(), &self.0);
            }

            #[inline]
            fn is_locked(&self) -> bool {
                <$algorithm>::is_locked(&ThisThread::new(), &self.0)
            }
        }

        // SAFETY: as above; this is the same lock. Its guards stay with their thread, too.
        unsafe impl lock_api_04::RawMutex for $raw {
            const INIT: Self = <$raw as lock_api::RawMutex>::INIT;

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
                lock_api::RawMutex::is_locked(self)
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
            /// Test-and-set: every try is an exchange. Spins, unfair.
            RawTas = Tas;
            /// Test-and-test-and-set: tries only what looks free. Spins, unfair.
            RawTtas = Ttas;
            /// First come, first served. Spins.
            RawTicket = Ticket;
            /// First come, first served. Halts.
            RawPvTicket = PvTicket;
            /// Ticket order, but who waits for too long may overtake. Spins.
            RawPreemptableTicket = PreemptableTicket;
            /// Queued: each waiter spins on a line of its own.
            RawQspin = Qspin;
            /// Queued; halts.
            RawPvQspin = PvQspin;
            /// Queued, and anybody may overtake. Spins.
            RawUnfairQspin = UnfairQspin;
            /// Queued, and anybody may overtake. Halts.
            RawUnfairPvQspin = UnfairPvQspin;
            /// Queued, and newcomers may overtake while the head of the queue is not running. Halts. **The one to take** for
            /// threads, which outnumber their CPUs sooner or later.
            RawHybrid = HybridPvQspin;
            /// Queued, and handed to waiters on the same NUMA node first. Spins.
            RawCnaQspin = CnaQspin;
        }
    };
}

for_each_raw_lock!(raw_locks);
