//! Compare, then store, without a locked instruction: restartable sequences (`rseq(2)`).
//!
//! A locked instruction takes most of the time of an uncontended unlock. It is needed only if a waiter announces itself
//! in the word between the unlocker's compare and its store, which is rare. So the unlocker compares and stores in a
//! *restartable sequence*, which the kernel restarts if it interrupts the thread. A waiter that has announced itself
//! lets the kernel interrupt all running threads of the process: [`settle`], by `membarrier(2)`, since Linux 5.10.
//! After that each sequence either has stored or compares again.
//!
//! The C library registers each thread's area with the kernel (glibc since 2.35). If it does not, or if the kernel
//! refuses, unlockers use the locked instruction. Threads that use either way may share a lock.
//!
//! **Other users**: a thread has one area, and other libraries announce their sequences in it, too. So a sequence here
//! begins by comparing the announcement with its own, and announces itself again if it differs. Only that field is
//! written. What the kernel promises is the same for both kinds of registration, the one of 32 bytes and the optimized
//! one (Linux 7.0 and later, `Documentation/userspace-api/rseq.rst`): a sequence is aborted if its thread is scheduled
//! out or gets a signal inside it, and on all running threads by `membarrier(2)`. The optimized one leaves the
//! announcement in place more often, which saves announcing it again.
//!
//! **Late refusal**: a process may give up `membarrier(2)` after its threads have begun to contend (seccomp). From then
//! on unlockers use the locked instruction. But one that has compared just before may still store, after any time, and
//! the waiter cannot know when. So a waiter that has announced itself then bounds its halts, and looks again after each
//! ([`Platform::is_unsettled`](holdfast_locks::Platform::is_unsettled)).

#![expect(unsafe_code, reason = "inline assembly on the C library's rseq area; system calls")]

use core::arch::asm;
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

use holdfast_words::Word;

use super::CompareStore;
use crate::loaded::keep_loaded;
use crate::slice;

/// The area has not been looked up yet.
const UNKNOWN: isize = 1;
/// The process has no restartable sequences.
const NONE: isize = 2;
/// A thread looks the area up. Until it is known, unlocks are exchanges: the thread itself may need one, since the
/// functions of the C library that it calls may lock (`malloc` in a program that replaces it).
const LOOKING: isize = 3;
/// Bits that are 0 in the distance of an area, which is aligned, but not in the values above.
const NOT_AN_AREA: isize = 3;

/// The area's distance from the thread pointer, or one of the values above.
static AREA: AtomicIsize = AtomicIsize::new(UNKNOWN);

/// The size in bytes of the first version of the area, which has all fields used here.
const AREA_BYTES_MIN: u32 = 20;

/// Returns the area's distance from the thread pointer, or `None` if this process has no restartable sequences.
#[inline(always)]
fn area() -> Option<isize> {
    // ORDERING: Acquire; pairs with the Release in `look`, after which the process is registered for `settle`.
    match AREA.load(Acquire) {
        area if area & NOT_AN_AREA == 0 => Some(area),
        UNKNOWN => look(),
        _ => None,
    }
}

#[cold]
fn look() -> Option<isize> {
    // ORDERING: Relaxed; on failure Acquire, as in `area`. **One answer**: only one thread looks. Otherwise one might
    // compare and store while another does not settle.
    if let Err(known) = AREA.compare_exchange(UNKNOWN, LOOKING, Relaxed, Acquire) {
        return (known & NOT_AN_AREA == 0).then_some(known);
    }
    let found = find().unwrap_or(NONE);
    // A waiter that finds no area here has announced itself before, by a locked instruction. So a thread that finds the
    // area afterwards compares with the announcement: by **Total store order** the waiter need not settle.
    // ORDERING: SeqCst; includes the Release that pairs with the Acquire in `area`.
    AREA.store(found, SeqCst);
    (found != NONE).then_some(found)
}

/// Returns the distance of each thread's area from its thread pointer, and the area's size in bytes, as the C library
/// says. The size is 0 if the C library has not registered the areas.
pub(crate) fn registration() -> Option<(isize, u32)> {
    let offset = symbol(c"__rseq_offset")?;
    let size = symbol(c"__rseq_size")?;
    // SAFETY: by glibc's manual the symbol is a constant `ptrdiff_t`.
    let offset = unsafe { *offset.cast::<isize>() };
    // SAFETY: by glibc's manual the symbol is a constant `unsigned int`.
    let size = unsafe { *size.cast::<u32>() };
    Some((offset, size))
}

