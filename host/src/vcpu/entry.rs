//! Entering the guest (docs/spec/host.md, "Guest entry"): requests, interrupt injection, interrupt windows.

use crate::boundary::{Command, Cost, Run, VcpuId, VcpuState};
use crate::interrupts::pv_eoi;
use crate::step::Step;
use crate::vcpu::Vcpu;
use crate::vcpu::nested;
use crate::vcpu::steal_time;
use crate::wings::Wings;

/// Processes the requests of `vcpu` and enters guest mode.
///
/// KVM checks mode and requests again after it has set `IN_GUEST_MODE`. A step is not interrupted, so that check
/// would find nothing here: a later requester sees the mode and sends an IPI.
pub(crate) fn enter(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> Run {
    nested::interrupt_nested(on, vcpu, step);
    let requests = &mut on.guests.vcpus[vcpu].requests;
    let apic_update = core::mem::take(&mut requests.apic_update);
    if core::mem::take(&mut requests.steal_update) {
        steal_time::update_steal_time(on, vcpu, step);
    }
    steal_time::tell_slice_end(on, vcpu, step);
    steal_time::tell_grant(on, vcpu, step);
    if apic_update {
        on.update(vcpu, step.pcpu);
    }
    on.collect_late_posts(vcpu);
    // With hardware virtualization an EOI takes no exit, and IRR changes without the host.
    let at = &mut on.guests.vcpus[vcpu];
    let looks = (at.requests.event || at.armed.window) && !at.virtualization.is_active();
    let inject = inject(at, step);
    tell_cr8(at, step);
    if looks && !at.virtualization.is_active() {
        pv_eoi::offer(at, on.config.planted.pv.pv_eoi_hides_next, step);
    }
    at.spin.in_loop = false;
    at.spin.dy_eligible = false;
    let window = at.armed.window;
    at.set_state(VcpuState::InGuest, step);
    on.enter_guest(vcpu);
    Run::Guest { vcpu, inject, window }
}

/// Returns the vector to inject with this entry. If there is one and the guest cannot take it, opens a window.
///
/// An entry carries one event. An injection that the last exit interrupted comes first, then a non-maskable
/// interrupt.
fn inject(at: &mut Vcpu, step: &mut Step<'_>) -> Option<u8> {
    let event = core::mem::take(&mut at.requests.event);
    if at.virtualization.is_active() {
        return inject_with_hardware_delivery(at, step);
    }
    let window = core::mem::take(&mut at.armed.window);
    let again = at.pending.undelivered.take();
    if !event && !window && again.is_none() {
        return None;
    }
    let nmi = again.is_none() && at.pending.has_nmi();
    let busy = nmi || again.is_some();
    if nmi {
        at.inject_nmi(step);
    }
    step.charge(Cost::Inject, u32::from(busy));
    let takes = at.guest.interrupts_enabled && !busy;
    // A non-maskable interrupt that finds the event slot taken is injected when the window opens.
    let vector = at.apic.deliverable();
    if vector.is_none() && !(again.is_some() && at.pending.has_nmi()) {
        return again;
    }
    if let Some(vector) = vector.filter(|_| takes) {
        at.apic.take(vector);
        at.counters.irq_injections += 1;
        step.charge(Cost::Inject, 1);
        // It was the highest vector: no other is deliverable before its EOI, which requests an evaluation.
        return Some(vector);
    }
    at.armed.window = true;
    if !window {
        step.charge(Cost::InterruptWindow, 1);
    }
    again
}

/// Returns the vector to inject while hardware delivers from IRR: an injection that the last exit interrupted. A
/// non-maskable interrupt is injected as well.
fn inject_with_hardware_delivery(at: &mut Vcpu, step: &mut Step<'_>) -> Option<u8> {
    at.armed.window = false;
    let again = at.pending.undelivered.take();
    if again.is_none() && at.pending.has_nmi() {
        step.charge(Cost::Inject, 1);
        at.inject_nmi(step);
    }
    again
}

/// Keeps CR8 in line with the LAPIC, and intercepts its writes while the task priority holds back an interrupt.
fn tell_cr8(at: &mut Vcpu, step: &mut Step<'_>) {
    let by_hardware = at.virtualization.is_active();
    let value = at.apic.cr8();
    if at.guest.cr8 != value && !by_hardware {
        at.guest.cr8 = value;
        step.out.push(Command::SetCr8 { vcpu: at.id, value });
    }
    // Hardware keeps CR8 and the page's TPR in line, and evaluates IRR when either changes.
    let held_back = !by_hardware && at.apic.is_held_back_by_task();
    if at.armed.cr8 != held_back {
        at.armed.cr8 = held_back;
        step.out.push(Command::InterceptCr8 {
            vcpu: at.id,
            on: held_back,
        });
    }
}

/// `vcpu` writes CR8. A value above 15 faults.
pub(crate) fn write_cr8(on: &mut Wings, vcpu: VcpuId, value: u64, step: &mut Step<'_>) {
    step.charge(Cost::Msr, 1);
    if value > 0xf {
        step.out.push(Command::Fault { vcpu });
        return;
    }
    let at = &mut on.guests.vcpus[vcpu];
    at.apic.set_cr8(value as u8);
    on.guests.request_event(vcpu);
}
