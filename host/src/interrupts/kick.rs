//! Bringing a vCPU out of guest mode, and into it.

use super::InterruptWing;
use super::avic::handshake;
use super::avic::seen::Seen;
use crate::boundary::VcpuId;
use crate::step::Step;

impl InterruptWing<'_> {
    /// Makes `vcpu` check its requests: wakes its thread, or interrupts guest mode. Does nothing if the vCPU will check
    /// them anyway.
    pub(crate) fn kick(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        if self.guests.wake_up(vcpu, self.threads, step) {
            return;
        }
        // The first sender that finds the vCPU in guest mode sends the IPI. Later senders rely on that one.
        if self.claim_exit(vcpu)
            && let Some(cpu) = self.guests.vcpus[vcpu].cpu
        {
            assert!(
                cpu != step.pcpu,
                "vcpu {} is in guest mode on pcpu {cpu}, where the host executes",
                vcpu.0
            );
            step.ipi(cpu);
        }
    }

    /// Sets the mode of `vcpu` to "in guest". A request that came in between would hold the entry back. Within a step
    /// none can.
    pub(crate) fn enter_guest(&mut self, vcpu: VcpuId) {
        let seen = Seen(&self.guests.vcpus[vcpu]);
        let entered = handshake::enter(&self.memory(), &seen, self.guests.planted.avic);
        assert!(entered, "vcpu {} enters guest mode with a request pending", vcpu.0);
        self.sync(vcpu);
    }

    /// Claims the exit of `vcpu` from guest mode. Returns whether the caller must send the IPI.
    pub(crate) fn claim_exit(&self, vcpu: VcpuId) -> bool {
        handshake::kick(&self.memory(), &Seen(&self.guests.vcpus[vcpu]))
    }
}
