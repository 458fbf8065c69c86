//! Contending tasks of the guest kernel: every lock serves them all.

use holdfast_locks::LockKind;
use holdfast_sim::{CallOff, Outcome, run};
use holdfast_workloads::{Contend, Workload};

use crate::image::config;

fn play(kind: LockKind, seed: u64) -> Outcome {
    let mut config = config(2, 4, 1, seed);
    let boot = &mut config.vms[0].boot;
    boot.kernel.lock = kind;
    boot.workload = Workload::Contend(Contend {
        tasks: Some(6),
        calls: 500,
        ..Contend::default()
    });
    run(&config, &CallOff::new()).unwrap_or_else(|failure| panic!("{kind} seed {seed}: {failure}"))
}

/// The workload itself asserts that the driver counted as many calls as were begun.
#[test]
fn no_call_is_lost_whatever_the_lock() {
    for kind in crate::all_locks() {
        for seed in 0..3 {
            assert_eq!(play(kind, seed).vms[0].operations, Some(500), "{kind}");
        }
    }
}

#[test]
fn equal_seeds_contend_equally() {
    let hash = |seed| play(LockKind::PvQspin, seed).history_hash;
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}

#[test]
fn a_span_ends_the_run_and_every_call_that_was_begun_counts() {
    // As many pCPUs as vCPUs: the throughput of a collapsed lock cannot be predicted.
    let spanned = |kind, span_ns| {
        let mut config = config(2, 2, 1, 3);
        let boot = &mut config.vms[0].boot;
        boot.kernel.lock = kind;
        boot.workload = Workload::Contend(Contend {
            span_ns: Some(span_ns),
            ..Contend::default()
        });
        let outcome = run(&config, &CallOff::new()).unwrap_or_else(|failure| panic!("{kind}: {failure}"));
        let vm = &outcome.vms[0];
        (vm.operations.unwrap_or(0), vm.elapsed_ns.unwrap_or(0))
    };
    for kind in [LockKind::Ticket, LockKind::PvQspin] {
        let (calls, elapsed_ns) = spanned(kind, 40_000_000);
        assert!(elapsed_ns >= 40_000_000, "{kind}: {elapsed_ns} ns");
        assert!(elapsed_ns < 60_000_000, "{kind}: {elapsed_ns} ns");
        let (more, _) = spanned(kind, 160_000_000);
        assert!(
            calls > 0 && more > 2 * calls,
            "{kind}: {calls} calls, {more} in four times the span"
        );
    }
}
