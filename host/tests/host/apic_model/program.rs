//! Random programs, decoded from bytes: any bytes are one, so a fuzzer's input will do.

use super::driven::APIC_BASE;
use super::{Act, FIRST_VM, VCPUS};

/// The kind of guests that write the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// They use their LAPICs as kernels do, in xAPIC mode.
    XApic,
    /// The same in x2APIC mode.
    X2Apic,
    /// They write anything anywhere.
    Hostile,
}

const VECTORS: [u8; 12] = [0x31, 0x33, 0x3f, 0x41, 0x52, 0x52, 0x61, 0x6e, 0xa0, 0xef, 0xfd, 0x0e];
const OFFSETS: [u32; 14] = [
    0x20, 0xd0, 0xe0, 0xf0, 0x370, 0x300, 0x310, 0x80, 0xb0, 0x2f0, 0x40, 0x400, 0x301, 0x84,
];

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u32 {
        (0..4).fold(0, |word, _| word << 8 | u32::from(self.byte()))
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::from(self.byte()) % bound
    }

    fn vector(&mut self) -> u8 {
        VECTORS[usize::from(self.byte()) % VECTORS.len()]
    }

    /// Vector, mode, trigger and destination mode of an interrupt: mostly a fixed one.
    fn interrupt(&mut self) -> u32 {
        let mode = match self.byte() {
            0..=169 => 0,
            170..=209 => 1,
            byte => u32::from(byte) % 8,
        };
        let level = u32::from(self.byte() < 24) * (1 << 15);
        let logical = u32::from(self.byte() < 80) * (1 << 11);
        u32::from(self.vector()) | mode << 8 | level | logical | 1 << 14
    }

    fn destination(&mut self) -> u32 {
        match self.byte() {
            0..=149 => self.below(FIRST_VM + 2),
            150..=229 => u32::from(self.byte()) % 16,
            230..=239 => 0xff,
            _ => u32::from(self.byte()),
        }
    }
}

/// Decodes `data` to a program, which begins with the register writes of a kernel's boot.
pub fn decode(shape: Shape, data: &[u8]) -> Vec<Act> {
    let mut program = Vec::new();
    for vcpu in 0..VCPUS {
        boot(shape, vcpu, &mut program);
    }
    let mut bytes = Bytes(data.iter());
    while !bytes.0.as_slice().is_empty() {
        act(shape, &mut bytes, &mut program);
    }
    program
}

fn boot(shape: Shape, vcpu: u32, program: &mut Vec<Act>) {
    if shape == Shape::X2Apic {
        program.push(Act::Msr {
            vcpu,
            msr: APIC_BASE,
            value: 0xfee0_0c00,
        });
    }
    write(shape, vcpu, 0xf0, 0x1ff, program);
    if shape == Shape::XApic {
        write(shape, vcpu, 0xd0, 1 << (24 + vcpu % FIRST_VM), program);
    }
    write(shape, vcpu, 0x370, 0xfe, program);
    program.push(Act::Interrupts { vcpu, enabled: true });
}

fn write(shape: Shape, vcpu: u32, offset: u32, value: u32, program: &mut Vec<Act>) {
    program.push(match shape {
        Shape::X2Apic => Act::Msr {
            vcpu,
            msr: 0x800 + offset / 16,
            value: u64::from(value),
        },
        _ => Act::Page { vcpu, offset, value },
    });
}

fn send(shape: Shape, vcpu: u32, low: u32, destination: u32, program: &mut Vec<Act>) {
    if shape == Shape::X2Apic {
        program.push(Act::Msr {
            vcpu,
            msr: 0x830,
            value: u64::from(destination) << 32 | u64::from(low),
        });
        return;
    }
    write(shape, vcpu, 0x310, destination << 24, program);
    write(shape, vcpu, 0x300, low, program);
}

