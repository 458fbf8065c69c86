//! Variants by guests, and parts of results.

use holdfast_lab::compare::{self, Judgment, Matrix};
use holdfast_lab::filter::Filter;
use holdfast_lab::report;
use holdfast_lab::results::{Case, Results, Total};
use holdfast_lab::stats::Summary;

use crate::fake;

/// Seeds of each cell.
const SEEDS: usize = 6;
/// Guests: two identical ones, and another.
const GUESTS: [&str; 3] = ["db", "builder-1", "builder-2"];

/// Returns a guest whose samples are about `mean`, with a tenth of noise that is the same for all guests of a seed.
fn guest(model: &Case, variant: &str, vm: &str, mean: f64) -> Case {
    let seeds: Vec<u64> = (1..=SEEDS as u64).collect();
    let samples: Vec<f64> = seeds
        .iter()
        .map(|seed| mean * (1.0 + 0.1 * (*seed as f64 * 1.7 + vm.len() as f64).sin()))
        .map(|sample| sample * (1.0 + 0.004 * (sample * 1e3).sin()))
        .collect();
    let summary = Summary::of(&samples).expect("samples");
    Case {
        case: "host".to_owned(),
        variant: variant.to_owned(),
        vm: vm.to_owned(),
        seeds,
        mean: Some(summary.mean),
        sd: summary.sd,
        published: None,
        also_published: Vec::new(),
        convoys: vec![None; SEEDS],
        work_shares: vec![0.5; SEEDS],
        preempted_spin_shares: vec![0.0; SEEDS],
        longest_stalls_ns: vec![0; SEEDS],
        lengths_ns: vec![1_000_000_000; SEEDS],
        history_hashes: vec!["0".to_owned(); SEEDS],
        samples,
        ..model.clone()
    }
}

/// Returns results of these variants, each with the factors of its guests' times.
fn of_variants(variants: &[(&str, [f64; 3])]) -> Results {
    let mut results = fake::results();
    let model = results.cases[0].clone();
    results.cases.clear();
    results.background.clear();
    for (variant, factors) in variants {
        let cases = GUESTS.iter().zip(factors);
        let cases: Vec<Case> = cases
            .map(|(vm, factor)| guest(&model, variant, vm, 10.0 * factor))
            .collect();
        let last = |index: usize| cases[1].samples[index].max(cases[2].samples[index]);
        results.totals.push(Total {
            case: "host".to_owned(),
            variant: (*variant).to_owned(),
            vm: "builder".to_owned(),
            guests: 2,
            unit: "s".to_owned(),
            samples: (0..SEEDS).map(last).collect(),
            mean: None,
            sd: None,
            evenness: vec![1.0; SEEDS],
        });
        results.cases.extend(cases);
    }
    results
}

fn shared_host() -> Results {
    of_variants(&[
        ("as it is", [1.0; 3]),
        ("hardly", [1.001, 1.0, 1.0]),
        ("worse for all", [1.5; 3]),
        ("pinned", [0.65, 1.26, 1.26]),
        ("quota", [0.92, 0.92, 0.92]),
    ])
}

fn matrix(results: &Results) -> Matrix {
    compare::variants(results, None).expect("a first variant").matrix
}

#[test]
fn rows_are_sorted_by_worth_and_identical_guests_are_one_column() {
    let matrix = matrix(&shared_host());
    assert_eq!(matrix.guests, ["db", "2 x builder"]);
    let rows: Vec<&str> = matrix.rows.iter().map(|line| line.variant.as_str()).collect();
    assert_eq!(rows, ["pinned", "quota", "worse for all", "hardly"]);
    let judgments = |row: usize| -> Vec<Judgment> {
        let line = &matrix.rows[row];
        line.guests.iter().flatten().map(|change| change.judgment).collect()
    };
    assert_eq!(judgments(0), [Judgment::Better, Judgment::Worse]);
    assert_eq!(judgments(1), [Judgment::Better, Judgment::Better]);
    assert_eq!(judgments(2), [Judgment::Worse, Judgment::Worse]);
    // Two guests and all of them together, in four rows.
    assert_eq!(matrix.comparisons, 12);
    let pinned = matrix.rows[0].all.expect("the same seeds").percent;
    assert!(
        (pinned - ((0.65_f64 * 1.26).sqrt() - 1.0) * 100.0).abs() < 0.5,
        "{pinned}"
    );
}

