//! Seeds that are added as they are needed: enough, no more than the budget, and the same whatever the threads.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_lab::adaptive::{self, Adapted};
use holdfast_lab::collect;
use holdfast_lab::options::{Adaptive, Options};
use holdfast_lab::plan::Plan;
use holdfast_lab::run::{self, Execution, Runner, Slots};
use holdfast_lab::stats::Center;
use holdfast_locks::LockKind;
use holdfast_sim::{CallOff, Config, Failure, Outcome};

use crate::fake::{execute, plan, simulate};

const FIVE: Adaptive = Adaptive {
    percent: 5.0,
    seeds_max: 200,
};

fn adaptive_plan(adaptive: Adaptive) -> Plan {
    plan(&Options {
        adaptive: Some(adaptive),
        ..Options::default()
    })
}

/// Runs as [`simulate`] does, with guests that take 5 s. Those with test-and-set locks take up to 3 s longer, by seed.
fn noisy(config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
    const SECONDS: u64 = 1_000_000_000;
    let noise = match config.vms[0].boot.kernel.lock {
        LockKind::Tas => ((config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) * 3 * SECONDS) >> 24,
        _ => 0,
    };
    let mut outcome = simulate(config, call_off)?;
    for elapsed in outcome.vms.iter_mut().filter_map(|vm| vm.elapsed_ns.as_mut()) {
        *elapsed = 5 * SECONDS + noise;
    }
    Ok(outcome)
}

fn adapted(adaptive: Adaptive, runner: Runner<'_>, jobs: usize) -> Adapted {
    let plan = adaptive_plan(adaptive);
    let round = |chosen: &[usize], slots: &Slots| -> Result<(), Infallible> {
        let execution = Execution {
            runner,
            jobs: NonZeroUsize::new(jobs).expect("at least one thread"),
            call_off: &CallOff::new(),
            progress: &|_| {},
        };
        run::fill(&plan, chosen, execution, slots);
        Ok(())
    };
    adaptive::run(&plan, adaptive, round).unwrap_or_else(|never| match never {})
}

fn text(adapted: &Adapted) -> String {
    collect::results(&adapted.plan, &adapted.outcomes, "fake.toml", "test").to_json()
}

#[test]
fn noisy_cells_get_seeds_until_their_intervals_are_narrow() {
    let done = adapted(FIVE, &noisy, 1);
    assert!(done.outcomes.complete() && done.wide.is_empty());
    let results = collect::results(&done.plan, &done.outcomes, "fake.toml", "test");
    assert!(results.complete);
    for case in &results.cases {
        if case.variant == "ticket" {
            assert_eq!(case.samples.len(), 3, "without noise the first round is enough");
            continue;
        }
        let reach = |samples: &[f64]| {
            let center = Center::of(samples).expect("positive");
            center.interval.expect("several").1 / center.mean
        };
        assert!(
            reach(&case.samples) <= 1.05 && reach(&case.samples[..3]) > 1.05,
            "{}",
            case.case
        );
        assert!(case.samples.len() < 100, "{}", case.samples.len());
        // They are the first samples of a run with as many seeds.
        let plain = plan(&Options {
            seeds: Some(case.samples.len() as u32),
            ..Options::default()
        });
        let plain = collect::results(&plain, &execute(&plain, &noisy, 1), "fake.toml", "test");
        let same = plain
            .cases
            .iter()
            .find(|other| other.id() == case.id())
            .expect("the cell");
        assert_eq!(case.samples, same.samples);
    }
    assert!(
        results
            .command
            .contains("--seeds 3 --first-seed 1 --scale 0.5 --until-ci 5% --seeds-max 200"),
        "{}",
        results.command
    );
    assert_eq!(
        results.seeds.len(),
        results.cases.iter().map(|case| case.samples.len()).max().unwrap_or(0)
    );
}

#[test]
fn added_seeds_do_not_depend_on_threads() {
    assert_eq!(text(&adapted(FIVE, &noisy, 1)), text(&adapted(FIVE, &noisy, 2)));
}

#[test]
fn a_spent_budget_is_reported() {
    let little = Adaptive { seeds_max: 5, ..FIVE };
    let done = adapted(little, &noisy, 1);
    let wide: Vec<&str> = done.wide.iter().map(|cell| &*done.plan.cells[*cell].variant).collect();
    assert_eq!(wide, ["tas", "tas"]);
    assert!(done.outcomes.complete());
    assert_eq!(done.plan.seeds.len(), 5);
}

#[test]
fn a_failed_run_ends_the_rounds_of_its_cell() {
    let failing = |config: &Config, call_off: &CallOff| match config.seed {
        2 => Err(Failure::LostKick("vcpu 3".to_owned())),
        _ => noisy(config, call_off),
    };
    let done = adapted(FIVE, &failing, 1);
    assert_eq!(done.plan.seeds.len(), 3);
    assert_eq!(done.wide.len(), 4);
    assert!(done.outcomes.complete());
}

#[test]
fn an_interruption_leaves_an_incomplete_result() {
    let runs = AtomicUsize::new(0);
    let interrupted = |config: &Config, call_off: &CallOff| match runs.fetch_add(1, Ordering::Relaxed) {
        // The first round has 12 runs.
        0..16 => noisy(config, call_off),
        _ => Err(Failure::CalledOff),
    };
    let done = adapted(FIVE, &interrupted, 1);
    assert!(!done.outcomes.complete());
    assert!(text(&done).contains("\"complete\": false"));
}