fn act(shape: Shape, bytes: &mut Bytes<'_>, program: &mut Vec<Act>) {
    let vcpu = bytes.below(VCPUS);
    match bytes.byte() % 40 {
        0..7 => {
            let shorthand = if bytes.byte() < 40 { bytes.below(4) << 18 } else { 0 };
            let low = bytes.interrupt() | shorthand;
            send(shape, vcpu, low, bytes.destination(), program);
        }
        7..15 => {
            write(shape, vcpu, 0xb0, 0, program);
            program.push(Act::Interrupts { vcpu, enabled: true });
        }
        15 => program.push(Act::Interrupts {
            vcpu,
            enabled: bytes.byte() & 1 == 1,
        }),
        16 => write(shape, vcpu, 0x80, bytes.below(16) << 4 | bytes.below(2), program),
        17 => program.push(Act::Cr8 {
            vcpu,
            value: bytes.byte() % 16,
        }),
        18 => program.push(Act::Halt { vcpu }),
        19 => program.push(Act::Iret { vcpu }),
        20 => program.push(Act::Disturb { vcpu }),
        21..29 => {
            let low = bytes.interrupt();
            program.push(Act::Msi {
                vm: bytes.below(2),
                address: 0xfee0_0000
                    | u64::from(bytes.destination()) << 12
                    | u64::from(low >> 11 & 1) << 2
                    | u64::from(bytes.byte() < 40) << 3,
                data: low & !(1 << 11),
            });
        }
        29 => {
            // INIT, SIPI, or both: the vCPU that got them can continue.
            let to = bytes.below(FIRST_VM);
            if bytes.byte() < 230 {
                send(shape, vcpu, 0x4500, to, program);
            }
            let start = bytes.byte();
            send(shape, vcpu, 0x4600 | u32::from(start), to, program);
            if start < 230 {
                let to = if vcpu < FIRST_VM {
                    to
                } else {
                    to % (VCPUS - FIRST_VM) + FIRST_VM
                };
                boot(shape, to, program);
            }
        }
        30 if bytes.byte() < 64 || shape == Shape::Hostile => {
            let bits = u64::from(bytes.below(16)) << 8;
            let moved = if bytes.byte() < 30 { 1 << bytes.below(40) } else { 0 };
            program.push(Act::Msr {
                vcpu,
                msr: APIC_BASE,
                value: 0xfee0_0000 ^ moved | bits,
            });
            recover(shape, vcpu, bytes, program);
        }
        32..35 => {
            let other = bytes.byte() < 128;
            rename(vcpu, other, program);
        }
        35..40 => level(shape, vcpu, bytes, program),
        _ => {
            let offset = OFFSETS[usize::from(bytes.byte()) % OFFSETS.len()];
            let value = match (shape, bytes.byte()) {
                (Shape::Hostile, 0..=127) => bytes.word(),
                (_, 0..=199) => 0x1ff,
                (_, byte) => u32::from(byte) << 24,
            };
            match shape {
                Shape::X2Apic if bytes.byte() < 128 => write(shape, vcpu, offset, value, program),
                Shape::Hostile if bytes.byte() < 80 => {
                    let value = u64::from(bytes.word()) << 32 | u64::from(value);
                    program.push(Act::Msr {
                        vcpu,
                        msr: 0x800 + offset / 16,
                        value,
                    });
                }
                _ => program.push(Act::Page { vcpu, offset, value }),
            }
            recover(shape, vcpu, bytes, program);
        }
    }
}

/// Gives the LAPIC of `vcpu` another ID, which switches hardware off in xAPIC mode, or its own.
fn rename(vcpu: u32, other: bool, program: &mut Vec<Act>) {
    let id = if other { 9 } else { vcpu % FIRST_VM };
    program.push(Act::Page {
        vcpu,
        offset: 0x20,
        value: id << 24,
    });
}

/// A level-triggered message from its arrival to its end. Hardware may be switched between any two steps, by a neighbor
/// of the receiver.
fn level(shape: Shape, vcpu: u32, bytes: &mut Bytes<'_>, program: &mut Vec<Act>) {
    let (vm, first, members) = match vcpu {
        0..FIRST_VM => (0, 0, FIRST_VM),
        _ => (1, FIRST_VM, VCPUS - FIRST_VM),
    };
    let (index, switches) = (bytes.below(members), bytes.byte());
    let (to, neighbor) = (first + index, first + (index + 1) % members);
    let message = Act::Msi {
        vm,
        address: 0xfee0_0000 | u64::from(index) << 12,
        data: 1 << 15 | 1 << 14 | u32::from(bytes.vector()),
    };
    let enable = Act::Interrupts {
        vcpu: to,
        enabled: true,
    };
    for (step, act) in [message, enable, message, enable].into_iter().enumerate() {
        rename(neighbor, switches >> step & 1 != 0, program);
        if step == 3 {
            write(shape, to, 0xb0, 0, program);
        }
        program.push(act);
    }
    rename(neighbor, false, program);
}

/// Adds a few acts, and mostly also writes that enable the LAPIC of `vcpu` again.
fn recover(shape: Shape, vcpu: u32, bytes: &mut Bytes<'_>, program: &mut Vec<Act>) {
    (0..bytes.below(3)).for_each(|_| act(shape, bytes, program));
    if bytes.byte() < 200 {
        let base = |value| Act::Msr {
            vcpu,
            msr: APIC_BASE,
            value,
        };
        program.extend([base(0xfee0_0000), base(0xfee0_0800)]);
        write(Shape::XApic, vcpu, 0x20, (vcpu % FIRST_VM) << 24, program);
        boot(shape, vcpu, program);
        write(shape, vcpu, 0x80, 0, program);
    }
}
