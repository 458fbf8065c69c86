//! What guests find in CPUID.

use holdfast_protocol::layout::VCPUS_MAX;
use kvm_bindings::{CpuId, kvm_cpuid_entry2};
use kvm_ioctls::Cap;

use crate::Host;
use crate::vm::{Feature, Payload, Vm};

const FEATURES: u32 = 1;
const TOPOLOGY: u32 = 0xb;
const TOPOLOGY_V2: u32 = 0x1f;
const KVM_FEATURES: u32 = 0x4000_0001;
const AMD_EXTENDED_APIC_ID: u32 = 0x8000_001e;
const HYPERVISOR: u32 = 1 << 31;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HINTS_REALTIME: u32 = 1;

impl Feature {
    /// Its bit in EAX of KVM's feature leaf (docs/spec/guest-host-interface.md, "CPUID").
    fn bit(self) -> Option<u32> {
        let bit = match self {
            Feature::StealTime => 5,
            Feature::PvEoi => 6,
            Feature::PvUnhalt => 7,
            Feature::PvTlbFlush => 9,
            Feature::PvSendIpi => 11,
            Feature::PollControl => 12,
            Feature::PvSchedYield => 13,
            Feature::X2apic => return None,
        };
        Some(1 << bit)
    }
}

/// Whether a guest of `host`'s can be offered `feature`.
pub(crate) fn offers(host: &Host, feature: Feature) -> bool {
    match feature.bit() {
        Some(bit) => host.supported_cpuid(KVM_FEATURES)[0] & bit != 0,
        None => host.supported_cpuid(FEATURES)[2] & X2APIC != 0,
    }
}

/// CPUID of vCPU `number` of `vm`, from what the host supports. Each vCPU says that it is a socket of its own, as QEMU's do.
pub(crate) fn of_vcpu(host: &Host, vm: &Vm, number: u32) -> CpuId {
    debug_assert!(number < VCPUS_MAX);
    let mut cpuid = host.cpuid.clone();
    // KVM has the timer's deadline mode wherever it has the timer, but lists it apart.
    let deadline = matches!(vm.payload, Payload::Linux(_)) && host.kvm.check_extension(Cap::TscDeadlineTimer);
    for entry in cpuid.as_mut_slice() {
        adapt(entry, vm, number);
        if entry.function == FEATURES && deadline {
            entry.ecx |= TSC_DEADLINE;
        }
    }
    cpuid
}

fn adapt(entry: &mut kvm_cpuid_entry2, vm: &Vm, number: u32) {
    match entry.function {
        FEATURES => {
            entry.ebx = entry.ebx & 0x0000_ffff | 1 << 16 | number << 24;
            entry.ecx |= HYPERVISOR;
            if vm.withheld.contains(&Feature::X2apic) {
                entry.ecx &= !X2APIC;
            }
        }
        TOPOLOGY | TOPOLOGY_V2 => entry.edx = number,
        AMD_EXTENDED_APIC_ID => entry.eax = number,
        KVM_FEATURES => {
            let withheld = vm.withheld.iter().filter_map(|feature| feature.bit());
            entry.eax &= !withheld.fold(0, |bits, bit| bits | bit);
            entry.edx = if vm.realtime { HINTS_REALTIME } else { 0 };
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use holdfast_protocol::Task;

    use super::*;

    fn entry(function: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 {
            function,
            eax: u32::MAX,
            ebx: u32::MAX,
            ecx: u32::MAX,
            edx: u32::MAX,
            ..kvm_cpuid_entry2::default()
        }
    }

    #[test]
    fn what_is_withheld_is_not_found_and_nothing_else_goes() {
        let vm = Vm::new("vm", 2, Task::Hog)
            .without(Feature::PvUnhalt)
            .without(Feature::PvSendIpi);
        let mut features = entry(KVM_FEATURES);
        adapt(&mut features, &vm, 0);
        assert_eq!(features.eax, !(1 << 7 | 1 << 11));
        assert_eq!(features.edx, 0);
        adapt(&mut features, &vm.realtime(), 0);
        assert_eq!(features.edx, 1);
    }

    #[test]
    fn vcpus_have_their_numbers_as_apic_ids() {
        let vm = Vm::new("vm", 200, Task::Hog).without(Feature::X2apic);
        let mut features = entry(FEATURES);
        adapt(&mut features, &vm, 199);
        assert_eq!(features.ebx >> 24, 199);
        assert_eq!(features.ecx & X2APIC, 0);
        let mut topology = entry(TOPOLOGY);
        adapt(&mut topology, &vm, 199);
        assert_eq!(topology.edx, 199);
    }
}
