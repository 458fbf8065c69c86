//! Faults on order: what the VMM makes of them is tested with these.

#![expect(unsafe_code, reason = "faults")]

use core::arch::asm;

use holdfast_protocol::Fault;

use crate::cpu::KvmCpu;
use crate::instructions::{cli, stop};
use crate::ring;

/// An address beyond all that is mapped.
const NOWHERE: usize = 1 << 40;

/// Does it, on CPU 0; the others have nothing to do.
pub(crate) fn commit(cpu: &KvmCpu, fault: Fault) {
    if cpu.block().number.get() != 0 {
        return;
    }
    match fault {
        Fault::Panic => panic!("ordered to"),
        Fault::PageFault => touch(core::ptr::with_exposed_provenance(NOWHERE)),
        Fault::TripleFault => triple_fault(),
        Fault::Hang => hang(),
        Fault::Halt => stop(),
        Fault::Ring => ring::corrupt(),
        Fault::Port => crate::instructions::outb(0x70, 0),
    }
}

#[inline(never)]
fn touch(address: *const u8) {
    // SAFETY: there is nothing; the exception ends the guest.
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
fn triple_fault() -> ! {
    let nothing = [0u8; 10];
    // SAFETY: with no gates at all the exception cannot be delivered, nor the one that follows: the VMM ends the guest.
    unsafe { asm!("lidt [{}]", "ud2", in(reg) &raw const nothing, options(noreturn)) }
}
