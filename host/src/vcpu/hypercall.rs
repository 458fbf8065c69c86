//! Hypercalls (docs/spec/guest-host-interface.md, "Hypercalls").

use holdfast_abi::hypercall;

use super::wing::{After, VcpuWing};
use crate::boundary::{Command, Cost, VcpuId};
use crate::interrupts::lapic::Message;
use crate::step::Step;

impl VcpuWing {
    /// Handles hypercall `number` of `vcpu`, whose answer goes to RAX.
    pub(crate) fn hypercall(&mut self, vcpu: VcpuId, number: u64, arguments: [u64; 4], step: &mut Step<'_>) -> After {
        step.charge(Cost::Hypercall, 1);
        let vm = self.guests.vcpus[vcpu].vm;
        let offers = self.guests.vms[vm].config;
        let at = &mut self.guests.vcpus[vcpu];
        at.counters.hypercalls += 1;
        let offered = match number {
            hypercall::KICK_CPU => offers.offers_unhalt(),
            hypercall::SCHED_YIELD => offers.pv_sched_yield,
            hypercall::SEND_IPI => offers.pv_send_ipi,
            _ => false,
        };
        let forbidden = (at.guest.cpl != 0).then_some(hypercall::EPERM);
        let error = forbidden.or((!offered).then_some(hypercall::ENOSYS));
        if error.is_none() && number == hypercall::SEND_IPI {
            let value = self.interrupts.send_ipi_hypercall(vcpu, arguments, step) as u64;
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
            hypercall::KICK_CPU => self.kick_hypercall(vcpu, arguments[1] as u32, step),
            _ => self.yield_hypercall(vcpu, arguments[0] as u32, step),
        }
    }

    /// `KVM_HC_KICK_CPU` from `vcpu`: ends the present or next halt of the vCPU with `apic_id`, if there is one.
    fn kick_hypercall(&mut self, vcpu: VcpuId, apic_id: u32, step: &mut Step<'_>) -> After {
        let at = &mut self.guests.vcpus[vcpu];
        at.counters.kicks_sent += 1;
        let (vm, index) = (at.vm, at.index);
        if apic_id >= self.guests.vms[vm].vcpus {
            return After::Resume;
        }
        self.interrupts.deliver(vm, &Message::unhalt(index, apic_id), step);
        if self.config.pause.kick_yields {
            self.yield_hypercall(vcpu, apic_id, step)
        } else {
            After::Resume
        }
    }

    /// `vcpu` offers its time to the vCPU with `apic_id`, if that one waits for a pCPU: `KVM_HC_SCHED_YIELD`, and the
    /// end of a kick.
    fn yield_hypercall(&mut self, vcpu: VcpuId, apic_id: u32, step: &mut Step<'_>) -> After {
        let at = &mut self.guests.vcpus[vcpu];
        at.counters.directed_yield_attempted += 1;
        let vm = at.vm;
        if self.threads.sched.runs_alone(step.pcpu) || apic_id >= self.guests.vms[vm].vcpus {
            return After::Resume;
        }
        let target = self.guests.vcpu_id(vm, apic_id);
        let itself = target == vcpu && !self.guests.planted.pause.self_kick_yields;
        if itself || !(self.guests.vcpus[target].ready || target == vcpu) {
            return After::Resume;
        }
        step.charge(Cost::SpinCandidate, 1);
        After::reschedule_if(self.directed_yield(vcpu, target, step))
    }
}
