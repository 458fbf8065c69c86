//! Compare, then store, without a locked instruction: restartable sequences (`rseq(2)`).
//!
//! A locked instruction makes up most of an uncontended unlock. It is there for the rare waiter that announces itself in the
//! word between the unlocker's compare and its store. So the unlocker compares and stores in a *restartable sequence*,
//! which the kernel begins anew if it interrupts it, and the waiter, having announced itself, has the kernel interrupt all
//! running threads of the process: [`settle`], by `membarrier(2)`, since Linux 5.10. After that each sequence has either
//! stored, or compares again.
//!
//! The C library registers each thread's area with the kernel: glibc, since 2.35. Where it does not, or the kernel refuses,
//! unlockers use the locked instruction. Both kinds may mix.

#![expect(unsafe_code, reason = "inline assembly on the C library's rseq area; system calls")]

use core::arch::asm;
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicIsize, Ordering};

use holdfast_words::Word;

use super::CompareStore;
use crate::loaded::keep_loaded;

/// Nobody has asked yet.
const UNKNOWN: isize = 1;
/// There are no restartable sequences.
const NONE: isize = 2;
/// Bits that are 0 in the distance of an area, which is aligned, and in none of the above.
const NOT_AN_AREA: isize = 3;

/// The area's distance from the thread pointer, or one of the above.
static AREA: AtomicIsize = AtomicIsize::new(UNKNOWN);

/// Bytes of an area that has what is used here: the first version's.
const AREA_BYTES_MIN: u32 = 20;

/// The area's distance from the thread pointer if this process has restartable sequences.
#[inline(always)]
fn area() -> Option<isize> {
    // ORDERING: Acquire; pairs with the Release in `look`: the process has registered for `settle`.
    match AREA.load(Acquire) {
        area if area & NOT_AN_AREA == 0 => Some(area),
        UNKNOWN => look(),
        _ => None,
    }
}

#[cold]
fn look() -> Option<isize> {
    let found = find().unwrap_or(NONE);
    // ORDERING: Release; pairs with the Acquire in `area`. Acquire on failure, as there. **One answer**: of threads that look at
    // the same time the first decides, or one might compare and store while another does not settle.
    let area = AREA
        .compare_exchange(UNKNOWN, found, Release, Acquire)
        .map_or_else(|other| other, |_| found);
    (area != NONE).then_some(area)
}

fn find() -> Option<isize> {
    let offset = symbol(c"__rseq_offset")?;
    let size = symbol(c"__rseq_size")?;
    // SAFETY: glibc's manual says that this is a `ptrdiff_t`, and constant.
    let offset = unsafe { *offset.cast::<isize>() };
    // SAFETY: glibc's manual says that this is an `unsigned int`, and constant. 0: not registered.
    let size = unsafe { *size.cast::<u32>() };
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

/// Whether unlocks use restartable sequences in this process.
pub fn has_restartable_sequences() -> bool {
    area().is_some()
}

/// Returns when each compare-store that another thread has begun has stored, or will compare again. False: there are none.
pub(crate) fn settle() -> bool {
    let any = area().is_some();
    if any {
        // A child's registration is its parent's, in the kernels that were looked at; `membarrier(2)` does not say so.
        let again = || membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) && interrupt_all();
        assert!(interrupt_all() || again(), "membarrier fails after it was registered");
    }
    any
}

fn interrupt_all() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ)
}

macro_rules! compare_store {
    ($name:ident, $value:ty, $memory:literal, $class:ident, $modifier:literal) => {
        /// Stores `new` if the memory holds `current`. True: it has. False: it held something else, or this thread has no
        /// restartable sequences.
        ///
        /// # Safety
        /// `memory` is valid, and accessed by machine instructions only.
        #[inline(always)]
        unsafe fn $name(memory: *mut $value, current: $value, new: $value) -> bool {
            let Some(area) = area() else { return false };
            // SAFETY: the area is this thread's. It names the descriptor only if this thread has registered: what an ended
            // thread has left there does not count, because glibc ends the process if a thread cannot register where another
            // has. The kernel reads the descriptor, which is static and, by `keep_loaded`, stays. If it interrupts in [3, 4), it
            // goes on at 6.
            unsafe {
                asm!(
                    // The descriptor: version and flags, start, length, where to go on.
                    ".pushsection .data.rel.ro.holdfast_rseq, \"aw\"",
                    ".balign 32",
                    "7:",
                    ".long 0, 0",
                    ".quad 3f, 4f - 3f, 6f",
                    ".popsection",
                    // Before 6, the signature that glibc has registered, dressed up as an instruction. Names the descriptor,
                    // which the kernel forgets each time it interrupts, and begins anew; unless `cpu_id`, at 4, is negative:
                    // then this thread has not registered.
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
        // SAFETY: `self` is borrowed, and accessed by machine instructions only.
        if unsafe { compare_store8(self.low8(), current, new) } {
            return Ok(());
        }
        // It held something else, or there are no restartable sequences: this finds out.
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
