//! A short torture, and the faults that it must find.

#![expect(unsafe_code, reason = "plants faults")]

use holdfast_locks::*;

use super::cpu::{Order, Tortured};
use super::{ALGORITHMS, Algorithm, Fault, Report, run};

#[test]
fn no_lock_yields_under_torture() {
    for seed in 0..1 {
        for &algorithm in ALGORITHMS.iter() {
            let report = run(algorithm, seed, Fault::None);
            let Report {
                vcpus,
                pcpus,
                preemptions,
                ..
            } = match report {
                Ok(report) => report,
                Err(what) => panic!("{} seed {seed}: {what}", algorithm.name),
            };
            assert!(
                pcpus < vcpus && preemptions > 0,
                "seed {seed}: {vcpus} vCPUs on {pcpus} pCPUs are no torture"
            );
        }
    }
}

/// Seeds that have found a fault: an interrupt between STI and HLT, and a kick for half a record. What a seed does
/// depends on every cost in the machine, so that they may no longer find one.
#[test]
fn what_was_found_stays_mended() {
    let pv_ticket = ALGORITHMS.iter().find(|each| each.name == "pv-ticket").expect("a lock");
    for seed in [66, 1310] {
        run(*pv_ticket, seed, Fault::None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn equal_seeds_torture_alike() {
    let report = || run(ALGORITHMS[3], 0, Fault::None);
    assert_eq!(report(), report());
}

/// Defines a set of steps with one left out.
macro_rules! without {
    ($($fault:ident: $step:ident,)+) => {
        $(struct $fault;
        // SAFETY: the storms share no memory under these locks.
        unsafe impl Steps for $fault {
            const $step: bool = false;
        })+
    };
}
without! {
    NoRecheck: RECHECK,
    NoKick: KICK,
}

/// The first seed below `seeds` that finds a fault, and the fault.
fn first_found(algorithm: Algorithm, fault: Fault, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| Some((seed, run(algorithm, seed, fault).err()?)))
}

fn assert_found(algorithm: Algorithm, what: &str, fault: Fault, seeds: u64) {
    let found = first_found(algorithm, fault, seeds);
    let Some((seed, message)) = found else {
        panic!("{} with {what}: nothing found by {seeds} seeds", algorithm.name)
    };
    println!("{:20} {what:28} seed {seed}: {message:.100}", algorithm.name);
}

fn of<L: RawLock<Tortured>>(name: &'static str) -> Algorithm {
    Algorithm::of::<L>(name, Order::Any)
}

#[test]
fn a_torn_exchange_is_found() {
    assert_found(ALGORITHMS[0], "torn exchanges", Fault::TornExchange, 40);
}

#[test]
fn a_dropped_kick_is_found() {
    for name in ["pv-ticket", "pv-qspin"] {
        let algorithm = ALGORITHMS.iter().find(|each| each.name == name).expect("a lock");
        assert_found(*algorithm, "dropped kicks", Fault::DroppedKick, 40);
    }
}

#[test]
fn a_step_left_out_is_found() {
    assert_found(of::<PvTicket<NoRecheck>>("pv-ticket"), "no re-check", Fault::None, 60);
    assert_found(of::<PvTicket<NoKick>>("pv-ticket"), "no kick", Fault::None, 60);
    assert_found(
        of::<PvQspin<Narrow, NoRecheck>>("pv-qspin"),
        "no re-check",
        Fault::None,
        60,
    );
    assert_found(of::<PvQspin<Narrow, NoKick>>("pv-qspin"), "no kick", Fault::None, 60);
    assert_found(
        of::<HybridPvQspin<Narrow, NoRecheck>>("hybrid-pv-qspin"),
        "no re-check",
        Fault::None,
        60,
    );
}
