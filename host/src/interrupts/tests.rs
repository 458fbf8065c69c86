//! Tests of single steps of a host with hardware that virtualizes LAPICs, without time.

use alloc::vec::Vec;

use holdfast_abi::avic::{IncompleteIpi, IpiFailure};
use holdfast_abi::{Memory, cpuid, lapic as reg, posted, vmcb};
use proptest::prelude::*;

use super::apicv::VmxPart;
use super::avic::{AvicEnable, SvmPart};
use super::memory::{descriptor_address, page_address, pid_table_address};
use super::{Inhibit, Inhibits, exits};
use crate::boundary::{Command, Exit, Nanos, PcpuId, PcpuPlace, TaskId, VcpuId, VmId};
use crate::interrupts::apicv;
use crate::interrupts::avic;
use crate::step::Step;
use crate::{Host, HostConfig, TaskConfig, VmConfig};

const V0: VcpuId = VcpuId(0);
const V1: VcpuId = VcpuId(1);

/// A host with one VM of two vCPUs, whose LAPICs are enabled.
fn host(change: impl FnOnce(&mut HostConfig)) -> Host {
    let mut config = HostConfig::default();
    change(&mut config);
    let place = PcpuPlace {
        socket: 0,
        core: 0,
        thread: 0,
    };
    let mut host = Host::new(&config, &[place]).expect("a valid host");
    host.add_vm(&VmConfig::default(), 2, &[]).expect("a valid vm");
    let base = host.wings.apics.timer_base;
    for vcpu in [V0, V1] {
        host.wings.guests.vcpus[vcpu].apic.write(reg::SVR, 0x1ff, 0, &base);
    }
    host
}

fn with_avic(config: &mut HostConfig) {
    config.avic.enable = AvicEnable::On;
    config.avic.part = SvmPart {
        features: cpuid::SVM_AVIC | cpuid::SVM_NESTED_PAGING,
        family: 0x15,
        extended_tables: false,
    };
}

fn with_apicv(config: &mut HostConfig) {
    config.apicv.enable = true;
    config.apicv.part = VmxPart {
        apicv: true,
        ..VmxPart::default()
    };
}

