//! The Holdfast locks on host threads.
//!
//! A thread acts as a CPU: it halts in a futex, and a kick wakes it. The locks are the same source that runs in the
//! simulator and in a guest. Programs use them through `lock_api`, version 0.5 or 0.4. Each lock takes 4 bytes:
//!
//! ```
//! static EVENTS: lock_api::Mutex<holdfast_threads::RawHybrid, u64> = lock_api::Mutex::new(0);
//! *EVENTS.lock() += 1;
//! ```
//!
//! A lock call does not panic, except an unlock of a lock that no thread holds. It is no cancellation point, and the
//! child of a `fork` may use the locks that the forking thread held. [`CPUS_MAX`] threads can wait as CPUs at the same
//! time. Further threads wait without a number: they spin and yield, and are served in no order.
//! `docs/programs/behavior.md` compares the locks with others.
//!
//! On Linux no call allocates memory, opens a file, or takes a lock of another library: what that needs is done when
//! the code is loaded. There is one exception. A plugin's first call in a thread may let the C library allocate the
//! plugin's thread-local variables.
//!
//! On Linux a process may contain this crate several times, for example in two plugins, and share locks between the
//! copies, if they are of the same version: all copies use the tables of the first one. In the others an unlock is an
//! exchange. Elsewhere all users of a lock must have the same copy.
//!
//! Two settings hold for the whole process: how long a thread spins before it halts, and for how long running threads
//! may overtake the queue of a hybrid lock. A benchmark may also choose each thread's CPU number:
//!
//! ```
//! use holdfast_locks::{Budget, CpuId};
//! use std::time::Duration;
//!
//! holdfast_threads::set_spin_threshold(Budget(100));
//! holdfast_threads::set_turn(Duration::from_micros(500));
//! holdfast_threads::claim(CpuId(0))?;
//! # Ok::<(), holdfast_threads::ClaimError>(())
//! ```
//!
//! # Where things are
//! `cpu.rs` implements the traits, `os/` how they sleep (on Linux in futexes, elsewhere by
//! the standard library), `slot.rs` which thread is which CPU, `process.rs` what
//! copies of this code share, `allowed.rs` how many CPUs there are, `raw.rs` the locks
//! for `lock_api`, `rwlock.rs` and `requeue.rs` the other raw types, `readers.rs` where readers of a lock with a bias
//! announce themselves, `timed.rs` waits with a time limit, `fork.rs` what a child inherits, `slice.rs` how a holder
//! asks the kernel for more time. Words on x86-64 are those of `holdfast-words`, where bytes are stored as bytes.
//! Elsewhere they are atomic integers, accessed as a whole (`portable.rs`).

/// The code of the tutorial and of the README, which is compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../tests/tutorial.txt")]
#[doc = include_str!("../README.md")]
struct Documents;

mod allowed;
#[cfg(any(test, not(target_os = "linux")))]
mod condvar;
mod cpu;
#[cfg(target_os = "linux")]
mod exit;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod loaded;
mod os;
mod process;
mod raw;
mod readers;
#[cfg(target_os = "linux")]
mod requeue;
mod rwlock;
mod slice;
mod slot;
mod spin;
mod timed;
mod word;

pub use allowed::look_at_allowed_cpus;
#[cfg(not(target_os = "linux"))]
pub use condvar::RawCondvar;
pub use cpu::{ThisThread, ThreadAddress, ThreadWord};
#[cfg(target_os = "linux")]
pub use process::refuse_other_versions;
pub use raw::*;
/// The condition variable of a program. On Linux it sleeps in the kernel's queues.
#[cfg(target_os = "linux")]
pub use requeue::RawRequeueCondvar as RawCondvar;
#[cfg(target_os = "linux")]
pub use requeue::RawRequeueCondvar;
pub use rwlock::{RawBiasedRwLock, RawQueuedRwLock};
pub use slice::{Extended, has_slice_extension};
pub use slot::{CPUS_MAX, ClaimError, claim};
pub use spin::{SPIN_THRESHOLD_DEFAULT, TURN_DEFAULT, set_spin_threshold, set_turn, spin_threshold, turn};
pub use word::has_restartable_sequences;