fn find() -> Option<isize> {
    let (offset, size) = registration()?;
    let usable = size >= AREA_BYTES_MIN && offset & NOT_AN_AREA == 0;
    (usable && keep_loaded() && membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)).then_some(offset)
}

fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: `name` ends with 0.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol.cast_const())
}

fn membarrier(command: i32) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns whether unlocks use restartable sequences in this process.
pub fn has_restartable_sequences() -> bool {
    area().is_some()
}

/// Whether the kernel has refused `membarrier(2)` although it had been registered. It stays set.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns whether [`settle`] cannot wait any more: **Late refusal**.
pub(crate) fn is_unsettled() -> bool {
    // ORDERING: Relaxed. A thread whose own `settle` was refused sees its own store. A thread whose `settle` found no
    // area has acquired the NONE in `area`, and with it this. A thread whose `settle` was not refused needs no look.
    REFUSED.load(Relaxed)
}

/// Waits until each compare-store that another thread has begun either has stored or will compare again; but see
/// [`is_unsettled`]. Returns `false` if there were never restartable sequences, so nothing to wait for.
pub(crate) fn settle() -> bool {
    if area().is_none() {
        return is_unsettled();
    }
    // After fork a child keeps its parent's registration in the kernels that were tested. `membarrier(2)` does not
    // promise it, so a failure leads to a new registration.
    let again = || membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) && interrupt_all();
    if !interrupt_all() && !again() {
        refused();
    }
    true
}

#[cold]
fn refused() {
    // ORDERING: Relaxed; published by the store that follows.
    REFUSED.store(true, Relaxed);
    // ORDERING: Release; pairs with the Acquire in `area`: a thread that finds no area, and so does not call the
    // kernel, also finds the refusal, and bounds its halts.
    AREA.store(NONE, Release);
}

fn interrupt_all() -> bool {
    slice::outside(|| membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ))
}

/// Withdraws the announcement of the calling thread, which is about to give its CPU up. Otherwise the kernel would read
/// the sequence's descriptor and code to find that the thread is not in it, each time that it schedules the thread.
///
/// The next sequence announces itself again, as it would have to anyway: the kernel clears the announcement then.
#[inline]
pub(crate) fn withdraw() {
    // ORDERING: Relaxed; the area's distance is all there is to know.
    let area = AREA.load(Relaxed);
    if area & NOT_AN_AREA == 0 {
        // SAFETY: the area belongs to this thread, which is in no sequence. The kernel accepts 0 at any time.
        unsafe {
            asm!("mov qword ptr fs:[{area} + 8], 0", area = in(reg) area, options(nostack, preserves_flags));
        }
    }
}

macro_rules! compare_store {
    ($name:ident, $value:ty, $memory:literal, $class:ident, $modifier:literal) => {
        /// Stores `new` if the memory holds `current`. Returns whether it has stored; `false` also if this thread has
        /// no restartable sequences.
        ///
        /// # Safety
        /// `memory` must be valid, and accessed only by inline assembly.
        #[inline(always)]
        unsafe fn $name(memory: *mut $value, current: $value, new: $value) -> bool {
            let Some(area) = area() else { return false };
            // SAFETY: the area belongs to this thread. The code stores the descriptor's address there only if this
            // thread is registered. (An ended thread's leftovers cannot mislead it: glibc ends the process if one
            // thread cannot register although another could.) The kernel reads the descriptor, which is static and by
            // `keep_loaded` stays in memory. If the kernel interrupts this thread in [3, 4), execution continues at 6.
            unsafe {
                asm!(
                    // The descriptor: version and flags, start, length, abort address.
                    ".pushsection .data.rel.ro.holdfast_rseq, \"aw\"",
                    ".balign 32",
                    "7:",
                    ".long 0, 0",
                    ".quad 3f, 4f - 3f, 6f",
                    ".popsection",
                    // Before 6 is the signature that glibc has registered, encoded as an instruction. The code at 6
                    // stores the descriptor's address, which the kernel clears at each interrupt, and restarts the
                    // sequence. If `cpu_id`, at offset 4, is negative, this thread is not registered, and the sequence
                    // fails.
                    ".pushsection .text.unlikely.holdfast_rseq, \"ax\"",
                    ".byte 0x0f, 0xb9, 0x3d",
                    ".long 0x53053053",
                    "6:",
                    "cmp dword ptr fs:[{area} + 4], 0",
                    "jl {failed}",
                    "mov qword ptr fs:[{area} + 8], {t}",
                    "jmp 3f",
                    ".popsection",
                    "lea {t}, [rip + 7b]",
                    "3:",
                    "cmp qword ptr fs:[{area} + 8], {t}",
                    "jne 6b",
                    concat!("cmp ", $memory, " ptr [{memory}], {current", $modifier, "}"),
                    "jne {failed}",
                    concat!("mov ", $memory, " ptr [{memory}], {new", $modifier, "}"),
                    "4:",
                    t = out(reg) _,
                    area = in(reg) area,
                    memory = in(reg) memory,
                    current = in($class) current,
                    new = in($class) new,
                    failed = label { return false },
                    options(nostack),
                );
            }
            true
        }
    };
}

