//! The orders of variants that `holdfast validate` judges right, at the smallest scale at which they are proven: a
//! turned order fails here. Every pair whose published figures prove a difference is judged here, or left out with a
//! reason.

use holdfast_lab::experiment::{Experiment, Quantity};
use holdfast_lab::results::{PublishedFigure, Results};
use holdfast_lab::shipped::EXPERIMENTS;
use holdfast_lab::stats::Verdict;
use holdfast_lab::validate::{Order, Validation, published_order, validate};

use crate::orders::results;

/// Names of an experiment, a case, a guest and two variants.
type Pair = [&'static str; 5];

/// Pairs that are judged here.
const JUDGED: &[Pair] = &[
    ["amqp-directed-yield", "1.5x", "amqp", "none", "directed-yield"],
    ["amqp-directed-yield", "2x", "amqp", "none", "directed-yield"],
    ["avic-hackbench", "2-vcpus", "guest", "vanilla", "avic"],
    ["pgbench-overhead", "1", "db", "ticket", "pv-ticket"],
];

/// Why a pair is not judged here.
const SAME_MACHINE: &str = "one machine compared with itself: it has no order";
const SAME_HISTORY: &str = "the histories are those of vanilla and avic, which are judged";
const SLIGHT: &str = "predicted are 0.2 to 0.6 %, which only 40 seeds at full scale prove";
const NONE: &str = "validate itself proves no difference";
const LARGE: &str = "proven at a scale that takes minutes only: both guests lose at first";
const SMALL: &str = "not proven at a scale that takes seconds only";
const WRONG: &str = "validate itself finds the other order";

/// Pairs that are not judged here although their published figures prove a difference, with the reason.
const LEFT_OUT: &[(Pair, &str)] = &[
    (["avic-hackbench", "2-vcpus", "guest", "avic-off", "avic"], SAME_HISTORY),
    (
        ["avic-hackbench", "2-vcpus", "guest", "vanilla", "avic-off"],
        SAME_MACHINE,
    ),
    (
        ["avic-hackbench", "4-vcpus", "guest", "vanilla", "avic-off"],
        SAME_MACHINE,
    ),
    (["ebizzy-wait-early", "3x", "a", "boost-early", "boost-patient"], SMALL),
    (["ebizzy-wait-early", "3x", "a", "early", "boost-early"], SMALL),
    (["ebizzy-wait-early", "3x", "a", "early", "boost-patient"], SMALL),
    (["ebizzy-wait-early", "3x", "a", "early", "patient"], SMALL),
    (["ebizzy-wait-early", "3x", "a", "patient", "boost-early"], WRONG),
    (["ebizzy-wait-early", "3x", "a", "patient", "boost-patient"], SMALL),
    (
        [
            "kernel-build-contention",
            "baremetal+vm",
            "baremetal",
            "pv-qspin",
            "test-and-set",
        ],
        SMALL,
    ),
    (
        [
            "kernel-build-contention",
            "baremetal+vm",
            "vm-a",
            "pv-qspin",
            "test-and-set",
        ],
        LARGE,
    ),
    (["pgbench-overhead", "2", "db", "ticket", "pv-ticket"], SLIGHT),
    (["pgbench-overhead", "32", "db", "ticket", "pv-ticket"], NONE),
    (["pgbench-overhead", "4", "db", "ticket", "pv-ticket"], SLIGHT),
    (["pgbench-overhead", "8", "db", "ticket", "pv-ticket"], NONE),
];

/// Experiments whose sources do not say how many runs their figures are of.
const WITHOUT_RUNS: [&str; 5] = [
    "avic-hackbench",
    "avic-netperf",
    "avic-tar",
    "cgroup-imbalance",
    "ebizzy-wait-early",
];

/// Runs the judged cells of one experiment, and asserts that each of its judged pairs is in the published order.
fn assert_ordered(name: &str, cases: &[&str], variants: &[&str], scale: f64, seeds: u32) -> Results {
    let results = results(name, cases, variants, scale, seeds);
    let validation = validate(std::slice::from_ref(&results));
    for pair in JUDGED.iter().filter(|pair| pair[0] == name) {
        let found = order(&validation, pair);
        assert!(matches!(found, Order::Right | Order::Slight), "{pair:?}: {found:?}");
    }
    results
}

/// Returns how the order of a pair is judged.
fn order(validation: &Validation, pair: &Pair) -> Order {
    let mut rows = validation.orders.iter();
    let is_it = |names: [&str; 5]| names == *pair;
    let row = rows.find(|row| is_it([&row.experiment, &row.case, &row.vm, &row.variant_a, &row.variant_b]));
    row.unwrap_or_else(|| panic!("{pair:?} was not run")).order
}

#[test]
fn directed_yield_helps_a_broker_as_published() {
    let name = "amqp-directed-yield";
    let mut results = assert_ordered(name, &["1.5x", "2x"], &["none", "directed-yield"], 0.1, 6);
    // Planted: a turned order is seen.
    let (a, b) = (results.cases[0].samples.clone(), results.cases[1].samples.clone());
    (results.cases[0].samples, results.cases[1].samples) = (b, a);
    assert_eq!(order(&validate(&[results]), &JUDGED[0]), Order::Wrong);
}

#[test]
fn avic_speeds_hackbench_up_as_published() {
    assert_ordered("avic-hackbench", &["2-vcpus"], &["vanilla", "avic"], 0.002, 10);
}

#[test]
fn a_machine_compared_with_itself_is_no_right_order() {
    for (name, case) in [
        ("avic-hackbench", "2-vcpus"),
        ("avic-tar", "4-vcpus"),
        ("avic-netperf", "1-vcpu"),
    ] {
        let validation = validate(&[results(name, &[case], &["vanilla", "avic-off"], 0.0002, 2)]);
        let [row] = &validation.orders[..] else {
            panic!("{name}: {:?}", validation.orders);
        };
        assert_eq!(row.predicted_ratio, 1.0, "{name}");
        assert!(!row.is_ordered(), "{name}: {:?}", row.order);
    }
}

#[test]
fn paravirtual_ticket_locks_cost_a_lone_client_as_published() {
    assert_ordered("pgbench-overhead", &["1"], &["ticket", "pv-ticket"], 0.05, 12);
}

/// Returns the published figures of the metric of a shipped experiment.
fn figures(experiment: &Experiment) -> Vec<([&str; 3], PublishedFigure)> {
    let rows = experiment.published.iter().map(|(row, _)| row);
    let figure = |row: &holdfast_lab::experiment::Published| PublishedFigure {
        mean: row.mean,
        sd: row.sd,
        runs: row.runs,
        ..PublishedFigure::default()
    };
    let metric = rows.filter(|row| row.of == Quantity::Metric);
    metric
        .map(|row| ([row.case.as_str(), &row.vm, &row.variant], figure(row)))
        .collect()
}

#[test]
fn every_pair_with_a_proven_published_difference_is_judged_or_left_out_with_a_reason() {
    let mut proven = Vec::new();
    for shipped in EXPERIMENTS {
        let experiment = Experiment::parse(shipped.file, shipped.text).expect("a valid experiment");
        let place = |of: &str| experiment.variants.iter().position(|variant| variant.name == of);
        let mut figures = figures(&experiment);
        figures.sort_by_key(|([case, vm, variant], _)| (*case, *vm, place(variant)));
        for (index, ([case, vm, a], first)) in figures.iter().enumerate() {
            for ([other, guest, b], second) in &figures[index + 1..] {
                let verdict = published_order(first, second);
                if case == other && vm == guest && matches!(verdict, Verdict::Lower | Verdict::Higher) {
                    proven.push([shipped.name, case, vm, a, b].map(str::to_owned));
                }
            }
        }
    }
    let listed = JUDGED.iter().chain(LEFT_OUT.iter().map(|(pair, _)| pair));
    let mut listed: Vec<[String; 5]> = listed.map(|pair| pair.map(str::to_owned)).collect();
    listed.sort();
    proven.sort();
    assert_eq!(listed, proven, "left: listed here; right: proven by published figures");
    let reasons = LEFT_OUT.iter().map(|(_, reason)| reason);
    assert!(reasons.into_iter().all(|reason| reason.split(' ').count() > 3));
}

/// Returns the published figures of the experiment `text` that say how many runs they are of where the source of
/// `name` does not, or do not say it where the source does.
fn wrong_about_runs(name: &str, text: &str) -> Vec<String> {
    let experiment = Experiment::parse(name, text).expect("a valid experiment");
    let expected = !WITHOUT_RUNS.contains(&name);
    let rows = experiment.published.iter().map(|(row, _)| row);
    rows.filter(|row| row.runs.is_some() != expected)
        .map(|row| format!("{name}: {}, {}, {}", row.case, row.variant, row.of.name()))
        .collect()
}

#[test]
fn every_published_figure_has_its_runs_where_its_source_has_them() {
    for shipped in EXPERIMENTS {
        assert_eq!(wrong_about_runs(shipped.name, shipped.text), [""; 0]);
    }
}

#[test]
fn a_published_figure_that_loses_its_runs_is_noticed() {
    let mut planted = 0;
    for shipped in EXPERIMENTS {
        for (at, line) in shipped.text.match_indices("\nruns = ") {
            let end = at + line.len() + shipped.text[at + line.len()..].find('\n').expect("a line ends");
            let without = format!("{}{}", &shipped.text[..at], &shipped.text[end..]);
            assert_eq!(
                wrong_about_runs(shipped.name, &without).len(),
                1,
                "{} at {at}",
                shipped.name
            );
            planted += 1;
        }
    }
    assert!(planted > 20, "{planted} rows have runs");
}
