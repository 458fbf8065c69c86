//! Spinning for a mutex whose owner runs: all waiters get it, and the time spent spinning depends on what the spinners
//! check.

use holdfast_guest::{Config, FileId, OwnerSpinning};
use holdfast_host::VmConfig;
use holdfast_locks::LockKind;
use holdfast_sim::Outcome;

use crate::machine::{Setup, lead, run};

/// Runs eight tasks that write one file. Its mutex is held for so long that vCPUs are preempted meanwhile.
fn writers(owner_spinning: OwnerSpinning, hogs: u32) -> Outcome {
    writers_offered(VmConfig::default(), owner_spinning, hogs)
}

fn writers_offered(host: VmConfig, owner_spinning: OwnerSpinning, hogs: u32) -> Outcome {
    let setup = Setup {
        host,
        pcpus: 2,
        vcpus: 4,
        hogs,
        kernel: Config {
            owner_spinning,
            // Its waiters do not spin for preempted vCPUs. The remaining waits are the mutex's.
            lock: LockKind::HybridPvQspin,
            ..Config::default()
        },
        ..Setup::default()
    };
    run(&setup, |os, start| {
        if start.role == 0 {
            return lead(os, 8);
        }
        for _ in 0..60 {
            os.write(FileId(3), 100);
            os.user(20_000);
        }
    })
}

/// Returns the kernel's time outside spinlocks, in picoseconds: the same work in each run, and spinning for the mutex.
fn busy(outcome: &Outcome) -> u64 {
    outcome.vms[0].lost_time_ps["useful"]
}

#[test]
fn every_writer_gets_its_turn_with_any_owner_spinning() {
    for owner_spinning in [
        OwnerSpinning::Everyone,
        OwnerSpinning::Queued,
        OwnerSpinning::PreemptionAware,
    ] {
        for hogs in [0, 4] {
            // The run ends only if `lead` has waited for all of them.
            writers(owner_spinning, hogs);
        }
    }
}

#[test]
fn who_does_not_look_at_the_preempted_flag_spins_for_owners_that_do_not_run() {
    for hogs in [2, 4] {
        let blind = busy(&writers(OwnerSpinning::Queued, hogs));
        let aware = busy(&writers(OwnerSpinning::PreemptionAware, hogs));
        assert!(
            aware * 5 < blind * 4,
            "with {hogs} hogs: {aware} ps busy if spinners check the preempted flag, {blind} ps if not"
        );
    }
}

#[test]
fn a_guest_that_is_offered_no_paravirtual_locks_does_not_look_at_the_flag() {
    let host = VmConfig {
        pv_unhalt: false,
        ..VmConfig::default()
    };
    let blind = writers_offered(host, OwnerSpinning::Queued, 2);
    let aware = writers_offered(host, OwnerSpinning::PreemptionAware, 2);
    assert_eq!(busy(&aware), busy(&blind));
}

#[test]
fn while_no_vcpu_is_preempted_the_flag_changes_nothing() {
    let busy = |owner_spinning| {
        let setup = Setup {
            kernel: Config {
                owner_spinning,
                lock: LockKind::HybridPvQspin,
                ..Config::default()
            },
            ..Setup::default()
        };
        let outcome = run(&setup, |os, start| {
            if start.role == 0 {
                return lead(os, 4);
            }
            for _ in 0..60 {
                os.write(FileId(3), 10);
                os.user(5_000);
            }
        });
        busy(&outcome)
    };
    let (blind, aware) = (busy(OwnerSpinning::Queued), busy(OwnerSpinning::PreemptionAware));
    assert!(blind.abs_diff(aware) < blind / 50, "{blind} and {aware} ps busy");
}
