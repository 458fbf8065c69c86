//! Halting and kicking threads: each thread's parker, and the futex system call.

#![expect(unsafe_code, reason = "system calls on the words that threads sleep on")]

use core::ptr;

use holdfast_locks::CpuId;
use holdfast_locks::thread::Parker;

use crate::cpu::{ThisThread, ThreadWord};
use crate::slot::CPUS_MAX;

static PARKERS: [Parker<ThreadWord>; CPUS_MAX as usize] =
    [const { Parker::from_word(ThreadWord::ZERO) }; CPUS_MAX as usize];

/// Sleeps until the next [`kick`] of `cpu`, which is the calling thread. May return earlier, for example after a signal
/// handler.
pub(crate) fn halt(thread: &ThisThread, cpu: CpuId) {
    PARKERS[cpu.0 as usize].halt(thread);
}

/// Ends the halt of `cpu`, or makes its next halt return at once.
pub(crate) fn kick(thread: &ThisThread, cpu: CpuId) {
    PARKERS[cpu.0 as usize].kick(thread);
}

/// Sleeps while `word` holds `value`. May return earlier.
pub(crate) fn wait(word: &ThreadWord, value: u32) {
    futex(word, libc::FUTEX_WAIT, value);
}

/// Wakes one thread that sleeps on `word`.
pub(crate) fn wake(word: &ThreadWord) {
    futex(word, libc::FUTEX_WAKE, 1);
}

/// Waits while `word` holds `value`, or wakes up to `value` waiters. The callers do not need the result: a wait may end
/// for no reason.
fn futex(word: &ThreadWord, operation: i32, value: u32) {
    let timeout = ptr::null::<libc::timespec>();
    // SAFETY: the kernel only reads `word`, which is a 32-bit word and outlives the call. Waiting without a time limit
    // and waking use no other memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word).cast::<u32>(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
        );
    }
}
