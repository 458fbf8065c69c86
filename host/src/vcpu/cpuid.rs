//! CPUID as guests see it.

use holdfast_abi::cpuid;

use crate::boundary::{VcpuId, VmId};
use crate::host::Host;

impl Host {
    /// EAX, EBX, ECX, EDX of `leaf` for `vcpu`; zeros for what does not exist.
    pub(crate) fn cpuid(&self, vcpu: VcpuId, leaf: u32) -> [u32; 4] {
        let at = &self.vcpus[vcpu.0 as usize];
        let vm = &self.vms[at.vm.0 as usize];
        match leaf {
            // "HoldfastHost", so that nobody takes it for a part whose errata and models it would know.
            cpuid::BASIC => {
                let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
                [TOPOLOGY, word(b"Hold"), word(b"Host"), word(b"fast")]
            }
            cpuid::FEATURES => {
                let logical = vm.vcpus.min(255) << 16;
                let x2apic = if self.offers_x2apic(at.vm) { cpuid::X2APIC } else { 0 };
                let ecx = x2apic | cpuid::TSC_DEADLINE | cpuid::HYPERVISOR;
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
                let features = bit(vm.config.pv_unhalt, cpuid::KVM_FEATURE_PV_UNHALT)
                    | bit(vm.config.pv_sched_yield, cpuid::KVM_FEATURE_PV_SCHED_YIELD)
                    | bit(vm.config.pv_send_ipi, cpuid::KVM_FEATURE_PV_SEND_IPI)
                    | bit(vm.config.pv_eoi, cpuid::KVM_FEATURE_PV_EOI)
                    | bit(vm.config.pv_tlb_flush, cpuid::KVM_FEATURE_PV_TLB_FLUSH)
                    | bit(vm.config.steal_time, cpuid::KVM_FEATURE_STEAL_TIME);
                [features, 0, 0, bit(vm.config.realtime_hint, cpuid::KVM_HINTS_REALTIME)]
            }
            _ => [0; 4],
        }
    }
}

impl Host {
    /// Whether the vCPUs of `vm` can be in x2APIC mode: not while AVIC, without x2AVIC, virtualises their LAPICs.
    pub(crate) fn offers_x2apic(&self, vm: VmId) -> bool {
        self.vms[vm.0 as usize].avic.is_none() || self.config.avic.uses_x2avic()
    }
}

/// Extended topology: EDX is the x2APIC ID.
const TOPOLOGY: u32 = 0xb;
