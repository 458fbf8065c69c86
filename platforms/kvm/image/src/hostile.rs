//! A guest that does what no correct guest does, chosen at random, for tests of the VMM.
//!
//! Exceptions do not end it: the next act follows. A guest ends itself after some acts, in a random way. One seed in
//! four makes a guest that reports without limit and otherwise does what a correct guest does.

#![expect(unsafe_code, reason = "deliberate faults")]

use alloc::string::String;
use alloc::vec::Vec;
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use holdfast_abi::ioapic;
use holdfast_abi::msr::{APIC_BASE_ADDRESS, STEAL_TIME};
use holdfast_protocol::layout::{BOOT_STACK, DOORBELL, MEMORY_MIN, ORDERS, RING, RING_BYTES, TABLES, VCPUS_MAX};
use holdfast_protocol::{Contended, Crash, Message};

use crate::cpu::KvmCpu;
use crate::instructions::{cli, outb, rdmsr, stop, wrmsr};
use crate::{fault, percpu, ring};

/// Whether exceptions lead to the next act.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// State of each CPU's random numbers. It is kept in memory, since an exception may end any act.
static RANDOM: [AtomicU64; VCPUS_MAX as usize] = [const { AtomicU64::new(0) }; VCPUS_MAX as usize];
/// Address of the code that [`code`] executes.
static CODE: AtomicU64 = AtomicU64::new(0);

/// Number of bytes of random code.
const CODE_BYTES: usize = 64;
/// Messages in a flood: more than any correct guest sends.
const FLOOD: u64 = 3000;
/// Acts of a CPU, on average.
const ACTS: u64 = 400;

/// First number and count of groups of model-specific registers. FS and GS, which this code needs, are not in them.
const REGISTERS: [(u32, u32); 14] = [
    (0x0, 0x20),
    (0x3a, 1),
    (0x8b, 1),
    (0x174, 8),
    (0x198, 9),
    (0x1d9, 4),
    (0x200, 0x100),
    (0x400, 0x80),
    (0x6e0, 1),
    (0x800, 0x40),
    (0x4000_0000, 0x110),
    (STEAL_TIME & !0xf, 0x10),
    (0xc000_0080, 5),
    (0xc001_0000, 0x40),
];

/// First bytes of privileged instructions. Random bytes follow.
const PRIVILEGED: [[u8; 3]; 11] = [
    // MOV to and from control registers.
    [0x0f, 0x20, 0xc0],
    [0x0f, 0x22, 0xe0],
    [0x0f, 0x22, 0xd8],
    // LIDT, LMSW, XSETBV.
    [0x0f, 0x01, 0x18],
    [0x0f, 0x01, 0xf0],
    [0x0f, 0x01, 0xd1],
    // WBINVD, MONITOR, IRETQ, far return, a prefix without an instruction.
    [0x0f, 0x09, 0x90],
    [0x0f, 0x01, 0xc8],
    [0x48, 0xcf, 0x90],
    [0x48, 0xcb, 0x90],
    [0xf0, 0xf3, 0x66],
];

