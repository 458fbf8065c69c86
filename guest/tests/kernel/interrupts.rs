//! Interrupts between CPUs by all methods of Linux, the paravirtual EOI word, and TLBs that the host flushes.

use holdfast_guest::{ApicOptions, Callees, Config, Fork, Function, Limits, Start, Touch};
use holdfast_host::{PvFaults, VmConfig};
use holdfast_locks::CpuId;
use holdfast_sim::{Failure, Outcome};

use crate::machine::{Setup, counter, lead_forked, run, try_run};

/// Every method of sending, by name.
fn ways() -> Vec<(&'static str, ApicOptions, VmConfig)> {
    let plain = ApicOptions::default();
    let xapic = ApicOptions {
        nox2apic: true,
        ..plain
    };
    let host = VmConfig::default();
    let pv_ipis = VmConfig {
        pv_send_ipi: true,
        ..host
    };
    vec![
        ("x2apic", plain, host),
        ("x2apic, cluster", ApicOptions { cluster: true, ..plain }, host),
        (
            "x2apic, shorthand",
            ApicOptions {
                shorthand: true,
                ..plain
            },
            host,
        ),
        ("xapic", xapic, host),
        (
            "xapic, shorthand",
            ApicOptions {
                shorthand: true,
                ..xapic
            },
            host,
        ),
        ("pv ipis", plain, pv_ipis),
        ("pv ipis and xapic", xapic, pv_ipis),
    ]
}

const ROUNDS: u64 = 5;

/// Calls to the caller itself, to one and to all other CPUs. Each call counts in the driver.
fn calls(vcpus: u32, apic: ApicOptions, host: VmConfig) -> Outcome {
    let setup = Setup {
        pcpus: 4,
        vcpus,
        kernel: Config {
            apic,
            ..Config::default()
        },
        host,
        limits: Limits {
            drivers: 1,
            ..Setup::default().limits
        },
        ..Setup::default()
    };
    run(&setup, move |os, _| {
        os.wait_for_cpus();
        os.begin();
        let function = Function { driver: Some((0, 100)) };
        let mut after = Vec::new();
        for round in 0..ROUNDS as u32 {
            os.call_cpus(Callees::Itself, function, &mut after);
            let other = (os.cpu().0 + 1 + round % (vcpus - 1)) % vcpus;
            os.call_cpus(Callees::One(CpuId(other)), function, &mut after);
            os.call_cpus(Callees::Others, function, &mut after);
        }
        assert_eq!(after.len() as u64, ROUNDS * (2 + u64::from(vcpus) - 1));
        assert!(after.iter().all(|&ns| ns > 0), "{after:?}");
        assert_eq!(os.call_driver(0, 0), after.len() as u64, "calls were lost or doubled");
        os.done(None);
    })
}

#[test]
fn calls_reach_exactly_the_named_whatever_the_way() {
    // A hypercall has a window of 128 CPUs, in two words.
    for (way, apic, host) in ways().into_iter().filter(|(way, ..)| way.starts_with("pv ipis")) {
        let sent = counter(&calls(140, apic, host), "pv_ipis_sent");
        assert_eq!(sent, ROUNDS * 139, "{way}");
    }
    for vcpus in [2, 4, 10, 40] {
        for (way, apic, host) in ways() {
            for pv_eoi in [false, true] {
                let outcome = calls(vcpus, apic, VmConfig { pv_eoi, ..host });
                let ends = counter(&outcome, "guest.pv_eois");
                assert_eq!(ends > 0, pv_eoi, "{way}, {vcpus} vcpus: {ends} ends in memory");
            }
        }
    }
}

#[test]
fn one_exit_calls_all_others_by_hypercall_shorthand_or_flat_destination() {
    let sent = |outcome: &Outcome| counter(outcome, "ipis_sent");
    for (way, apic, host) in ways() {
        let (few, many) = (calls(4, apic, host), calls(7, apic, host));
        // The number of reschedule interrupts varies a little, so they are left out.
        let grows = sent(&many) > sent(&few) + ROUNDS;
        assert_eq!(grows, way == "x2apic", "{way}: {} and {}", sent(&few), sent(&many));
    }
    // One by one, each call and each reschedule is one interrupt.
    let plain = calls(7, ApicOptions::default(), VmConfig::default());
    let asked = ["guest.call_ipis", "guest.reschedule_ipis"].map(|name| counter(&plain, name));
    assert_eq!(sent(&plain), asked.iter().sum::<u64>(), "{asked:?}");
    let pv = calls(
        40,
        ApicOptions::default(),
        VmConfig {
            pv_send_ipi: true,
            ..VmConfig::default()
        },
    );
    assert_eq!(counter(&pv, "pv_ipis_sent"), ROUNDS * 39);
}

