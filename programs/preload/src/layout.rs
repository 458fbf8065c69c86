//! Where glibc keeps what in `pthread_mutex_t` and `pthread_cond_t`.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU32};

use holdfast_threads::RawRequeueCondvar;
use libc::{pthread_cond_t, pthread_mutex_t};

use crate::Lock;

/// The kind of a mutex.
const KIND: usize = 16;
/// Bits of the kind that decide about lock elision, which a hybrid lock does not know.
const ELISION: i32 = 0x300;
const NORMAL: i32 = libc::PTHREAD_MUTEX_NORMAL;
const ADAPTIVE: i32 = 3;
/// The kind of a mutex that has been destroyed, as in glibc.
const DESTROYED: i32 = -1;
/// The list pointers of robust mutexes, which no mutex uses that is replaced, and of which only the address is used.
const QUEUE: usize = 24;

/// The flags of a condition variable.
const FLAGS: usize = 36;
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

const _: () = {
    assert!(size_of::<pthread_mutex_t>() == 40 && align_of::<pthread_mutex_t>() >= align_of::<Lock>());
    assert!(size_of::<pthread_cond_t>() == 48 && align_of::<pthread_cond_t>() >= align_of::<RawRequeueCondvar>());
    assert!(size_of::<Lock>() <= KIND && size_of::<RawRequeueCondvar>() <= FLAGS);
};

/// Returns the lock that takes the place of `mutex`, or `None` if the C library's stays.
///
/// # Safety
/// `mutex` must point to a mutex, which must stay valid for as long as the result is used.
#[inline]
pub(crate) unsafe fn lock<'a>(mutex: *mut pthread_mutex_t) -> Option<&'a Lock> {
    // SAFETY: the caller promises that it is a mutex, whose kind is there. The C library changes it atomically.
    let kind = unsafe { AtomicI32::from_ptr(mutex.wrapping_byte_add(KIND).cast()) };
    // ORDERING: Relaxed; it is written before the mutex is shared.
    let replaced = matches!(kind.load(Relaxed) & !ELISION, NORMAL | ADAPTIVE);
    // SAFETY: the first word of such a mutex is accessed by this library only, and an initializer has made it 0.
    replaced.then(|| unsafe { &*mutex.cast() })
}

/// Marks `mutex` as destroyed.
///
/// # Safety
/// `mutex` must point to a mutex that no thread uses.
pub(crate) unsafe fn mark_destroyed(mutex: *mut pthread_mutex_t) {
    // SAFETY: as in `lock`.
    let kind = unsafe { AtomicI32::from_ptr(mutex.wrapping_byte_add(KIND).cast()) };
    // ORDERING: Relaxed; no other thread uses it.
    kind.store(DESTROYED, Relaxed);
}

/// Returns the key of the queue of the threads that a broadcast moves to `mutex`.
pub(crate) fn queue(mutex: *mut pthread_mutex_t) -> usize {
    mutex.addr() + QUEUE
}

/// A condition variable: the one that takes its place, or `None` if the C library's stays; and its clock.
///
/// # Safety
/// `cond` must point to a condition variable, which must stay valid for as long as the result is used.
pub(crate) unsafe fn condvar<'a>(cond: *mut pthread_cond_t) -> (Option<&'a RawRequeueCondvar>, libc::clockid_t) {
    // SAFETY: the caller promises that it is a condition variable, whose flags are there. The C library changes them
    // atomically.
    let flags = unsafe { AtomicU32::from_ptr(cond.wrapping_byte_add(FLAGS).cast()) };
    // ORDERING: Relaxed; they are written before it is shared.
    let flags = flags.load(Relaxed);
    let clock = if flags & MONOTONIC != 0 {
        libc::CLOCK_MONOTONIC
    } else {
        libc::CLOCK_REALTIME
    };
    // SAFETY: the first 16 bytes of one that is not shared are accessed by this library only, and an initializer has
    // made them 0.
    ((flags & SHARED == 0).then(|| unsafe { &*cond.cast() }), clock)
}
