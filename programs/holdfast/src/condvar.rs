//! A condition variable for the guards of this crate.

#![expect(
    unsafe_code,
    reason = "lends the mutex of a guard to a wait, which gives it back locked"
)]

use std::fmt;
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use crate::{ArcMutexGuard, MutexGuard, RawMutex};

mod sealed {
    pub trait Sealed {}
    impl<T: ?Sized> Sealed for crate::MutexGuard<'_, T> {}
    impl<T: ?Sized> Sealed for crate::ArcMutexGuard<T> {}
}

/// A guard that can wait for a [`Condvar`]: [`MutexGuard`] or [`ArcMutexGuard`]. A mapped guard cannot, because the
/// part that it borrows may be gone after the wait.
pub trait WaitGuard: DerefMut + sealed::Sealed {
    #[doc(hidden)]
    fn raw(&mut self) -> &RawMutex;
}

impl<T: ?Sized> WaitGuard for MutexGuard<'_, T> {
    #[inline]
    fn raw(&mut self) -> &RawMutex {
        // SAFETY: `Condvar` unlocks it only while the guard is mutably borrowed, and returns with the lock held.
        unsafe { MutexGuard::mutex(self).raw() }
    }
}

impl<T: ?Sized> WaitGuard for ArcMutexGuard<T> {
    #[inline]
    fn raw(&mut self) -> &RawMutex {
        // SAFETY: as above.
        unsafe { ArcMutexGuard::mutex(self).raw() }
    }
}

/// Whether the time of a wait was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn new(timed_out: bool) -> Self {
        WaitTimeoutResult(timed_out)
    }

    /// Returns whether the wait has ended because its time was up, without a notification or, in a wait with a
    /// condition, while the condition still held.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable: threads wait, without their mutex, until another thread has changed what the mutex protects.
///
/// A broadcast ([`notify_all`](Condvar::notify_all)) wakes 64 threads for each CPU. Of a larger crowd each woken thread
/// wakes the next one, at the latest when it has got the mutex. A wait may end for no reason, so look at the condition
/// again, or use [`wait_while`](Condvar::wait_while).
///
/// A child of `fork` must not use a condition variable for which threads of its parent waited, except on Linux.
///
/// ```
/// use std::thread;
///
/// use holdfast::{Condvar, Mutex};
///
/// static ITEMS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// static ADDED: Condvar = Condvar::new();
///
/// let taker = thread::spawn(|| {
///     let mut items = ITEMS.lock();
///     ADDED.wait_while(&mut items, |items| items.is_empty());
///     items.pop()
/// });
/// ITEMS.lock().push(7);
/// ADDED.notify_one();
/// assert_eq!(taker.join().unwrap(), Some(7));
/// ```
#[derive(Default)]
pub struct Condvar(Raw);

#[cfg(not(feature = "check"))]
type Raw = holdfast_threads::RawCondvar;
#[cfg(feature = "check")]
type Raw = crate::check::CheckedCondvar;

impl Condvar {
    /// Makes a condition variable for which no thread waits. Usable in a `static`.
    pub const fn new() -> Self {
        Condvar(Raw::new())
    }

    fn wait_to<G: WaitGuard>(&self, guard: &mut G, deadline: Option<Instant>) -> WaitTimeoutResult {
        let mutex = guard.raw();
        // SAFETY: the guard shows that this thread holds the mutex, since guards are `!Send`. It is mutably borrowed,
        // so the data is not borrowed through it, and it is the only way to the data.
        #[cfg(not(any(feature = "check", feature = "slice_extension")))]
        let notified = unsafe { self.0.wait(mutex, deadline) };
        // SAFETY: as above.
        #[cfg(any(feature = "check", feature = "slice_extension"))]
        let notified = unsafe { mutex.wait(&self.0, deadline) };
        WaitTimeoutResult::new(!notified)
    }

    /// Unlocks the guard's mutex, waits for a notification, and locks the mutex again.
    pub fn wait<G: WaitGuard>(&self, guard: &mut G) {
        self.wait_to(guard, None);
    }

    /// Waits until `condition` no longer holds.
    pub fn wait_while<G: WaitGuard>(&self, guard: &mut G, mut condition: impl FnMut(&mut G::Target) -> bool) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// [`wait`](Condvar::wait) for at most `timeout`, and as long as it takes to get the mutex.
    pub fn wait_for<G: WaitGuard>(&self, guard: &mut G, timeout: Duration) -> WaitTimeoutResult {
        self.wait_to(guard, Instant::now().checked_add(timeout))
    }

    /// [`wait`](Condvar::wait) until `deadline` at the latest, and as long as it takes to get the mutex.
    pub fn wait_until<G: WaitGuard>(&self, guard: &mut G, deadline: Instant) -> WaitTimeoutResult {
        self.wait_to(guard, Some(deadline))
    }

    /// Waits until `condition` no longer holds, for at most `timeout`.
    pub fn wait_while_for<G: WaitGuard>(
        &self,
        guard: &mut G,
        condition: impl FnMut(&mut G::Target) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_while_to(guard, condition, Instant::now().checked_add(timeout))
    }

    /// Waits until `condition` no longer holds, until `deadline` at the latest.
    pub fn wait_while_until<G: WaitGuard>(
        &self,
        guard: &mut G,
        condition: impl FnMut(&mut G::Target) -> bool,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_while_to(guard, condition, Some(deadline))
    }

    fn wait_while_to<G: WaitGuard>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G::Target) -> bool,
        deadline: Option<Instant>,
    ) -> WaitTimeoutResult {
        let mut waited = WaitTimeoutResult::new(false);
        while condition(guard) {
            if waited.timed_out() {
                return waited;
            }
            waited = self.wait_to(guard, deadline);
        }
        WaitTimeoutResult::new(false)
    }

    /// Notifies the thread that has waited for longest. Returns `false` if no thread waits.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }

    /// Notifies all waiting threads. Returns how many there were. On Linux that includes threads that were notified
    /// before and have not woken yet.
    #[inline]
    pub fn notify_all(&self) -> usize {
        self.0.notify_all() as usize
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
