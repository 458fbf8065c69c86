//! The experiments about pause loops of 2010 and 2011, at small scale in the
//! simulator: they end, they are repeatable, and no message is lost.

use std::num::NonZeroUsize;

use holdfast_host::SchedulerKind;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::results::Results;
use holdfast_lab::run::{self, Execution};
use holdfast_lab::{collect, shipped};
use holdfast_sim::CallOff;

use crate::everywhere::run_variant;

fn play(name: &str, options: &Options) -> Results {
    let file = shipped::find(shipped::EXPERIMENTS, name).expect("it is shipped");
    play_text(name, file.text, options)
}

fn play_text(name: &str, text: &str, options: &Options) -> Results {
    let experiment = Experiment::parse(name, text).expect("a valid experiment");
    let plan = Plan::new(experiment, options).expect("a valid plan");
    let call_off = CallOff::new();
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

#[test]
fn who_is_preempted_in_the_vmm_is_yielded_to_by_the_handler_of_2011_and_not_by_that_of_3_10() {
    // 8 vCPUs on 4 pCPUs. Each access to the configuration space goes to user space, where the holder of its lock can
    // be preempted.
    let yields = |handler: &str| {
        let slow = "vm.guest.device_time=\"100 us\"";
        let small = ["machine.sockets=1", "machine.cores=4", "vm.guest.vcpus=8"];
        let sets = [&small[..], &["vm.guest.boot.exits=true", slow, handler]].concat();
        let outcome = run_variant("boot-64", "64", "directed-yield", 0.02, &sets);
        let count = |name: &str| outcome.vms[0].counters[name];
        assert!(count("userspace_exits") > 1000, "each access takes two");
        (count("directed_yield_userspace"), count("directed_yield_successful"))
    };
    let (of_2011, all) = yields("host.pause_exit=directed-yield-2011");
    assert!(of_2011 > 0 && of_2011 < all, "{of_2011} of {all}");
    let (later, all) = yields("host.pause_exit=linux-3.10");
    assert!(later == 0 && all > 0, "{later} of {all}");
}

/// **FIFO** is asserted by the broker itself, message by message.
#[test]
fn whatever_the_broker_s_shape_each_message_produced_is_consumed() {
    let shapes: [[u32; 4]; 6] = [
        // The values are producers, consumers, vCPUs and payload. The broker has a worker more than there are vCPUs.
        [1, 1, 1, 0],
        [4, 4, 4, 8],
        [5, 3, 1, 16],
        [2, 7, 8, 4_000],
        [7, 2, 2, 100],
        [3, 3, 3, 1],
    ];
    for shape in shapes {
        let names = ["amqp.producers", "amqp.consumers", "vcpus", "amqp.payload"];
        let set = names
            .iter()
            .zip(shape)
            .map(|(name, value)| format!("vm.amqp.{name}={value}"));
        let options = Options {
            set: set.collect(),
            ..small(0.002_001, &["2x"])
        };
        for case in play("amqp-directed-yield", &options).cases {
            assert_eq!(counter(&case, "amqp.produced"), 2001.0, "{shape:?} {}", case.variant);
            assert_eq!(counter(&case, "amqp.consumed"), 2001.0, "{shape:?} {}", case.variant);
        }
    }
}

/// A guest whose vCPUs share the cores of two complexes of an EPYC with as many hogs. All jobs of make wake at its
/// pipe, and then spin for locks.
const ON_AN_EPYC: &str = r#"
name = "epyc"
title = "a pause filter"
metric = "elapsed"
limit = "2000 s"
[machine]
profile = "epyc-rome"
sockets = 2
threads = 1
[host]
pause_exit = "directed-yield-2011"
[[vm]]
name = "build"
workload = "kernbench"
vcpus = 8
exclusive_pipes = false
kernbench.jobs = 16
[[vm]]
name = "hogs"
workload = "hog"
vcpus = 8
"#;

/// Returns the guest's pause exits under `settings`.
fn filtered(settings: &[&str]) -> f64 {
    let options = Options {
        set: settings.iter().map(|setting| (*setting).to_owned()).collect(),
        ..small(0.01, &[])
    };
    let results = play_text("epyc.toml", ON_AN_EPYC, &options);
    results.cases.iter().map(|case| counter(case, "pause_exits")).sum()
}

#[test]
fn amd_s_pause_filter_exits_more_often_the_fewer_pauses_pass_and_the_farther_apart_they_may_be() {
    // Linux uses the threshold since 4.17. There the window would grow.
    let [threshold, fixed] = ["host.pause_exit=linux-4.19", "host.pause_window.grow=0"];
    let counts: Vec<f64> = ["300", "3000", "65535"]
        .map(|count| filtered(&[threshold, fixed, &format!("machine.pause_filter_count={count}")]))
        .to_vec();
    assert!(
        counts[0] > 2.0 * counts[1] && counts[1] > 2.0 * counts[2],
        "by count: {counts:?}"
    );
    // A PAUSE takes 65 cycles, and an iteration takes more. No PAUSE is within 1 cycle of the last one, and all are
    // within 128.
    let within = |cycles| {
        let key = format!("machine.pause_filter_threshold={cycles} cycles");
        filtered(&[threshold, fixed, "machine.pause_filter_count=300", &key])
    };
    assert_eq!(within(1), 0.0);
    assert!(within(128) > 0.0);
    // Before 4.17 all PAUSEs count, however far apart.
    let without = |cycles| {
        let key = format!("machine.pause_filter_threshold={cycles} cycles");
        filtered(&[
            "host.pause_exit=linux-4.12",
            fixed,
            "machine.pause_filter_count=300",
            &key,
        ])
    };
    assert!(without(1) > 0.0);
    assert_eq!(without(1), without(128));
}

/// The numbers of a kernel's version at the end of `name`.
fn version(name: &str) -> Vec<u32> {
    let name = match name {
        "sleep-100us" => "2.6.37",
        "directed-yield-2011" => "3.3",
        name => name.rsplit('-').next().unwrap_or_default(),
    };
    let numbers = name.split('.').map(|number| number.parse().expect("a version"));
    numbers.collect()
}

#[test]
fn each_handler_of_the_map_runs_with_the_scheduler_of_its_kernel() {
    let file = shipped::find(shipped::EXPERIMENTS, "directed-yield-grid").expect("it is shipped");
    let value = |line: &str, key: &str| {
        let (_, rest) = line.split_once(&format!("\"{key}\" = \""))?;
        rest.split('"').next().map(str::to_owned)
    };
    let mut handlers = 0;
    for line in file.text.lines().filter(|line| line.starts_with("set = ")) {
        let Some((handler, scheduler)) = value(line, "host.pause_exit").zip(value(line, "host.scheduler")) else {
            continue;
        };
        if handler == "none" {
            continue;
        }
        let names = SchedulerKind::ALL.map(SchedulerKind::name);
        let mut older = names.into_iter().filter(|name| version(name) <= version(&handler));
        assert_eq!(older.next_back(), Some(scheduler.as_str()), "{handler}");
        handlers += 1;
    }
    assert!(handlers >= 5, "{handlers} handlers");
}
