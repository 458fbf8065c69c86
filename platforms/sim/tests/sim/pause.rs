//! Effect of pause exits on guests that spin: mechanisms, not figures.

use std::rc::Rc;

use holdfast_guest::Cpu;
use holdfast_host::{PauseControls, PauseExit, PauseHandling};
use holdfast_locks::{BootLock, LockKind, Platform};
use holdfast_machine::{PauseHardware, Picos};
use holdfast_sim::{Config, Outcome, SimCpu, SimWord};

use crate::image::{Program, Random, config, profile, run_program};

/// All vCPUs take one lock in turn, `rounds` times each, for `held_ns` at a time.
fn contend(config: &Config, kind: LockKind, rounds: u32, held_ns: u64, away_ns: u64) -> Outcome {
    let lock = Rc::new(BootLock::<SimWord>::new());
    let seed = config.seed;
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        let mut random = Random(seed ^ u64::from(cpu.cpu().0) << 32);
        for _ in 0..rounds {
            lock.lock(kind, cpu);
            cpu.lock_acquired(lock.word());
            cpu.compute(held_ns);
            cpu.lock_released(lock.word());
            lock.unlock(kind, cpu);
            cpu.compute(random.next(2 * away_ns));
        }
    });
    let nothing: Program = Rc::new(|_: &SimCpu| {});
    run_program(config, &program, &nothing, 0).unwrap_or_else(|failure| panic!("{failure}"))
}

/// A guest on a machine with pause-loop exiting.
fn machine(pcpus: u32, vcpus: u32, hogs: u32, seed: u64, pause: PauseHandling) -> Config {
    let mut config = config(pcpus, vcpus, hogs, seed);
    config.machine = profile(pcpus, Some(PauseHardware::Ple));
    config.host.pause = pause;
    config
}

fn elapsed(outcome: &Outcome) -> u64 {
    outcome.vms[0].elapsed_ns.expect("the guest is measured")
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.vms[0].counters.get(name).copied().unwrap_or_default()
}

/// A large guest whose vCPUs all take the same lock, as they do while they come up, each with a pCPU of its own. Its
/// sections are longer than the window, so that every waiter exits, sleeps, and the lock is handed to sleepers.
#[test]
fn sleeping_on_each_pause_exit_stops_a_large_guest() {
    let boot = |pause| {
        let outcome = contend(&machine(32, 32, 0, 1, pause), LockKind::Ticket, 40, 3_000, 2_000);
        (elapsed(&outcome), counter(&outcome, "pause_exits"))
    };
    let (none, _) = boot(PauseHandling::NONE);
    let (sleep, exits) = boot(PauseHandling::SLEEP_2010);
    let (directed, _) = boot(PauseHandling::DIRECTED_YIELD_2011);
    assert!(exits > 1_000, "{exits}");
    assert!(sleep > 5 * none, "sleeping takes {sleep} ns, spinning {none} ns");
    assert!(
        directed < 2 * none,
        "yielding to nobody takes {directed} ns, spinning {none} ns"
    );
}

/// Twice as many threads as pCPUs. The other threads come and go, so that vCPUs are not preempted all at once.
#[test]
fn directed_yield_dissolves_convoys_of_ticket_locks_under_overcommit() {
    let total = |pause| {
        let (mut sum, mut reached) = (0, 0);
        for seed in 1..=2 {
            let outcome = contend(&machine(8, 8, 8, seed, pause), LockKind::Ticket, 1_000, 2_000, 40_000);
            sum += elapsed(&outcome);
            let counters = ["directed_yield_to_holder", "directed_yield_to_next_waiter"];
            reached += counters.map(|name| counter(&outcome, name)).iter().sum::<u64>();
        }
        (sum, reached)
    };
    let (none, _) = total(PauseHandling::NONE);
    for (name, pause) in PauseHandling::PRESETS {
        if pause.exit != PauseExit::DirectedYield {
            continue;
        }
        let (directed, reached) = total(pause);
        assert!(reached > 0, "{name}");
        assert!(
            2 * directed < none,
            "{directed} ns with the directed yield of {name}, {none} ns without"
        );
    }
}

/// Only AMD's filter counts PAUSEs in user mode.
#[test]
fn amd_sees_pause_loops_in_user_mode() {
    let exits = |hardware, controls| {
        let mut config = machine(2, 2, 0, 1, PauseHandling::DIRECTED_YIELD_2011);
        config.machine = profile(2, Some(hardware));
        config.host.pause_controls = controls;
        let program: Program = Rc::new(|cpu: &SimCpu| {
            cpu.executing(holdfast_guest::Mode::User);
            for _ in 0..20_000 {
                cpu.relax();
            }
            cpu.executing(holdfast_guest::Mode::Kernel);
        });
        let nothing: Program = Rc::new(|_: &SimCpu| {});
        let outcome = run_program(&config, &program, &nothing, 0).unwrap_or_else(|failure| panic!("{failure}"));
        counter(&outcome, "pause_exits")
    };
    assert_eq!(exits(PauseHardware::Ple, PauseControls::INTEL), 0);
    assert!(exits(PauseHardware::Filter, PauseControls::AMD) >= 12);
    // The other vendor's fields have no effect.
    assert_eq!(exits(PauseHardware::Filter, PauseControls::INTEL), 0);
}

/// From Skylake on PAUSE takes longer than KVM's gap.
#[test]
fn a_long_pause_does_not_hide_its_loop() {
    let mut config = machine(4, 4, 0, 1, PauseHandling::DIRECTED_YIELD_2011);
    config.machine.costs.pause = Picos::from_cycles(140, config.machine.frequency_hz);
    let outcome = contend(&config, LockKind::Ticket, 100, 5_000, 5_000);
    assert!(counter(&outcome, "pause_exits") > 50);
}
