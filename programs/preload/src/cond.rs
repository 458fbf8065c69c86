//! The functions of condition variables.
//!
//! **Cancellation**: `pthread_cond_wait` is a cancellation point, and a cancelled thread holds the mutex when its
//! cleanup handlers run. The C library ends such a thread by unwinding its stack, through the functions below. So those
//! that wait have the ABI for that, and no values with destructors.

use core::ffi::{c_int, c_void};
use core::ptr;

use holdfast_threads::RawRequeueCondvar;
use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

use crate::mutex::{is_normalized, pthread_mutex_lock, pthread_mutex_unlock};
use crate::{layout, real};

unsafe extern "C-unwind" {
    /// See `sleep.c`.
    fn holdfast_preload_sleep(
        word: *const u32,
        value: u32,
        realtime: c_int,
        deadline: *const timespec,
        cancelled: unsafe extern "C" fn(*mut c_void),
        context: *mut c_void,
    ) -> c_int;
}

/// What a waiting thread needs to take its mutex again.
struct Wait {
    cond: *const RawRequeueCondvar,
    mutex: *mut pthread_mutex_t,
}

/// Ends the wait of a thread that is cancelled. It may have taken a notification with it, which another thread gets.
unsafe extern "C" fn cancelled(wait: *mut c_void) {
    // SAFETY: `wait` made it, and its stack still exists.
    let Wait { cond, mutex } = unsafe { wait.cast::<Wait>().read() };
    // SAFETY: the condition variable stays valid until the wait has left it, below.
    let cond = unsafe { &*cond };
    cond.notify_one();
    cond.leave();
    // SAFETY: the thread held the mutex before.
    unsafe { pthread_mutex_lock(mutex) };
    RawRequeueCondvar::pass_on(layout::queue(mutex));
}

/// Waits for a condition variable that takes the place of one of the C library.
///
/// # Safety
/// `mutex` must point to a mutex that the caller holds, and `deadline` to a time, or to nothing.
unsafe extern "C-unwind" fn wait(
    cond: &RawRequeueCondvar,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    deadline: *const timespec,
) -> c_int {
    if !deadline.is_null() {
        // SAFETY: the caller promises that it is a time, here and below.
        if !is_normalized(unsafe { &*deadline }) {
            return libc::EINVAL;
        }
        // The kernel takes no such time.
        // SAFETY: as above.
        if unsafe { (*deadline).tv_sec } < 0 {
            return libc::ETIMEDOUT;
        }
    }
    let queue = layout::queue(mutex);
    let value = cond.enter(queue);
    // SAFETY: the caller holds it.
    let refused = unsafe { pthread_mutex_unlock(mutex) };
    if refused != 0 {
        cond.leave();
        return refused;
    }
    let mut context = Wait { cond, mutex };
    let realtime = c_int::from(clock == libc::CLOCK_REALTIME);
    let context = (&raw mut context).cast();
    // SAFETY: the word stays valid until `leave`, and the context until the function returns or calls `cancelled`.
    let error = unsafe { holdfast_preload_sleep(cond.word(), value, realtime, deadline, cancelled, context) };
    let passes = cond.leave() && error == 0;
    // SAFETY: the mutex outlives the wait.
    let locked = unsafe { pthread_mutex_lock(mutex) };
    if passes {
        RawRequeueCondvar::pass_on(queue);
    }
    match error {
        libc::ETIMEDOUT if locked == 0 => libc::ETIMEDOUT,
        _ => locked,
    }
}

/// Waits for a notification, as the C library's function does.
///
/// # Safety
/// As for the C library's function, here and below.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller passes a condition variable, here and below.
    match unsafe { layout::condvar(cond) } {
        // SAFETY: the caller holds the mutex, here and below.
        (Some(cond), clock) => unsafe { wait(cond, mutex, clock, ptr::null()) },
        // SAFETY: the caller passes a mutex, here and below.
        (None, _) if unsafe { layout::lock(mutex) }.is_some() => libc::EINVAL,
        // SAFETY: as the caller promises, here and below.
        (None, _) => unsafe { real::pthread_cond_wait(cond, mutex) },
    }
}

/// Waits for a notification until a time of the condition variable's clock.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: *const timespec,
) -> c_int {
    // SAFETY: as above.
    match unsafe { layout::condvar(cond) } {
        // SAFETY: as above.
        (Some(cond), clock) => unsafe { wait(cond, mutex, clock, deadline) },
        // SAFETY: as above.
        (None, _) if unsafe { layout::lock(mutex) }.is_some() => libc::EINVAL,
        // SAFETY: as above.
        (None, _) => unsafe { real::pthread_cond_timedwait(cond, mutex, deadline) },
    }
}

/// `pthread_cond_clockwait`, of glibc since 2.30.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    deadline: *const timespec,
) -> c_int {
    if clock != libc::CLOCK_REALTIME && clock != libc::CLOCK_MONOTONIC {
        return libc::EINVAL;
    }
    // SAFETY: as above.
    match unsafe { layout::condvar(cond) } {
        // SAFETY: as above.
        (Some(cond), _) => unsafe { wait(cond, mutex, clock, deadline) },
        // SAFETY: as above.
        (None, _) if unsafe { layout::lock(mutex) }.is_some() => libc::EINVAL,
        // SAFETY: as above.
        (None, _) => unsafe { real::pthread_cond_clockwait(cond, mutex, clock, deadline) },
    }
}

/// Defines the functions without a mutex.
macro_rules! notifications {
    ($($name:ident = $method:ident;)+) => {$(
        /// The function of this name.
        ///
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(cond: *mut pthread_cond_t) -> c_int {
            // SAFETY: as above.
            match unsafe { layout::condvar(cond) }.0 {
                Some(cond) => {
                    cond.$method();
                    0
                }
                // SAFETY: as above.
                None => unsafe { real::$name(cond) },
            }
        }
    )+};
}

notifications! {
    pthread_cond_signal = notify_one;
    pthread_cond_broadcast = notify_all;
    pthread_cond_destroy = destroy;
}
