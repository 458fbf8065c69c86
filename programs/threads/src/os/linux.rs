//! Waiting by the system calls of Linux.
//!
//! **No cancellation point**: a thread that is cancelled (`pthread_cancel`) ends in the next function of the C library
//! that is a cancellation point. In a lock it would take its place in the queue with it. So all waits are bare system
//! calls, by `syscall`, which is none.

#![expect(
    unsafe_code,
    reason = "system calls on the words that threads sleep on; the C library's cancellation"
)]

use core::ptr;
use core::sync::atomic::AtomicU32;
use std::ffi::c_int;
use std::time::Duration;

use crate::cpu::ThreadWord;
pub(crate) use crate::exit::{give_back_at_exit, give_back_of_gone_threads};
use crate::{slice, word};

/// Returns the time of a clock that never goes back, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a local variable. The clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps for `time`. May return earlier.
pub(crate) fn sleep(time: Duration) {
    if cfg!(miri) {
        // Miri has no such system call.
        return std::thread::sleep(time);
    }
    let time = timespec(time);
    // SAFETY: the kernel only reads `time`. It accepts null for the remaining time.
    let sleep = || unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            0,
            &raw const time,
            ptr::null_mut::<libc::timespec>(),
        )
    };
    let _ = keep_errno(sleep);
}

/// Calls `look`, whose functions of the C library may be cancellation points.
pub(crate) fn without_cancellation<R>(look: impl FnOnce() -> R) -> R {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    // Linux: `PTHREAD_CANCEL_DISABLE`.
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: `before` is a local variable.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    let result = look();
    // SAFETY: as above. The value is one that the function has returned.
    unsafe { pthread_setcancelstate(before, &mut 0) };
    result
}

/// Returns on how many CPUs that are online the first thread of this process may run. Other threads may be confined
/// more narrowly, each to its own CPU, which says nothing about the process. `None` if the kernel refuses.
pub(crate) fn cpus_by_affinity() -> Option<u32> {
    /// Bits for 8192 CPUs, the most that Linux can have.
    type Mask = [u64; 128];
    let mut mask: Mask = [0; 128];
    let process = std::process::id();
    // SAFETY: the kernel writes at most the given number of bytes into `mask`.
    let look = || unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            process,
            size_of::<Mask>(),
            mask.as_mut_ptr(),
        )
    };
    // Miri has no such system call by number.
    if cfg!(miri) || keep_errno(look).is_err() {
        return None;
    }
    let cpus = mask.iter().map(|bits| bits.count_ones()).sum();
    (cpus > 0).then_some(cpus)
}

/// Sleeps while `word` holds `value`, for at most `bound`. May return earlier.
pub(crate) fn wait(word: &ThreadWord, value: u32, bound: Option<Duration>) {
    let word = ptr::from_ref(word).cast();
    match bound.map(timespec) {
        Some(bound) => futex(word, libc::FUTEX_WAIT, value, &raw const bound),
        None => futex(word, libc::FUTEX_WAIT, value, ptr::null()),
    };
}

/// Sleeps while `word` holds `value`, for at most `time`. May return earlier.
pub(crate) fn wait_for(word: &AtomicU32, value: u32, time: Duration) {
    futex(word.as_ptr(), libc::FUTEX_WAIT, value, &timespec(time));
}

/// Wakes one thread that sleeps on `word`.
pub(crate) fn wake(word: &ThreadWord) {
    wake_some(word, 1);
}

/// Wakes up to `count` threads that sleep on `word`.
pub(crate) fn wake_some(word: &ThreadWord, count: u32) {
    let count = count.min(i32::MAX as u32);
    futex(ptr::from_ref(word).cast(), libc::FUTEX_WAKE, count, ptr::null());
}

/// Wakes all threads that sleep on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    futex(word.as_ptr(), libc::FUTEX_WAKE, i32::MAX as u32, ptr::null());
}

/// Returns whether this process can read `word`. A child does not inherit memory of which its parent has said so
/// (`MADV_DONTFORK`).
pub(crate) fn is_readable(word: *const ThreadWord) -> bool {
    const AT_ONCE: libc::timespec = timespec(Duration::ZERO);
    // The kernel compares the value, whatever it is, and does not sleep.
    futex(word.cast(), libc::FUTEX_WAIT, 0, &AT_ONCE) != libc::EFAULT
}

