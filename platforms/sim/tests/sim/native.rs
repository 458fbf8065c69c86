//! A bare-metal kernel, next to a guest that runs the same workload.

use holdfast_host::AvicEnable;
use holdfast_locks::LockKind;
use holdfast_machine::{AvicModel, Picos};
use holdfast_sim::{CallOff, Config, Failure, Outcome, Vm, run};
use holdfast_workloads::{Boot, Kernbench, KernelConfig, Workload};

use crate::image::{coarsen, config};

const PCPUS: u32 = 4;

/// Two builds at the same time: one on bare metal, one in a guest.
fn both(seed: u64) -> Config {
    let mut config = config(PCPUS, PCPUS, 0, seed);
    if seed % 2 == 1 {
        // Events of equal times can hide faults: make many.
        coarsen(&mut config.machine.costs);
    }
    let build = Kernbench {
        jobs: 6,
        scale: 0.004,
        user_cpu_seconds: 100.0,
        ..Kernbench::default()
    };
    let boot = Boot {
        kernel: KernelConfig {
            lock: LockKind::PvQspin,
            ..KernelConfig::default()
        },
        workload: Workload::Kernbench(build),
        ..Boot::default()
    };
    config.vms[0].boot = boot;
    let bare = Vm {
        name: "bare".into(),
        bare_metal: true,
        ..config.vms[0].clone()
    };
    config.vms.insert(0, bare);
    config
}

fn play(config: &Config) -> Outcome {
    run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("seed {}: {failure}", config.seed))
}

#[test]
fn skipped_spins_are_executed_spins_bit_for_bit() {
    for seed in 0..4 {
        let mut config = both(seed);
        let skipped = play(&config);
        config.execute_spins = true;
        let executed = play(&config);
        assert_eq!(skipped.history_hash, executed.history_hash, "seed {seed}");
        for (one, other) in skipped.vms.iter().zip(&executed.vms) {
            assert_eq!(one.lost_time_ps, other.lost_time_ps, "seed {seed}");
        }
    }
}

#[test]
fn parts_of_lost_time_sum_to_the_whole_and_pcpus_are_not_shared_out_twice() {
    for seed in 0..4 {
        let outcome = play(&both(seed));
        let mut cpu_time = 0;
        for vm in &outcome.vms {
            assert_eq!(vm.lost_time_ps.values().sum::<u64>(), vm.vcpu_time_ps, "{}", vm.name);
            cpu_time += vm.counters["cpu_time_ns"];
        }
        // A guest's time ends with its workload, and the run with the last of them.
        let longest = outcome.vms.iter().map(|vm| vm.vcpu_time_ps).max().expect("two guests");
        assert_eq!(longest / u64::from(PCPUS) / 1000, outcome.end_ns);
        assert!(cpu_time <= outcome.end_ns * u64::from(PCPUS));
        let busy = cpu_time as f64 / (outcome.end_ns * u64::from(PCPUS)) as f64;
        assert!(busy > 0.5, "two builds leave the machine idle: {busy}");
    }
}

#[test]
fn kernel_code_keeps_its_pcpu() {
    for seed in 0..4 {
        let outcome = play(&both(seed));
        let bare = &outcome.vms[0];
        assert_eq!(bare.counters["preempted_holding_lock"], 0);
        assert_eq!(bare.counters["preempted_waiting_for_lock"], 0);
        for cause in ["spin_preempted_holder", "spin_preempted_waiter", "halted_for_lock"] {
            assert_eq!(bare.lost_time_ps[cause], 0, "{cause}");
        }
        let exits = bare.lost_time_ps.iter().filter(|(cause, _)| cause.starts_with("exit"));
        assert_eq!(exits.map(|(_, time)| time).sum::<u64>(), 0, "nothing to exit from");
        assert_eq!(
            bare.counters["guest.lock.qspin"], 1,
            "no hypervisor beneath: no paravirtual lock"
        );
    }
}

#[test]
fn both_kernels_do_the_same_work() {
    let outcome = play(&both(1));
    for name in ["guest.forks", "guest.execs"] {
        assert_eq!(outcome.vms[0].counters[name], outcome.vms[1].counters[name], "{name}");
    }
    let calls: u64 = outcome.vms.iter().map(|vm| vm.counters["guest.shootdowns"]).sum();
    assert!(calls > 0, "nobody was called");
}

#[test]
fn a_kernel_on_the_machine_itself_uses_no_apic_virtualization() {
    let mut config = both(0);
    let without = play(&config).history_hash;
    config.machine.avic = Some(crate::avic::part());
    config.machine.apicv = Some(crate::apicv::part(true));
    assert_eq!(play(&config).history_hash, without, "no host here uses either");
}

#[test]
fn what_was_meant_for_a_vcpu_does_nothing_to_a_kernel_that_has_its_pcpu_by_then() {
    for seed in 0..6 {
        for avic in [false, true] {
            let mut config = both(seed);
            // The IPI is on its way long enough for a switch in between.
            let latency = Picos::from_nanos(20_000);
            config.machine.costs.ipi_latency = latency;
            if avic {
                config.machine.avic = Some(AvicModel {
                    doorbell_latency: latency,
                    ..crate::avic::part()
                });
                config.host.avic.enable = AvicEnable::On;
            } else {
                config.machine.apicv = Some(crate::apicv::part(true));
                config.host.apicv.enable = true;
            }
            play(&config);
        }
    }
}

#[test]
fn one_kernel_has_the_machine() {
    let mut config = both(0);
    config.vms[1].bare_metal = true;
    let failure = run(&config, &CallOff::new()).expect_err("two kernels on one machine");
    assert!(matches!(failure, Failure::Invalid(_)), "{failure}");
}
