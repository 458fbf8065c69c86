//! The bootable image: entry point, allocator, panics.
#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "the entry, and memory functions that the compiler calls")]

mod memory_functions;
mod panics;

use holdfast_image::{Heap, main, panicked};

#[global_allocator]
static HEAP: Heap = Heap;

/// The text by which the VMM recognizes an image of its version.
#[used]
#[unsafe(link_section = ".note.holdfast")]
static MAGIC: [u8; 16] = holdfast_protocol::layout::MAGIC;

/// Keeps the probes, which nothing calls, for the test that examines their machine code.
#[used]
#[unsafe(link_section = ".note.holdfast.probes")]
static KEPT: &[(&str, holdfast_image::Probe)] = holdfast_image::PROBES;

/// The entry point of every CPU, in long mode, with its number in RDI and RSP at the top of its boot stack.
///
/// It switches SSE on before any Rust code runs, since `core` uses SSE: CR0.EM off, CR0.MP on, CR4.OSFXSR and
/// OSXMMEXCPT on (APM volume 2, section 11.3).
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