#[test]
fn a_single_cpu_is_called_by_hypercall_in_flat_mode_only() {
    let pv_sent = |way: &str, vcpus: u32| {
        let (_, apic, host) = ways().into_iter().find(|(name, ..)| *name == way).expect("a way");
        counter(&calls(vcpus, apic, host), "pv_ipis_sent")
    };
    assert_eq!(pv_sent("pv ipis", 4), ROUNDS * 3, "x2APIC: the calls of all others");
    assert_eq!(pv_sent("pv ipis and xapic", 10), ROUNDS * 9, "physical xAPIC");
    // Reschedule interrupts go the same way.
    let flat = pv_sent("pv ipis and xapic", 4);
    assert!(flat >= ROUNDS * (1 + 3), "flat xAPIC: {flat}");
}

/// Runs three threads that unmap in turn, next to a guest that burns the pCPUs.
fn shoot(seed: u64, host: VmConfig, faults: PvFaults) -> Result<Outcome, Failure> {
    let setup = Setup {
        hogs: 3,
        seed,
        cache_refill_ns: 20_000,
        host,
        faults,
        ..Setup::default()
    };
    try_run(&setup, move |os, start| {
        if start.role == 0 {
            return lead_forked(os, 3, Fork::Share);
        }
        let mut random = seed ^ u64::from(start.argument) << 32;
        for _ in 0..300 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            os.user_touching(30_000 + (random >> 33) % 100_000, Touch::anonymous(8));
            os.unmap(8);
        }
    })
}

fn flushing() -> VmConfig {
    VmConfig {
        pv_tlb_flush: true,
        ..VmConfig::default()
    }
}

#[test]
fn no_translation_is_used_after_its_unmapping_although_the_host_flushes() {
    let none = PvFaults::default();
    for seed in 0..4 {
        let plain = shoot(seed, VmConfig::default(), none).expect("a whole kernel");
        let flushed = shoot(seed, flushing(), none).expect("a whole kernel and a whole host");
        assert!(counter(&flushed, "guest.pv_tlb_flushes") > 10, "seed {seed}");
        let waited = |outcome: &Outcome| outcome.vms[0].lost_time_ps["ipi_preempted_target"];
        assert!(waited(&flushed) * 4 < waited(&plain), "seed {seed}");
    }
}

#[test]
fn a_lost_flush_bit_and_an_exchange_in_two_steps_are_seen() {
    let none = PvFaults::default();
    for faults in [
        PvFaults {
            flush_lost: true,
            ..none
        },
        PvFaults {
            exchange_torn: true,
            ..none
        },
    ] {
        let seen = (0..20).find_map(|seed| shoot(seed, flushing(), faults).err());
        assert!(
            matches!(seen, Some(Failure::StaleTranslation(_))),
            "{faults:?}: {seen:?}"
        );
    }
}

#[test]
fn a_backtrace_reaches_each_other_cpu_once_and_accesses_to_a_driver_count() {
    for vcpus in [2, 5] {
        let setup = Setup {
            vcpus,
            limits: Limits {
                drivers: 1,
                ..Setup::default().limits
            },
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, _| {
            os.wait_for_cpus();
            os.begin();
            let mut after = Vec::new();
            for round in 1..4 {
                os.backtrace(&mut after);
                assert_eq!(after.len() as u32, round * (vcpus - 1));
                os.access_configuration(0, 4);
            }
            assert!(after.iter().all(|&ns| ns > 0), "{after:?}");
            assert_eq!(os.call_driver(0, 0), 3);
            os.done(None);
        });
        assert_eq!(counter(&outcome, "nmi_injections"), u64::from(3 * (vcpus - 1)));
    }
}

#[test]
fn time_is_given_to_preempted_cpus_that_have_work_and_not_to_idle_ones() {
    // An idle vCPU has halted, which reads as preempted.
    let yields = |busy: bool, hogs| {
        let setup = Setup {
            hogs,
            host: VmConfig {
                pv_sched_yield: true,
                ..VmConfig::default()
            },
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, start| {
            if start.role == 1 {
                return os.user(60_000_000);
            }
            os.wait_for_cpus();
            os.begin();
            for argument in 0..if busy { 3 } else { 0 } {
                os.fork(Fork::Share, Start::new(1, argument));
            }
            for _ in 0..40 {
                os.user(500_000);
                os.call_cpus(Callees::Others, Function::default(), &mut Vec::new());
            }
            while os.wait().is_some() {}
            os.done(None);
        });
        counter(&outcome, "guest.pv_sched_yields")
    };
    assert_eq!(yields(false, 0), 0, "all others are idle");
    assert_eq!(yields(false, 4), 0, "all others are idle, next to another guest");
    assert_eq!(yields(true, 0), 0, "no other is preempted");
    assert!(yields(true, 4) > 3);
}
