//! Deliberate faults, for tests of the VMM.

#![expect(unsafe_code, reason = "deliberate faults")]

use core::arch::asm;

use holdfast_protocol::Fault;

use crate::cpu::KvmCpu;
use crate::instructions::{cli, stop};
use crate::{hostile, ring};

/// An address that is not mapped.
const UNMAPPED: usize = 1 << 40;

/// Commits `fault` on CPU 0. The other CPUs return, unless the guest is hostile.
pub(crate) fn commit(cpu: &KvmCpu, fault: Fault) {
    if let Fault::Hostile { seed } = fault {
        hostile::begin(cpu, seed);
    }
    if cpu.block().number.get() != 0 {
        return;
    }
    match fault {
        Fault::Panic => panic!("ordered to"),
        Fault::PageFault => touch(core::ptr::with_exposed_provenance(UNMAPPED)),
        Fault::TripleFault => triple_fault(),
        Fault::Hang => hang(),
        Fault::Halt => stop(),
        Fault::Ring => ring::corrupt(),
        Fault::Port => crate::instructions::outb(0x70, 0),
        Fault::Hostile { .. } => unreachable!("a hostile guest has begun above"),
    }
}

#[inline(never)]
fn touch(address: *const u8) {
    // SAFETY: the address is not mapped, and the exception ends the guest.
    unsafe { address.read_volatile() };
}

#[inline(never)]
fn hang() -> ! {
    cli();
    loop {
        core::hint::spin_loop();
    }
}

#[inline(never)]
pub(crate) fn triple_fault() -> ! {
    let nothing = [0u8; 10];
    // SAFETY: without gates neither the exception nor the double fault after it can be delivered. The VMM ends the
    // guest.
    unsafe { asm!("lidt [{}]", "ud2", in(reg) &raw const nothing, options(noreturn)) }
}
