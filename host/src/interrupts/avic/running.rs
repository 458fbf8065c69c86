//! Load, put, blocking and unblocking, entry: IsRunning and mode over a vCPU's life (docs/spec/host.md, "Load and
//! put" and "Guest entry" and "Halt and polling"; docs/spec/interrupts.md, "AVIC injection and IsRunning").

use super::{HostMemory, Seen};
use super::{handshake, remap};
use crate::boundary::VcpuId;
use crate::host::Host;

impl Host {
    /// The thread of `vcpu` has taken `pcpu` (`avic_vcpu_load`).
    pub(crate) fn avic_load(&self, vcpu: VcpuId, pcpu: u32) {
        let Some(avic) = &self.vcpus[vcpu.0 as usize].avic else {
            return;
        };
        if avic.active.get() {
            let memory = HostMemory(self);
            self.avic_tables(&memory, vcpu).load(pcpu, avic.blocking);
            if !avic.blocking {
                self.iommu_running(vcpu, pcpu);
            }
        }
    }

    /// The thread of `vcpu` gives its pCPU away (`avic_vcpu_put`).
    pub(crate) fn avic_put(&self, vcpu: VcpuId) {
        if self.is_avic_active(vcpu) {
            // A preempted vCPU needs nobody to wake it.
            let blocks = self.vcpus[vcpu.0 as usize]
                .avic
                .as_ref()
                .is_some_and(|avic| avic.blocking);
            self.iommu_stopped(vcpu, blocks);
            let memory = HostMemory(self);
            self.avic_tables(&memory, vcpu).put();
        }
    }

    /// `vcpu` is about to look whether its halt ends, and to sleep if not (`avic_vcpu_blocking`).
    pub(crate) fn avic_blocking(&mut self, vcpu: VcpuId) {
        let Some(avic) = &mut self.at(vcpu).avic else { return };
        if core::mem::replace(&mut avic.blocking, true) || !avic.active.get() {
            return;
        }
        let memory = HostMemory(self);
        remap::blocking(&self.avic_tables(&memory, vcpu), self.iommu_entries(&memory, vcpu));
    }

    /// The halt of `vcpu`, which is on `pcpu`, is over (`avic_vcpu_unblocking`).
    pub(crate) fn avic_unblocking(&mut self, vcpu: VcpuId, pcpu: u32) {
        let Some(avic) = &mut self.at(vcpu).avic else { return };
        if !core::mem::replace(&mut avic.blocking, false) || !avic.active.get() {
            return;
        }
        self.iommu_running(vcpu, pcpu);
        let memory = HostMemory(self);
        self.avic_tables(&memory, vcpu).unblocking(pcpu);
    }

    /// `vcpu` sets its mode and enters its guest. Requests that come in between would hold it back; within a step none can.
    pub(crate) fn enter_mode(&self, vcpu: VcpuId) {
        let seen = Seen(&self.vcpus[vcpu.0 as usize]);
        let entered = handshake::enter(&HostMemory(self), &seen, self.config.avic.faults);
        assert!(entered, "vcpu {} enters with a request", vcpu.0);
    }

    /// Claims the exit of `vcpu` from guest mode. Whether an IPI is to be sent.
    pub(crate) fn claim_exit(&self, vcpu: VcpuId) -> bool {
        handshake::kick(&HostMemory(self), &Seen(&self.vcpus[vcpu.0 as usize]))
    }
}
