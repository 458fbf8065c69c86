//! What guests read by CPUID.

use holdfast_abi::cpuid;
use holdfast_host::{Exit, HostConfig, VmConfig};

use crate::world::{Guest, MS, Op, World, places};

#[test]
fn cpuid_offers_what_the_vm_is_offered() {
    for (pv_unhalt, steal_time, hint) in [(true, true, false), (false, true, true), (false, false, false)] {
        let world = World::new(&HostConfig::default(), &places(1, 1, 1));
        let vm = VmConfig {
            pv_unhalt,
            steal_time,
            realtime_hint: hint,
            ..VmConfig::default()
        };
        let leaves = [cpuid::HYPERVISOR_BASE, cpuid::KVM_FEATURES, 0x1234];
        let replies = cpuid_replies(world, &vm, leaves);
        let [ebx, ecx, edx] = cpuid::KVM_SIGNATURE;
        assert_eq!(replies[0], [cpuid::KVM_FEATURES, ebx, ecx, edx]);
        let features = u32::from(pv_unhalt) << 7 | u32::from(steal_time) << 5;
        assert_eq!(replies[1], [features, 0, 0, u32::from(hint)]);
        assert_eq!(replies[2], [0; 4]);
    }
}

/// What a vCPU of `vm` reads from `leaves`: EAX, EBX, ECX, EDX.
fn cpuid_replies<const N: usize>(mut world: World, vm: &VmConfig, leaves: [u32; N]) -> Vec<[u32; 4]> {
    let script = leaves.map(|leaf| Op::Exit(Exit::Cpuid { leaf })).to_vec();
    world.add_vm(vm, &[], vec![Guest::script(script)]);
    all_cpuid_replies(world)
}

/// Returns what vCPU 1 of 3 finds at `leaves`.
fn cpuid_of_the_second(config: &HostConfig, vm: &VmConfig, leaves: &[u32]) -> Vec<[u32; 4]> {
    let mut world = World::new(config, &places(1, 3, 1));
    let script = leaves.iter().map(|&leaf| Op::Exit(Exit::Cpuid { leaf })).collect();
    let guests = vec![Guest::script(vec![]), Guest::script(script), Guest::script(vec![])];
    world.add_vm(vm, &[vec![0], vec![1], vec![2]], guests);
    all_cpuid_replies(world)
}

/// Runs `world`, and returns what its guests read by CPUID.
fn all_cpuid_replies(mut world: World) -> Vec<[u32; 4]> {
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(MS);
    let trace = world.trace.take().expect("a trace");
    let replies = trace.iter().filter_map(|(_, command)| match command {
        holdfast_host::Command::ReplyCpuid { value, .. } => Some(*value),
        _ => None,
    });
    replies.collect()
}

#[test]
fn cpuid_names_the_host_the_cpu_and_its_features() {
    let leaves = [0, 1, 0xb];
    let found = cpuid_of_the_second(&HostConfig::default(), &VmConfig::default(), &leaves);
    let name: Vec<u8> = [1, 3, 2]
        .iter()
        .flat_map(|&register: &usize| found[0][register].to_le_bytes())
        .collect();
    assert_eq!((found[0][0], name.as_slice()), (0xb, b"HoldfastHost".as_slice()));
    let [eax, ebx, ecx, edx] = found[1];
    assert_eq!((eax, ebx >> 24, ebx >> 16 & 0xff, ebx & 0xffff), (0, 1, 3, 0));
    // TSC deadline timer and hypervisor; MSRs, TSC and APIC (SDM volume 2, CPUID).
    assert_eq!(ecx & !cpuid::X2APIC, 1 << 24 | 1 << 31);
    assert_eq!(edx, 1 << 4 | 1 << 5 | 1 << 9);
    assert_eq!(found[2], [0, 0, 0, 1], "the x2APIC ID");
}

#[test]
fn each_paravirtual_feature_has_a_bit_of_its_own() {
    /// The number of a bit, and what offers its feature.
    type Offer = (u32, fn(&mut VmConfig));
    let none = || VmConfig {
        pv_unhalt: false,
        steal_time: false,
        pv_eoi: false,
        pv_send_ipi: false,
        pv_sched_yield: false,
        pv_tlb_flush: false,
        ..VmConfig::default()
    };
    let features = |offer: fn(&mut VmConfig)| {
        let mut vm = none();
        offer(&mut vm);
        cpuid_of_the_second(&HostConfig::default(), &vm, &[cpuid::KVM_FEATURES])[0]
    };
    // The numbers of the bits are those of Linux (`Documentation/virt/kvm/x86/cpuid.rst`).
    let bits: [Offer; 5] = [
        (6, |vm| vm.pv_eoi = true),
        (7, |vm| vm.pv_unhalt = true),
        (11, |vm| vm.pv_send_ipi = true),
        (13, |vm| vm.pv_sched_yield = true),
        (5, |vm| vm.steal_time = true),
    ];
    assert_eq!(features(|_| {}), [0; 4]);
    for (bit, offer) in bits {
        assert_eq!(features(offer), [1 << bit, 0, 0, 0], "bit {bit}");
    }
    // A flush on request uses the steal-time record.
    let flush = |vm: &mut VmConfig| (vm.steal_time, vm.pv_tlb_flush) = (true, true);
    assert_eq!(features(flush), [1 << 5 | 1 << 9, 0, 0, 0]);
    // The guest's word is in that record. The bit is not KVM's.
    assert_eq!(features(|vm| vm.guest_word = true), [0; 4]);
    let word = |vm: &mut VmConfig| (vm.steal_time, vm.guest_word) = (true, true);
    assert_eq!(features(word), [1 << 5 | 1 << 31, 0, 0, 0]);
}

#[test]
fn a_vm_that_keeps_its_halts_gets_mwait_and_no_kicks() {
    let ecx_and_features = |cpu_pm, pcid| {
        let config = HostConfig {
            pcid,
            ..HostConfig::default()
        };
        let world = World::new(&config, &places(1, 1, 1));
        let vm = VmConfig {
            cpu_pm,
            ..VmConfig::default()
        };
        let leaves = [cpuid::FEATURES, cpuid::KVM_FEATURES];
        let replies = cpuid_replies(world, &vm, leaves);
        (replies[0][2], replies[1][0])
    };
    let (ecx, features) = ecx_and_features(false, false);
    let kicks = cpuid::KVM_FEATURE_PV_UNHALT;
    assert_ne!(features & kicks, 0);
    assert_eq!(ecx_and_features(true, false), (ecx | cpuid::MONITOR, features & !kicks));
    assert_eq!(ecx_and_features(false, true), (ecx | cpuid::PCID, features));
}
