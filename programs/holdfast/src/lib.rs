//! Locks for programs whose threads outnumber the CPUs.
//!
//! All types are made in a constant. [`Mutex`] takes 4 bytes next to its data, [`RwLock`] 8, and [`BiasedRwLock`], for
//! data that is hardly ever written, 12. While a lock is contended,
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
//! | [`poison`] | with poisoning and the signatures of `std::sync`: most programs change the `use` line only |
//! | [`locks`] | the algorithms without the standard library, for kernels and other platforms |
//!
//! The types of the root are those of the crate [`lock_api`], version 0.4, over a lock of `holdfast-threads`. So they
//! have its guards: mapped ([`MappedMutexGuard`]) and owned ([`ArcMutexGuard`]).
//!
//! # Features
//! - `std` (default): everything but [`locks`].
//! - `serde`: the data of a [`Mutex`] can be serialized and deserialized.
//! - `check`: finds mistakes in the order of locks and locks taken twice, and shows holders and how long locks are
//!   held: the module `check`. For debugging; each lock is larger and slower.
//! - `slice_extension`: holders of a [`Mutex`] or [`RwLock`] ask the kernel for a few microseconds more rather than be
//!   preempted inside their critical sections. It needs Linux 7.0 or later, built with this option, on x86-64, and
//!   glibc 2.41 or later; elsewhere it changes nothing. (Not with `check`.) `docs/programs/types.md` has what it costs
//!   and brings.
//! - `loom`, `shuttle`: the types are those of a model checker: [model checks](#model-checks).
//! - `lock_api_05`: [`RawMutex`] also implements the traits of `lock_api` 0.5, which needs Rust 1.95. (Not with
//!   `check`.)
//!
//! # Model checks
//! A program's model check passes through its locks if it turns on the feature `loom` or `shuttle`, say by a feature of
//! its own for tests:
//!
//! ```toml
//! [features]
//! loom = ["holdfast/loom"]
//! ```
//!
//! The types then are the checker's behind the methods of this crate. They work inside a model only, are not made in
//! constants, and a wait with a time limit ends at once. The source of the module `model` has the whole list.
//!
//! # Why these types
//! [`Mutex`], [`RwLock`] and [`BiasedRwLock`] are `lock_api`'s generic types, not types of ours: their guards (mapped,
//! owned, timed) are well tested, other crates already accept them, and a second set would differ in details only. It
//! is version 0.4, which most programs use and which needs Rust 1.71; version 0.5 needs 1.95. [`Condvar`] and
//! [`OnceLock`] are ours, since `lock_api` has none. Under `loom` and `shuttle` the types are the checker's own,
//! because a contended lock of ours has too many steps for a program's model.
//!
//! # What to know before
//! A call does not panic and is no cancellation point. A child of `fork` may use the locks that the forking thread
//! held. A mutex is not recursive: a thread that locks it twice waits forever. On Linux plugins that each contain this
//! crate may share locks, if it is of the same version. `docs/programs/behavior.md` compares the lock with others.
#![cfg_attr(not(feature = "std"), no_std)]

pub use holdfast_locks as locks;

#[cfg(feature = "std")]
pub use lock_api;

/// The code of the README, which is compiled and run as a documentation test.
#[cfg(all(doctest, feature = "std", not(feature = "model")))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(feature = "check", not(feature = "model")))]
pub mod check;
#[cfg(all(feature = "std", not(feature = "model")))]
mod condvar;
#[cfg(all(feature = "std", feature = "model"))]
mod model;
#[cfg(all(feature = "std", not(feature = "model")))]
mod mutex;
#[cfg(all(feature = "std", not(feature = "model")))]
mod once;
#[cfg(all(feature = "std", not(feature = "model")))]
pub mod poison;
#[cfg(all(feature = "std", not(feature = "model")))]
mod rwlock;

#[cfg(all(feature = "std", feature = "model"))]
pub use model::*;

#[cfg(all(feature = "std", not(feature = "model")))]
pub use condvar::{Condvar, WaitGuard, WaitTimeoutResult};
#[cfg(all(feature = "std", not(feature = "model")))]
pub use mutex::{ArcMutexGuard, MappedMutexGuard, Mutex, MutexGuard, RawMutex};
#[cfg(all(feature = "std", not(feature = "model")))]
pub use once::{LazyLock, Once, OnceLock};
#[cfg(all(feature = "std", not(feature = "model")))]
pub use rwlock::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard,
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawBiasedRwLock, RawRwLock, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};
