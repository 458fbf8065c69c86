//! Two threads of a core: each computes more slowly while the other one does something.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};

use holdfast_guest::Cpu;
use holdfast_locks::{Budget, LockKind, Paravirt, Platform, Word};
use holdfast_machine::{Picos, Topology};
use holdfast_sim::{Config, SimCpu, SimWord};

use crate::exactness;
use crate::image::{Program, config, run_program};

/// Length of the measured computing.
const COMPUTED_NS: u64 = 10_000_000;

/// What the other thread of the core does until the measured computing is over.
#[derive(Clone, Copy, Debug)]
enum Other {
    Halts,
    Pauses,
    Computes,
    /// Computes for a tenth of [`COMPUTED_NS`], then halts.
    ComputesBriefly,
}

/// Two vCPUs, pinned to the first two pCPUs of a machine with `threads` per core.
fn pinned(threads: u32) -> Config {
    let mut config = config(4, 2, 0, 1);
    config.machine.topology = Topology {
        sockets: 1,
        cores: 4 / threads,
        threads,
    };
    config.vms[0].affinity = vec![vec![0], vec![1]];
    config
}

/// Nanoseconds that vCPU 0 needs for [`COMPUTED_NS`] while vCPU 1 is the `other`.
fn computing_ns(config: &Config, other: Other) -> u64 {
    let over = Rc::new(SimWord::new(0));
    let taken = Rc::new(Cell::new(0));
    let took = taken.clone();
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        if cpu.cpu().0 == 0 {
            // The other vCPU has begun.
            cpu.compute(100_000);
            let begun = cpu.now_ns();
            cpu.compute(COMPUTED_NS);
            took.set(cpu.now_ns() - begun);
            return cpu.store(&*over, 1, Release);
        }
        match other {
            Other::Halts => {}
            Other::Pauses => {
                let waited = cpu.wait_until(&*over, Budget::UNBOUNDED, Acquire, |value| value == 1);
                assert_eq!(waited, Ok(1));
            }
            Other::Computes => {
                while cpu.load(&*over, Acquire) == 0 {
                    cpu.compute(1_000);
                }
            }
            Other::ComputesBriefly => cpu.compute(COMPUTED_NS / 10),
        }
    });
    run_program(config, &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0)
        .unwrap_or_else(|failure| panic!("{other:?}: {failure}"));
    taken.get()
}

/// How much longer than [`COMPUTED_NS`] it takes next to `other`, in percent.
fn percent_longer(config: &Config, other: Other) -> u64 {
    let more = computing_ns(config, other) - computing_ns(config, Other::Halts);
    (100 * more + COMPUTED_NS / 2) / COMPUTED_NS
}

#[test]
fn a_sibling_takes_by_what_it_does() {
    let config = pinned(2);
    // The costs of the machine are 700 ns and 100 ns for each microsecond.
    assert_eq!(percent_longer(&config, Other::Computes), 70);
    assert_eq!(percent_longer(&config, Other::Pauses), 10);
    // The other vCPU began first, and is slowed down itself: it computes for a tenth times 1.7, less 0.1 ms.
    let brief = percent_longer(&config, Other::ComputesBriefly);
    assert!((6..=7).contains(&brief), "{brief} %");
}

#[test]
fn an_idle_sibling_and_another_core_cost_nothing() {
    let alone = computing_ns(&pinned(1), Other::Halts);
    assert_eq!(computing_ns(&pinned(2), Other::Halts), alone);
    assert_eq!(percent_longer(&pinned(1), Other::Computes), 0);
    assert_eq!(percent_longer(&pinned(1), Other::Pauses), 0);
}

#[test]
fn dearer_siblings_never_make_computing_faster() {
    for other in [Other::Pauses, Other::Computes] {
        let taken = [0, 100, 400, 900].map(|more| {
            let mut config = pinned(2);
            config.machine.costs.smt_pausing = Picos::from_nanos(more);
            config.machine.costs.smt_computing = Picos::from_nanos(more);
            computing_ns(&config, other)
        });
        assert!(taken.is_sorted_by(|a, b| a < b), "{other:?}: {taken:?}");
    }
}

#[test]
fn without_siblings_their_costs_change_no_history() {
    let play = |threads: u32, more: u64| {
        let mut config = pinned(threads);
        config.vms[0].affinity = Vec::new();
        config.machine.costs.smt_computing = Picos::from_nanos(more);
        config.machine.costs.smt_pausing = Picos::from_nanos(more);
        let (program, on_timer) = exactness::program(LockKind::PvTicket, 3, 300);
        run_program(&config, &program, &on_timer, 700_000).unwrap_or_else(|failure| panic!("{failure}"))
    };
    assert_eq!(play(1, 0).history_hash, play(1, 900).history_hash);
    assert_ne!(play(2, 0).history_hash, play(2, 900).history_hash);
}
