//! Load, put, blocking and unblocking: IsRunning over a vCPU's life (docs/spec/host.md, "Load and put" and "Halt and
//! polling"; docs/spec/interrupts.md, "AVIC injection and IsRunning").

use super::remap;
use crate::boundary::VcpuId;
use crate::wings::Wings;

impl Wings {
    /// The thread of `vcpu` has taken `pcpu` (`avic_vcpu_load`).
    pub(crate) fn avic_load(&self, vcpu: VcpuId, pcpu: u32) {
        let Some(avic) = self.guests.vcpus[vcpu].virtualization.avic() else {
            return;
        };
        if avic.active.get() {
            let memory = self.memory();
            self.avic_tables(&memory, vcpu).load(pcpu, avic.blocking);
            if !avic.blocking {
                self.iommu_running(vcpu, pcpu);
            }
        }
    }

    /// The thread of `vcpu` gives up its pCPU (`avic_vcpu_put`).
    pub(crate) fn avic_put(&self, vcpu: VcpuId) {
        if self.is_virtualized(vcpu) {
            // A preempted vCPU needs no wakeup.
            let avic = self.guests.vcpus[vcpu].virtualization.avic();
            self.iommu_stopped(vcpu, avic.is_some_and(|avic| avic.blocking));
            let memory = self.memory();
            self.avic_tables(&memory, vcpu).put();
        }
    }

    /// `vcpu` is about to check whether its halt ends, and to sleep if it does not (`avic_vcpu_blocking`).
    pub(crate) fn avic_blocking(&mut self, vcpu: VcpuId) {
        let Some(avic) = self.guests.vcpus[vcpu].virtualization.avic_mut() else {
            return;
        };
        if core::mem::replace(&mut avic.blocking, true) || !avic.active.get() {
            return;
        }
        let memory = self.memory();
        remap::blocking(&self.avic_tables(&memory, vcpu), self.iommu_entries(&memory, vcpu));
    }

    /// The halt of `vcpu`, which is on `pcpu`, is over (`avic_vcpu_unblocking`).
    pub(crate) fn avic_unblocking(&mut self, vcpu: VcpuId, pcpu: u32) {
        let Some(avic) = self.guests.vcpus[vcpu].virtualization.avic_mut() else {
            return;
        };
        if !core::mem::replace(&mut avic.blocking, false) || !avic.active.get() {
            return;
        }
        self.iommu_running(vcpu, pcpu);
        let memory = self.memory();
        self.avic_tables(&memory, vcpu).unblocking(pcpu);
    }
}
