//! The two exits of AVIC (docs/spec/interrupts.md, "AVIC exits").

use holdfast_abi::avic::{IncompleteIpi, IpiFailure, Unaccelerated, is_trap};
use holdfast_abi::lapic as reg;

use super::AvicDriver;
use crate::boundary::{Cost, VcpuId};
use crate::interrupts::lapic::Message;
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Handles an IPI of `vcpu` that hardware could not deliver. The instruction is done, and ICR holds its value.
    pub(crate) fn avic_incomplete_ipi(&mut self, vcpu: VcpuId, exit: IncompleteIpi, step: &mut Step<'_>) {
        step.charge(Cost::AvicExit, 1);
        let counters = &mut self.guests.vcpus[vcpu].counters;
        match IpiFailure::of(exit.id()) {
            Some(IpiFailure::InvalidType) => {
                counters.avic_incomplete_ipi_0 += 1;
                self.resend(vcpu, exit, step);
            }
            Some(IpiFailure::TargetNotRunning) => {
                counters.avic_incomplete_ipi_1 += 1;
                self.kick_targets(vcpu, exit, step);
            }
            Some(IpiFailure::InvalidTarget) => {
                counters.avic_incomplete_ipi_2 += 1;
                // One bad bit has aborted the whole multicast. 4.7 does not send it again.
                if self.config.avic.driver == AvicDriver::Now {
                    self.resend(vcpu, exit, step);
                }
            }
            Some(IpiFailure::InvalidBackingPage) => counters.avic_incomplete_ipi_3 += 1,
            Some(IpiFailure::InvalidVector) | None => counters.avic_incomplete_ipi_4 += 1,
        }
    }

    /// Sends by software the IPI in ICR, which clears its busy bit.
    fn resend(&mut self, vcpu: VcpuId, exit: IncompleteIpi, step: &mut Step<'_>) {
        let (now, base) = (step.now, self.apics.timer_base);
        let apic = &mut self.guests.vcpus[vcpu].apic;
        let action = if apic.is_x2apic() {
            apic.write_icr(exit.info1)
        } else {
            apic.write(reg::ICR_LOW, exit.icr_low(), now, &base)
        };
        self.act(vcpu, action, step);
    }

    /// Wakes the sleeping targets of an IPI. Hardware has set the IRRs of all targets.
    fn kick_targets(&mut self, vcpu: VcpuId, exit: IncompleteIpi, step: &mut Step<'_>) {
        let at = &mut self.guests.vcpus[vcpu];
        at.counters.avic_kick_vcpu_slowpath += 1;
        let (vm, index, wide) = (at.vm, at.index, at.apic.is_x2apic());
        let destination = if wide { exit.icr_high() } else { exit.icr_high() >> 24 };
        let message = Message::of_icr(index, exit.icr_low(), destination, wide);
        for to in self.candidates(vm, &message) {
            // Hardware finds x2APIC logical IDs by the physical ones, whatever the mode of the LAPICs.
            let by_id = wide && message.logical && message.names_x2apic(to);
            if to != index && (by_id || self.is_addressed(vm, to, &message)) {
                let target = self.guests.vcpu_id(vm, to);
                self.avic_complete(target, step);
            }
        }
    }

    /// Handles an access of `vcpu` to a register that hardware does not handle alone. The instruction stores `value` at
    /// `offset`.
    pub(crate) fn avic_unaccelerated(
        &mut self,
        vcpu: VcpuId,
        exit: Unaccelerated,
        offset: u32,
        value: u32,
        step: &mut Step<'_>,
    ) {
        step.charge(Cost::AvicExit, 1);
        self.guests.vcpus[vcpu].counters.avic_unaccelerated_access += 1;
        // For a fault-like exit the instruction is fetched, decoded and emulated as without AVIC.
        match (exit.is_write(), is_trap(exit.offset()) && offset == exit.offset()) {
            (true, true) => self.complete_write(vcpu, exit.offset(), value, step),
            (true, false) => self.apic_write(vcpu, offset, value, step),
            (false, _) => self.apic_read(vcpu, offset, step),
        }
    }

    /// Carries out the effects of a write to the register at `offset` beyond storing `value`.
    pub(crate) fn complete_write(&mut self, vcpu: VcpuId, offset: u32, value: u32, step: &mut Step<'_>) {
        let (now, base) = (step.now, self.apics.timer_base);
        let at = &mut self.guests.vcpus[vcpu];
        let vm = at.vm;
        // Hardware has stored the ID already, and the old value is unknown. So all IDs are counted again.
        let action = at.apic.write(offset, value, now, &base);
        if offset == reg::ID {
            let all = self.guests.vcpus_of(vm);
            let renamed = all.filter(|id| self.guests.vcpus[*id].apic.is_renamed()).count();
            self.guests.vms[vm].renamed = renamed as u32;
        }
        self.act(vcpu, action, step);
        self.apic_register_written(vm, offset, step);
    }
}