const fn timespec(time: Duration) -> libc::timespec {
    let seconds = time.as_secs();
    libc::timespec {
        tv_sec: if seconds > i32::MAX as u64 {
            i32::MAX as _
        } else {
            seconds as _
        },
        tv_nsec: time.subsec_nanos() as _,
    }
}

/// Sleeps while `word` holds `value`, for at most `time`. Returns whether the caller was woken: `true` also if it was
/// moved to another queue before.
pub(crate) fn sleep_on(word: &ThreadWord, value: u32, time: Option<Duration>) -> bool {
    let (word, time) = (ptr::from_ref(word).cast(), time.map(timespec));
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    futex(word, libc::FUTEX_WAIT, value, time) == 0
}

/// Wakes up to `count` threads that sleep at the address `key`, where no word may exist any more.
pub(crate) fn wake_at(key: usize, count: u32) {
    let count = count.min(i32::MAX as u32);
    futex(ptr::without_provenance(key), libc::FUTEX_WAKE, count, ptr::null());
}

/// Wakes up to `count` threads that sleep on `word`, and moves the others to the address `key`, if `word` holds
/// `value`. Returns whether it did.
pub(crate) fn requeue(word: &ThreadWord, value: u32, count: u32, key: usize) -> bool {
    // SAFETY: the kernel only reads `word`. Of `key` it uses the address.
    let requeue = || unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word),
            libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG,
            count.min(i32::MAX as u32),
            i32::MAX as usize,
            key,
            value,
        )
    };
    keep_errno(requeue) != Err(libc::EAGAIN)
}

/// Waits while `word` holds `value`, or wakes up to `value` waiters. A wait may end for no reason. Returns the
/// error number, or 0.
fn futex(word: *const u32, operation: i32, value: u32, timeout: *const libc::timespec) -> i32 {
    if operation == libc::FUTEX_WAIT {
        word::withdraw();
    }
    // SAFETY: the kernel only reads `word` and `timeout`, and reports an error if it cannot. Callers pass words that
    // outlive the call, or do not mind the error.
    let call = || unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
        )
    };
    keep_errno(call).err().unwrap_or(0)
}

/// Makes a system call, and keeps the caller's `errno`: C programs look at it after they have unlocked a mutex. Returns
/// the error number as `Err`.
pub(crate) fn keep_errno(call: impl FnOnce() -> libc::c_long) -> Result<(), i32> {
    // SAFETY: the function has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the C library returns the address of this thread's variable, here and below.
    let before = unsafe { errno.read() };
    let failed = slice::outside(call) < 0;
    // SAFETY: as above.
    let error = unsafe { errno.read() };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    if failed { Err(error) } else { Ok(()) }
}

#[cfg(all(test, not(miri)))]
pub(crate) mod tests {
    use super::*;

    fn process() -> libc::pid_t {
        std::process::id() as libc::pid_t
    }

    /// Returns the CPUs on which the first thread of this process may run.
    pub(crate) fn affinity() -> Vec<usize> {
        // SAFETY: a set of CPUs is bits, all of which may be 0.
        let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        // SAFETY: `set` is a local variable of that size.
        let failed = unsafe { libc::sched_getaffinity(process(), size_of_val(&set), &mut set) };
        assert_eq!(failed, 0);
        let capacity = 8 * size_of_val(&set);
        // SAFETY: `cpu` is below the capacity.
        (0..capacity)
            .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
            .collect()
    }

    /// Confines the first thread of this process to `cpus`.
    pub(crate) fn set_affinity(cpus: &[usize]) {
        // SAFETY: a set of CPUs is bits, all of which may be 0.
        let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        for &cpu in cpus {
            // SAFETY: the number is one that the kernel has returned in a set of this size.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: `set` is a local variable of that size.
        let failed = unsafe { libc::sched_setaffinity(process(), size_of_val(&set), &set) };
        assert_eq!(failed, 0);
    }

    #[test]
    fn the_affinity_has_as_many_cpus_as_the_c_library_says() {
        assert_eq!(cpus_by_affinity(), Some(affinity().len() as u32));
    }
}
