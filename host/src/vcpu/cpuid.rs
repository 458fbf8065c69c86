//! CPUID as guests see it.

use holdfast_abi::cpuid;

use crate::boundary::VcpuId;
use crate::wings::Wings;

/// Returns EAX, EBX, ECX and EDX of `leaf` for `vcpu`, or zeros if there is no such leaf.
pub(crate) fn cpuid(on: &mut Wings, vcpu: VcpuId, leaf: u32) -> [u32; 4] {
    let vm = on.guests.vcpus[vcpu].vm;
    let offers_x2apic = on.offers_x2apic(vm);
    let at = &on.guests.vcpus[vcpu];
    let vm = &on.guests.vms[at.vm];
    match leaf {
        // "HoldfastHost": a guest must not assume the errata and models of a real CPU.
        cpuid::BASIC => {
            let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
            [TOPOLOGY, word(b"Hold"), word(b"Host"), word(b"fast")]
        }
        cpuid::FEATURES => {
            let logical = vm.vcpus.min(255) << 16;
            let x2apic = if offers_x2apic { cpuid::X2APIC } else { 0 };
            let pcid = if on.config.pcid { cpuid::PCID } else { 0 };
            let monitor = if vm.config.cpu_pm { cpuid::MONITOR } else { 0 };
            let ecx = x2apic | pcid | monitor | cpuid::TSC_DEADLINE | cpuid::HYPERVISOR;
            let edx = cpuid::TSC | cpuid::MSR | cpuid::APIC;
            [0, (at.index & 0xff) << 24 | logical, ecx, edx]
        }
        TOPOLOGY => [0, 0, 0, at.index],
        cpuid::HYPERVISOR_BASE => {
            let [ebx, ecx, edx] = cpuid::KVM_SIGNATURE;
            [cpuid::KVM_FEATURES, ebx, ecx, edx]
        }
        cpuid::KVM_FEATURES => {
            let bit = |offered: bool, feature: u32| if offered { feature } else { 0 };
            let features = bit(vm.config.offers_unhalt(), cpuid::KVM_FEATURE_PV_UNHALT)
                | bit(vm.config.pv_sched_yield, cpuid::KVM_FEATURE_PV_SCHED_YIELD)
                | bit(vm.config.pv_send_ipi, cpuid::KVM_FEATURE_PV_SEND_IPI)
                | bit(vm.config.pv_eoi, cpuid::KVM_FEATURE_PV_EOI)
                | bit(vm.config.pv_tlb_flush, cpuid::KVM_FEATURE_PV_TLB_FLUSH)
                | bit(vm.config.poll_control, cpuid::KVM_FEATURE_POLL_CONTROL)
                | bit(vm.config.steal_time, cpuid::KVM_FEATURE_STEAL_TIME)
                | bit(vm.config.steal_time && vm.config.guest_word, cpuid::FEATURE_GUEST_WORD);
            [features, 0, 0, bit(vm.config.realtime_hint, cpuid::KVM_HINTS_REALTIME)]
        }
        _ => [0; 4],
    }
}

/// Extended topology: EDX is the x2APIC ID.
const TOPOLOGY: u32 = 0xb;
