//! Names for the generic types of `lock_api` over our raw reader-writer lock.

/// The raw lock of a [`RwLock`]: the queued reader-writer lock on host threads.
#[cfg(not(any(feature = "check", feature = "slice_extension")))]
pub type RawRwLock = holdfast_threads::RawQueuedRwLock;

/// The raw lock of a [`RwLock`]: the queued reader-writer lock on host threads, whose holders ask the kernel for more
/// time.
#[cfg(all(feature = "slice_extension", not(feature = "check")))]
pub type RawRwLock = holdfast_threads::Extended<holdfast_threads::RawQueuedRwLock>;

/// The raw lock of a [`RwLock`]: the queued reader-writer lock on host threads, with its record.
#[cfg(feature = "check")]
pub type RawRwLock = crate::check::CheckedRwLock;

/// Data that several threads may read, or one may write, at a time.
///
/// Threads that must wait are served in the order of a queue, so neither readers nor writers starve: a waiting writer
/// stops new readers, and readers that came before a writer read before it writes. A thread that reads must not take
/// the lock again: if a writer waits in between, both wait forever.
///
/// ```
/// use holdfast::{RwLock, RwLockWriteGuard};
///
/// let names = RwLock::new(vec!["a"]);
/// assert_eq!(names.read().len(), 1);
/// let mut all = names.write();
/// all.push("b");
/// // From here on others may read, too, but no writer comes in between.
/// let all = RwLockWriteGuard::downgrade(all);
/// assert_eq!(all.len() + names.read().len(), 4);
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// Access to the data of a [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// Access to the data of a [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Access to a part of the data of a [`RwLock`] for reading.
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// Access to a part of the data of a [`RwLock`] for writing.
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// Access to the data of a [`RwLock`] for reading, of which the guard owns an [`Arc`](std::sync::Arc).
pub type ArcRwLockReadGuard<T> = lock_api::ArcRwLockReadGuard<RawRwLock, T>;

/// Access to the data of a [`RwLock`] for writing, of which the guard owns an [`Arc`](std::sync::Arc).
pub type ArcRwLockWriteGuard<T> = lock_api::ArcRwLockWriteGuard<RawRwLock, T>;
