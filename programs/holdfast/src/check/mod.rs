//! Finds mistakes in the use of locks while a program runs: the feature `check`.
//!
//! With the feature, each [`Mutex`](crate::Mutex) and each reader-writer lock has a record next to its lock. It costs
//! about 400 bytes for each lock and some microseconds for each acquisition, most of it for the stack. Without the
//! feature, [`RawMutex`](crate::RawMutex) is the lock alone: nothing is left.
//!
//! - **Lock order**: one thread has taken a lock *b* while it held *a*, and another one (or the same one, later) takes
//!   *a* while it holds *b*. The two may wait for each other forever, even if they did not this time. Longer circles
//!   are found, too. The report has, for each step of the circle, where both locks were taken when it was first seen.
//!   A wait for a condition variable takes its mutex again, whatever else the thread holds meanwhile.
//! - **A lock taken twice** by one thread: it would wait forever, so it panics with the report as the message, unless
//!   [`report_only`] was called. A value that is made once and asks for itself is such a lock. A thread that reads
//!   twice is reported and goes on: it waits forever only if a writer comes in between.
//! - **Two mutexes**: threads wait for one condition variable with different mutexes at the same time.
//! - **Holds**: [`look`] returns which thread holds a lock, since when, where it took it, and a histogram of the times
//!   for which the lock has been held.
//! - **Preempted holders**: with [`measure_preemption`], also for how long holders were ready to run but had no CPU.
//!
//! A `try_lock`, with or without a time limit, does not wait forever. So it closes no circle, but a lock that it took
//! may be held when another one is taken. A lock is known by a number and its address, or by the name that [`name`]
//! gave it. When a lock is dropped its part in the order is forgotten.
//!
//! ```
//! use holdfast::{Mutex, check};
//!
//! static ACCOUNTS: Mutex<u64> = Mutex::new(0);
//! check::name(&ACCOUNTS, "accounts");
//!
//! let held = ACCOUNTS.lock();
//! let look = check::look(&ACCOUNTS);
//! assert!(look.holder.is_some());
//! drop(held);
//! assert_eq!(check::look(&ACCOUNTS).holds.count(), 1);
//! ```

mod order;
mod raw;
mod record;
mod schedstat;
mod stack;
mod violation;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex as StdMutex, PoisonError};

pub(crate) use raw::CheckedCondvar;
pub use raw::{CheckedMutex, CheckedRwLock};
pub use record::{Histogram, Holder, Look};
pub use schedstat::measure_preemption;
pub use stack::Stack;
pub use violation::{Access, Step, Violation, ViolationKind};

use record::Record;

mod sealed {
    pub trait Recorded {
        fn record(&self) -> &super::Record;
    }
}

/// A lock that is checked: [`Mutex`](crate::Mutex), [`RwLock`](crate::RwLock) or
/// [`BiasedRwLock`](crate::BiasedRwLock).
pub trait Checked: sealed::Recorded {}
impl<L: sealed::Recorded> Checked for L {}

/// Gives a lock a name for reports.
pub fn name(lock: &impl Checked, name: &str) {
    order::name(lock.record().id(), name);
}

/// Returns what is known about a lock at this moment. Other threads may change it meanwhile.
pub fn look(lock: &impl Checked) -> Look {
    lock.record().look()
}

/// Sets what happens to each violation, in place of a report on the standard error stream. `hook` must not take locks
/// that are checked.
pub fn on_violation(hook: fn(&Violation)) {
    *HOOK.lock().unwrap_or_else(PoisonError::into_inner) = Some(hook);
}

/// From now on a thread that takes a lock twice does not panic: it is reported as all others, and then waits forever,
/// as it would without the feature.
pub fn report_only() {
    // ORDERING: Relaxed, here and below; the setting orders nothing.
    PANICS.store(false, Relaxed);
}

static PANICS: AtomicBool = AtomicBool::new(true);

fn panics() -> bool {
    PANICS.load(Relaxed)
}

/// Returns how many violations this process has found. Each is counted and reported once.
pub fn violations() -> u64 {
    // ORDERING: Relaxed; a count.
    order::COUNT.load(Relaxed)
}

static HOOK: StdMutex<Option<fn(&Violation)>> = StdMutex::new(None);

fn report(violation: &Violation) {
    let hook = *HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    match hook {
        Some(hook) => hook(violation),
        // The panic has the report as its message.
        None if violation.kind == ViolationKind::Twice && panics() => {}
        None => eprintln!("{violation}"),
    }
}
