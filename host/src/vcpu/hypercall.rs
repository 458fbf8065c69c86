//! Hypercalls (docs/spec/guest-host-interface.md, "Hypercalls").

use holdfast_abi::hypercall;

use crate::boundary::{Command, Cost, VcpuId};
use crate::host::Host;
use crate::step::Step;

impl Host {
    /// `vcpu` makes hypercall `number`; it is answered in RAX.
    pub(crate) fn hypercall(&mut self, vcpu: VcpuId, number: u64, arguments: [u64; 4], step: &mut Step<'_>) {
        step.charge(Cost::Hypercall, 1);
        let vm = self.at(vcpu).vm;
        let offers = self.vms[vm.0 as usize].config;
        let at = self.at(vcpu);
        at.counters.hypercalls += 1;
        let offered = match number {
            hypercall::KICK_CPU => offers.pv_unhalt,
            hypercall::SCHED_YIELD => offers.pv_sched_yield,
            hypercall::SEND_IPI => offers.pv_send_ipi,
            _ => false,
        };
        let error = at.refuses_hypercall().or((!offered).then_some(hypercall::ENOSYS));
        if error.is_none() && number == hypercall::SEND_IPI {
            let value = self.send_ipi_hypercall(vcpu, arguments, step) as u64;
            step.out.push(Command::Reply { vcpu, value });
            return;
        }
        // The answer first: what follows may give the pCPU away before the guest is entered again.
        step.out.push(Command::Reply {
            vcpu,
            value: error.unwrap_or(0) as u64,
        });
        if error.is_some() {
            return;
        }
        // An APIC ID is 32 bits; the rest of the register is not looked at.
        match number {
            hypercall::KICK_CPU => self.kick_hypercall(vcpu, arguments[1] as u32, step),
            _ => self.yield_hypercall(vcpu, arguments[0] as u32, step),
        }
    }
}