/// Lets `act` happen on pCPU 0.
fn on<R>(host: &mut Host, act: impl FnOnce(&mut Host, &mut Step<'_>) -> R) -> (R, Vec<Command>) {
    let mut out = Vec::new();
    host.wings.threads.sched.begin(0);
    let result = act(host, &mut Step::new(Nanos(0), PcpuId(0), &mut out));
    (result, out)
}

#[test]
fn what_is_posted_has_its_trigger_mode_in_tmr() {
    let mut host = host(with_apicv);
    on(&mut host, |host, _| apicv::running::update(&mut host.wings, V0));
    let mut level_triggered = Vec::new();
    for (vector, level) in [
        (0x41, true),
        (0x42, false),
        (0xff, true),
        (0x42, true),
        (0x41, false),
        (0x30, true),
        (0xff, false),
    ] {
        level_triggered.retain(|&other| other != vector);
        level_triggered.extend(level.then_some(vector));
        on(&mut host, |host, step| {
            assert!(apicv::deliver::deliver(&mut host.wings, V0, vector, level, step));
        });
        let at = &host.wings.guests.vcpus[V0];
        for vector in 0..=255 {
            let expected = level_triggered.contains(&vector);
            let tmr = at.apic.read(reg::TMR + u32::from(vector) / 32 * 16, 0);
            assert_eq!(tmr >> (vector % 32) & 1 == 1, expected, "{vector:#x}");
        }
    }
}

#[test]
fn what_is_posted_for_a_vcpu_is_known() {
    for (change, posts) in [(with_apicv as fn(&mut HostConfig), true), (with_avic, false)] {
        let host = host(change);
        for vector in [0x20, 0x41, 0xff] {
            assert!(!host.has_posted(V1, vector));
            let (word, bit) = posted::pir_bit(vector);
            host.memory().set32(descriptor_address(V1) + word, bit);
            assert_eq!(host.has_posted(V1, vector), posts);
            assert!(!host.has_posted(V0, vector) && !host.has_posted(V1, vector ^ 1));
            assert!(!host.has_posted(VcpuId(7), vector), "there is no such vCPU");
        }
    }
}

#[test]
fn avic_keeps_cr8_and_no_other_intercept_changes() {
    let mut host = host(with_avic);
    for before in [u32::MAX, 0, vmcb::INTERCEPT_CR8_WRITE, 0x10] {
        let avic = host.wings.guests.vcpus[V0].virtualization.avic_mut().expect("AVIC");
        avic.vmcb.write32(vmcb::INTERCEPT_CR, before);
        avic.vmcb.write32(vmcb::CLEAN, u32::MAX);
        avic::tables::update(&mut host.wings, V0, 0);
        let avic = host.wings.guests.vcpus[V0].virtualization.avic_mut().expect("AVIC");
        assert_eq!(
            avic.vmcb.read32(vmcb::INTERCEPT_CR),
            before & !vmcb::INTERCEPT_CR8_WRITE
        );
        assert_eq!(
            avic.vmcb.read32(vmcb::CLEAN),
            !vmcb::CLEAN_AVIC,
            "hardware reads the rest again"
        );
        let control = avic.vmcb.read32(vmcb::INT_CTL);
        assert_eq!(control & vmcb::AVIC_ENABLE != 0, host.wings.is_virtualized(V0));
    }
}

#[test]
fn each_failure_of_an_ipi_is_counted_as_itself() {
    for (index, failure) in IpiFailure::ALL.into_iter().enumerate() {
        let mut host = host(with_avic);
        for round in 1..=3 {
            let exit = IncompleteIpi::new(u64::from(reg::ICR_SHORTHAND_SELF | 0x41), failure, 0);
            on(&mut host, |host, step| {
                exits::exit(&mut host.wings, V0, Exit::AvicIncompleteIpi(exit), step);
            });
            let counts: Vec<u64> = host
                .counters(VmId(0))
                .filter(|(name, _)| name.starts_with("avic_incomplete_ipi_"))
                .map(|(_, count)| count)
                .collect();
            let mut expected = [0; 5];
            expected[index] = round;
            assert_eq!(counts, expected, "{failure:?}");
        }
    }
}

#[test]
fn a_doorbell_wakes_the_thread_of_its_device_only() {
    let mut host = host(|_| ());
    let tasks: Vec<TaskId> = (0..2)
        .map(|_| host.add_task(&TaskConfig::default()).expect("a task"))
        .collect();
    for (port, &task) in (0x500..).zip(&tasks) {
        host.add_doorbell(VmId(0), port, task);
    }
    let runnable = |host: &Host| {
        tasks
            .iter()
            .map(|&task| host.wings.threads.sched.is_runnable(task))
            .collect::<Vec<_>>()
    };
    for (port, expected) in [(0x4ff, [false; 2]), (0x501, [false, true]), (0x500, [true; 2])] {
        on(&mut host, |host, step| {
            exits::exit(&mut host.wings, V0, Exit::PortWrite { port, value: 0 }, step);
        });
        assert_eq!(runnable(&host), expected, "{port:#x}");
    }
}

#[test]
fn entries_of_large_pid_tables_name_the_vcpus_of_their_own_vm() {
    let mut host = host(with_apicv);
    let large = host.add_vm(&VmConfig::default(), 5_000, &[]).expect("a valid vm");
    let small = host.add_vm(&VmConfig::default(), 2, &[]).expect("a valid vm");
    let memory = host.wings.memory();
    let entry = |vm, index| memory.load64(super::memory::pid_table_address(vm) + index * posted::PidPointer::BYTES);
    let pointer = |vcpu| Some(posted::PidPointer::new(descriptor_address(VcpuId(vcpu))).0);
    for index in [0, 1, 4095, 4096, 4999] {
        assert_eq!(entry(large, index), pointer(2 + index as u32), "entry {index}");
    }
    assert_eq!((entry(large, 5_000), entry(large, 65_535)), (Some(0), Some(0)));
    assert_eq!((entry(small, 1), entry(small, 2)), (pointer(5_003), Some(0)));
}

#[test]
fn avic_is_for_vms_whose_ids_fit_in_its_tables() {
    let most = holdfast_abi::avic::PHYSICAL_MAX + 1;
    for (vcpus, fits) in [(1, true), (most, true), (most + 1, false)] {
        let mut host = host(with_avic);
        let vm = host.add_vm(&VmConfig::default(), vcpus, &[]).expect("a valid vm");
        let inhibited = host.wings.guests.vms[vm].inhibits.has(Inhibit::PhysicalIdTooBig);
        assert_eq!(inhibited, !fits, "{vcpus} vcpus");
    }
}

#[test]
fn apicv_is_told_where_the_structures_of_its_vcpu_are() {
    let host = host(with_apicv);
    let apicv = host.wings.guests.vcpus[V1]
        .virtualization
        .apicv()
        .expect("it has APICv");
    let control = apicv.vmcs.get();
    assert_eq!(control.virtual_apic_page, page_address(V1));
    assert_eq!(control.descriptor, descriptor_address(V1));
    assert_eq!(control.notification_vector, posted::NOTIFICATION_VECTOR);
    assert_eq!(control.pid_table, pid_table_address(VmId(0)));
    assert_eq!(control.last_pid_index, 1, "of two vCPUs");
}

#[test]
fn only_a_host_with_hardware_for_it_virtualizes() {
    for (hardware, configure) in [
        (false, (|_| ()) as fn(&mut HostConfig)),
        (true, with_avic),
        (true, with_apicv),
    ] {
        let mut host = host(configure);
        assert_eq!(host.wings.virtualizes(VmId(0)), hardware);
        for inhibited in [true, false] {
            on(&mut host, |host, step| {
                let wing = &mut host.wings;
                wing.set_inhibit(VmId(0), Inhibit::Disabled, inhibited, step);
            });
        }
        let changes = host.wings.guests.vcpus[V0].counters.apicv_inhibit_changed;
        assert_eq!(changes, if hardware { 2 } else { 0 });
    }
}

#[test]
fn apicv_is_inhibited_by_what_concerns_it() {
    // KVM's `VMX_REQUIRED_APICV_INHIBITS`. The other reasons are of AVIC's tables and exits.
    use Inhibit::*;
    let of_both = [
        Disabled,
        Absent,
        Hyperv,
        BlockIrq,
        PhysicalIdAliased,
        ApicIdModified,
        ApicBaseModified,
    ];
    let of_avic = [
        Nested,
        IrqWindow,
        PitReinject,
        Sev,
        LogicalIdAliased,
        PhysicalIdTooBig,
        X2apic,
    ];
    for (reasons, both) in [(of_both, true), (of_avic, false)] {
        for reason in reasons {
            let mut all = Inhibits::NONE;
            all.set(reason, true);
            assert_eq!(all.of_apicv().has(reason), both, "{reason:?}");
            all.set(reason, false);
            assert!(all.is_empty());
        }
    }
}

#[test]
fn each_reason_has_a_name_of_its_own() {
    for (index, reason) in Inhibit::ALL.into_iter().enumerate() {
        assert_eq!(
            (reason as usize, Inhibit::by_name(reason.name())),
            (index, Some(reason))
        );
    }
    assert_eq!(Inhibit::by_name("PIT_REINJ"), None);
}

proptest! {
    /// Whatever comes and goes in a run, hardware is off as long as a reason of the configuration or of the run holds.
    #[test]
    fn a_reason_of_the_configuration_never_ends(
        (always, intel) in (0_u32..1 << Inhibit::ALL.len(), any::<bool>()),
        changes in proptest::collection::vec((0..Inhibit::ALL.len(), any::<bool>()), 0..40),
    ) {
        let mut host = host(if intel { with_apicv } else { with_avic });
        let mut expected = Inhibits::NONE;
        for reason in Inhibit::ALL {
            expected.set(reason, always >> reason as u8 & 1 == 1);
        }
        let config = VmConfig {
            apic_inhibits: expected,
            ..VmConfig::default()
        };
        let vm = host.add_vm(&config, 2, &[]).expect("a valid vm");
        let (configured, first) = (expected, host.wings.guests.vcpu_id(vm, 0));
        prop_assert_eq!(host.apic_inhibits(vm), Some(configured));
        for (index, inhibited) in changes {
            let reason = Inhibit::ALL[index];
            on(&mut host, |host, step| host.wings.set_inhibit(vm, reason, inhibited, step));
            expected.set(reason, inhibited || configured.has(reason));
            prop_assert_eq!(host.apic_inhibits(vm), Some(expected));
            let concerns = if intel { expected.of_apicv() } else { expected };
            prop_assert_eq!(host.wings.wants_hardware(first), concerns.is_empty());
        }
        let names: Vec<Inhibit> = expected.reasons().collect();
        let mut again = Inhibits::NONE;
        names.iter().for_each(|reason| again.set(*reason, true));
        prop_assert_eq!(again, expected);
    }
}
