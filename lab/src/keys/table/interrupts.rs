//! Keys of interrupts: how guests use their APICs, what the host offers them, and which hardware assists.

use holdfast_host::{AvicEnable, Nic};

use super::key;
use crate::keys::{Key, Target};
use crate::slot::{Slot, choices};

choices!(Nic {
    "vhost" => Nic::Vhost,
    "assigned" => Nic::Assigned,
});

choices!(AvicEnable {
    "off" => AvicEnable::Off,
    "on" => AvicEnable::On,
    "auto" => AvicEnable::Auto,
});

/// A guest's interrupts, startup and network device.
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
    key(
        "vm.*.starts_cpus",
        "The guest's CPU 0 starts the others by INIT and SIPI, one after another, as on real hardware. Otherwise all \
         vCPUs run from power-on.",
        vm!(Flag, host.waits_for_sipi),
    ),
    key(
        "vm.*.split_irqchip",
        "The I/O APIC is the VMM's (QEMU `kernel-irqchip=split`, 4.5, uncertain). Accesses to it, and ends of its \
         level-triggered interrupts, go to user space.",
        vm!(Flag, host.split_irqchip),
    ),
    key(
        "vm.*.nic",
        "The guest's network device. \"vhost\" is the host's software: vhost, tap and bridge. \"assigned\" is \
         hardware with virtio queues (vDPA): the guest rings it without an exit, and its interrupts go through the \
         IOMMU.",
        vm!(Choice, host.nic),
    ),
];

/// Hardware that delivers interrupts to guests: AVIC (AMD) and APICv (Intel).
pub(super) static HARDWARE: &[Key] = &[
    key(
        "host.avic",
        "Whether the host uses AVIC, if the CPU has it (kvm_amd `avic`). \"auto\" uses it on Zen 4 and later, with \
         x2AVIC.",
        host!(Choice, avic.enable),
    ),
    key(
        "host.x2avic",
        "Whether the host also uses x2AVIC, if the CPU has it. Without it a guest under AVIC is not offered x2APIC.",
        host!(Flag, avic.x2avic),
    ),
    key(
        "vm.*.avic",
        "Whether AVIC virtualizes this guest's LAPICs, if the host uses AVIC.",
        vm!(Flag, host.avic),
    ),
    key(
        "host.apicv",
        "Whether the host uses APICv and posted interrupts, if the CPU has them (kvm_intel `enable_apicv`).",
        host!(Flag, apicv.enable),
    ),
    key(
        "host.ipiv",
        "Whether hardware also sends IPIs, if the CPU can (kvm_intel `enable_ipiv`).",
        host!(Flag, apicv.ipiv),
    ),
    key(
        "vm.*.apicv",
        "Whether APICv virtualizes this guest's LAPICs, if the host uses APICv.",
        vm!(Flag, host.apicv),
    ),
];
