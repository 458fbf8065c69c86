//! The time slice extension of Linux: a thread that holds a lock asks to run on for some microseconds, so that it is
//! not preempted inside a short critical section.
//!
//! The kernel can do so since 7.0 if it is built with `CONFIG_RSEQ_SLICE_EXTENSION`
//! (`Documentation/userspace-api/rseq.rst`). A thread enables the extension once, by `prctl(2)`. From then on two bytes
//! of its restartable-sequences area count:
//!
//! | request | granted | |
//! |---|---|---|
//! | 0 | 0 | nothing is asked for, or a grant has ended |
//! | 1 | 0 | asked: if an interrupt would end the time slice now, the kernel grants instead |
//! | 0 | 1 | the thread runs on borrowed time, 5 us by default and 50 us at most |
//!
//! **Asked while it may hold**: [`Extended`] asks before its lock's first attempt, so the request is there when the
//! attempt succeeds, and withdraws after the release. If there was a grant, it then gives the CPU back by
//! `rseq_slice_yield(2)`. The head of a queue asks, too, because it tries to take the lock as long as it is awake.
//!
//! **Withdrawn for system calls**: any other system call within a grant ends it, and the thread is scheduled out
//! before the call does anything. So whatever a lock calls, it calls without a request ([`outside`]): a sleeping or
//! yielding thread asks for nothing, and no grant that begins just before a wakeup delays the wakeup. A grant that the
//! thread has already is left to the system call, which ends it as `rseq_slice_yield(2)` would.
//!
//! **Counted**: sections may nest and overlap. The request stays until the last of them ends.
//!
//! **Not remembered**: any library may switch the extension off for a thread, so each section looks at the kernel's
//! flag. A library that asks for itself keeps its request: a section within it neither asks nor withdraws.
//!
//! **Off on any error**: a thread whose `prctl(2)` or `rseq_slice_yield(2)` fails asks no more.
//!
//! Elsewhere than on Linux and x86-64 nothing is asked.

#![expect(unsafe_code, reason = "implements traits on whose exclusion memory safety rests")]

use std::time::Instant;

use lock_api_04::{GuardNoSend, RawMutex, RawMutexTimed};

use crate::RawCondvar;
use crate::raw::RawHybrid;

mod rwlock;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
mod sections;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
pub use sections::has_slice_extension;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
pub(crate) use sections::outside;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
use sections::{begin, end};

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
mod nothing {
    #[inline(always)]
    pub(super) fn begin() {}
    #[inline(always)]
    pub(super) fn end() {}
    /// Calls `call`.
    #[inline(always)]
    pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
        call()
    }
    /// Returns whether critical sections of the calling thread can ask for more time: `false`.
    pub fn has_slice_extension() -> bool {
        false
    }
}
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
pub use nothing::has_slice_extension;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
pub(crate) use nothing::outside;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
use nothing::{begin, end};

/// A raw mutex or reader-writer lock whose critical sections ask the kernel for more time rather than be preempted.
///
/// Of use for critical sections of a few microseconds, with more threads than CPUs. The kernel must be Linux 7.0 or
/// later with `CONFIG_RSEQ_SLICE_EXTENSION`, and the C library glibc 2.41 or later; otherwise it is the lock alone.
/// See [`has_slice_extension`]. System calls within a section end the additional time. Locks of this crate ask for
/// nothing while they sleep; the request of any other lock stays, which does no harm.
///
/// ```
/// use holdfast_threads::{Extended, RawHybrid};
///
/// static EVENTS: lock_api::Mutex<Extended<RawHybrid>, u64> = lock_api::Mutex::new(0);
/// *EVENTS.lock() += 1;
/// ```
///
/// # Cost
/// No shared line that is written. Without the extension one load, compare and branch for each lock and each unlock;
/// with it, five stores and a few loads of the thread's own memory for both.
#[derive(Debug)]
#[repr(transparent)]
pub struct Extended<R>(R);

impl Extended<RawHybrid> {
    /// Unlocks the mutex and waits for `condvar`, then locks the mutex again; see [`RawCondvar::wait`].
    ///
    /// # Safety
    /// As for [`RawCondvar::wait`].
    pub unsafe fn wait(&self, condvar: &RawCondvar, deadline: Option<Instant>) -> bool {
        // The section goes on for the time of the wait, which sleeps **outside**, and ends when the caller unlocks.
        // SAFETY: the caller's.
        unsafe { condvar.wait(&self.0, deadline) }
    }
}

/// Makes an attempt to lock within a section, which goes on if the attempt succeeds.
#[inline(always)]
fn attempt(lock: impl FnOnce() -> bool) -> bool {
    begin();
    let taken = lock();
    if !taken {
        end();
    }
    taken
}

// SAFETY: the lock is the inner one, which excludes.
unsafe impl<R: RawMutex> RawMutex for Extended<R> {
    const INIT: Self = Extended(R::INIT);

    /// The thread that locks counts the section, so it must be the one that unlocks.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        begin();
        self.0.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        attempt(|| self.0.try_lock())
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
        end();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<R: RawMutexTimed> RawMutexTimed for Extended<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    fn try_lock_for(&self, timeout: R::Duration) -> bool {
        attempt(|| self.0.try_lock_for(timeout))
    }

    fn try_lock_until(&self, timeout: R::Instant) -> bool {
        attempt(|| self.0.try_lock_until(timeout))
    }
}

// SAFETY: as above, since this is the same lock. Its guards are `!Send`, too.
#[cfg(feature = "lock_api_05")]
unsafe impl<R: RawMutex> lock_api::RawMutex for Extended<R> {
    const INIT: Self = <Self as RawMutex>::INIT;

    type Guard = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) -> Self::Guard {
        RawMutex::lock(self);
        lock_api::GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard> {
        RawMutex::try_lock(self).then(lock_api::GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: Self::Guard) {
        // SAFETY: the caller holds the lock.
        unsafe { RawMutex::unlock(self) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawMutex::is_locked(self)
    }
}

// SAFETY: as above.
#[cfg(feature = "lock_api_05")]
unsafe impl<R: RawMutexTimed> lock_api::RawMutexTimed for Extended<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    fn try_lock_for(&self, timeout: R::Duration) -> Option<Self::Guard> {
        RawMutexTimed::try_lock_for(self, timeout).then(lock_api::GuardNoSend::new)
    }

    fn try_lock_until(&self, timeout: R::Instant) -> Option<Self::Guard> {
        RawMutexTimed::try_lock_until(self, timeout).then(lock_api::GuardNoSend::new)
    }
}
