//! The exit that only APICv has.

use holdfast_abi::lapic as reg;

use crate::boundary::{Cost, VcpuId};
use crate::interrupts::avic;
use crate::step::Step;
use crate::wings::Wings;

/// Handles exit reason 56: `vcpu` wrote `value` to the register at `offset`. The value is stored, and software
/// carries out the effect.
pub(crate) fn write(on: &mut Wings, vcpu: VcpuId, offset: u32, value: u32, step: &mut Step<'_>) {
    step.charge(Cost::ApicvExit, 1);
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.apicv_write += 1;
    if offset == reg::ICR_LOW && at.apic.is_x2apic() {
        let action = at.apic.write_icr(at.apic.icr());
        return on.act(vcpu, action, step);
    }
    if offset == reg::SELF_IPI && at.apic.is_x2apic() {
        let action = at.apic.command(reg::ICR_SHORTHAND_SELF | value & 0xff, 0);
        return on.act(vcpu, action, step);
    }
    avic::exits::complete_write(on, vcpu, offset, value, step);
}
