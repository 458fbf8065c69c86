//! Privileged instructions, one function each.

#![expect(unsafe_code, reason = "inline assembly")]

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, _rdtsc};
use core::sync::atomic::AtomicU32;

/// RFLAGS: interrupts are enabled.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// CPUID of sub-leaf 0: EAX, EBX, ECX, EDX.
pub(crate) fn cpuid(leaf: u32) -> [u32; 4] {
    let found = __cpuid_count(leaf, 0);
    [found.eax, found.ebx, found.ecx, found.edx]
}

/// The time-stamp counter.
#[inline(always)]
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: every CPU that a KVM guest gets has the instruction, and CR4.TSD is clear.
    unsafe { _rdtsc() }
}

/// Writes a model-specific register.
///
/// # Safety
/// The CPU must have it, and nothing that the Rust code relies on may change by it (segment bases, the paging mode,
/// memory that the host then writes to).
#[inline]
pub(crate) unsafe fn wrmsr(msr: u32, value: u64) {
    // SAFETY: what it changes is the caller's argument.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Reads a model-specific register, which the CPU must have: otherwise it faults.
#[inline]
pub(crate) fn rdmsr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register; where there is none the exception ends the guest.
    unsafe {
        asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a byte to an I/O port.
pub(crate) fn outb(port: u16, value: u8) {
    // SAFETY: the VMM's ports do nothing to this guest's memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Whether interrupts are enabled.
#[inline(always)]
pub(crate) fn interrupts_enabled() -> bool {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack.
    unsafe { asm!("pushfq", "pop {flags}", flags = out(reg) flags, options(preserves_flags)) };
    flags & INTERRUPT_FLAG != 0
}

/// Masks interrupts. The compiler moves no memory access across.
#[inline(always)]
pub(crate) fn cli() {
    // SAFETY: only delays handlers.
    unsafe { asm!("cli", options(nostack, preserves_flags)) };
}

/// Enables interrupts; those that are pending are taken after the next instruction. The compiler moves no memory access
/// across.
#[inline(always)]
pub(crate) fn sti() {
    // SAFETY: the tables of handlers were loaded before any code that calls this runs on this CPU; the handlers leave
    // all registers and the red zone as they were.
    unsafe { asm!("sti", options(nostack, preserves_flags)) };
}

/// Halts with interrupts as they are.
#[inline(always)]
pub(crate) fn hlt() {
    // SAFETY: waits.
    unsafe { asm!("hlt", options(nostack, preserves_flags)) };
}

/// Enables interrupts and halts, indivisibly: the instruction after STI is executed before an interrupt is taken (SDM
/// volume 2, STI). Masks them again.
#[inline(always)]
pub(crate) fn sti_hlt_cli() {
    // SAFETY: as `sti`.
    unsafe { asm!("sti", "hlt", "cli", options(nostack, preserves_flags)) };
}

/// Tests and clears bit 0 of `word` in one instruction, without LOCK: for words that this CPU shares with nobody but
/// the host while that is not executing the guest.
pub(crate) fn test_and_clear_bit0(word: &AtomicU32) -> bool {
    let was_set: u8;
    // SAFETY: changes memory that `word` borrows, in one instruction, which no exit divides.
    unsafe {
        asm!("btr dword ptr [{word}], 0", "setc {was_set}", word = in(reg) word.as_ptr(), was_set = out(reg_byte) was_set,
            options(nostack));
    }
    was_set != 0
}

/// Halts for ever.
pub(crate) fn stop() -> ! {
    cli();
    loop {
        hlt();
    }
}

/// The address of the last page fault.
pub(crate) fn cr2() -> u64 {
    let address: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Executes `iterations` of a loop that uses nothing but one register.
#[inline(always)]
pub(crate) fn spin(iterations: u64) {
    if iterations == 0 {
        return;
    }
    // SAFETY: counts down from a number above 0.
    unsafe {
        asm!("2: dec {n}", "jnz 2b", n = inout(reg) iterations => _, options(nomem, nostack));
    }
}
