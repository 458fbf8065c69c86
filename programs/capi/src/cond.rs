//! The functions of `holdfast_cond_t`, the condition variable.

use core::ptr;
use std::time::Instant;

use holdfast_threads::RawRequeueCondvar;

use crate::{Lock, check, misuse, moment};

/// The condition variable, `holdfast_cond_t` in C.
#[derive(Debug)]
#[repr(transparent)]
pub struct Cond(RawRequeueCondvar);

const _: () = assert!(size_of::<Cond>() == 16 && align_of::<Cond>() == 8);

/// Initializes a condition variable for which no thread waits.
///
/// # Safety
/// `cond` must point to 16 bytes, aligned to 8, that only this call accesses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cond_init(cond: *mut Cond) {
    // SAFETY: the caller promises that only this call accesses the memory.
    unsafe { cond.write(Cond(RawRequeueCondvar::new())) };
}

/// Waits until no thread accesses the condition variable any more.
///
/// # Safety
/// `cond` must point to a condition variable whose waiters have all been notified.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cond_destroy(cond: *const Cond) {
    // SAFETY: the caller promises that it is a condition variable. Other threads access it only through this library,
    // atomically.
    let cond = unsafe { &*cond };
    cond.0.destroy();
}

/// Releases the lock, waits for a notification, and takes the lock again. May return for no reason.
///
/// # Safety
/// `cond` must point to a condition variable, and `lock` to a lock that the calling thread holds. The memory of the
/// lock must stay valid until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cond_wait(cond: *const Cond, lock: *const Lock) {
    // SAFETY: as in `holdfast_cond_destroy`.
    let cond = unsafe { &*cond };
    // SAFETY: as above, for the lock.
    let lock = unsafe { &*lock };
    // SAFETY: the caller promises that the calling thread holds it.
    unsafe { wait("holdfast_cond_wait", cond, lock, None) };
}

/// Waits in `function` until `deadline`. Returns `false` if the time was up.
///
/// # Safety
/// The calling thread must hold `lock`.
unsafe fn wait(function: &'static str, cond: &Cond, lock: &Lock, deadline: Option<Instant>) -> bool {
    // SAFETY: as the caller promises, here and below.
    #[cfg(not(feature = "slice_extension"))]
    let wait = || unsafe { cond.0.wait(&lock.0, deadline) };
    // SAFETY: as above.
    #[cfg(feature = "slice_extension")]
    let wait = || unsafe { lock.0.wait(&cond.0, deadline) };
    let (cond, lock) = (ptr::from_ref(cond).cast(), ptr::from_ref(lock).cast());
    check::cond_wait(function, cond, lock, || misuse::within(function, wait))
}

/// [`holdfast_cond_wait`] until `deadline` of CLOCK_MONOTONIC, and as long as it takes to get the lock. Returns `false`
/// if the time was up.
///
/// # Safety
/// As for [`holdfast_cond_wait`]. `deadline` must point to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cond_timedwait(
    cond: *const Cond,
    lock: *const Lock,
    deadline: *const libc::timespec,
) -> bool {
    // SAFETY: as in `holdfast_cond_destroy`.
    let cond = unsafe { &*cond };
    // SAFETY: as above, for the lock.
    let lock = unsafe { &*lock };
    // SAFETY: the caller promises that it is a time.
    let deadline = moment(unsafe { deadline.read() });
    // SAFETY: the caller promises that the calling thread holds it.
    unsafe { wait("holdfast_cond_timedwait", cond, lock, deadline) }
}

/// Notifies one waiting thread, if there is one.
///
/// # Safety
/// `cond` must point to a condition variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cond_signal(cond: *const Cond) {
    // SAFETY: as in `holdfast_cond_destroy`.
    let cond = unsafe { &*cond };
    cond.0.notify_one();
}

/// Notifies all waiting threads.
///
/// # Safety
/// `cond` must point to a condition variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cond_broadcast(cond: *const Cond) {
    // SAFETY: as in `holdfast_cond_destroy`.
    let cond = unsafe { &*cond };
    cond.0.notify_all();
}