compare_store!(compare_store8, u8, "byte", reg_byte, "");
compare_store!(compare_store16, u16, "word", reg, ":x");

impl CompareStore for Word {
    #[inline(always)]
    fn compare_store_low8(&self, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        // SAFETY: `self` is borrowed, so its memory is valid, and it is accessed only by inline assembly.
        if unsafe { compare_store8(self.low8(), current, new) } {
            return Ok(());
        }
        // Either the word held another value, or there are no restartable sequences: the exchange decides.
        self.compare_exchange_low8(current, new, order, Ordering::Relaxed)
            .map(drop)
    }

    #[inline(always)]
    fn compare_store_low16(&self, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        // SAFETY: as above.
        if unsafe { compare_store16(self.low16(), current, new) } {
            return Ok(());
        }
        self.compare_exchange_low16(current, new, order, Ordering::Relaxed)
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use holdfast_locks::thread::Thread;

    use super::*;
    use crate::cpu::{ThisThread, ThreadWord};

    /// Increments `count` in a restartable sequence, as another library may do it. Returns the address of its
    /// descriptor.
    fn increment(area: isize, count: &mut u64) -> usize {
        let descriptor;
        // SAFETY: the area belongs to this thread. The descriptor is static, and its abort handler has the signature
        // before it. `count` is borrowed.
        unsafe {
            asm!(
                ".pushsection .data.rel.ro.holdfast_other, \"aw\"",
                ".balign 32",
                "7:",
                ".long 0, 0",
                ".quad 3f, 4f - 3f, 6f",
                ".popsection",
                ".pushsection .text.unlikely.holdfast_other, \"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "6:",
                "jmp 2f",
                ".popsection",
                "2:",
                "lea {t}, [rip + 7b]",
                "mov qword ptr fs:[{area} + 8], {t}",
                "3:",
                "inc qword ptr [{count}]",
                "4:",
                t = out(reg) descriptor,
                area = in(reg) area,
                count = in(reg) count,
                options(nostack),
            );
        }
        descriptor
    }

    /// Returns the address of the sequence that this thread has announced, or 0.
    fn announced(area: isize) -> usize {
        let descriptor;
        // SAFETY: the area belongs to this thread.
        unsafe {
            asm!("mov {t}, qword ptr fs:[{area} + 8]", t = out(reg) descriptor, area = in(reg) area, options(nostack));
        }
        descriptor
    }

    #[test]
    fn a_thread_that_sleeps_or_yields_has_announced_nothing() {
        let Some(area) = area() else {
            println!("SKIPPED: the C library has registered no area");
            return;
        };
        let (word, this) = (ThreadWord::ZERO, ThisThread::new());
        let sleep = || this.futex_wait(&word, 1);
        let give_way = || this.give_way();
        for (name, call) in [("sleep", &sleep as &dyn Fn()), ("yield", &give_way)] {
            // The kernel clears an announcement, too, but not in each round.
            for round in 0..200 {
                assert_eq!(Word::new(1).compare_store_low8(1, 0, Release), Ok(()));
                call();
                assert_eq!(announced(area), 0, "{name}, round {round}");
            }
        }
    }

    #[test]
    fn a_sequence_of_another_library_is_neither_kept_nor_broken() {
        let Some(area) = area() else {
            println!("SKIPPED: the C library has registered no area");
            return;
        };
        const ROUNDS: u64 = 20_000;
        let work = || {
            let (word, mut count) = (Word::new(0), 0);
            for round in 1..=ROUNDS {
                let other = increment(area, &mut count);
                // The kernel restarts the other sequence before its last instruction, or not at all.
                assert_eq!(count, round);
                word.store(1, Relaxed);
                assert_eq!(word.compare_store_low8(1, 0, Release), Ok(()));
                // 0 if the kernel has interrupted the thread since.
                assert_ne!(announced(area), other, "the store relied on another library's sequence");
            }
        };
        thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    }
}
