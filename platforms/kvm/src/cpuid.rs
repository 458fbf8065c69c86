//! CPUID as guests see it.

use holdfast_abi::cpuid::{self, FEATURES, HYPERVISOR, KVM_FEATURES, KVM_HINTS_REALTIME, TSC_DEADLINE, X2APIC};
use holdfast_protocol::layout::VCPUS_MAX;
use kvm_bindings::{CpuId, kvm_cpuid_entry2};
use kvm_ioctls::Cap;

use crate::Host;
use crate::vm::{Feature, Payload, Vm};

/// Extended topology: EDX is the x2APIC ID (SDM volume 2, CPUID leaves 0BH and 1FH).
const TOPOLOGY: u32 = 0xb;
const TOPOLOGY_V2: u32 = 0x1f;
/// Sizes of the line that MONITOR watches, and idle states of MWAIT (SDM volume 2, CPUID leaf 05H).
const MONITOR_SIZES: u32 = 5;
/// AMD: EAX is the extended APIC ID (APM volume 3, CPUID leaf 8000_001E).
const AMD_EXTENDED_APIC_ID: u32 = 0x8000_001e;

impl Feature {
    /// Returns the bit in EAX of KVM's feature leaf, or `None` if the feature is not in that leaf
    /// (docs/spec/guest-host-interface.md, "CPUID").
    fn bit(self) -> Option<u32> {
        Some(match self {
            Feature::StealTime => cpuid::KVM_FEATURE_STEAL_TIME,
            Feature::PvEoi => cpuid::KVM_FEATURE_PV_EOI,
            Feature::PvUnhalt => cpuid::KVM_FEATURE_PV_UNHALT,
            Feature::PvTlbFlush => cpuid::KVM_FEATURE_PV_TLB_FLUSH,
            Feature::PvSendIpi => cpuid::KVM_FEATURE_PV_SEND_IPI,
            Feature::PollControl => cpuid::KVM_FEATURE_POLL_CONTROL,
            Feature::PvSchedYield => cpuid::KVM_FEATURE_PV_SCHED_YIELD,
            Feature::X2apic => return None,
        })
    }
}

/// Returns whether `host` can offer `feature` to its guests.
pub(crate) fn offers(host: &Host, feature: Feature) -> bool {
    match feature.bit() {
        Some(bit) => host.supported_cpuid(KVM_FEATURES)[0] & bit != 0,
        None => host.supported_cpuid(FEATURES)[2] & X2APIC != 0,
    }
}

/// Returns the CPUID leaves of vCPU `number` of `vm`, derived from those that the host supports. Each vCPU is a socket
/// of its own, as QEMU's are by default.
pub(crate) fn of_vcpu(host: &Host, vm: &Vm, number: u32) -> CpuId {
    debug_assert!(number < VCPUS_MAX);
    let mut cpuid = host.cpuid.clone();
    // KVM supports the LAPIC timer's deadline mode, but reports it as a capability and not in CPUID.
    let deadline = matches!(vm.payload, Payload::Linux(_)) && host.kvm.check_extension(Cap::TscDeadlineTimer);
    for entry in cpuid.as_mut_slice() {
        adapt(entry, vm, number);
        if entry.function == FEATURES && deadline {
            entry.ecx |= TSC_DEADLINE;
        }
        if vm.cpu_pm {
            pass_through(entry, host.passes_mwait());
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
            entry.edx = if vm.realtime { KVM_HINTS_REALTIME } else { 0 };
        }
        _ => {}
    }
}

/// Adapts `entry` to a guest whose HLT does not exit. A kick would find no vCPU that waits for it. With `mwait`, the
/// guest has MONITOR and MWAIT, as the host has them.
fn pass_through(entry: &mut kvm_cpuid_entry2, mwait: bool) {
    match entry.function {
        KVM_FEATURES => entry.eax &= !cpuid::KVM_FEATURE_PV_UNHALT,
        FEATURES if mwait => entry.ecx |= cpuid::MONITOR,
        MONITOR_SIZES if mwait => {
            let of_host = core::arch::x86_64::__cpuid(MONITOR_SIZES);
            (entry.eax, entry.ebx) = (of_host.eax, of_host.ebx);
            (entry.ecx, entry.edx) = (of_host.ecx, of_host.edx);
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
    fn only_withheld_features_are_missing() {
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
    fn a_guest_whose_halts_do_not_exit_is_offered_no_kicks() {
        let mut features = entry(KVM_FEATURES);
        pass_through(&mut features, false);
        assert_eq!(features.eax, !(1 << 7));
        let mut features = kvm_cpuid_entry2 {
            ecx: 0,
            ..entry(FEATURES)
        };
        pass_through(&mut features, false);
        assert_eq!(features.ecx, 0);
        pass_through(&mut features, true);
        assert_eq!(features.ecx, cpuid::MONITOR);
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
