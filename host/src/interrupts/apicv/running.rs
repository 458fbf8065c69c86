//! Load, put, sleep, entry: the descriptor over a vCPU's life (docs/spec/interrupts.md, "Posted interrupts"), and
//! switching APICv on and off.

use holdfast_abi::lapic as reg;
use holdfast_abi::vmcs::{self, InterruptStatus};

use super::posting::{Descriptor, PostingFaults};
use crate::boundary::{PcpuId, VcpuId};
use crate::interrupts::apicv;
use crate::interrupts::lapic::ApicRegisters;
use crate::interrupts::memory::{HostMemory, page_address};
use crate::wings::Wings;

/// The thread of `vcpu` has taken `pcpu`.
pub(crate) fn load(on: &mut Wings, vcpu: VcpuId, pcpu: u32) {
    let Some(apicv) = on.guests.hardware_mut(vcpu).apicv_mut() else {
        return;
    };
    if let Some(before) = apicv.listed.take() {
        on.apics.posted_sleepers[PcpuId(before)].retain(|&sleeper| sleeper != vcpu);
    }
    let memory = on.memory();
    apicv::setup::descriptor(on, &memory, vcpu).load(pcpu);
}

/// The thread of `vcpu` gives up its pCPU. `ready`: it was preempted.
pub(crate) fn put(on: &Wings, vcpu: VcpuId, ready: bool) {
    if ready {
        let memory = on.memory();
        apicv::setup::descriptor(on, &memory, vcpu).preempt();
    }
}

/// The thread of `vcpu` is about to sleep, on `pcpu`.
///
/// A vCPU with interrupts masked is not put on the list: no posted interrupt could end its halt. Senders also post
/// to a vCPU that has not been entered since it was restored asleep.
pub(crate) fn block(on: &mut Wings, vcpu: VcpuId, pcpu: u32) {
    let at = &mut on.guests.vcpus[vcpu];
    let waits = at.guest.interrupts_enabled;
    let Some(apicv) = at.virtualization.apicv_mut().filter(|_| waits) else {
        return;
    };
    if apicv.listed.replace(pcpu).is_none() {
        on.apics.posted_sleepers[PcpuId(pcpu)].push(vcpu);
    }
    let memory = on.memory();
    let posted = apicv::setup::descriptor(on, &memory, vcpu).block();
    assert!(!posted, "something was posted to vcpu {} within a step", vcpu.0);
}

/// Switches APICv of `vcpu`, which is about to enter, as the inhibit reasons demand.
pub(crate) fn update(on: &mut Wings, vcpu: VcpuId) {
    let at = &on.guests.vcpus[vcpu];
    let Some(apicv) = at.virtualization.apicv() else { return };
    let wanted = on.wants_hardware(vcpu);
    let sends = on.config.apicv.sends();
    let by_mode = if at.apic.is_x2apic() {
        vmcs::VIRTUALIZE_X2APIC
    } else {
        vmcs::VIRTUALIZE_APIC_ACCESSES
    };
    let controls = by_mode | vmcs::APIC_REGISTER_VIRTUALIZATION | vmcs::VIRTUAL_INTERRUPT_DELIVERY;
    let secondary = if wanted { controls } else { 0 };
    if apicv.active == wanted && apicv.vmcs.get().secondary == secondary {
        return;
    }
    if !wanted {
        // Posted interrupts are not read any more after the switch.
        on.sync(vcpu);
    }
    let at = &mut on.guests.vcpus[vcpu];
    if let Some(apicv) = at.virtualization.apicv_mut() {
        apicv.active = wanted;
        let mut control = apicv.vmcs.get();
        control.pin = if wanted { vmcs::PIN_POSTED_INTERRUPTS } else { 0 };
        control.secondary = secondary;
        control.tertiary = if wanted && sends { vmcs::IPI_VIRTUALIZATION } else { 0 };
        apicv.vmcs.set(control);
    }
    at.armed.window = false;
    at.apic.hardware_switched();
    on.guests.request_event(vcpu);
}

/// Drops interrupts posted for `vcpu`, whose LAPIC is reset (`vmx_apicv_pre_state_restore`).
pub(crate) fn forget(on: &Wings, vcpu: VcpuId) {
    let memory = on.memory();
    apicv::setup::descriptor(on, &memory, vcpu).forget();
}

/// Moves interrupts posted for `vcpu` to its register page, and sets RVI and SVI (`vmx_sync_pir_to_irr`).
pub(in crate::interrupts) fn sync(memory: &HostMemory<'_>, vcpu: VcpuId, faults: PostingFaults) {
    let at = &memory.guests.vcpus[vcpu];
    let Some(apicv) = at.virtualization.apicv() else { return };
    Descriptor::of(memory, vcpu, faults).sync(page_address(vcpu));
    let page = at.apic.registers();
    let highest = |field| page.highest(field).unwrap_or(0);
    apicv.set_status(InterruptStatus::new(highest(reg::IRR), highest(reg::ISR)));
}

/// Moves interrupts posted for `vcpu` to its register page, also those posted while it was preempted: it is saved as it
/// is.
pub(in crate::interrupts) fn save(memory: &HostMemory<'_>, vcpu: VcpuId, faults: PostingFaults) {
    if memory.guests.hardware(vcpu).apicv().is_some() {
        Descriptor::of(memory, vcpu, faults).notice();
        sync(memory, vcpu, faults);
    }
}
