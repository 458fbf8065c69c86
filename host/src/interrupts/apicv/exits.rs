//! The exits that only APICv has.

use holdfast_abi::lapic as reg;

use crate::boundary::{Cost, VcpuId};
use crate::interrupts::lapic::{Action, ApicRegisters};
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Handles exit reason 56: `vcpu` wrote `value` to the register at `offset`. The value is stored, and software
    /// carries out the effect.
    pub(crate) fn apicv_write(&mut self, vcpu: VcpuId, offset: u32, value: u32, step: &mut Step<'_>) {
        step.charge(Cost::ApicvExit, 1);
        let at = &mut self.guests.vcpus[vcpu];
        at.counters.apicv_write += 1;
        if offset == reg::ICR_LOW && at.apic.is_x2apic() {
            let action = at.apic.write_icr(at.apic.icr());
            return self.act(vcpu, action, step);
        }
        if offset == reg::SELF_IPI && at.apic.is_x2apic() {
            let action = at.apic.command(reg::ICR_SHORTHAND_SELF | value & 0xff, 0);
            return self.act(vcpu, action, step);
        }
        self.complete_write(vcpu, offset, value, step);
    }

    /// Handles exit reason 45: `vcpu` has ended the interrupt with `vector`, whose end the bitmap reports. It is
    /// level-triggered unless the LAPIC was reset since.
    pub(crate) fn apicv_eoi(&mut self, vcpu: VcpuId, vector: u8, step: &mut Step<'_>) {
        step.charge(Cost::ApicvExit, 1);
        self.guests.vcpus[vcpu].counters.apicv_eoi += 1;
        let level = self.guests.vcpus[vcpu].apic.registers().has(reg::TMR, vector);
        self.act(vcpu, Action::Ended { vector, level }, step);
    }
}
