//! Halting and kicking threads.
//!
//! | parker | |
//! |---|---|
//! | 0 | running, no kick pending |
//! | 1 | running, a kick is pending: the next halt returns at once |
//! | 2 | halted, or about to be |
//!
//! **Sticky kick**: only halt takes a 1 away, and it then returns. Only the owner writes 0 and 2, so the kicker's
//! exchange for 1 either finds 2, and wakes, or leaves what the owner's next exchange finds.

#![expect(unsafe_code, reason = "system calls on the words that threads sleep on")]

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::AcqRel;

use holdfast_locks::CpuId;

use crate::slot::CPUS_MAX;

const RUNNING: u32 = 0;
const KICKED: u32 = 1;
const HALTED: u32 = 2;

/// On a line of its own: only its thread and who kicks it touch it.
#[repr(align(64))]
struct Parker(AtomicU32);

static PARKERS: [Parker; CPUS_MAX as usize] = [const { Parker(AtomicU32::new(RUNNING)) }; CPUS_MAX as usize];

/// Sleeps until the next [`kick`] of `cpu`, the calling thread, or for less. A signal's handler is a reason to return.
pub(crate) fn halt(cpu: CpuId) {
    let parker = &PARKERS[cpu.0 as usize].0;
    // ORDERING: Acquire, here and below; pairs with the kicker's Release: what it did before the kick is seen. AcqRel
    // because a kick that is taken away must not be read as older than what this CPU wrote before.
    if parker.swap(HALTED, AcqRel) == RUNNING {
        futex(parker, libc::FUTEX_WAIT, HALTED);
    }
    // ORDERING: AcqRel, as above. This takes the kick that ended the halt.
    parker.swap(RUNNING, AcqRel);
}

/// Ends the halt of `cpu`, or its next one.
pub(crate) fn kick(cpu: CpuId) {
    let parker = &PARKERS[cpu.0 as usize].0;
    // ORDERING: AcqRel; Release pairs with the Acquire in `halt`.
    if parker.swap(KICKED, AcqRel) == HALTED {
        futex(parker, libc::FUTEX_WAKE, 1);
    }
}

/// Waits while `word` holds `value`, or wakes up to `value` waiters. Its result says nothing that the callers need: a
/// wait may end for no reason.
fn futex(word: &AtomicU32, operation: i32, value: u32) {
    let timeout = ptr::null::<libc::timespec>();
    // SAFETY: the kernel only reads `word`, which is static; waiting without a time limit, and waking, need no more.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
        );
    }
}
