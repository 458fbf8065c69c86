//! Locks for programs whose threads outnumber the CPUs.
//!
//! All types are made in a constant. [`Mutex`] takes 4 bytes next to its data, [`RwLock`] 8. While a lock is contended,
//! running threads share it before sleeping ones are woken. A sleeping thread is overtaken for a bounded time: with a
//! [`Mutex`], one *turn* (1 ms) for each waiter before it. [`Condvar`] wakes the threads of a broadcast a few at a
//! time. [`Once`], [`OnceLock`] and [`LazyLock`] make values once.
//!
//! ```
//! use holdfast::Mutex;
//!
//! static EVENTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
//!
//! EVENTS.lock().push(7);
//! assert_eq!(EVENTS.lock().len(), 1);
//! ```
//!
//! | module | |
//! |---|---|
//! | the root | without poisoning: `lock` returns the guard, as in `parking_lot` |
//! | [`poison`] | with poisoning and the signatures of `std::sync`: change the `use` line and nothing else |
//! | [`locks`] | the algorithms without the standard library, for kernels and other platforms |
//!
//! The types of the root are those of the crate [`lock_api`], version 0.4, over a lock of `holdfast-threads`. So they
//! have its guards: mapped ([`MappedMutexGuard`]) and owned ([`ArcMutexGuard`]).
//!
//! # Features
//! - `std` (default): everything but [`locks`].
//! - `serde`: the data of a [`Mutex`] can be serialized and deserialized.
//! - `lock_api_05`: [`RawMutex`] also implements the traits of `lock_api` 0.5, which needs Rust 1.95.
//!
//! # What to know before
//! A call does not panic and is no cancellation point. A child of `fork` may use the locks that the forking thread
//! held. A mutex is not recursive: a thread that locks it twice waits forever. `docs/programs.md` compares the lock
//! with others.
#![cfg_attr(not(feature = "std"), no_std)]

pub use holdfast_locks as locks;

#[cfg(feature = "std")]
pub use lock_api;

/// The code of the README, which is compiled and run as a documentation test.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "std")]
mod condvar;
#[cfg(feature = "std")]
mod mutex;
#[cfg(feature = "std")]
mod once;
#[cfg(feature = "std")]
pub mod poison;
#[cfg(feature = "std")]
mod rwlock;

#[cfg(feature = "std")]
pub use condvar::{Condvar, WaitGuard, WaitTimeoutResult};
#[cfg(feature = "std")]
pub use mutex::{ArcMutexGuard, MappedMutexGuard, Mutex, MutexGuard, RawMutex};
#[cfg(feature = "std")]
pub use once::{LazyLock, Once, OnceLock};
#[cfg(feature = "std")]
pub use rwlock::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock,
    RwLockReadGuard, RwLockWriteGuard,
};
