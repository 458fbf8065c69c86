//! Running plans: order, failures, calling off, determinism.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_lab::collect;
use holdfast_lab::determinism;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::run::{self, Execution};
use holdfast_sim::{CallOff, Config, Failure, Outcome};
use holdfast_workloads::{Hog, Workload};

use crate::fake::{elapsed_ns, execute, plan, results, simulate};

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let plan = plan(&Options::default());
    let ended = AtomicUsize::new(0);
    // The first run to start is not the first to end: it waits for two others.
    let late = |config: &Config, call_off: &CallOff| {
        let first = config.seed == 1 && elapsed_ns(config) > 10_000_000_000;
        while first && config.vms[1].boot.workload == Workload::Idle && ended.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
        ended.fetch_add(1, Ordering::Release);
        simulate(config, call_off)
    };
    let one = collect::results(&plan, &execute(&plan, &simulate, 1), "fake.toml", "test");
    let two = collect::results(&plan, &execute(&plan, &late, 2), "fake.toml", "test");
    assert_eq!(one.to_json(), two.to_json());
}

#[test]
fn elapsed_times_are_full_size_equivalents() {
    let results = results();
    let first = &results.cases[0];
    // 11, 12 and 13 s at half size.
    assert_eq!(first.samples, [22.0, 24.0, 26.0]);
    assert_eq!(
        (first.mean, first.median, first.min, first.max),
        (Some(24.0), Some(24.0), Some(22.0), Some(26.0))
    );
    assert_eq!(first.sd, Some(2.0));
    // Shares of all runs' time together: 100, 100 and 110.
    assert!((first.lost_time["useful"] - 150.0 / 310.0).abs() < 1e-12);
    assert!((first.lost_time.values().sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(first.counters["kicks"], 2.0);
}

#[test]
fn every_cell_sees_the_same_seeds() {
    let options = Options {
        first_seed: 40,
        ..Options::default()
    };
    let plan = plan(&options);
    let seen = Mutex::new(Vec::new());
    execute(
        &plan,
        &|config: &Config, call_off: &CallOff| {
            seen.lock().expect("no panic").push(config.seed);
            simulate(config, call_off)
        },
        1,
    );
    // Seed by seed over all cells.
    assert_eq!(
        *seen.lock().expect("no panic"),
        [40, 40, 40, 40, 41, 41, 41, 41, 42, 42, 42, 42]
    );
}

#[test]
fn a_failed_run_costs_only_itself_and_says_how_to_replay_it() {
    let plan = plan(&Options {
        set: vec!["host.hz=250".to_owned()],
        ..Options::default()
    });
    let flawed = |config: &Config, call_off: &CallOff| match (config.seed, config.vms[1].measured) {
        (2, _) if elapsed_ns(config) > 10_000_000_000 => Err(Failure::LostKick("vcpu 3".to_owned())),
        (3, _) if elapsed_ns(config) > 10_000_000_000 => panic!("broken invariant"),
        _ => simulate(config, call_off),
    };
    let results = collect::results(&plan, &execute(&plan, &flawed, 2), "fake.toml", "test");
    let ticket = &results.cases[0];
    assert_eq!(
        (ticket.seeds.as_slice(), ticket.samples.as_slice()),
        (&[1][..], &[22.0][..])
    );
    assert_eq!(results.cases[1].samples.len(), 3);
    assert!(results.complete, "a failed run did come to an end");
    let failed = &results.failures[0];
    assert_eq!(failed.error, "lost kick: vcpu 3");
    assert_eq!(
        failed.replay,
        "holdfast run fake.toml --seeds 1 --first-seed 2 --scale 0.5 --case quiet --variant ticket --set host.hz=250"
    );
    assert_eq!(
        results.failures[1].error,
        "internal error, please report it: broken invariant"
    );
}

#[test]
fn calling_off_keeps_what_is_done() {
    let plan = plan(&Options::default());
    let call_off = CallOff::new();
    let stops = |config: &Config, call_off: &CallOff| {
        if config.seed == 2 {
            call_off.call();
            return Err(Failure::CalledOff);
        }
        simulate(config, call_off)
    };
    let jobs = NonZeroUsize::MIN;
    let outcomes = run::run(
        &plan,
        Execution {
            runner: &stops,
            jobs,
            call_off: &call_off,
            progress: &|_| {},
        },
    );
    let results = collect::results(&plan, &outcomes, "fake.toml", "test");
    assert!(!results.complete);
    assert!(results.failures.is_empty(), "a run that was called off has not failed");
    for case in &results.cases {
        assert_eq!(case.seeds, [1], "{} / {}", case.case, case.variant);
    }
}

#[test]
fn a_guest_without_a_result_is_a_failed_run() {
    let plan = plan(&Options::default());
    let silent = |config: &Config, call_off: &CallOff| {
        let mut outcome = simulate(config, call_off)?;
        outcome.vms[0].elapsed_ns = None;
        Ok(outcome)
    };
    let results = collect::results(&plan, &execute(&plan, &silent, 1), "fake.toml", "test");
    assert_eq!(results.failures.len(), 12);
    assert_eq!(
        results.failures[0].error,
        "guest build: no elapsed: found None ns and None operations"
    );
    assert_eq!(results.cases[0].mean, None);
}

#[test]
fn the_first_difference_is_named() {
    let plan = plan(&Options::default());
    let first = execute(&plan, &simulate, 1);
    assert_eq!(
        determinism::first_difference(&plan, &first, &execute(&plan, &simulate, 2)),
        None
    );
    let differs = |change: &(dyn Fn(&mut Outcome) + Sync)| {
        let changed = |config: &Config, call_off: &CallOff| {
            let mut outcome = simulate(config, call_off)?;
            if config.seed == 2 && elapsed_ns(config) < 10_000_000_000 {
                change(&mut outcome);
            }
            Ok(outcome)
        };
        let second = execute(&plan, &changed, 1);
        determinism::first_difference(&plan, &first, &second)
            .expect("a difference")
            .to_string()
    };
    assert_eq!(
        differs(&|outcome| {
            outcome.vms[1].counters.insert("kicks".to_owned(), 7);
        }),
        "case quiet, variant tas, seed 2: guest noise: counter kicks: 2, then 7"
    );
    assert!(differs(&|outcome| outcome.history_hash ^= 1).contains("history hash"));
    assert!(differs(&|outcome| outcome.end_ns += 1).contains("end of the run, ns: 6000000000, then 6000000001"));
}

#[test]
fn totals_are_those_of_the_guests() {
    const TEXT: &str = "name = \"twins\"\ntitle = \"identical guests\"\nseeds = 2\nmetric = METRIC\n[[vm]]\nname = \"web\"\n\
                        count = 3\nvcpus = 2\nworkload = WORKLOAD\n[[vm]]\nname = \"noise\"\nworkload = \"hog\"\n";
    for (metric, workload, scale) in [("elapsed", "kernbench", 0.0005), ("throughput", "ebizzy", 0.002)] {
        let text = TEXT
            .replace("METRIC", &format!("{metric:?}"))
            .replace("WORKLOAD", &format!("{workload:?}"));
        let experiment = Experiment::parse("twins.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
        let options = Options {
            scale: Some(scale),
            ..Options::default()
        };
        let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
        let call_off = CallOff::new();
        let execution = Execution {
            runner: &run::simulate,
            jobs: NonZeroUsize::MIN,
            call_off: &call_off,
            progress: &|_| {},
        };
        let results = collect::results(&plan, &run::run(&plan, execution), "twins.toml", "0");
        let [total] = results.totals.as_slice() else {
            panic!("{:?}", results.totals)
        };
        assert_eq!((total.vm.as_str(), total.guests, results.cases.len()), ("web", 3, 3));
        for (index, sample) in total.samples.iter().enumerate() {
            let each: Vec<f64> = results.cases.iter().map(|case| case.samples[index]).collect();
            let expected = match metric {
                "elapsed" => each.iter().copied().fold(0.0, f64::max),
                _ => each.iter().sum(),
            };
            assert!(
                (sample - expected).abs() < 1e-9 * expected,
                "{metric}: {sample}, {each:?}"
            );
            assert!((0.0..=1.0).contains(&total.evenness[index]));
        }
    }
}

#[test]
fn a_run_under_way_is_left_at_the_request_and_not_at_its_end() {
    // The first cell ends soon, and its end calls the work off. The other one would fail at its limit.
    const TEXT: &str = "name = \"left\"\ntitle = \"one short, one long\"\nmetric = \"elapsed\"\nlimit = \"1000 s\"\n[[vm]]\n\
                        workload = \"kernbench\"\n[[cases]]\nname = \"short\"\n[[cases]]\nname = \"long\"\n\
                        set = { \"vm.0.vcpus\" = 8 }\n";
    let experiment = Experiment::parse("left.toml", TEXT).unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options {
        seeds: Some(1),
        scale: Some(0.0005),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
    let call_off = CallOff::new();
    let execution = Execution {
        runner: &|config, call_off| {
            // Work without end, which fails at the limit in virtual time.
            let mut config = config.clone();
            if config.vms[0].vcpus == 8 {
                config.vms[0].boot.workload = Workload::Hog(Hog::default());
            }
            run::simulate(&config, call_off)
        },
        jobs: NonZeroUsize::new(2).expect("not 0"),
        call_off: &call_off,
        progress: &|ended| {
            assert_eq!(ended.cell.case, "short", "the long run ended: {:?}", ended.outcome);
            call_off.call();
        },
    };
    let outcomes = run::run(&plan, execution);
    assert!(outcomes.get(0, 0).is_some_and(Result::is_ok), "the short run is kept");
    assert!(
        outcomes.get(1, 0).is_none(),
        "the long run is left, not failed at its limit"
    );
}

#[test]
fn runs_tell_how_much_virtual_time_has_passed() {
    const TEXT: &str = "name = \"long\"\ntitle = \"two seconds\"\nmetric = \"elapsed\"\n[[vm]]\n\
                        workload = \"kernbench\"\n";
    let experiment = Experiment::parse("long.toml", TEXT).unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options {
        scale: Some(0.01),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
    let call_off = CallOff::new();
    let mut passed_ns = 0;
    for seed in 1..3 {
        let config = Config {
            seed,
            ..plan.cells[0].config.clone()
        };
        let outcome = run::simulate(&config, &call_off).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(outcome.end_ns > 1_000_000_000, "too short: {} ns", outcome.end_ns);
        passed_ns += outcome.end_ns / 500_000_000 * 500_000_000;
        assert_eq!(call_off.passed_ns(), passed_ns);
    }
}
