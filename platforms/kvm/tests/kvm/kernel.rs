//! The guest kernel and its workloads, whose source does not know KVM.

use std::time::Duration;

use holdfast_kvm::{Feature, Options, Report, Task, Vm};
use holdfast_locks::LockKind;
use holdfast_workloads::{Aim7, Amqp, Boot, Contend, Kernbench, KernelConfig, Pgbench, Startup, Workload};

use crate::lost::run_again_if_lost;

fn boot(vcpus: u32, lock: LockKind, workload: Workload, change: impl FnOnce(Vm) -> Vm) -> Report {
    let boot = Boot {
        kernel: KernelConfig {
            lock,
            ..KernelConfig::default()
        },
        workload,
        ..Boot::default()
    };
    let task = Task::Kernel(boot);
    let shown = format!("{task:?}");
    run_again_if_lost(&[change(Vm::new("vm1", vcpus, task))], &Options::default())
        .unwrap_or_else(|error| panic!("{shown}: {error}"))
}

fn calls(calls: u64) -> Workload {
    Workload::Contend(Contend {
        calls,
        ..Contend::default()
    })
}

#[test]
#[ignore = "needs a real KVM"]
fn halts_that_are_passed_through_do_not_exit_and_withdraw_kicks() {
    let amqp = || {
        Workload::Amqp(Amqp {
            messages: 400,
            ..Amqp::default()
        })
    };
    let halts = |vm: &holdfast_kvm::VmReport| {
        println!("{:?} halt exits, {:?}", vm.stat("halt_exits"), vm.counters);
        vm.stat("halt_exits")
    };
    let report = boot(2, LockKind::PvQspin, amqp(), |vm| vm);
    assert!(halts(&report.vms[0]) > 0);
    match holdfast_kvm::Host::open().and_then(|host| host.passed_through()) {
        Ok(_) => {
            let report = boot(2, LockKind::PvQspin, amqp(), Vm::cpu_pm);
            assert_eq!(halts(&report.vms[0]), 0);
            assert!(report.vms[0].counters.contains_key("guest.lock.ttas"));
        }
        Err(error) => println!("SKIPPED: {error}"),
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn the_kernel_runs_on_every_lock_and_its_kicks_are_hypercalls() {
    for &lock in LockKind::ALL {
        let report = boot(4, lock, calls(1_500), |vm| {
            // Other hypercalls would be counted too.
            vm.without(Feature::PvSchedYield)
                .without(Feature::PvSendIpi)
                .without(Feature::PvTlbFlush)
        });
        let vm = &report.vms[0];
        assert_eq!(vm.operations, Some(1_500), "{lock}");
        assert!(
            vm.counters.contains_key(&format!("guest.lock.{lock}")),
            "{lock}: {:?}",
            vm.counters
        );
        let kicks = vm.counters.get("guest.kicks").copied().unwrap_or(0);
        println!(
            "{lock}: {:?} ns, {kicks} kicks, {} hypercalls",
            vm.elapsed_ns,
            vm.stat("hypercalls")
        );
        // The guest may kick after its report.
        assert!(vm.stat("hypercalls") >= kicks, "{lock}");
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn counts_of_guest_and_host_begin_again_at_the_given_moment() {
    let run = |zero_at: Option<Duration>| {
        let task = Task::Kernel(Boot {
            workload: Workload::Contend(Contend {
                span_ns: Some(2_000_000_000),
                ..Contend::default()
            }),
            ..Boot::default()
        });
        let options = Options {
            zero_at,
            ..Options::default()
        };
        let report = run_again_if_lost(&[Vm::new("vm1", 2, task)], &options).unwrap_or_else(|error| panic!("{error}"));
        let vm = report.vms.into_iter().next().expect("one vm");
        let calls = vm.counters["guest.syscalls"];
        let (exits, operations) = (vm.stat("exits"), vm.operations.expect("calls are counted"));
        println!(
            "zeroed at {:?}: {calls} system calls, {operations} operations, {exits} exits, boot {:?}",
            vm.zeroed_ns, vm.boot
        );
        (vm.zeroed_ns, calls, operations, exits)
    };
    // All counts begin before any call, in the midst of the calls, and never.
    let (whole, boot) = (run(None), run(Some(Duration::ZERO)));
    assert_eq!(whole.0, None);
    for (zeroed, calls, operations, exits) in [whole, boot] {
        assert!(calls >= operations && exits > 0, "{zeroed:?}: {calls} of {operations}");
    }
    assert!(boot.0.is_some());
    let (zeroed, calls, operations, exits) = run(Some(Duration::from_millis(1_500)));
    assert!(zeroed.is_some_and(|ns| ns > 100_000_000), "{zeroed:?}");
    // A busy host may give the guest most of its time at the end.
    assert!(calls > 0 && calls < operations, "{calls} of {operations}");
    assert!(exits > 0 && exits < whole.3, "{exits} of {}", whole.3);
    let never = run(Some(Duration::MAX));
    assert_eq!(never.0, None);
    assert!(never.1 >= never.2);
}

#[test]
#[ignore = "needs a real KVM"]
fn every_workload_runs_to_its_end() {
    let workloads = [
        Workload::Kernbench(Kernbench {
            scale: 0.001,
            ..Kernbench::default()
        }),
        Workload::Pgbench(Pgbench {
            clients: 4,
            transactions: 100,
        }),
        Workload::Aim7(Aim7 {
            users: 4,
            jobs: 2,
            ..Aim7::default()
        }),
        Workload::Amqp(Amqp {
            messages: 200,
            ..Amqp::default()
        }),
        Workload::Startup(Startup::default()),
    ];
    for workload in workloads {
        let shown = format!("{workload:?}");
        let report = boot(2, LockKind::PvQspin, workload, |vm| vm);
        println!("{shown}: {:?} ns", report.vms[0].elapsed_ns);
        assert!(report.vms[0].elapsed_ns.is_some_and(|ns| ns > 0), "{shown}");
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn memory_mapped_apics_do_where_x2apic_is_withheld() {
    let report = boot(2, LockKind::PvTicket, calls(500), |vm| vm.without(Feature::X2apic));
    assert_eq!(report.vms[0].operations, Some(500));
}

#[test]
#[ignore = "needs a real KVM"]
fn a_guest_finds_its_numa_nodes_and_runs_at_its_nice_level() {
    let report = boot(4, LockKind::Qspin, calls(1_500), |vm| {
        vm.nice(5).proximity_domains(vec![0, 0, 7, 7])
    });
    let vm = &report.vms[0];
    assert_eq!(vm.operations, Some(1_500));
    assert_eq!(vm.counters.get("guest.numa_nodes"), Some(&2), "{:?}", vm.counters);
}

#[test]
#[ignore = "needs a real KVM"]
fn waiters_that_halt_behind_preempted_vcpus_are_all_woken() {
    let boot = Boot {
        kernel: KernelConfig {
            lock: LockKind::PvQspin,
            ..KernelConfig::default()
        },
        wait_early_preempted: true,
        workload: calls(1_500),
        ..Boot::default()
    };
    let vm = Vm::new("vm1", 6, Task::Kernel(boot)).pinned((0..6).map(|vcpu| vec![vcpu % 2]).collect());
    let report = run_again_if_lost(&[vm], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.vms[0].operations, Some(1_500));
}
