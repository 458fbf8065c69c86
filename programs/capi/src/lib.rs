//! The functions that `include/holdfast.h` declares.
//!
//! The lock is the hybrid queued lock: of all kinds it alone stays fast when threads outnumber CPUs. A choice of kinds
//! at initialization would cost a branch in each operation and bits of the word, which the queue needs.
//!
//! **No unwinding**: a panic in an `extern "C"` function ends the process, with a message for C programmers
//! (`misuse.rs`). With the feature `check` the library finds more of their mistakes (`check.rs`).

#![expect(unsafe_code, reason = "functions that C calls, on memory that C owns")]

use std::time::{Duration, Instant};

#[cfg(feature = "check")]
mod annotate;
#[cfg(feature = "check")]
mod check;
#[cfg(not(feature = "check"))]
#[path = "unchecked.rs"]
mod check;
mod cond;
mod lock;
mod misuse;
mod rwlock;
mod ways;

pub use cond::*;
pub use lock::*;
pub use rwlock::*;

#[cfg(not(feature = "slice_extension"))]
mod kinds {
    pub(crate) type RawLock = holdfast_threads::RawHybrid;
    pub(crate) type RawRwLock = holdfast_threads::RawQueuedRwLock;
}
/// The same locks, whose holders ask the kernel for more time.
#[cfg(feature = "slice_extension")]
mod kinds {
    pub(crate) type RawLock = holdfast_threads::Extended<holdfast_threads::RawHybrid>;
    pub(crate) type RawRwLock = holdfast_threads::Extended<holdfast_threads::RawQueuedRwLock>;
}

/// Called when the library is loaded, after the locks' own code.
// SAFETY: the section holds addresses of functions without arguments, and this is one.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array.00102")]
static AT_LOAD: extern "C" fn() = at_load;

#[cfg(target_os = "linux")]
extern "C" fn at_load() {
    holdfast_threads::refuse_other_versions();
    misuse::at_load();
    #[cfg(feature = "check")]
    annotate::at_load();
}

/// Returns the moment that `deadline` of CLOCK_MONOTONIC denotes, or `None` if it is too far away to matter. A
/// time that is not normalized has passed.
fn moment(deadline: libc::timespec) -> Option<Instant> {
    let nanoseconds = u32::try_from(deadline.tv_nsec)
        .ok()
        .filter(|&part| part < 1_000_000_000);
    let (Ok(seconds), Some(nanoseconds)) = (u64::try_from(deadline.tv_sec), nanoseconds) else {
        return Some(Instant::now());
    };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a local variable. The clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    Instant::now().checked_add(Duration::new(seconds, nanoseconds).saturating_sub(now))
}

/// Records a lock that was taken by `function` without waiting forever. Returns `is_taken`.
fn taken<T>(function: &'static str, lock: *const T, access: check::Access, is_taken: bool) -> bool {
    if is_taken {
        check::holds(function, lock, access);
    }
    is_taken
}

/// Takes a lock before `deadline`. Returns whether it is taken.
///
/// # Safety
/// `deadline` must point to a time.
unsafe fn before(
    deadline: *const libc::timespec,
    try_lock: impl FnOnce() -> bool,
    until: impl FnOnce(Option<Instant>) -> bool,
) -> bool {
    // SAFETY: the caller promises that it is a time.
    try_lock() || until(moment(unsafe { deadline.read() }))
}
