//! PV EOI: the end of an interrupt by a bit in the guest's memory, without an exit.
//!
//! Source: the kernel's KVM MSR documentation, `MSR_KVM_PV_EOI_EN`; docs/spec/guest-host-interface.md, "End of
//! interrupt by memory".
//!
//! - **One owner**: the bit is set only while its vCPU is in guest mode. The exit clears it before other code reads the
//!   LAPIC. So saved state has no outstanding end, unless the vCPU is saved in guest mode.
//! - **Ended once**: a bit found clear ends the interrupt in service. A bit found set leaves that to the guest, which
//!   then finds it clear and writes the register.
//! - **An exit is still needed** if the host must act on the end: another interrupt is requested, the one in service is
//!   level-triggered or not known to be the next to end (nested, restored), or another exit came in between.

use holdfast_abi::msr;

use crate::boundary::{Command, Cost, VcpuId};
use crate::step::Step;
use crate::vcpu::{PvEoi, Vcpu};
use crate::wings::Wings;

/// The number of bytes of the word that the host uses.
const WORD_BYTES: u64 = 4;

/// Writes the MSR of `vcpu`. Returns `false` if that faults: PV EOI is not offered, or the word is unaligned or
/// outside the guest's memory.
pub(crate) fn register(on: &mut Wings, vcpu: VcpuId, value: u64) -> bool {
    let address = value & !msr::PV_EOI_ENABLE;
    let enables = value & msr::PV_EOI_ENABLE != 0;
    let legal = on.guests.vm_of(vcpu).config.pv_eoi
        && value & msr::PV_EOI_RESERVED == 0
        && (!enables || on.guests.has_memory(vcpu, address, WORD_BYTES));
    if legal {
        // The exit for this write has cleared the bit.
        on.guests.vcpus[vcpu].pv_eoi = PvEoi {
            msr: value,
            pending: false,
        };
    }
    legal
}

/// Before entry: sets the bit if the host need not see the next end of an interrupt of `at`. `hides_next` is a fault
/// planted by tests.
pub(crate) fn offer(at: &mut Vcpu, hides_next: bool, step: &mut Step<'_>) {
    let unseen = at.apic.can_end_unseen(hides_next);
    if at.pv_eoi.msr & msr::PV_EOI_ENABLE == 0 || at.pv_eoi.pending || !unseen {
        return;
    }
    at.pv_eoi.pending = true;
    let address = at.pv_eoi.msr & !msr::PV_EOI_ENABLE;
    step.charge(Cost::PvEoi, 1);
    step.out.push(Command::PvEoi { vcpu: at.id, address });
}

/// After an exit: ends the interrupt in service if the guest has cleared the bit.
pub(crate) fn collect(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let at = &mut on.guests.vcpus[vcpu];
    if !core::mem::take(&mut at.pv_eoi.pending) {
        return;
    }
    let cleared = !at.guest.pv_eoi && !on.guests.planted.pv.pv_eoi_lost;
    step.charge(Cost::PvEoi, 1);
    if cleared {
        let action = at.apic.ended();
        at.counters.pv_eoi += 1;
        on.act(vcpu, action, step);
    }
}
