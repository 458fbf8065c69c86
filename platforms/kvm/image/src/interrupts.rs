//! The entries of interrupts and exceptions.

#![expect(unsafe_code, reason = "entries are assembly")]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};

use alloc::boxed::Box;
use holdfast_guest::GuestImage;
use holdfast_locks::Paravirt;
use holdfast_protocol::layout::SNAPSHOT_VECTOR;
use holdfast_protocol::{Crash, Message};

use crate::cpu::KvmCpu;
use crate::instructions::{cr2, stop};
use crate::tables::STUB_BYTES;
use crate::{hostile, machine, ring};

/// The stubs, one for each vector. A stub pushes the vector, and before it an error code of 0 if the CPU pushes none.
/// The CPU pushes one for vectors 8, 10 to 14, 17, 21, 29 and 30 (SDM volume 3, table 7-1).
///
/// An interrupt arrives on IST 1 with SS, RSP, RFLAGS, CS and RIP of the interrupted flow. The entry copies these below
/// the interrupted flow's red zone and continues there with interrupts masked. So IST 1 is free again. A copy of RIP
/// above the saved RBP makes the entry a frame that backtraces can follow. The entry saves the registers that Rust
/// functions may change, those of SSE by FXSAVE.
#[unsafe(naked)]
unsafe extern "C" fn entries() {
    core::arch::naked_asm!(
        ".balign 16",
        ".set vector, 0",
        ".rept 256",
        ".balign 16",
        ".if vector < 32",
        ".if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)",
        "push 0",
        ".endif",
        "push vector",
        "jmp holdfast_exception",
        ".else",
        "push vector",
        "jmp holdfast_interrupt",
        ".endif",
        ".set vector, vector + 1",
        ".endr",
        ".balign 16",
        "holdfast_interrupt:",
        "push rax",
        "push rcx",
        // RCX, RAX, vector, RIP, CS, RFLAGS, RSP, SS.
        "mov rcx, [rsp + 48]",
        "sub rcx, 128",
        "and rcx, -16",
        "mov rax, [rsp + 56]",
        "mov [rcx - 8], rax",
        "mov rax, [rsp + 48]",
        "mov [rcx - 16], rax",
        "mov rax, [rsp + 40]",
        "mov [rcx - 24], rax",
        "mov rax, [rsp + 32]",
        "mov [rcx - 32], rax",
        "mov rax, [rsp + 24]",
        "mov [rcx - 40], rax",
        "mov rax, [rsp + 16]",
        "mov [rcx - 48], rax",
        "mov rax, [rsp + 8]",
        "mov [rcx - 56], rax",
        "mov rax, [rsp]",
        "mov [rcx - 64], rax",
        "lea rsp, [rcx - 64]",
        "push [rsp + 24]",
        "push rbp",
        "mov rbp, rsp",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "sub rsp, 520",
        "fxsave64 [rsp]",
        "mov edi, [rbp + 32]",
        "cld",
        "call {interrupt}",
        "fxrstor64 [rsp]",
        "add rsp, 520",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rbp",
        "add rsp, 8",
        "pop rcx",
        "pop rax",
        "add rsp, 8",
        "iretq",
        ".balign 16",
        "holdfast_exception:",
        "mov rdi, rsp",
        "mov rsi, rbp",
        "and rsp, -16",
        "cld",
        "call {exception}",
        "ud2",
        interrupt = sym interrupt,
        exception = sym exception,
    )
}

/// Returns the address of the first stub.
pub(crate) fn stubs() -> *const u8 {
    let first = entries as *const u8;
    // The function is in a section of its own, whose alignment is that of its code.
    assert!(
        first.addr().is_multiple_of(STUB_BYTES),
        "the first stub is not aligned to {STUB_BYTES} bytes"
    );
    first
}

/// The kernel that handles interrupts, or null.
static IMAGE: AtomicPtr<Box<dyn GuestImage>> = AtomicPtr::new(core::ptr::null_mut());

/// Makes `image` the handler of all interrupts. It is never dropped.
pub(crate) fn deliver_to(image: Box<dyn GuestImage>) {
    // ORDERING: Release; pairs with the Acquire in `image`, so that the kernel's content is visible.
    IMAGE.store(Box::leak(Box::new(image)), Release);
}

/// Returns the kernel, if there is one.
pub(crate) fn image() -> Option<&'static dyn GuestImage> {
    let image = IMAGE.load(Acquire);
    // SAFETY: the pointer is null or a leaked box, to which only shared references are ever made. Its kernel is made
    // for several CPUs: they share words, locks, and plain memory whose rules `Machine` states.
    unsafe { image.as_ref() }.map(|image| &**image)
}

/// Handles an interrupt, on the interrupted flow's stack. Returns to the interrupted flow, possibly later and on
/// another CPU.
extern "sysv64" fn interrupt(vector: u32) {
    match image() {
        Some(image) => {
            if vector == u32::from(SNAPSHOT_VECTOR) {
                report_snapshot(image);
            }
            image.interrupt(vector as u8);
        }
        None if hostile::is_active() => {}
        None => panic!("interrupt with vector {vector}, and no kernel to handle it"),
    }
}

/// Set when the counters have been reported once.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Reports all counters as they are now, unless that has been done. Other CPUs may count meanwhile.
fn report_snapshot(image: &dyn GuestImage) {
    // ORDERING: Relaxed; the flag publishes no other data.
    if REPORTED.swap(true, Relaxed) {
        return;
    }
    let mut before = |name, value| ring::report(&Message::Before(name, value));
    image.statistics(&mut before);
    let cpu = KvmCpu::current();
    machine::counters(cpu.shared(), &mut before);
    ring::report_now(&Message::Snapshot { now_ns: cpu.now_ns() });
}

/// The words that an exception's stub and the CPU push.
#[repr(C)]
struct ExceptionFrame {
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

/// Handles an exception. Only a hostile guest continues after any of them.
extern "sysv64" fn exception(frame: *const ExceptionFrame, rbp: u64) -> ! {
    if hostile::is_active() {
        hostile::act_on();
    }
    // SAFETY: the entry passes its stack pointer, at which the CPU and the stub have pushed such a frame.
    let frame = unsafe { &*frame };
    ring::crashed(Crash {
        vector: frame.vector as u8,
        error: frame.error,
        rip: frame.rip,
        rsp: frame.rsp,
        rbp,
        rflags: frame.rflags,
        cr2: cr2(),
    });
    stop()
}
