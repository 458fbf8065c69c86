//! CPUs are taken out of service and started again: no task, timer or call is lost.

use std::cell::RefCell;
use std::rc::Rc;

use holdfast_guest::{Callees, Fork, Function, Start, Touch};
use holdfast_host::VmConfig;
use holdfast_locks::CpuId;

use crate::machine::{Setup, counter, run};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;
/// INIT, its end and the first SIPI take this time (`guest/src/costs.rs`).
const START_NS: u64 = 10 * MS;

fn setup(vcpus: u32) -> Setup {
    Setup {
        pcpus: vcpus,
        vcpus,
        host: VmConfig {
            waits_for_sipi: true,
            ..VmConfig::default()
        },
        ..Setup::default()
    }
}

#[test]
fn whatever_a_cpu_had_goes_on_elsewhere() {
    const SLEEPERS: u32 = 6;
    const SLEEP: u64 = 3 * MS;
    for hogs in [0, 3] {
        let late = Rc::new(RefCell::new(Vec::new()));
        let noted = late.clone();
        let setup = Setup { hogs, ..setup(4) };
        let outcome = run(&setup, move |os, start| match (start.role, start.argument) {
            (0, _) => {
                os.wait_for_cpus();
                os.begin();
                for argument in 0..SLEEPERS + 2 {
                    os.fork(Fork::Share, Start::new(1, argument));
                }
                let mut after = Vec::new();
                for round in 0..9 {
                    let target = 1 + round % 3;
                    if os.cpu().0 == target {
                        os.sleep(MS);
                        continue;
                    }
                    os.replug(CpuId(target), false, &mut after);
                    os.call_cpus(Callees::Others, Function::default(), &mut Vec::new());
                    os.user(2 * MS);
                }
                assert!(after.len() > 3);
                assert!(
                    after.iter().all(|ns| (START_NS..3 * START_NS).contains(ns)),
                    "{after:?}"
                );
                while os.wait().is_some() {}
                os.done(None);
            }
            (_, 0..SLEEPERS) => {
                for _ in 0..40 {
                    let before = os.now();
                    os.sleep(SLEEP);
                    let slept = os.now() - before;
                    assert!(slept >= SLEEP, "{slept} ns");
                    noted.borrow_mut().push(slept - SLEEP);
                }
            }
            _ => {
                for _ in 0..100 {
                    os.user_touching(MS, Touch::anonymous(4));
                    os.discard(4);
                }
            }
        });
        let late = late.borrow();
        assert_eq!(late.len() as u32, 40 * SLEEPERS);
        // The plugger does not give its CPU up while it starts one, and takes over the sleepers.
        let worst = late.iter().max().expect("sleeps");
        assert!(hogs > 0 || *worst < 2 * START_NS, "{worst} ns late");
        assert!(counter(&outcome, "init_received") > 3 + 3);
    }
}

#[test]
fn sleepers_of_a_cpu_that_leaves_wake_in_time_elsewhere() {
    // Sleepers on all CPUs have timers before and after a tick. Two of the CPUs leave meanwhile.
    let woken = Rc::new(RefCell::new(Vec::new()));
    let noted = woken.clone();
    const AT: u64 = 200 * MS;
    run(&setup(4), move |os, start| match start.role {
        0 => {
            os.wait_for_cpus();
            os.begin();
            for argument in 0..4 {
                os.fork(Fork::Share, Start::new(1, argument));
                os.user(MS / 10);
            }
            os.sleep(AT - 2 * MS - os.now());
            let mut after = Vec::new();
            for cpu in [1, 2] {
                if os.cpu().0 != cpu {
                    os.replug(CpuId(cpu), false, &mut after);
                }
            }
            while os.wait().is_some() {}
            os.done(None);
        }
        _ => {
            let at = AT + u64::from(4 - start.argument) * 300_000;
            os.sleep(at - os.now());
            noted.borrow_mut().push((start.argument, os.now() - at));
        }
    });
    let woken = woken.borrow();
    assert_eq!(woken.len(), 4);
    // A task that wakes on the plugger's CPU waits there until another CPU balances.
    assert!(woken.iter().all(|(_, late)| *late < MS), "{woken:?}");
}

#[test]
fn a_cpu_that_leaves_hands_on_the_time_of_day() {
    // CPUs 1 to 3 compute. While CPU 0 is idle, one of them becomes the one that keeps the time. They leave in turn.
    let outcome = run(&setup(4), |os, start| match start.role {
        0 => {
            os.wait_for_cpus();
            os.begin();
            for argument in 0..3 {
                os.fork(Fork::Share, Start::new(1, argument));
            }
            let mut after = Vec::new();
            for target in 1..4 {
                os.sleep(20 * MS);
                assert_eq!(os.cpu().0, 0);
                os.replug(CpuId(target), false, &mut after);
            }
            os.done(None);
        }
        _ => os.user(200 * MS),
    });
    // CPU 0 keeps the time until all CPUs have started, mostly with interrupts masked.
    let (elapsed, kept) = (
        outcome.vms[0].elapsed_ns.expect("measured") / MS,
        counter(&outcome, "lock.xtime.acquired"),
    );
    assert!(
        (elapsed - 4..elapsed + 8).contains(&kept),
        "{kept} ticks in {elapsed} ms"
    );
}