/// A stream of random numbers (splitmix64).
#[derive(Clone, Copy)]
struct Random(&'static AtomicU64);

impl Random {
    fn next(self) -> u64 {
        // ORDERING: Relaxed; only one CPU uses the stream.
        let state = self.0.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.store(state, Relaxed);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(self, end: u64) -> u64 {
        self.next() % end
    }

    fn in_one_of(self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    fn of<T: Copy>(self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Returns a number up to 2^`bits`, small ones as often as large ones.
    fn length(self, bits: u64) -> usize {
        self.below(2 << self.below(bits)) as usize
    }

    /// Returns a value that is likely at a limit: none, all or one of the bits, an address in memory, a small number.
    fn value(self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => self.below(MEMORY_MIN) & !63 | self.below(64),
            4 => self.below(300),
            _ => self.next(),
        }
    }

    /// Returns text of about `bytes` bytes with control characters.
    fn text(self, bytes: usize) -> String {
        let odd = ['\u{1b}', '\n', '\r', '\0', '\u{9b}', '\u{202e}', '"', '\\'];
        let mut text = String::new();
        while text.len() < bytes {
            text.push(match self.below(4) {
                0 => self.of(&odd),
                1 => char::from_u32(self.below(0x11_0000) as u32).unwrap_or('?'),
                _ => self.of(&['k', 'v', 'm', '.']),
            });
        }
        text
    }
}

/// Begins the acts of this CPU. `seed` is the same on all CPUs.
pub(crate) fn begin(cpu: &KvmCpu, seed: u64) -> ! {
    let number = cpu.block().number.get();
    // ORDERING: Relaxed; another CPU may see the flag later, and would then end at its first exception.
    RANDOM[number as usize].store(seed ^ u64::from(number) << 32, Relaxed);
    if number == 0 {
        let code = Vec::leak(alloc::vec![0x90; CODE_BYTES + 8]);
        CODE.store(code.as_ptr().expose_provenance() as u64, Relaxed);
    }
    ACTIVE.store(true, Relaxed);
    if seed.is_multiple_of(4) {
        reports_only(number);
    }
    act_on()
}

/// Reports on CPU 0 more than the VMM may keep, and ends in order.
fn reports_only(number: u32) -> ! {
    let random = Random(&RANDOM[number as usize]);
    if number == 0 {
        (0..200).for_each(|_| ring::report(&message(random)));
        flood(random, true);
        flood(random, false);
        let (now_ns, operations) = (random.value(), Some(random.value()));
        ring::report_now(&Message::Done { now_ns, operations });
    }
    stop()
}

/// Returns whether exceptions lead to the next act.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// Acts until the guest ends. An exception calls this again, on the stack of exceptions.
pub(crate) fn act_on() -> ! {
    let random = Random(&RANDOM[percpu::this().number.get() as usize % RANDOM.len()]);
    loop {
        cli();
        if random.in_one_of(ACTS) {
            end(random);
        }
        act(random);
    }
}

fn act(random: Random) {
    match random.below(64) {
        0..16 => ring::report(&message(random)),
        16..22 => doorbell(random),
        22 => flood(random, random.in_one_of(2)),
        23..30 => device(random, APIC_BASE_ADDRESS, 0x1000),
        30..34 => device(random, ioapic::ADDRESS, 0x40),
        34..44 => register(random),
        44..52 => hypercall(random),
        52..57 => drop(crate::instructions::cpuid(random.value() as u32)),
        57..60 => code(random),
        60 => memory(random),
        _ => interruption(),
    }
}

/// Ends the guest.
fn end(random: Random) -> ! {
    match random.below(12) {
        0..4 => {
            let operations = (!random.in_one_of(3)).then(|| random.value());
            let now_ns = random.value();
            ring::report_now(&Message::Done { now_ns, operations });
        }
        4 => fault::triple_fault(),
        5 => outb(random.next() as u16, 0),
        6 => {
            input(random.next() as u16);
        }
        7 => ring::overwrite(random.value(), &[]),
        8 => {
            let junk: Vec<u8> = (0..random.length(10)).map(|_| random.next() as u8).collect();
            ring::overwrite(random.below(40) * 8, &junk);
        }
        9 => device(random, random.below(1 << 32), 1 << 20),
        10 => ring::report_now(&panic(random)),
        _ => {}
    }
    stop()
}

/// Returns a message with random content.
fn message(random: Random) -> Message {
    match random.below(6) {
        0 => Message::Log(random.text(random.length(16))),
        1 => Message::Counter(random.text(random.length(12)), random.value()),
        2 => Message::Contended(Contended {
            cpu: random.value() as u32,
            acquisitions: random.value(),
            waits: random.value(),
            kicks: random.value(),
            halts: random.value(),
            longest_wait_ns: random.value(),
        }),
        3 => Message::Begin { now_ns: random.value() },
        4 => Message::Started {
            cpu: random.value() as u32,
            now_ns: random.value(),
        },
        _ => Message::Log(String::new()),
    }
}

fn panic(random: Random) -> Message {
    Message::Panic {
        cpu: random.value() as u32,
        message: random.text(random.length(16)),
        crash: (!random.in_one_of(4)).then(|| Crash {
            vector: random.next() as u8,
            error: random.value(),
            rip: random.value(),
            rsp: random.value(),
            rbp: random.of(&[random.value(), random.value() & !7, RING + 16, BOOT_STACK]),
            rflags: random.value(),
            cr2: random.value(),
        }),
    }
}

/// Reports more lines than the VMM keeps, or more counters.
fn flood(random: Random, lines: bool) {
    let line = random.text(random.length(8));
    for number in 0..FLOOD {
        let text = alloc::format!("{line}{number}");
        ring::report(&match lines {
            true => Message::Log(text),
            false => Message::Counter(text, number),
        });
    }
}

/// Writes 1, 2 or 4 bytes to the doorbell, or a block of them.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one of them is executed")]
fn doorbell(random: Random) {
    let value = random.next() as u32;
    // SAFETY: the VMM's port does not change this guest's memory. The block is in the ring.
    unsafe {
        match random.below(4) {
            0 => asm!("out dx, al", in("dx") DOORBELL, in("al") value as u8, options(nostack)),
            1 => asm!("out dx, ax", in("dx") DOORBELL, in("ax") value as u16, options(nostack)),
            2 => asm!("out dx, eax", in("dx") DOORBELL, in("eax") value, options(nostack)),
            _ => asm!("rep outsd", in("dx") DOORBELL, inout("rcx") u64::from(value % 32) => _,
                inout("rsi") RING => _, options(nostack)),
        }
    }
}

fn input(port: u16) -> u32 {
    let value;
    // SAFETY: the VMM's ports do not change this guest's memory.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack)) };
    value
}

/// Reads or writes at a random place of the `bytes` bytes at `address`.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one of them is executed")]
fn device(random: Random, address: u64, bytes: u64) {
    let spread = if random.in_one_of(4) { 1 } else { 16 };
    let (at, value) = (address + random.below(bytes) / spread * spread, random.value());
    // SAFETY: the access may fault or change what this guest relies on, which is a fault like any other.
    unsafe {
        match random.below(5) {
            0 => asm!("mov [{at}], {value:e}", at = in(reg) at, value = in(reg) value, options(nostack)),
            1 => asm!("mov [{at}], {value}", at = in(reg) at, value = in(reg) value, options(nostack)),
            2 => asm!("mov {value}, [{at}]", at = in(reg) at, value = out(reg) _, options(nostack)),
            3 => asm!("lock xadd [{at}], {value:x}", at = in(reg) at, value = inout(reg) value => _, options(nostack)),
            _ => asm!("mov {value:e}, [{at}]", at = in(reg) at, value = out(reg) _, options(nostack)),
        }
    }
}

/// Reads or writes a model-specific register.
fn register(random: Random) {
    let (first, count) = random.of(&REGISTERS);
    let (register, value) = (first + random.below(count.into()) as u32, random.value());
    if random.in_one_of(3) {
        rdmsr(register);
        return;
    }
    // SAFETY: the registers of the segments that this code uses are not in the list. The host may then write anywhere
    // into this guest's memory, which is a fault like any other.
    unsafe { wrmsr(register, value) };
}

fn hypercall(random: Random) {
    let arguments = [(); 4].map(|()| random.value());
    let hypervisor = percpu::this().shared().hypervisor;
    hypervisor.call(random.below(16) as u32, arguments);
}

/// Takes pending interrupts.
fn interruption() {
    // SAFETY: the handler ignores interrupts of a hostile guest.
    unsafe { asm!("sti", "nop", "cli", options(nostack)) };
}

/// Overwrites a word of memory: of the page tables, the orders, the ring's header, or of any page.
fn memory(random: Random) {
    let at = random.of(&[
        TABLES + random.below(0x7000),
        ORDERS + random.below(64),
        RING + random.below(24),
        RING + random.below(u64::from(RING_BYTES)),
        random.below(MEMORY_MIN),
    ]);
    let value = random.value();
    // SAFETY: the write may change what this guest relies on, which is a fault like any other.
    unsafe { asm!("mov [{at}], {value}", at = in(reg) at, value = in(reg) value, options(nostack)) };
}

/// Executes random code. It ends by an exception, after which the next act follows.
fn code(random: Random) -> ! {
    let start = CODE.load(Relaxed);
    let privileged = random.in_one_of(2).then(|| random.of(&PRIVILEGED));
    let first = privileged.as_ref().map_or(&[][..], |bytes| bytes);
    for offset in 0..CODE_BYTES as u64 {
        let byte = first.get(offset as usize).copied().unwrap_or(random.next() as u8);
        // SAFETY: the bytes are a block of the heap that only this code uses.
        unsafe { asm!("mov byte ptr [{at}], {byte}", at = in(reg) start + offset, byte = in(reg_byte) byte) };
    }
    let value = random.value();
    // SAFETY: nothing of this function is used after the jump. The code's end, NOPs and memory of the heap, or a return
    // to address 0 raises an exception, unless the code does something else, which is a fault like any other.
    unsafe {
        asm!("push 0", "mov rcx, rax", "mov rdx, rax", "jmp {start}", start = in(reg) start, in("rax") value,
            options(noreturn));
    }
}

#[cfg(test)]
mod tests {
    use holdfast_protocol::encode;

    use super::*;

    #[test]
    fn messages_reach_the_limits_of_the_vmm() {
        static STATE: AtomicU64 = AtomicU64::new(1);
        let random = Random(&STATE);
        let longest = (0..2000).map(|_| encode(&message(random)).len()).max().unwrap_or(0);
        assert!(longest > RING_BYTES as usize / 4, "{longest} bytes");
        assert!((0..2000).any(|_| random.text(40).contains('\u{1b}')));
    }
}
