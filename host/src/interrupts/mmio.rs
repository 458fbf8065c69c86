//! Accesses to the page where LAPICs are after reset. A LAPIC that is off, moved, or in x2APIC mode does not answer
//! there: then the access goes to the VMM's process, which has no device at the address.

use holdfast_abi::lapic as reg;

use crate::boundary::{Command, Cost, VcpuId};
use crate::interrupts::lapic::Action;
use crate::step::Step;
use crate::wings::Wings;

/// Handles a store of 32 bits to the page.
pub(crate) fn apic_write(on: &mut Wings, vcpu: VcpuId, offset: u32, value: u32, step: &mut Step<'_>) {
    if !answers(on, vcpu, offset, step) {
        return;
    }
    let (now, base) = (step.now, on.apics.timer_base);
    let action = on
        .guests
        .change_apic(vcpu, |apic| apic.write(offset, value, now, &base));
    on.apic_register_written(on.guests.vcpus[vcpu].vm, offset, step);
    on.act(vcpu, action, step);
}

/// Handles a load of 32 bits from the page. One across two registers reads as 0 (KVM).
pub(crate) fn apic_read(on: &mut Wings, vcpu: VcpuId, offset: u32, step: &mut Step<'_>) {
    let mut value = 0;
    if !answers(on, vcpu, offset, step) {
        // The bus has pull-up resistors.
        value = u32::MAX;
    } else if offset.is_multiple_of(reg::STRIDE) {
        let apic = &mut on.guests.vcpus[vcpu].apic;
        let error = apic.note_access(offset) != Action::None;
        value = apic.read(offset, step.now);
        if error {
            on.guests.request_event(vcpu);
        }
    }
    step.out.push(Command::Reply {
        vcpu,
        value: value.into(),
    });
}

/// Accounts for an access of `vcpu` to the page at `offset`. Returns whether its LAPIC answers.
fn answers(on: &mut Wings, vcpu: VcpuId, offset: u32, step: &mut Step<'_>) -> bool {
    step.charge(Cost::ApicAccess, 1);
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.insn_emulation += 1;
    let answers = at.apic.has_page() && offset < reg::PAGE_BYTES as u32;
    if !answers {
        at.counters.userspace_exits += 1;
        step.charge(Cost::UserspaceExit, 1);
    }
    answers
}
