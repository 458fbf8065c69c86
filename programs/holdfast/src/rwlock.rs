//! Names for the generic types of `lock_api` over our raw reader-writer lock.

#[cfg(not(any(feature = "check", feature = "slice_extension")))]
type WithFeatures<R> = R;

/// Holders ask the kernel for more time.
#[cfg(all(feature = "slice_extension", not(feature = "check")))]
type WithFeatures<R> = holdfast_threads::Extended<R>;

/// Each lock has its record.
#[cfg(feature = "check")]
type WithFeatures<R> = crate::check::CheckedRwLock<R>;

/// The raw lock of a [`RwLock`]: the queued reader-writer lock on host threads. With the feature `slice_extension` its
/// holders ask the kernel for more time, with `check` it has its record.
pub type RawRwLock = WithFeatures<holdfast_threads::RawQueuedRwLock>;

/// The raw lock of a [`BiasedRwLock`]. The features change it as they change [`RawRwLock`].
pub type RawBiasedRwLock = WithFeatures<holdfast_threads::RawBiasedRwLock>;

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

/// A [`RwLock`] for data that is hardly ever written: while there is no writer, readers write no common cache line, so
/// they do not slow each other down. It takes 12 bytes next to its data.
///
/// A write ends that, and takes about as long as a few reads for each thread that reads such locks. From then on
/// readers count themselves in the lock, until one of these threads has done so 1024 times with such locks. With many
/// writes, say in 5 % of the calls, a [`RwLock`] is faster.
///
/// Fairness and methods are those of a [`RwLock`], and other guards have the names of [`lock_api`]. There is none with
/// poisoning. A lock of which a read guard was forgotten ([`mem::forget`](std::mem::forget)) must not be moved:
/// otherwise a writer of the next `BiasedRwLock` in its old place waits forever.
///
/// ```
/// use holdfast::BiasedRwLock;
///
/// static ROUTES: BiasedRwLock<Vec<&str>> = BiasedRwLock::new(Vec::new());
///
/// ROUTES.write().push("home");
/// assert_eq!(ROUTES.read().len(), 1);
/// ```
pub type BiasedRwLock<T> = lock_api::RwLock<RawBiasedRwLock, T>;

/// Access to the data of a [`BiasedRwLock`] for reading. It stays with its thread:
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<holdfast::BiasedRwLockReadGuard<'static, u32>>();
/// ```
pub type BiasedRwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawBiasedRwLock, T>;

/// Access to the data of a [`BiasedRwLock`] for writing.
pub type BiasedRwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawBiasedRwLock, T>;
