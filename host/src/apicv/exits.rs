//! The exits of APIC virtualization that the emulated LAPIC has none of.

use holdfast_abi::lapic as reg;

use crate::boundary::{Cost, VcpuId};
use crate::host::Host;
use crate::lapic::Action;
use crate::step::Step;

impl Host {
    /// Reason 56: `vcpu` wrote `value` to the register at `offset`; the instruction is done, its effect is software's.
    pub(crate) fn apicv_write(&mut self, vcpu: VcpuId, offset: u32, value: u32, step: &mut Step<'_>) {
        step.charge(Cost::ApicvExit, 1);
        let at = self.at(vcpu);
        at.counters.apicv_write += 1;
        if offset == reg::ICR_LOW && at.apic.is_x2apic() {
            let action = at.apic.write_icr(at.apic.icr());
            return self.act(vcpu, action, step);
        }
        self.complete_write(vcpu, offset, value, step);
    }

    /// Reason 45: `vcpu` has ended the level-triggered interrupt with `vector`.
    pub(crate) fn apicv_eoi(&mut self, vcpu: VcpuId, vector: u8, step: &mut Step<'_>) {
        step.charge(Cost::ApicvExit, 1);
        self.at(vcpu).counters.apicv_eoi += 1;
        self.act(vcpu, Action::Ended { vector, level: true }, step);
    }
}
