//! Published figures of other quantities than the metric.

use std::num::NonZeroUsize;
use std::path::Path;

use holdfast_lab::collect;
use holdfast_lab::display;
use holdfast_lab::experiment::{Experiment, Quantity};
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::results::{self, Results};
use holdfast_lab::run::{self, Execution};
use holdfast_lab::validate::validate;
use holdfast_sim::{CallOff, Config, Failure, Outcome};

use crate::fake;

const SHARES: &str = r#"
[[published]]
case = "loud"
variant = "tas"
vm = "build"
of = "taking-locks"
mean = 80
sd = 30
unit = "%"
source = "nowhere"

[[published]]
case = "loud"
variant = "tas"
vm = "build"
of = "cpu-time"
mean = 150
unit = "%"
source = "nowhere"
"#;

/// Returns an outcome of [`fake::simulate`] with half a pCPU more for each seed. Its guests
/// take free locks for 5 of their 100 units of time.
fn simulate(config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
    let mut outcome = fake::simulate(config, call_off)?;
    for vm in &mut outcome.vms {
        vm.counters.insert("cpu_permille".to_owned(), 500 * config.seed);
        vm.counters
            .insert("lock.at_once_ns".to_owned(), 5 * fake::PERCENT / 1_000);
    }
    Ok(outcome)
}

fn plan(rows: &str, options: &Options) -> Plan {
    let experiment = Experiment::parse("fake.toml", &format!("{}{rows}", fake::EXPERIMENT)).expect("valid");
    Plan::new(experiment, options).expect("a valid plan")
}

fn predicted(options: &Options) -> Results {
    let plan = plan(SHARES, options);
    let execution = Execution {
        runner: &simulate,
        jobs: NonZeroUsize::MIN,
        call_off: &CallOff::new(),
        progress: &|_| {},
    };
    collect::results(&plan, &run::run(&plan, execution), "fake.toml", "test")
}

#[test]
fn a_published_share_stands_beside_that_of_each_run() {
    let found = predicted(&Options::default());
    let cell = found
        .cases
        .iter()
        .find(|case| case.id() == ("loud", "tas", "build"))
        .expect("a measured cell");
    assert_eq!(cell.published, None, "the metric has no published figure here");
    let [taking, cpu_time] = cell.also_published.as_slice() else {
        panic!("{:?}", cell.also_published);
    };
    assert_eq!(taking.of, Quantity::TakingLocks);
    // Seeds 1 to 3: of 100, 100 and 110 units 30, 10 and 0 are idle; 20, 40 and 60 are spun, and 5 find a lock free.
    let expected = [2500.0 / 70.0, 4500.0 / 90.0, 6500.0 / 110.0];
    for (share, expected) in taking.samples.iter().zip(expected) {
        assert!((share - expected).abs() < 1e-9, "{share} % for {expected} %");
    }
    assert_eq!((taking.samples.len(), taking.published.mean), (3, 80.0));
    assert_eq!(cpu_time.samples, [50.0, 100.0, 150.0]);
    assert_eq!(
        display::also_published(&found),
        [
            "loud / tas / build: taking-locks 48.27 %, published 80.00 %",
            "loud / tas / build: cpu-time 100.0 %, published 150.0 %"
        ]
    );
    let text = found.to_json();
    let read = results::parse(Path::new("fake.results.json"), &text).expect("what was written");
    assert_eq!(read, found);
}

#[test]
fn shares_are_levels_and_take_part_in_no_order() {
    let validation = validate(&[predicted(&Options::default())]);
    let levels: Vec<_> = validation
        .rows
        .iter()
        .map(|row| (row.unit.as_str(), row.published, row.inside_spread))
        .collect();
    let expected = [
        ("% taking-locks", 80.0, Some(false)),
        ("s", 20.0, Some(true)),
        ("% cpu-time", 150.0, None),
    ];
    for row in expected {
        assert!(levels.contains(&row), "{row:?} among {levels:?}");
    }
    assert_eq!(levels.len(), 3);
    assert!(validation.orders.is_empty(), "{:?}", validation.orders);
}

#[test]
fn a_changed_setup_hides_shares_too() {
    let options = Options {
        set: vec!["vm.build.vcpus=1".to_owned()],
        ..Options::default()
    };
    assert!(
        predicted(&options)
            .cases
            .iter()
            .all(|case| case.also_published.is_empty())
    );
}

#[test]
fn a_share_is_in_percent_and_published_once() {
    let refused = |rows: &str| {
        let text = format!("{}{rows}", fake::EXPERIMENT);
        match Experiment::parse("fake.toml", &text) {
            Err(problems) => problems.to_string(),
            Ok(experiment) => Plan::new(experiment, &Options::default())
                .expect_err("refused")
                .to_string(),
        }
    };
    for (rows, expected) in [
        (SHARES.replacen("unit = \"%\"", "unit = \"s\"", 1), "expected \"%\""),
        (
            SHARES.replace("\"cpu-time\"", "\"taking-locks\""),
            "taking-locks of loud / tas / build twice",
        ),
        (SHARES.replace("\"cpu-time\"", "\"spin-time\""), "\"spin-time\""),
    ] {
        let message = refused(&rows);
        assert!(message.contains(expected), "{message}");
    }
}
