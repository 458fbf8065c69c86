//! Reader-writer locks whose holders ask the kernel for more time: the writer, and each reader.

use lock_api_04::{GuardNoSend, RawRwLock, RawRwLockDowngrade, RawRwLockTimed};

use super::{Extended, attempt, begin, end};

// SAFETY: the lock is the inner one, which excludes.
unsafe impl<R: RawRwLock> RawRwLock for Extended<R> {
    const INIT: Self = Extended(R::INIT);

    /// The thread that locks counts the section, so it must be the one that unlocks.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        begin();
        self.0.lock_shared();
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        attempt(|| self.0.try_lock_shared())
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock, here and below.
        unsafe { self.0.unlock_shared() };
        end();
    }

    #[inline]
    fn lock_exclusive(&self) {
        begin();
        self.0.lock_exclusive();
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        attempt(|| self.0.try_lock_exclusive())
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: as above.
        unsafe { self.0.unlock_exclusive() };
        end();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

// SAFETY: as above. The section of the writer goes on as the reader's.
unsafe impl<R: RawRwLockDowngrade> RawRwLockDowngrade for Extended<R> {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: as above.
        unsafe { self.0.downgrade() };
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockTimed> RawRwLockTimed for Extended<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    fn try_lock_shared_for(&self, timeout: R::Duration) -> bool {
        attempt(|| self.0.try_lock_shared_for(timeout))
    }

    fn try_lock_shared_until(&self, timeout: R::Instant) -> bool {
        attempt(|| self.0.try_lock_shared_until(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: R::Duration) -> bool {
        attempt(|| self.0.try_lock_exclusive_for(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: R::Instant) -> bool {
        attempt(|| self.0.try_lock_exclusive_until(timeout))
    }
}
