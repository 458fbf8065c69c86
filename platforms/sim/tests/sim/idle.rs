//! How idle vCPUs wait: by HLT, in a loop, or by MWAIT on a host that does not intercept it.

use std::collections::BTreeMap;

use holdfast_locks::LockKind;
use holdfast_machine::{IdleState, PauseHardware, Picos};
use holdfast_sim::{CallOff, Config, Outcome, run};
use holdfast_workloads::{Amqp, Boot, Idle, Pgbench, Workload};

use crate::image::{config, profile};

/// Threads that wake each other, in a guest with a pCPU for each vCPU.
fn messages(idle: Idle, cpu_pm: bool) -> Config {
    let mut config = config(4, 4, 0, 1);
    config.machine = profile(4, None);
    let vm = &mut config.vms[0];
    vm.host.cpu_pm = cpu_pm;
    vm.boot = Boot {
        workload: Workload::Amqp(Amqp {
            messages: 3_000,
            ..Amqp::default()
        }),
        ..Boot::default()
    };
    vm.boot.kernel.idle = idle;
    config
}

/// Two clients of a database and their backends, which sleep in turn.
fn queries(idle: Idle, cpu_pm: bool) -> Config {
    let mut config = messages(idle, cpu_pm);
    config.vms[0].boot.workload = Workload::Pgbench(Pgbench {
        clients: 2,
        transactions: 100,
    });
    config
}

fn play(config: &Config) -> Outcome {
    run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"))
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    let counters: &BTreeMap<String, u64> = &outcome.vms[0].counters;
    counters.get(name).copied().unwrap_or(0)
}

fn elapsed_ns(outcome: &Outcome) -> u64 {
    outcome.vms[0].elapsed_ns.expect("it ends")
}

#[test]
fn an_idle_vcpu_that_polls_never_halts_and_needs_no_ipi() {
    // With a shared cache, wakeups go to idle vCPUs.
    let spread = |idle| {
        let mut config = queries(idle, false);
        config.vms[0].boot.kernel.shared_cache = true;
        play(&config)
    };
    let [halting, polling] = [Idle::Halt, Idle::Poll].map(spread);
    assert!(counter(&halting, "guest.idle_halts") > 10);
    assert_eq!(counter(&polling, "guest.idle_halts"), 0);
    assert!(counter(&halting, "halt_exits") > 10);
    assert_eq!(counter(&polling, "halt_exits"), 0);
    let [halt_ipis, poll_ipis] = [&halting, &polling].map(|outcome| counter(outcome, "guest.reschedule_ipis"));
    // What is left preempts tasks that run.
    assert!(4 * poll_ipis < halt_ipis, "{poll_ipis} instead of {halt_ipis}");
    assert!(elapsed_ns(&polling) < elapsed_ns(&halting));
    // A pause loop is a pause loop.
    let exits = |idle| {
        let mut config = queries(idle, false);
        config.machine = profile(4, Some(PauseHardware::Ple));
        counter(&play(&config), "pause_exits")
    };
    assert!(exits(Idle::Poll) > 100 * exits(Idle::Halt).max(1));
}

#[test]
fn a_vcpu_with_mwait_idles_without_exits_and_its_pause_loops_are_not_seen() {
    let mut config = queries(Idle::Halt, true);
    config.machine = profile(4, Some(PauseHardware::Ple));
    let outcome = play(&config);
    for exits in ["halt_exits", "pause_exits"] {
        assert_eq!(counter(&outcome, exits), 0, "{exits}");
    }
    assert!(counter(&outcome, "guest.idle_halts") > 10, "it idles by MWAIT");
    assert!(outcome.vms[0].lost_time_ps["idle"] > 0);
    // A pCPU that sleeps deeper wakes later.
    let taken = [1, 50, 500].map(|us| {
        config.machine.idle_states = vec![IdleState {
            exit: Picos::from_nanos(us * 1_000),
            residency: Picos::ZERO,
        }];
        elapsed_ns(&play(&config))
    });
    assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
}

#[test]
fn passing_hlt_through_withdraws_paravirtual_locks() {
    let lock = |cpu_pm, realtime| {
        let mut config = messages(Idle::Halt, cpu_pm);
        config.vms[0].boot.kernel.lock = LockKind::PvQspin;
        config.vms[0].host.realtime_hint = realtime;
        let outcome = play(&config);
        let counters = &outcome.vms[0].counters;
        let name = counters.keys().find_map(|name| name.strip_prefix("guest.lock."));
        name.expect("a kernel has a lock").to_owned()
    };
    assert_eq!(lock(false, false), "pv-qspin");
    // `kvm_spinlock_init` looks for PV_UNHALT first, so that the hint does not help.
    assert_eq!(lock(true, false), "ttas");
    assert_eq!(lock(true, true), "ttas");
}

#[test]
fn polling_takes_the_pcpu_from_another_guest() {
    let neighbor = |idle| {
        let mut config = messages(idle, false);
        config.vms.push(messages(Idle::Halt, false).vms.remove(0));
        config.vms[1].name = "other".to_owned();
        // The first guest is idle for good.
        config.vms[0].boot.workload = Workload::Idle;
        config.vms[0].measured = false;
        let outcome = play(&config);
        outcome.vms[1].elapsed_ns.expect("it ends")
    };
    assert!(neighbor(Idle::Poll) > neighbor(Idle::Halt) * 3 / 2);
}
