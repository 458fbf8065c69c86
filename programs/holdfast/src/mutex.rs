//! Names for the generic types of `lock_api` over our raw lock.

/// The raw lock of a [`Mutex`]: the hybrid queued lock on host threads.
#[cfg(not(any(feature = "check", feature = "slice_extension")))]
pub type RawMutex = holdfast_threads::RawHybrid;

/// The raw lock of a [`Mutex`]: the hybrid queued lock on host threads, whose holder asks the kernel for more time.
#[cfg(all(feature = "slice_extension", not(feature = "check")))]
pub type RawMutex = holdfast_threads::Extended<holdfast_threads::RawHybrid>;

/// The raw lock of a [`Mutex`]: the hybrid queued lock on host threads, with its record.
#[cfg(feature = "check")]
pub type RawMutex = crate::check::CheckedMutex;

/// Data that one thread at a time may access.
///
/// Methods beyond those of [`std::sync::Mutex`]: `try_lock_for` and `try_lock_until` limit the time of a wait;
/// `lock_arc` returns a guard that owns an [`Arc`](std::sync::Arc) of the mutex. A thread whose time is limited does
/// not queue: it tries again and again, and sleeps for at most 1 ms in between.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use holdfast::{Mutex, MutexGuard};
///
/// let pair = Arc::new(Mutex::new((1, "one")));
/// let name = MutexGuard::map(pair.lock(), |pair| &mut pair.1);
/// assert_eq!(*name, "one");
/// assert!(pair.try_lock_for(Duration::from_millis(1)).is_none());
/// drop(name);
///
/// let owned = pair.lock_arc();
/// assert_eq!(owned.0, 1);
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Access to the data of a [`Mutex`], which is released when the guard is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Access to a part of the data of a [`Mutex`]: [`MutexGuard::map`](lock_api::MutexGuard::map).
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// Access to the data of a [`Mutex`], of which the guard owns an [`Arc`](std::sync::Arc).
pub type ArcMutexGuard<T> = lock_api::ArcMutexGuard<RawMutex, T>;
