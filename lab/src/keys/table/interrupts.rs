//! Keys of how guests use their APICs, and of what the host does for them there.

use super::key;
use crate::keys::slot::Slot;
use crate::keys::{Key, Target};

/// Interrupts of a guest.
pub(super) static INTERRUPTS: &[Key] = &[
    key(
        "vm.*.nox2apic",
        "Boot option `nox2apic`: memory-mapped APIC registers although the host offers x2APIC mode. Each access is \
         an exit.",
        vm!(Flag, boot.kernel.apic.nox2apic),
    ),
    key(
        "vm.*.x2apic_cluster",
        "Whether the guest sends one x2APIC command for up to 16 CPUs. Linux does so only with interrupt remapping, \
         which KVM guests rarely have.",
        vm!(Flag, boot.kernel.apic.cluster),
    ),
    key(
        "vm.*.ipi_shorthand",
        "Calls to all other CPUs use the shorthand \"all but self\" (Linux 5.4). With nox2apic and up to 8 CPUs they \
         always do.",
        vm!(Flag, boot.kernel.apic.shorthand),
    ),
    key(
        "vm.*.pv_eoi",
        "Whether the host offers the end of an interrupt by a bit in memory (KVM_FEATURE_PV_EOI, 3.6).",
        vm!(Flag, host.pv_eoi),
    ),
    key(
        "vm.*.pv_send_ipi",
        "Whether the host offers IPIs by hypercall (KVM_FEATURE_PV_SEND_IPI, 4.19).",
        vm!(Flag, host.pv_send_ipi),
    ),
    key(
        "vm.*.pv_tlb_flush",
        "Whether the host offers to flush the TLBs of preempted vCPUs (KVM_FEATURE_PV_TLB_FLUSH, 4.16). It needs \
         steal_time and preempted_flag.",
        vm!(Flag, host.pv_tlb_flush),
    ),
];
