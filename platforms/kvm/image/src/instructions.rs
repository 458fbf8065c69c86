//! Privileged instructions, and a few others in assembly, one function each.

#![expect(unsafe_code, reason = "inline assembly")]

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, _rdtsc};
use core::sync::atomic::AtomicU32;

/// RFLAGS: interrupts are enabled.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// Returns EAX, EBX, ECX and EDX of CPUID leaf `leaf`, sub-leaf 0.
pub(crate) fn cpuid(leaf: u32) -> [u32; 4] {
    let found = __cpuid_count(leaf, 0);
    [found.eax, found.ebx, found.ecx, found.edx]
}

/// Returns the time-stamp counter.
#[inline(always)]
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: every CPU that a KVM guest gets has the instruction, and CR4.TSD is clear.
    unsafe { _rdtsc() }
}

/// Writes a model-specific register.
///
/// # Safety
/// The CPU must have the register. The write must not change anything that Rust code relies on: segment bases, the
/// paging mode, or memory that the host then writes to.
#[inline]
pub(crate) unsafe fn wrmsr(msr: u32, value: u64) {
    // SAFETY: this function's contract covers the effects of the write.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Reads a model-specific register. The CPU must have it; otherwise the instruction faults.
#[inline]
pub(crate) fn rdmsr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instruction only reads a register. If there is none, the exception ends the guest.
    unsafe {
        asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a byte to an I/O port.
pub(crate) fn outb(port: u16, value: u8) {
    // SAFETY: the VMM's ports do not change this guest's memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Returns whether interrupts are enabled.
#[inline(always)]
pub(crate) fn interrupts_enabled() -> bool {
    let flags: u64;
    // SAFETY: the instructions read the flags through the stack.
    unsafe { asm!("pushfq", "pop {flags}", flags = out(reg) flags, options(preserves_flags)) };
    flags & INTERRUPT_FLAG != 0
}

/// Masks interrupts. The compiler moves no memory access across this.
#[inline(always)]
pub(crate) fn cli() {
    // SAFETY: masking only delays handlers.
    unsafe { asm!("cli", options(nostack, preserves_flags)) };
}

/// Enables interrupts. Pending ones are taken after the next instruction. The compiler moves no memory access across
/// this.
#[inline(always)]
pub(crate) fn sti() {
    // SAFETY: the interrupt table was loaded before any code that calls this runs on this CPU. The handlers preserve
    // all registers and the red zone.
    unsafe { asm!("sti", options(nostack, preserves_flags)) };
}

/// Waits until all earlier loads have their values (LFENCE).
pub(crate) fn wait_for_loads() {
    // SAFETY: LFENCE changes no register and no memory.
    unsafe { asm!("lfence", options(nostack, preserves_flags)) };
}

/// Halts without changing the interrupt flag.
#[inline(always)]
pub(crate) fn hlt() {
    // SAFETY: the instruction only waits for an interrupt.
    unsafe { asm!("hlt", options(nostack, preserves_flags)) };
}

/// Enables interrupts and halts, then masks interrupts again. No interrupt can come between STI and HLT: the
/// instruction after STI executes before an interrupt is taken (SDM volume 2, "STI").
#[inline(always)]
pub(crate) fn sti_hlt_cli() {
    // SAFETY: as for `sti`.
    unsafe { asm!("sti", "hlt", "cli", options(nostack, preserves_flags)) };
}

/// Watches the line of `word` for writes of other CPUs. The CPU must have MONITOR.
#[inline(always)]
pub(crate) fn monitor<T>(word: &T) {
    let address = core::ptr::from_ref(word);
    // SAFETY: the instruction only reads the line that `word` borrows.
    unsafe { asm!("monitor", in("rax") address, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags)) };
}

/// Waits until the watched line has been written to, or for an interrupt. The CPU must have MWAIT.
#[inline(always)]
pub(crate) fn mwait() {
    // SAFETY: the instruction only waits.
    unsafe { asm!("mwait", in("eax") 0, in("ecx") 0, options(nostack, preserves_flags)) };
}

/// Clears bit 0 of `word` in one instruction, without LOCK. Returns the bit's previous value. Only this CPU and the
/// host may access the word, and the host only while this CPU does not execute the guest.
pub(crate) fn test_and_clear_bit0(word: &AtomicU32) -> bool {
    let was_set: u8;
    // SAFETY: the instruction changes only memory that `word` borrows, and no exit can divide it.
    unsafe {
        asm!("btr dword ptr [{word}], 0", "setc {was_set}", word = in(reg) word.as_ptr(), was_set = out(reg_byte) was_set,
            options(nostack));
    }
    was_set != 0
}

/// Halts with interrupts masked, without an end.
pub(crate) fn stop() -> ! {
    cli();
    loop {
        hlt();
    }
}

/// Returns the address of the last page fault.
pub(crate) fn cr2() -> u64 {
    let address: u64;
    // SAFETY: the instruction only reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Executes `iterations` of a loop that uses a single register.
#[inline(always)]
pub(crate) fn spin(iterations: u64) {
    if iterations == 0 {
        return;
    }
    // SAFETY: the loop counts down from a number above 0 and accesses no memory.
    unsafe {
        asm!("2: dec {n}", "jnz 2b", n = inout(reg) iterations => _, options(nomem, nostack));
    }
}
