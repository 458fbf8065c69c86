//! Keys of how guests use their APICs, and of what the host does for them there.

use super::key;
use crate::keys::slot::Slot;
use crate::keys::{Key, Target};

/// Interrupts of a guest.
pub(super) static INTERRUPTS: &[Key] = &[
    key(
        "vm.*.nox2apic",
        "boot option nox2apic: memory-mapped APIC registers although x2APIC mode is offered; an exit for each access",
        vm!(Flag, boot.kernel.apic.nox2apic),
    ),
    key(
        "vm.*.x2apic_cluster",
        "whether the guest sends one command for up to 16 CPUs in x2APIC mode; Linux does only with interrupt remapping, which \
         KVM guests mostly have not",
        vm!(Flag, boot.kernel.apic.cluster),
    ),
    key(
        "vm.*.ipi_shorthand",
        "whether calls to all other CPUs go out by the shorthand \"all but self\" (Linux 5.4; with nox2apic and up to 8 CPUs \
         always)",
        vm!(Flag, boot.kernel.apic.shorthand),
    ),
    key(
        "vm.*.pv_eoi",
        "whether the host offers ends of interrupts by a memory bit (KVM_FEATURE_PV_EOI, 3.6)",
        vm!(Flag, host.pv_eoi),
    ),
    key(
        "vm.*.pv_send_ipi",
        "whether the host offers IPIs by hypercall (KVM_FEATURE_PV_SEND_IPI, 4.19)",
        vm!(Flag, host.pv_send_ipi),
    ),
    key(
        "vm.*.pv_tlb_flush",
        "whether the host offers to flush the TLBs of preempted vCPUs (KVM_FEATURE_PV_TLB_FLUSH, 4.16); needs steal_time and \
         preempted_flag to be of use",
        vm!(Flag, host.pv_tlb_flush),
    ),
];