#[test]
fn the_verdict_names_what_is_proven_the_largest_first() {
    let sentence = compare::sentence(&matrix(&shared_host()));
    let begins = "Against \"as it is\": pinned: db -35.";
    assert!(sentence.starts_with(begins), "{sentence}");
    let places =
        ["pinned", "worse for all", "quota", "nothing else is proven to matter."].map(|part| sentence.find(part));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{sentence}");
    assert!(!sentence.contains("hardly"), "{sentence}");
    let nothing = of_variants(&[("as it is", [1.0; 3]), ("other", [1.0; 3])]);
    assert_eq!(
        compare::sentence(&matrix(&nothing)),
        "Against \"as it is\": all samples are identical."
    );
}

#[test]
fn intervals_are_wider_the_more_is_compared() {
    let width = |results: &Results| {
        let matrix = matrix(results);
        let line = matrix
            .rows
            .iter()
            .find(|line| line.variant == "quota")
            .expect("it is there");
        let (low, high) = line.guests[0].expect("samples").interval_percent.expect("six samples");
        high - low
    };
    let many = shared_host();
    let only = Filter {
        variants: vec!["quota".to_owned()],
        ..Filter::default()
    };
    let few = only.with(many.clone(), Some("as it is")).expect("known names");
    assert_eq!(few.cases.len(), 2 * GUESTS.len());
    assert!(width(&many) > 1.3 * width(&few), "{} {}", width(&many), width(&few));
}

#[test]
fn a_filter_keeps_names_and_their_beginnings() {
    let keep = |guests: &[&str], results: Results| {
        let filter = Filter {
            guests: guests.iter().map(|&name| name.to_owned()).collect(),
            ..Filter::default()
        };
        filter.of(results)
    };
    let kept = keep(&["builder"], shared_host()).expect("two guests");
    assert_eq!((kept.cases.len(), kept.totals.len()), (10, 5));
    assert_eq!(matrix(&kept).guests, ["2 x builder"]);
    let one = keep(&["builder-2"], shared_host()).expect("one guest");
    assert_eq!(
        (one.cases.len(), one.totals.len()),
        (5, 0),
        "a total needs all of its guests"
    );
    assert_eq!(matrix(&one).guests, ["builder-2"]);
    let unknown = keep(&["web"], shared_host()).expect_err("no such guest").to_string();
    assert!(
        unknown.starts_with("--guest: found \"web\", expected the beginning of "),
        "{unknown}"
    );
    // An equal name is preferred to longer ones.
    let mut results = shared_host();
    results.cases[0].vm = "builder".to_owned();
    assert_eq!(keep(&["builder"], results).expect("a guest").cases.len(), 1);
}

#[test]
fn the_page_has_the_matrix_as_a_heat_table() {
    let page = report::html(&shared_host());
    assert!(
        page.contains("pinned: db") && page.contains("table class=\"matrix\""),
        "{page}"
    );
    assert_eq!(
        page.matches("class=\"number better\"").count(),
        5,
        "pinned: db and all; quota: three"
    );
    assert_eq!(
        page.matches("class=\"number worse\"").count(),
        4,
        "pinned: builders; worse for all: three"
    );
    assert!(
        !page.contains("Predicted and published") && !page.contains("published figure"),
        "nothing is published"
    );
    let published = report::html(&fake::results());
    assert!(published.contains("Predicted and published") && published.contains("published figure"));
}

#[test]
fn two_files_are_compared_as_a_matrix() {
    let (a, mut b) = (shared_host(), shared_host());
    for case in b.cases.iter_mut().filter(|case| case.vm == "db") {
        case.samples.iter_mut().for_each(|sample| *sample *= 2.0);
    }
    let compared = compare::files(&a, &b).expect("the same cells");
    assert_eq!((compared.comparisons, compared.matrix.comparisons), (15, 15));
    assert!(compared.verdict.starts_with("B against A: "), "{}", compared.verdict);
    let db = compared.matrix.rows[0].guests[0].expect("samples");
    assert!((db.percent - 100.0).abs() < 1e-9 && db.judgment == Judgment::Worse);
}
