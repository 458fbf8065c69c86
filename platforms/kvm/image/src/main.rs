//! The bootable image: entry, allocator, panics, and the memory functions that compiled code calls.
#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "the entry, and memory functions that the compiler calls")]

use core::panic::PanicInfo;

use holdfast_image::{Heap, main, panicked};

#[global_allocator]
static HEAP: Heap = Heap;

/// What the VMM looks for before it boots an image.
#[used]
#[unsafe(link_section = ".note.holdfast")]
static MAGIC: [u8; 16] = holdfast_protocol::layout::MAGIC;

/// Nothing calls them: they are kept for who looks at the machine code.
#[used]
#[unsafe(link_section = ".note.holdfast.probes")]
static KEPT: &[(&str, holdfast_image::Probe)] = holdfast_image::PROBES;

/// Every CPU starts here, in long mode, with its number in RDI and RSP at the top of its boot stack. SSE is switched on before
/// any Rust code runs, since `core` uses it: CR0.EM off, CR0.MP on, CR4.OSFXSR and OSXMMEXCPT on (APM volume 2, 11.3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn _start() -> ! {
    core::arch::naked_asm!(
        "mov rax, cr0",
        "and rax, -5",
        "or rax, 2",
        "mov cr0, rax",
        "mov rax, cr4",
        "or rax, 0x600",
        "mov cr4, rax",
        "fninit",
        "xor ebp, ebp",
        "push 0",
        "push 0",
        "call {main}",
        "ud2",
        main = sym main,
    )
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    panicked(format_args!("{info}"))
}

/// Copies `count` bytes upwards.
///
/// # Safety
/// As C's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov rax, rdi",
        "mov rcx, rdx",
        "shr rcx, 3",
        "rep movsq",
        "mov ecx, edx",
        "and ecx, 7",
        "rep movsb",
        "ret",
    )
}

/// Copies `count` bytes, which may overlap.
///
/// # Safety
/// As C's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov rax, rdi",
        "mov rcx, rdi",
        "sub rcx, rsi",
        "cmp rcx, rdx",
        "jae {memcpy}",
        // The target begins within the source: downwards.
        "lea rdi, [rdi + rdx - 1]",
        "lea rsi, [rsi + rdx - 1]",
        "mov rcx, rdx",
        "std",
        "rep movsb",
        "cld",
        "ret",
        memcpy = sym memcpy,
    )
}

/// Fills `count` bytes.
///
/// # Safety
/// As C's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov r9, rdi",
        "movzx eax, sil",
        "mov r8, 0x0101010101010101",
        "imul rax, r8",
        "mov rcx, rdx",
        "shr rcx, 3",
        "rep stosq",
        "mov ecx, edx",
        "and ecx, 7",
        "rep stosb",
        "mov rax, r9",
        "ret",
    )
}

/// Compares `count` bytes.
///
/// # Safety
/// As C's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    core::arch::naked_asm!(
        "mov rcx, rdx",
        "xor eax, eax",
        "test rcx, rcx",
        "jz 2f",
        "repe cmpsb",
        "je 2f",
        "movzx eax, byte ptr [rdi - 1]",
        "movzx ecx, byte ptr [rsi - 1]",
        "sub eax, ecx",
        "2:",
        "ret",
    )
}

/// Whether `count` bytes differ.
///
/// # Safety
/// As C's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    core::arch::naked_asm!("jmp {memcmp}", memcmp = sym memcmp)
}

/// The precompiled `alloc` has landing pads that name it. Nothing unwinds here: panics end the guest.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    panicked(format_args!("something unwinds"))
}
