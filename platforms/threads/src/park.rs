//! Halting and kicking threads: each thread's parker, and the system calls that sleep.
//!
//! **No cancellation point**: a thread that is cancelled (`pthread_cancel`) ends in the next function of the C library
//! that is a cancellation point. In a lock it would take its place in the queue with it. So all waits are bare system
//! calls, by `syscall`, which is none.

#![expect(unsafe_code, reason = "system calls on the words that threads sleep on")]

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::AtomicU32;
use std::time::Duration;

use holdfast_locks::CpuId;
use holdfast_locks::thread::Parker;

use crate::cpu::{ThisThread, ThreadWord};
use crate::slot::CPUS_MAX;

static PARKERS: [Parker<ThreadWord>; CPUS_MAX as usize] =
    [const { Parker::from_word(ThreadWord::ZERO) }; CPUS_MAX as usize];

/// The longest halt of a thread whose announcement may be overwritten.
pub(crate) const GLANCE: Duration = Duration::from_millis(5);

thread_local! {
    /// After what time the next halt must end by itself.
    static BOUND: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Bounds the next halt of the calling thread by `time`, or by an earlier bound.
pub(crate) fn bound_next_halt(time: Duration) {
    BOUND.set(Some(BOUND.get().map_or(time, |bound| bound.min(time))));
}

/// Sleeps until the next [`kick`] of `cpu`, which is the calling thread. May return earlier, for example after a signal
/// handler.
pub(crate) fn halt(thread: &ThisThread, cpu: CpuId) {
    PARKERS[cpu.0 as usize].halt(thread);
    BOUND.set(None);
}

/// Ends the halt of `cpu`, or makes its next halt return at once.
pub(crate) fn kick(thread: &ThisThread, cpu: CpuId) {
    PARKERS[cpu.0 as usize].kick(thread);
}

/// Removes the kicks of `gone`, a thread that does not exist in this process.
pub(crate) fn abandon(thread: &ThisThread, gone: CpuId) {
    PARKERS[gone.0 as usize].abandon(thread);
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

/// Sleeps while `word` holds `value`. May return earlier.
pub(crate) fn wait(word: &ThreadWord, value: u32) {
    let word = ptr::from_ref(word).cast();
    match BOUND.get().map(timespec) {
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
    futex(ptr::from_ref(word).cast(), libc::FUTEX_WAKE, 1, ptr::null());
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

/// Wakes up to `count` threads that sleep at the address `key`.
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
fn keep_errno(call: impl FnOnce() -> libc::c_long) -> Result<(), i32> {
    // SAFETY: the function has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the C library returns the address of this thread's variable, here and below.
    let before = unsafe { errno.read() };
    let failed = call() < 0;
    // SAFETY: as above.
    let error = unsafe { errno.read() };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    if failed { Err(error) } else { Ok(()) }
}
