//! Migration to new VMs of the same host, and the kicks that are latched meanwhile.

use std::time::Duration;

use holdfast_kvm::{Contention, Error, Feature, Host, Migration, Options, Task, Vm, VmReport, run};
use holdfast_locks::LockKind;
use holdfast_workloads::{Boot, Contend, KernelConfig, Workload};

use crate::lost::run_again_if_lost;

/// Migrations at an interval that is longer than a time slice of the host.
const OFTEN: Migration = Migration {
    every: Duration::from_millis(30),
    downtime: Duration::ZERO,
    mp_state_only: false,
};

/// Four vCPUs on two CPUs that halt soon when they wait. Nothing but a kick wakes them: they have no timer.
fn halting(lock: LockKind) -> Vm {
    let contention = Contention {
        lock,
        duration_ns: 1_500_000_000,
        spin_threshold: 64,
        hold_ns: 2_000,
        ..Contention::default()
    };
    Vm::new("vm1", 4, Task::Contention(contention)).pinned((0..4).map(|vcpu| vec![vcpu % 2]).collect())
}

fn options(migration: Migration, limit: Duration) -> Options<'static> {
    Options {
        limit,
        migration: Some(migration),
        ..Options::default()
    }
}

fn migrated(vm: Vm, migration: Migration) -> VmReport {
    let options = options(migration, Duration::from_secs(60));
    let report = run_again_if_lost(&[vm], &options).unwrap_or_else(|error| panic!("{error}"));
    let vm = report.vms.into_iter().next().expect("one vm");
    assert!(vm.migrations > 0);
    println!(
        "{} migrations, {} latched kicks arrived, {} lost; {} halts in all VMs",
        vm.migrations,
        vm.migrated_kicks,
        vm.lost_kicks,
        vm.stat("halt_exits")
    );
    vm
}

#[test]
#[ignore = "needs a real KVM"]
fn every_lock_that_halts_survives_migrations_and_no_kick_is_lost() {
    for &lock in LockKind::ALL.iter().filter(|lock| lock.halts()) {
        let vm = migrated(halting(lock), OFTEN);
        println!("{lock}: {} acquisitions", vm.acquisitions());
        // The guest itself checks that the lock excludes.
        assert!(vm.acquisitions() > 0, "{lock}");
        assert_eq!(vm.lost_kicks, 0, "{lock}");
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn a_latched_kick_arrives_and_with_mp_state_alone_it_does_not() {
    let host = Host::open().unwrap_or_else(|error| panic!("{error}"));
    let arrives = |mp_state_only| {
        host.migrates_kick(mp_state_only)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let (whole, alone) = (arrives(false), arrives(true));
    println!("a kick before the halt arrives: {whole}; with MP_STATE alone: {alone}");
    assert!(whole && !alone);
}

#[test]
#[ignore = "needs a real KVM"]
fn guests_run_on_until_a_kick_is_lost() {
    let alone = Migration {
        mp_state_only: true,
        ..OFTEN
    };
    match run(&[halting(LockKind::PvTicket)], &options(alone, Duration::from_secs(20))) {
        Ok(report) => {
            let vm = &report.vms[0];
            println!("{} of {} migrations lost a kick", vm.lost_kicks, vm.migrations);
            assert!(vm.migrations > 0 && vm.migrated_kicks == 0);
        }
        // The waiter whose kick was lost sleeps, and the others wait for its turn.
        Err(error @ Error::Hang { .. }) => println!("{error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn kernels_keep_their_timers_interrupts_and_paravirtual_features() {
    let boot = |lock| Boot {
        kernel: KernelConfig {
            lock,
            ..KernelConfig::default()
        },
        workload: Workload::Contend(Contend {
            calls: 1_000,
            ..Contend::default()
        }),
        ..Boot::default()
    };
    let vm = |lock| Vm::new("vm1", 4, Task::Kernel(boot(lock)));
    for vm in [
        vm(LockKind::PvQspin),
        vm(LockKind::PvTicket),
        vm(LockKind::Ttas).without(Feature::X2apic),
    ] {
        let report = migrated(vm, OFTEN);
        assert_eq!(report.operations, Some(1_000));
        assert!(report.stat("exits") > 0);
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn a_guest_notices_the_time_for_which_it_was_stopped() {
    let migration = Migration {
        every: Duration::from_millis(200),
        downtime: Duration::from_millis(700),
        ..OFTEN
    };
    let vm = migrated(halting(LockKind::Ttas), migration);
    // The interval of 1.5 s is of the guest's own clock.
    assert!((1..=3).contains(&vm.migrations), "{}", vm.migrations);
    assert!(
        vm.elapsed_ns.is_some_and(|ns| ns >= 1_500_000_000),
        "{:?}",
        vm.elapsed_ns
    );
}
