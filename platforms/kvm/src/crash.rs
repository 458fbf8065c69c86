//! The state of a vCPU: its registers, and a backtrace with function names.

use std::fmt;
use std::ops::Range;

use holdfast_protocol::Crash;
use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VcpuFd;

use crate::image::Image;
use crate::memory::Memory;

/// Largest number of frames in a backtrace.
const FRAMES_MAX: usize = 48;
/// RIP after a reset (SDM volume 3, section "First Instruction Executed").
const RESET_VECTOR: u64 = 0xfff0;
const RFLAGS_IF: u64 = 1 << 9;

/// The state of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct GuestState {
    /// Name of the VM.
    pub vm: String,
    /// Number of the vCPU.
    pub vcpu: u32,
    /// Names and values of its registers.
    pub registers: Vec<(&'static str, u64)>,
    /// The backtrace, innermost function first.
    pub frames: Vec<Frame>,
    /// Whether the frames are the return addresses left on the vCPU's boot stack. Some may be of functions that have
    /// returned. KVM resets the registers after a triple fault on AMD (`shutdown_interception`), so there is no better
    /// source.
    pub left_on_stack: bool,
    /// KVM's statistics of the vCPU that are not 0.
    pub stats: Vec<(String, u64)>,
    /// The last lines that a stock Linux guest's kernel has printed.
    pub console: Vec<String>,
}

/// One frame of a backtrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address of the interrupted instruction, or the return address of a call.
    pub address: u64,
    /// Name of its function and the offset in it, or `None` if the address is in no function.
    pub function: Option<(String, u64)>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some((name, offset)) => write!(f, "{:#x} {name}+{offset:#x}", self.address),
            None => write!(f, "{:#x} ?", self.address),
        }
    }
}

impl fmt::Display for GuestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} vcpu {}:", self.vm, self.vcpu)?;
        for line in self.registers.chunks(4) {
            let line: Vec<String> = line
                .iter()
                .map(|(name, value)| format!("{name:>6} {value:016x}"))
                .collect();
            writeln!(f, "  {}", line.join(" "))?;
        }
        if self.left_on_stack && !self.frames.is_empty() {
            writeln!(
                f,
                "  the registers were reset; return addresses left on the boot stack:"
            )?;
        }
        for (number, frame) in self.frames.iter().enumerate() {
            writeln!(f, "  #{number} {frame}")?;
        }
        let stats: Vec<String> = self
            .stats
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if !stats.is_empty() {
            writeln!(f, "  {}", stats.join(", "))?;
        }
        self.console.iter().try_for_each(|line| writeln!(f, "  | {line}"))
    }
}

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
