//! Paravirtual features other than kicks: the guest uses them, and KVM counts the uses.

use std::collections::BTreeMap;

use holdfast_kvm::{Feature, Host, Options, Task, Vm, VmReport};
use holdfast_locks::LockKind;
use holdfast_workloads::{Boot, Ebizzy, KernelConfig, Workload};

use crate::lost::run_again_if_lost;
use crate::tracing::Tracing;

/// Numbers of hypercalls (Linux `Documentation/virt/kvm/x86/hypercalls.rst`).
const KICK_CPU: u64 = 5;
const SEND_IPI: u64 = 10;
const SCHED_YIELD: u64 = 11;

/// Runs four vCPUs on two CPUs that constantly shoot down each other's translations. So there are calls to several
/// vCPUs, many of them preempted.
fn shootdowns(change: impl FnOnce(Vm) -> Vm) -> VmReport {
    let boot = Boot {
        kernel: KernelConfig {
            lock: LockKind::PvQspin,
            ..KernelConfig::default()
        },
        workload: Workload::Ebizzy(Ebizzy {
            records: 400,
            ..Ebizzy::default()
        }),
        ..Boot::default()
    };
    let vm = Vm::new("vm1", 4, Task::Kernel(boot)).pinned((0..4).map(|vcpu| vec![vcpu % 2]).collect());
    let report = run_again_if_lost(&[change(vm)], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    report.vms.into_iter().next().expect("one vm")
}

/// The events that KVM has traced.
#[derive(Debug)]
struct Seen {
    hypercalls: BTreeMap<u64, u64>,
    /// Number of ends of interrupts that KVM found in memory.
    eois: u64,
    /// Number of TLB flushes that a guest requested and KVM did at a vCPU's entry.
    flushes: u64,
}

fn seen(tracing: &Tracing) -> Seen {
    let mut hypercalls = BTreeMap::new();
    for fields in tracing.events("kvm_hypercall") {
        let number = fields
            .strip_prefix("nr 0x")
            .and_then(|rest| rest.split_whitespace().next());
        let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
        *hypercalls
            .entry(number.unwrap_or_else(|| panic!("{fields}")))
            .or_insert(0) += 1;
    }
    let flushes = tracing.events("kvm_pv_tlb_flush");
    Seen {
        hypercalls,
        eois: tracing.events("kvm_pv_eoi").len() as u64,
        flushes: flushes
            .iter()
            .filter(|fields| fields.trim_end().ends_with("true"))
            .count() as u64,
    }
}

fn with_tracing(change: impl FnOnce(Vm) -> Vm) -> Option<(VmReport, Seen)> {
    let tracing = Tracing::of(&["kvm/kvm_hypercall", "kvm/kvm_pv_eoi", "kvm/kvm_pv_tlb_flush"])?;
    let report = shootdowns(change);
    let seen = seen(&tracing);
    let of = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    println!(
        "guest: {} kicks, {} calls to CPUs, {} yields, {} ends of interrupts in memory, {} flushes left to the host; kvm: {seen:?}",
        of("guest.kicks"),
        of("guest.call_ipis"),
        of("guest.pv_sched_yields"),
        of("guest.pv_eois"),
        of("guest.pv_tlb_flushes")
    );
    Some((report, seen))
}

#[test]
#[ignore = "needs a real KVM"]
fn ipis_ends_of_interrupts_yields_and_flushes_that_the_guest_leaves_to_kvm_reach_it() {
    let offered = [
        Feature::PvSendIpi,
        Feature::PvSchedYield,
        Feature::PvEoi,
        Feature::PvTlbFlush,
        Feature::PvUnhalt,
        Feature::StealTime,
    ];
    let host = Host::open().unwrap_or_else(|error| panic!("{error}"));
    let missing: Vec<Feature> = offered.into_iter().filter(|&feature| !host.offers(feature)).collect();
    if !missing.is_empty() {
        println!("SKIPPED: paravirtual features: kvm does not offer {missing:?}");
        return;
    }
    let Some((report, seen)) = with_tracing(|vm| vm) else {
        println!("SKIPPED: paravirtual features: no tracepoints, or no permission to use them");
        return;
    };
    let guest = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    let hypercalls = |number| seen.hypercalls.get(&number).copied().unwrap_or(0);
    // The guest may make further hypercalls after its report.
    let counted = [("guest.kicks", KICK_CPU), ("guest.pv_sched_yields", SCHED_YIELD)];
    for (name, number) in counted {
        assert!(
            hypercalls(number) >= guest(name),
            "{name}: {} against {seen:?}",
            guest(name)
        );
    }
    assert!(
        hypercalls(SEND_IPI) > 0
            && hypercalls(SEND_IPI) <= guest("guest.call_ipis") + guest("guest.reschedule_ipis") + 100
    );
    assert!(guest("guest.pv_eois") > 0 && seen.eois > 0, "{seen:?}");
    assert!(guest("guest.pv_tlb_flushes") > 0 && seen.flushes > 0, "{seen:?}");
    assert_eq!(
        report.stat("hypercalls"),
        seen.hypercalls.values().sum::<u64>(),
        "{seen:?}"
    );
}

#[test]
#[ignore = "needs a real KVM"]
fn yields_to_vcpus_that_were_called_while_preempted_are_counted_by_kvm() {
    // Shootdowns that leave the flush of preempted vCPUs to the host do not call these vCPUs.
    let Some((report, seen)) = with_tracing(|vm| vm.without(Feature::PvTlbFlush)) else {
        println!("SKIPPED: counts of yields: no tracepoints, or no permission to use them");
        return;
    };
    let yields = report.counters.get("guest.pv_sched_yields").copied().unwrap_or(0);
    if Host::open().is_ok_and(|host| host.offers(Feature::PvSchedYield)) {
        assert!(yields > 0, "a vCPU was preempted when called");
    }
    assert!(
        seen.hypercalls.get(&SCHED_YIELD).copied().unwrap_or(0) >= yields,
        "{seen:?}"
    );
}

#[test]
#[ignore = "needs a real KVM"]
fn what_is_withheld_is_not_used() {
    let without = |vm: Vm| {
        vm.without(Feature::PvSendIpi)
            .without(Feature::PvSchedYield)
            .without(Feature::PvEoi)
            .without(Feature::PvTlbFlush)
    };
    let Some((report, seen)) = with_tracing(without) else {
        println!("SKIPPED: withheld features: no tracepoints, or no permission to use them");
        return;
    };
    assert!(seen.hypercalls.keys().all(|&number| number == KICK_CPU), "{seen:?}");
    assert_eq!((seen.eois, seen.flushes), (0, 0));
    for name in ["guest.pv_sched_yields", "guest.pv_eois", "guest.pv_tlb_flushes"] {
        assert_eq!(report.counters.get(name).copied().unwrap_or(0), 0, "{name}");
    }
}
