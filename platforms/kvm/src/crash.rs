//! Records the state of a vCPU.

use std::ops::Range;

use holdfast_protocol::Crash;
use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VcpuFd;

use crate::image::Image;
use crate::memory::Memory;
use crate::state::{Frame, GuestState};

/// Largest number of frames in a backtrace.
const FRAMES_MAX: usize = 48;
/// RIP after a reset (SDM volume 3, section "First Instruction Executed").
const RESET_VECTOR: u64 = 0xfff0;
const RFLAGS_IF: u64 = 1 << 9;

/// Returns the state of `vcpu`: at the exception if there is a `crash`, otherwise now.
pub(crate) fn capture(
    vm: &str,
    number: u32,
    vcpu: &VcpuFd,
    memory: &Memory,
    image: Option<&Image>,
    crash: Option<&Crash>,
) -> GuestState {
    let registers = vcpu.get_regs().unwrap_or_default();
    let system = vcpu.get_sregs().unwrap_or_default();
    let mut listed = list(&registers, &system);
    let (mut rip, mut rbp) = (registers.rip, registers.rbp);
    if let Some(crash) = crash {
        // The guest claims these values. They only select what is displayed.
        (rip, rbp) = (crash.rip, crash.rbp);
        listed = vec![
            ("vector", crash.vector.into()),
            ("error", crash.error),
            ("rip", crash.rip),
            ("rsp", crash.rsp),
            ("rbp", crash.rbp),
            ("rflags", crash.rflags),
            ("cr2", crash.cr2),
        ];
    }
    let left_on_stack = rip == RESET_VECTOR && image.is_some();
    GuestState {
        vm: vm.to_owned(),
        vcpu: number,
        registers: listed,
        frames: match image {
            Some(image) if left_on_stack => scan(memory.boot_stack(image, number), memory, image),
            _ => backtrace(rip, rbp, memory, image),
        },
        left_on_stack,
        ..GuestState::default()
    }
}

fn list(registers: &kvm_regs, system: &kvm_sregs) -> Vec<(&'static str, u64)> {
    vec![
        ("rip", registers.rip),
        ("rsp", registers.rsp),
        ("rbp", registers.rbp),
        ("rflags", registers.rflags),
        ("rax", registers.rax),
        ("rbx", registers.rbx),
        ("rcx", registers.rcx),
        ("rdx", registers.rdx),
        ("rsi", registers.rsi),
        ("rdi", registers.rdi),
        ("cr2", system.cr2),
        ("gs", system.gs.base),
        ("if", (registers.rflags & RFLAGS_IF) / RFLAGS_IF),
    ]
}

/// Returns the outermost functions to which words of `stack` point.
fn scan(stack: Range<u64>, memory: &Memory, image: &Image) -> Vec<Frame> {
    let words = stack.rev().step_by(8).filter_map(|last| memory.word(last - 7));
    let leads = |address: u64| {
        let (name, offset) = image.symbol(address)?;
        Some(Frame {
            address,
            function: Some((name.to_owned(), offset)),
        })
    };
    let mut frames: Vec<Frame> = words.filter_map(leads).take(FRAMES_MAX).collect();
    frames.reverse();
    frames
}

/// Returns the backtrace from `rip`. Follows frame pointers while they increase and are in memory.
fn backtrace(rip: u64, mut rbp: u64, memory: &Memory, image: Option<&Image>) -> Vec<Frame> {
    let symbol = |address: u64| image.and_then(|image| image.symbol(address));
    let frame = |address: u64| Frame {
        address,
        function: symbol(address).map(|(name, offset)| (name.to_owned(), offset)),
    };
    let mut frames = vec![frame(rip)];
    while frames.len() < FRAMES_MAX && rbp.is_multiple_of(8) && rbp != 0 {
        let Some(caller) = rbp.checked_add(8).and_then(|at| memory.word(at)) else {
            break;
        };
        if caller == 0 {
            break;
        }
        frames.push(frame(caller));
        match memory.word(rbp) {
            Some(next) if next > rbp => rbp = next,
            _ => break,
        }
    }
    frames
}
