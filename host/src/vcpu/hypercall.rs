//! Hypercalls (docs/spec/guest-host-interface.md, "Hypercalls").

use holdfast_abi::hypercall;

use crate::boundary::{Command, Cost, VcpuId};
use crate::interrupts::lapic::Message;
use crate::interrupts::pv_ipi;
use crate::pause::search;
use crate::step::Step;
use crate::vcpu::after::After;
use crate::wings::Wings;

/// Handles hypercall `number` of `vcpu`, whose answer goes to RAX.
pub(crate) fn hypercall(on: &mut Wings, vcpu: VcpuId, number: u64, arguments: [u64; 4], step: &mut Step<'_>) -> After {
    step.charge(Cost::Hypercall, 1);
    let at = &mut on.guests.vcpus[vcpu];
    let offers = on.guests.vms[at.vm].config;
    at.counters.hypercalls += 1;
    let is_itself = arguments[0] as u32 == at.index;
    let offered = match number {
        hypercall::KICK_CPU => offers.offers_unhalt(),
        hypercall::SCHED_YIELD => offers.pv_sched_yield || offers.guest_word && is_itself,
        hypercall::SEND_IPI => offers.pv_send_ipi,
        _ => false,
    };
    let forbidden = (at.guest.cpl != 0).then_some(hypercall::EPERM);
    if forbidden.is_none()
        && is_unknown(number)
        && let Some(value) = on.threads.sched.hint(vcpu, number, arguments)
    {
        step.out.push(Command::Reply { vcpu, value });
        return After::Resume;
    }
    let error = forbidden.or((!offered).then_some(hypercall::ENOSYS));
    if error.is_none() && number == hypercall::SEND_IPI {
        let value = pv_ipi::send(on, vcpu, arguments, step) as u64;
        step.out.push(Command::Reply { vcpu, value });
        return After::Resume;
    }
    // The answer comes first: the call may give the pCPU away before the guest is entered again.
    step.out.push(Command::Reply {
        vcpu,
        value: error.unwrap_or(0) as u64,
    });
    if error.is_some() {
        return After::Resume;
    }
    // An APIC ID has 32 bits; the upper half of the register is ignored.
    match number {
        hypercall::KICK_CPU => kick_hypercall(on, vcpu, arguments[1] as u32, step),
        _ if is_itself && offers.guest_word => {
            on.threads.sched.end_grace(step.pcpu);
            After::Resume
        }
        _ => yield_hypercall(on, vcpu, arguments[0] as u32, step),
    }
}

/// Returns whether no KVM has hypercall `number`: the last is `KVM_HC_MAP_GPA_RANGE` (12).
fn is_unknown(number: u64) -> bool {
    number > 12
}

/// `KVM_HC_KICK_CPU` from `vcpu`: ends the present or next halt of the vCPU with `apic_id`, if there is one.
fn kick_hypercall(on: &mut Wings, vcpu: VcpuId, apic_id: u32, step: &mut Step<'_>) -> After {
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.kicks_sent += 1;
    let (vm, index) = (at.vm, at.index);
    if apic_id >= on.guests.vms[vm].vcpus {
        return After::Resume;
    }
    on.deliver(vm, &Message::unhalt(index, apic_id), step);
    let (kicked, kernel) = (on.guests.vcpu_id(vm, apic_id), on.config.pause.kick_yields);
    if on.threads.sched.kick_yields(vcpu, kicked, kernel) {
        yield_hypercall(on, vcpu, apic_id, step)
    } else {
        After::Resume
    }
}

/// `vcpu` offers its time to the vCPU with `apic_id`, if that one waits for a pCPU: `KVM_HC_SCHED_YIELD`, and the
/// end of a kick.
fn yield_hypercall(on: &mut Wings, vcpu: VcpuId, apic_id: u32, step: &mut Step<'_>) -> After {
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.directed_yield_attempted += 1;
    let vm = at.vm;
    if on.threads.sched.runs_alone(step.pcpu) || apic_id >= on.guests.vms[vm].vcpus {
        return After::Resume;
    }
    let target = on.guests.vcpu_id(vm, apic_id);
    let itself = target == vcpu && !on.guests.planted.pause.self_kick_yields;
    if itself || !(on.guests.vcpus[target].thread.ready || target == vcpu) {
        return After::Resume;
    }
    step.charge(Cost::SpinCandidate, 1);
    After::reschedule_if(search::directed_yield(on, vcpu, target, step))
}
