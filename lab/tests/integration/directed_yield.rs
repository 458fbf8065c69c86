//! The experiments about pause loops of 2010 and 2011, small, in the simulator: they end, they repeat, nothing is lost.

use std::num::NonZeroUsize;

use holdfast_lab::experiment::Experiment;
use holdfast_lab::plan::{Options, Plan};
use holdfast_lab::results::Results;
use holdfast_lab::run::{self, Execution};
use holdfast_lab::{collect, shipped};
use holdfast_sim::CallOff;

fn play(name: &str, options: &Options) -> Results {
    let file = shipped::find(shipped::EXPERIMENTS, name).expect("it is shipped");
    let experiment = Experiment::parse(file.file, file.text).expect("a valid experiment");
    let plan = Plan::new(experiment, options).expect("a valid plan");
    let call_off = CallOff::new(false);
    let execution = Execution {
        runner: &holdfast_sim::run,
        jobs: NonZeroUsize::MIN,
        call_off: &call_off,
        progress: &|_| {},
    };
    let results = collect::results(&plan, &run::run(&plan, execution), name, "test");
    assert!(results.failures.is_empty(), "{name}: {:?}", results.failures);
    results
}

fn small(scale: f64, cases: &[&str]) -> Options {
    Options {
        seeds: Some(1),
        scale: Some(scale),
        cases: cases.iter().map(|case| (*case).to_owned()).collect(),
        ..Options::default()
    }
}

fn counter(case: &holdfast_lab::results::Case, name: &str) -> f64 {
    case.counters.get(name).copied().unwrap_or(0.0)
}

#[test]
fn every_variant_ends_and_repeats() {
    for (name, scale, cases) in [
        ("amqp-directed-yield", 0.003, &["1x", "1.5x", "2x-payload-16"][..]),
        ("boot-64", 0.02, &[]),
        ("cgroup-imbalance", 0.003, &[]),
    ] {
        let options = small(scale, cases);
        let (first, second) = (play(name, &options), play(name, &options));
        assert!(!first.cases.is_empty());
        for (one, other) in first.cases.iter().zip(&second.cases) {
            let cell = format!("{name} {} {}", one.case, one.variant);
            assert_eq!(one.history_hashes, other.history_hashes, "{cell}");
            assert!(one.mean.is_some_and(|mean| mean > 0.0), "{cell}");
            let has_exits = counter(one, "pause_exits") > 0.0;
            assert!(
                one.variant != "none" || !has_exits,
                "{cell}: exits without pause-loop exiting"
            );
            let cpu = counter(one, "cpu_permille");
            let pcpus = if name == "boot-64" { 64_000.0 } else { 4_000.0 };
            assert!(cpu > 0.0 && cpu <= pcpus, "{cell}: {cpu} thousandths of a pCPU");
        }
    }
}

#[test]
fn sleeping_behind_a_running_holder_makes_a_boot_many_times_slower() {
    let results = play("boot-64", &small(0.05, &[]));
    let elapsed = |variant: &str| {
        let case = results.cases.iter().find(|case| case.variant == variant);
        case.and_then(|case| case.mean).expect("a time")
    };
    assert!(elapsed("sleep-100us") > 4.0 * elapsed("none"));
    assert!(elapsed("directed-yield") < 2.0 * elapsed("none"));
}

/// **FIFO** is asserted by the broker itself, message by message.
#[test]
fn whatever_the_broker_s_shape_each_message_produced_is_consumed() {
    let shapes: [[u32; 5]; 6] = [
        // Producers, consumers, queues, workers, payload.
        [1, 1, 1, 1, 0],
        [4, 4, 1, 5, 8],
        [5, 3, 3, 2, 16],
        [2, 7, 2, 9, 4_000],
        [7, 2, 2, 3, 100],
        [3, 3, 3, 1, 1],
    ];
    for shape in shapes {
        let names = ["producers", "consumers", "queues", "workers", "payload"];
        let set = names
            .iter()
            .zip(shape)
            .map(|(name, value)| format!("vm.amqp.amqp.{name}={value}"));
        let options = Options {
            set: set.chain(["vm.amqp.amqp.messages=2001".to_owned()]).collect(),
            ..small(1.0, &["2x"])
        };
        for case in play("amqp-directed-yield", &options).cases {
            assert_eq!(counter(&case, "amqp.produced"), 2001.0, "{shape:?} {}", case.variant);
            assert_eq!(counter(&case, "amqp.consumed"), 2001.0, "{shape:?} {}", case.variant);
        }
    }
}
