//! Contending tasks of the guest kernel: every lock serves them all.

use std::sync::atomic::AtomicBool;

use holdfast_locks::LockKind;
use holdfast_sim::{Outcome, run};
use holdfast_workloads::{Contend, Workload};

use crate::image::config;

fn play(kind: LockKind, seed: u64) -> Outcome {
    let mut config = config(2, 4, 1, seed);
    let boot = &mut config.vms[0].boot;
    boot.lock = kind;
    boot.workload = Workload::Contend(Contend {
        tasks: Some(6),
        calls: 500,
        ..Contend::default()
    });
    run(&config, &AtomicBool::new(false)).unwrap_or_else(|failure| panic!("{kind} seed {seed}: {failure}"))
}

/// The workload itself asserts that the driver counted as many calls as were begun.
#[test]
fn no_call_is_lost_whatever_the_lock() {
    for &kind in LockKind::ALL {
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
