//! The sequence itself.

#![expect(unsafe_code, reason = "inline assembly on the C library's rseq area")]

use core::arch::asm;
use core::sync::atomic::Ordering::{self, Relaxed};

use holdfast_words::Word;

use super::{AREA, EXCHANGING, NOT_IN_USE, exchanges};
use crate::word::CompareStore;

macro_rules! compare_store {
    ($name:ident, $value:ty, $memory:literal, $class:ident, $modifier:literal) => {
        /// Stores `new` if the memory holds `current`. Returns whether it has stored; `false` also if this thread has
        /// no restartable sequences, or must not use them now.
        ///
        /// # Safety
        /// `memory` must be valid, and accessed only by inline assembly.
        #[inline(always)]
        unsafe fn $name(memory: *mut $value, current: $value, new: $value) -> bool {
            // SAFETY: the area belongs to this thread. The code stores the descriptor's address there only if this
            // thread is registered. (An ended thread's leftovers cannot mislead it: glibc ends the process if one
            // thread cannot register although another could.) The kernel reads the descriptor, which is static and by
            // `stays_loaded` remains in memory. If the kernel interrupts this thread in [3, 4), execution continues at
            // 6. `AREA` is looked at inside: **Changeover**.
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
                    "mov {area}, qword ptr [{state}]",
                    "test {area:e}, {not_in_use}",
                    "jne {failed}",
                    "cmp dword ptr fs:[{area} + 4], 0",
                    "jl {failed}",
                    "mov qword ptr fs:[{area} + 8], {t}",
                    "jmp 3f",
                    ".popsection",
                    "lea {t}, [rip + 7b]",
                    "3:",
                    "mov {area}, qword ptr [{state}]",
                    "test {area:e}, {not_in_use}",
                    "jne {failed}",
                    "cmp qword ptr fs:[{area} + 8], {t}",
                    "jne 6b",
                    concat!("cmp ", $memory, " ptr [{memory}], {current", $modifier, "}"),
                    "jne {failed}",
                    concat!("mov ", $memory, " ptr [{memory}], {new", $modifier, "}"),
                    "4:",
                    t = out(reg) _,
                    area = out(reg) _,
                    state = in(reg) AREA.as_ptr(),
                    not_in_use = const NOT_IN_USE,
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

/// Before the exchange of an unlock whose sequence has not stored: either the word held another value, or unlocks are
/// exchanges.
#[inline(always)]
fn before_exchange() {
    // ORDERING: Relaxed; only for the account.
    let state = AREA.load(Relaxed);
    if state & EXCHANGING != 0 {
        exchanges();
    }
}

impl CompareStore for Word {
    #[inline(always)]
    fn compare_store_low8(&self, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        // SAFETY: `self` is borrowed, so its memory is valid, and it is accessed only by inline assembly.
        if unsafe { compare_store8(self.low8(), current, new) } {
            return Ok(());
        }
        before_exchange();
        self.compare_exchange_low8(current, new, order, Relaxed).map(drop)
    }

    #[inline(always)]
    fn compare_store_low16(&self, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        // SAFETY: as above.
        if unsafe { compare_store16(self.low16(), current, new) } {
            return Ok(());
        }
        before_exchange();
        self.compare_exchange_low16(current, new, order, Relaxed).map(drop)
    }
}
