//! Load, put, blocking and unblocking: IsRunning over a vCPU's life (docs/spec/host.md, "Load and put" and "Halt and
//! polling"; docs/spec/interrupts.md, "AVIC injection and IsRunning").

use super::remap;
use crate::boundary::VcpuId;
use crate::interrupts::avic;
use crate::wings::Wings;

/// The thread of `vcpu` has taken `pcpu` (`avic_vcpu_load`).
pub(crate) fn load(on: &Wings, vcpu: VcpuId, pcpu: u32) {
    let Some(avic) = on.guests.hardware(vcpu).avic() else {
        return;
    };
    if avic.active.get() {
        let memory = on.memory();
        avic::setup::tables(on, &memory, vcpu).load(pcpu, avic.blocking);
        if !avic.blocking {
            avic::iommu::running(on, vcpu, pcpu);
        }
    }
}

/// The thread of `vcpu` gives up its pCPU (`avic_vcpu_put`).
pub(crate) fn put(on: &Wings, vcpu: VcpuId) {
    if on.is_virtualized(vcpu) {
        // A preempted vCPU needs no wakeup.
        let avic = on.guests.hardware(vcpu).avic();
        avic::iommu::stopped(on, vcpu, avic.is_some_and(|avic| avic.blocking));
        let memory = on.memory();
        avic::setup::tables(on, &memory, vcpu).put();
    }
}

/// `vcpu` is about to check whether its halt ends, and to sleep if it does not (`avic_vcpu_blocking`).
pub(crate) fn blocking(on: &mut Wings, vcpu: VcpuId) {
    let Some(avic) = on.guests.hardware_mut(vcpu).avic_mut() else {
        return;
    };
    if core::mem::replace(&mut avic.blocking, true) || !avic.active.get() {
        return;
    }
    let memory = on.memory();
    remap::blocking(
        &avic::setup::tables(on, &memory, vcpu),
        avic::iommu::entries(on, &memory, vcpu),
    );
}

/// The halt of `vcpu`, which is on `pcpu`, is over (`avic_vcpu_unblocking`).
pub(crate) fn unblocking(on: &mut Wings, vcpu: VcpuId, pcpu: u32) {
    let Some(avic) = on.guests.hardware_mut(vcpu).avic_mut() else {
        return;
    };
    if !core::mem::replace(&mut avic.blocking, false) || !avic.active.get() {
        return;
    }
    avic::iommu::running(on, vcpu, pcpu);
    let memory = on.memory();
    avic::setup::tables(on, &memory, vcpu).unblocking(pcpu);
}
