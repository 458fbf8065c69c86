//! The two exits of AVIC (docs/spec/interrupts.md, "AVIC exits").

use holdfast_abi::avic::{IncompleteIpi, IpiFailure, Unaccelerated, is_trap};
use holdfast_abi::lapic as reg;

use super::AvicDriver;
use crate::boundary::{Cost, VcpuId};
use crate::interrupts::avic;
use crate::interrupts::lapic::Message;
use crate::interrupts::mmio;
use crate::step::Step;
use crate::wings::Wings;

/// Handles an IPI of `vcpu` that hardware could not deliver. The instruction is done, and ICR holds its value.
pub(crate) fn incomplete_ipi(on: &mut Wings, vcpu: VcpuId, exit: IncompleteIpi, step: &mut Step<'_>) {
    step.charge(Cost::AvicExit, 1);
    let counters = &mut on.guests.vcpus[vcpu].counters;
    match IpiFailure::of(exit.id()) {
        Some(IpiFailure::InvalidType) => {
            counters.avic_incomplete_ipi_0 += 1;
            resend(on, vcpu, exit, step);
        }
        Some(IpiFailure::TargetNotRunning) => {
            counters.avic_incomplete_ipi_1 += 1;
            kick_targets(on, vcpu, exit, step);
        }
        Some(IpiFailure::InvalidTarget) => {
            counters.avic_incomplete_ipi_2 += 1;
            // One bad bit has aborted the whole multicast. 4.7 does not send it again.
            if on.config.avic.driver == AvicDriver::Now {
                resend(on, vcpu, exit, step);
            }
        }
        Some(IpiFailure::InvalidBackingPage) => counters.avic_incomplete_ipi_3 += 1,
        Some(IpiFailure::InvalidVector) | None => counters.avic_incomplete_ipi_4 += 1,
    }
}

/// Sends by software the IPI in ICR, which clears its busy bit.
fn resend(on: &mut Wings, vcpu: VcpuId, exit: IncompleteIpi, step: &mut Step<'_>) {
    let (now, base) = (step.now, on.apics.timer_base);
    let apic = &mut on.guests.vcpus[vcpu].apic;
    let action = if apic.is_x2apic() {
        apic.write_icr(exit.info1)
    } else {
        apic.write(reg::ICR_LOW, exit.icr_low(), now, &base)
    };
    on.act(vcpu, action, step);
}

/// Wakes the sleeping targets of an IPI. Hardware has set the IRRs of all targets.
fn kick_targets(on: &mut Wings, vcpu: VcpuId, exit: IncompleteIpi, step: &mut Step<'_>) {
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.avic_kick_vcpu_slowpath += 1;
    let (vm, index, wide) = (at.vm, at.index, at.apic.is_x2apic());
    let destination = if wide { exit.icr_high() } else { exit.icr_high() >> 24 };
    let message = Message::of_icr(index, exit.icr_low(), destination, wide);
    for to in on.candidates(vm, &message) {
        // Hardware finds x2APIC logical IDs by the physical ones, whatever the mode of the LAPICs.
        let by_id = wide && message.logical && message.names_x2apic(to);
        if to != index && (by_id || on.is_addressed(vm, to, &message)) {
            let target = on.guests.vcpu_id(vm, to);
            avic::deliver::complete(on, target, step);
        }
    }
}

/// Handles an access of `vcpu` to a register that hardware does not handle alone. The instruction stores `value` at
/// `offset`.
pub(crate) fn unaccelerated(
    on: &mut Wings,
    vcpu: VcpuId,
    exit: Unaccelerated,
    offset: u32,
    value: u32,
    step: &mut Step<'_>,
) {
    step.charge(Cost::AvicExit, 1);
    on.guests.vcpus[vcpu].counters.avic_unaccelerated_access += 1;
    // For a fault-like exit the instruction is fetched, decoded and emulated as without AVIC.
    match (exit.is_write(), is_trap(exit.offset()) && offset == exit.offset()) {
        (true, true) => complete_write(on, vcpu, exit.offset(), value, step),
        (true, false) => mmio::apic_write(on, vcpu, offset, value, step),
        (false, _) => mmio::apic_read(on, vcpu, offset, step),
    }
}

/// Carries out the effects of a write to the register at `offset` beyond storing `value`.
pub(crate) fn complete_write(on: &mut Wings, vcpu: VcpuId, offset: u32, value: u32, step: &mut Step<'_>) {
    let (now, base) = (step.now, on.apics.timer_base);
    let at = &mut on.guests.vcpus[vcpu];
    let vm = at.vm;
    // Hardware has stored the ID already, and the old value is unknown. So all IDs are counted again.
    let action = at.apic.write(offset, value, now, &base);
    if offset == reg::ID {
        let all = on.guests.vcpus_of(vm);
        let renamed = all.filter(|id| on.guests.vcpus[*id].apic.is_renamed()).count();
        on.guests.vms[vm].renamed = renamed as u32;
    }
    on.act(vcpu, action, step);
    on.apic_register_written(vm, offset, step);
}
