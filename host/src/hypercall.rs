//! Hypercalls (§2).

use holdfast_abi::hypercall;

use crate::boundary::{Command, Cost, VcpuId};
use crate::host::Host;
use crate::step::Step;

impl Host {
    /// `vcpu` makes hypercall `number`; it is answered in RAX.
    pub(crate) fn hypercall(&mut self, vcpu: VcpuId, number: u64, arguments: [u64; 4], step: &mut Step<'_>) {
        step.charge(Cost::Hypercall, 1);
        let vm = self.at(vcpu).vm;
        let offers_kick = self.vms[vm.0 as usize].config.pv_unhalt;
        let at = self.at(vcpu);
        at.counters.hypercalls += 1;
        let refused = at.refuses_hypercall();
        let kicks = number == hypercall::KICK_CPU && offers_kick && refused.is_none();
        let result = refused.unwrap_or(if kicks { 0 } else { hypercall::ENOSYS });
        // The answer first: a kick may give the pCPU away before the guest is entered again.
        step.out.push(Command::Reply {
            vcpu,
            value: result as u64,
        });
        if kicks {
            // An APIC ID is 32 bits; the rest of the register is not looked at.
            self.kick_hypercall(vcpu, arguments[1] as u32, step);
        }
    }
}
