//! Exits that interrupts still cause under AVIC, in the experiments about AVIC.

use holdfast_host::Inhibit;
use holdfast_sim::Outcome;

use crate::everywhere::{run_seed, run_variant};

/// The experiments at small scale: name, case, vCPUs, scale.
const SMALL: &[(&str, &str, u64, f64)] = &[
    ("avic-hackbench", "2-vcpus", 2, 0.0005),
    ("avic-hackbench", "4-vcpus", 4, 0.002),
    ("avic-tar", "4-vcpus", 4, 0.005),
    ("avic-netperf", "1-vcpu", 1, 0.001),
];

/// APIC registers that each CPU of the guest writes once at its start and that cause exits under AVIC: DFR, LDR,
/// SVR, the timer's divisor and its vector.
const WRITTEN_AT_BOOT: u64 = 5;

fn count(outcome: &Outcome, name: &str) -> u64 {
    outcome.vms[0].counters.get(name).copied().unwrap_or(0)
}

/// Returns the exits of the measured interval for `cause`.
fn exits(outcome: &Outcome, cause: &str) -> u64 {
    count(outcome, &format!("measured_exits.exit_{cause}"))
}

/// Returns the violated promises of AVIC in a run. Each vCPU has a pCPU whenever it wants one, so a target that does
/// not run is halted.
fn broken_promises(outcome: &Outcome, vcpus: u64) -> Vec<&'static str> {
    let of_guest = count(outcome, "guest.reschedule_ipis") + count(outcome, "guest.call_ipis");
    let (sent, halted) = (count(outcome, "avic_ipis"), count(outcome, "avic_incomplete_ipi_1"));
    let timer = count(outcome, "guest.timer_programs");
    let promises = [
        ("hardware delivers interrupts", count(outcome, "avic_interrupts") > 0),
        ("hardware sends every IPI", sent >= of_guest),
        (
            "an IPI to a running target takes no exit",
            sent == count(outcome, "avic_ipis_without_exit") + halted && halted <= count(outcome, "halt_exits"),
        ),
        ("the end of an interrupt takes no exit", count(outcome, "eoi") == 0),
        ("nobody waits for a window to inject", exits(outcome, "window") == 0),
        ("no APIC register is an MSR", exits(outcome, "msr") == 0),
        (
            "only the timer's registers exit after boot",
            count(outcome, "avic_unaccelerated_access") <= timer + vcpus * WRITTEN_AT_BOOT
                && exits(outcome, "apic") <= timer + halted,
        ),
    ];
    promises
        .into_iter()
        .filter(|(_, kept)| !kept)
        .map(|(promise, _)| promise)
        .collect()
}

#[test]
fn avic_keeps_its_promises_in_every_experiment_about_it() {
    for &(name, case, vcpus, scale) in SMALL {
        let outcome = run_variant(name, case, "avic", scale, &[]);
        assert_eq!(broken_promises(&outcome, vcpus), [""; 0], "{name} {case}");
    }
}

#[test]
fn exits_for_interrupts_fall_away_under_avic() {
    for &(name, case, vcpus, scale) in SMALL {
        let avic = run_variant(name, case, "avic", scale, &[]);
        for emulated in ["vanilla", "avic-off"] {
            let emulated = run_variant(name, case, emulated, scale, &[]);
            // Sending and ending are one exit each, and so is the timer, under AVIC too.
            let by_register = exits(&emulated, "msr");
            assert!(by_register > exits(&avic, "apic"), "{name} {case}");
            assert!(by_register >= exits(&emulated, "window"), "{name} {case}");
            // A vCPU may be in a handler when the run ends.
            assert!(
                count(&emulated, "eoi") + vcpus >= count(&emulated, "irq_injections"),
                "{name} {case}: each end takes an exit"
            );
            assert!(
                count(&avic, "measured_exits") < count(&emulated, "measured_exits"),
                "{name} {case}"
            );
        }
    }
}

#[test]
fn avic_that_is_silently_not_active_is_noticed() {
    // Seeded fault: the variant's name promises AVIC, and the host has it off.
    for &(name, case, vcpus, scale) in SMALL {
        let outcome = run_variant(name, case, "avic", scale, &["host.avic=off"]);
        let broken = broken_promises(&outcome, vcpus);
        assert!(
            broken.contains(&"hardware delivers interrupts")
                && broken.contains(&"the end of an interrupt takes no exit"),
            "{name} {case}: {broken:?}"
        );
    }
}

#[test]
fn the_driver_of_4_7_rings_for_each_timer_interrupt() {
    // Software delivers the timer's interrupts, on the pCPU of their vCPU. The present driver needs no doorbell there.
    let run = |driver| run_variant("avic-hackbench", "2-vcpus", "avic", 0.0005, &[driver]);
    let (now, first) = (run("host.avic_driver=now"), run("host.avic_driver=linux-4.7"));
    assert_eq!(count(&now, "avic_doorbell"), 0);
    assert!(count(&first, "avic_doorbell") > 0);
    assert_eq!(count(&now, "hackbench.messages"), count(&first, "hackbench.messages"));
}

#[test]
fn the_driver_of_4_7_leaves_the_interrupts_of_devices_to_the_host() {
    let outcome = run_variant(
        "avic-netperf",
        "1-vcpu",
        "assigned-avic",
        0.001,
        &["host.avic_driver=linux-4.7"],
    );
    assert_eq!(count(&outcome, "iommu_posted"), 0);
    assert!(count(&outcome, "iommu_by_host") >= count(&outcome, "netperf.transactions"));
}

