use std::sync::atomic::AtomicUsize;

use holdfast_kvm::GuestState;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::run::{Execution, RunError};
use holdfast_lab::shipped::{EXPERIMENTS, find};
use proptest::prelude::*;

use super::*;

/// Runs the 12 runs of a plan whose guests all fail as `failed` says. Returns the number of attempts and of outcomes.
fn attempts(failed: impl Fn() -> Failed + Sync) -> (usize, usize, bool) {
    let shipped = find(EXPERIMENTS, "linux-pvspin").expect("it is shipped");
    let experiment = Experiment::parse(shipped.file, shipped.text).expect("a valid experiment");
    let options = Options {
        seeds: Some(2),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).expect("a valid plan");
    assert_eq!(plan.runs(), 12);
    let (runs, tried) = (Runs::default(), AtomicUsize::new(0));
    let attempt = || {
        tried.fetch_add(1, Relaxed);
        Err(failed())
    };
    let execution = Execution {
        runner: &|_, _| runs.attempt(attempt),
        jobs: NonZeroUsize::MIN,
        call_off: &CallOff::new(),
        progress: &|done| assert!(matches!(done.outcome, Err(RunError::Failure(_)))),
    };
    let outcomes = holdfast_lab::run::run(&plan, execution);
    let found = (0..6).flat_map(|cell| (0..2).map(move |seed| (cell, seed)));
    let ended = found.filter(|&(cell, seed)| outcomes.get(cell, seed).is_some()).count();
    assert_eq!(outcomes.complete(), !runs.given_up());
    (tried.into_inner(), ended, runs.given_up())
}

#[test]
fn a_plan_ends_at_the_first_failure_that_no_attempt_changes() {
    let state = || {
        Box::new(GuestState {
            booting: true,
            ..GuestState::default()
        })
    };
    let vm = || "one".to_owned();
    let refused = || Error::Refused {
        vm: vm(),
        why: "why".to_owned(),
        state: state(),
    };
    let at_boot = || Error::TripleFault {
        vm: vm(),
        state: state(),
    };
    assert_eq!(attempts(|| refused().into()), (1, 1, true));
    assert_eq!(attempts(|| at_boot().into()), (1, 1, true));
    // Another attempt may succeed, or another configuration.
    let hang = || Error::Hang {
        limit: LIMIT,
        states: Vec::new(),
    };
    assert_eq!(attempts(|| hang().into()), (12, 12, false));
    let invalid = || Error::TooManyVcpus {
        vm: vm(),
        asked: 300,
        allowed: 254,
    };
    assert_eq!(attempts(|| invalid().into()), (12, 12, false));
}

proptest! {
    #[test]
    fn every_vcpu_keeps_a_cpu_that_this_host_has(
        pcpus in proptest::collection::vec(0u32..2000, 1..40), most in 0u32..70
    ) {
        let folded = folded(&pcpus, most);
        prop_assert!(!folded.is_empty());
        prop_assert!(folded.iter().all(|&pcpu| pcpu < most.max(1)));
        prop_assert!(folded.is_sorted());
    }
}