#[test]
fn an_idle_cpu_that_stops_its_tick_writes_the_timer_twice() {
    // netperf's guest halts once for each transaction. Under AVIC there remain the exits for the halt, for the
    // device's doorbell, and for the tick that stops and starts again.
    let outcome = run_variant("avic-netperf", "1-vcpu", "avic", 0.001, &[]);
    let transactions = count(&outcome, "netperf.transactions");
    let halts = exits(&outcome, "hlt");
    assert!(halts.abs_diff(transactions) <= transactions / 100, "{halts} halts");
    let timer = exits(&outcome, "apic");
    assert!(
        timer.abs_diff(2 * halts) <= halts / 50,
        "{timer} APIC exits, {halts} halts"
    );
}

#[test]
fn an_assigned_device_takes_no_exit_under_avic() {
    let run = |variant| run_variant("avic-netperf", "1-vcpu", variant, 0.001, &[]);
    let (vhost, assigned) = (run("avic"), run("assigned-avic"));
    let transactions = count(&assigned, "netperf.transactions");
    assert_eq!(exits(&assigned, "port"), 0, "the guest rings the device itself");
    assert!(exits(&vhost, "port") > transactions / 2);
    assert!(count(&assigned, "iommu_posted") >= transactions);
    assert_eq!(
        count(&assigned, "iommu_posted"),
        count(&assigned, "iommu_doorbells") + count(&assigned, "iommu_logged")
    );
    assert_eq!(count(&assigned, "irq_injections"), 0);
    let by_host = run("assigned");
    assert!(count(&by_host, "iommu_by_host") >= transactions);
    assert_eq!(count(&by_host, "iommu_posted"), 0);
}

#[test]
fn hybrid_avic_keeps_x2apic_and_delivers_by_hardware() {
    let run = |hybrid| run_variant("avic-hackbench", "2-vcpus", "avic", 0.0005, &[hybrid]);
    let (hybrid, plain) = (run("host.avic_hybrid=true"), run("host.avic_hybrid=false"));
    assert!(count(&hybrid, "avic_interrupts") > 0);
    assert_eq!((count(&hybrid, "irq_injections"), count(&hybrid, "avic_ipis")), (0, 0));
    // Sending and ending an interrupt are exits for MSRs, which hardware without x2AVIC does not handle.
    assert!(exits(&hybrid, "msr") > 0 && exits(&plain, "msr") == 0);
    assert!(count(&hybrid, "avic_doorbell") > 0);
}

#[test]
fn a_halt_with_an_interrupt_pending_does_not_exit_under_the_idle_hlt_intercept() {
    let sets = |idle| ["machine.cpu=zen5", idle];
    // A message of the network comes while the CPU is on its way to HLT.
    let run = |idle| run_variant("avic-netperf", "1-vcpu", "avic", 0.02, &sets(idle));
    let (idle, plain) = (run("host.idle_hlt=true"), run("host.idle_hlt=false"));
    assert_eq!(count(&plain, "avic_halts_without_exit"), 0);
    assert!(count(&idle, "avic_halts_without_exit") > 0);
}

#[test]
fn each_inhibit_reason_keeps_avic_off_and_apicv_where_it_is_one_of_intel() {
    let run = |variant, name: &str| {
        let set = format!("vm.guest.apic_inhibits=[{name:?}]");
        run_variant("ipi-bench", "unicast-running", variant, 0.1, &[&set])
    };
    for reason in Inhibit::ALL {
        let name = reason.name();
        let amd = run("avic", name);
        assert_eq!(count(&amd, "avic_ipis") + count(&amd, "avic_interrupts"), 0, "{name}");
        assert!(count(&amd, "irq_injections") > 0, "{name}");
        let by_hardware = count(&run("ipi-virtualization", name), "irq_injections") == 0;
        let on_intel = reason > Inhibit::ApicBaseModified;
        assert_eq!(by_hardware, on_intel, "{name}");
    }
}

#[test]
fn a_backtrace_by_nmi_reaches_vcpus_that_mask_interrupts_and_takes_each_once() {
    for variant in ["avic", "pv-ipi", "ipi-virtualization"] {
        let sets = ["vm.guest.ipi.reach=backtrace", "vm.guest.ipi.calls=200"];
        let outcome = run_variant("ipi-bench", "unicast-running", variant, 1.0, &sets);
        let sent = count(&outcome, "guest.nmis");
        assert!(sent >= 200, "{variant}");
        assert_eq!(count(&outcome, "nmi_injections"), sent, "{variant}");
        assert_eq!(outcome.vms[0].operations, Some(sent), "{variant}: each answers");
    }
}

#[test]
fn seeds_of_hackbench_are_different_runs() {
    // Exactly equal times would keep all tasks in step, and the result would depend on that pattern.
    let hash = |seed| run_seed("avic-hackbench", "2-vcpus", "vanilla", 0.0001, seed).history_hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn a_broadcast_to_sleepers_exits_for_each_unless_one_write_names_them_all() {
    // 254 vCPUs are halted, more than a flat destination can name, and there are few calls.
    let broadcast = |variant| run_variant("ipi-bench", "255-vcpus", variant, 0.01, &[]);
    let targets = |outcome: &Outcome| outcome.vms[0].operations.expect("it counts targets that were reached");
    let each = broadcast("avic");
    assert_eq!(count(&each, "avic_incomplete_ipi_1"), targets(&each));
    let shorthand = broadcast("avic-shorthand");
    assert_eq!(count(&shorthand, "avic_incomplete_ipi_1"), targets(&shorthand) / 254);
    let hypercall = broadcast("pv-ipi");
    assert_eq!(
        exits(&hypercall, "hypercall"),
        2 * targets(&hypercall) / 254,
        "128 targets fit in one"
    );
}
