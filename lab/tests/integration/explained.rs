//! Comparing, explaining, validating.

use holdfast_lab::compare::{self, CompareError};
use holdfast_lab::explain;
use holdfast_lab::stats::Verdict;
use holdfast_lab::validate::validate;

use crate::fake::results;

#[test]
fn variants_are_compared_within_their_case() {
    let results = results();
    let compared = compare::variants(&results, None).expect("a first variant");
    let rows: Vec<_> = compared
        .rows
        .iter()
        .map(|row| (row.case.as_str(), row.variant_a.as_str(), row.variant_b.as_str()))
        .collect();
    assert_eq!(rows, [("quiet", "ticket", "tas"), ("loud", "ticket", "tas")]);
    assert_eq!(compared.rows[0].comparison.expect("samples").verdict, Verdict::Lower);
    assert_eq!(compared.rows[0].better, Some(true), "less time is better");
    let other_way = compare::variants(&results, Some("tas")).expect("a variant");
    assert_eq!(other_way.rows[0].better, Some(false));
    assert!(matches!(
        compare::variants(&results, Some("qspin")),
        Err(CompareError::UnknownVariant { .. })
    ));
}

#[test]
fn a_file_is_identical_to_itself() {
    let compared = compare::files(&results(), &results()).expect("the same cells");
    assert_eq!(compared.rows.len(), 4);
    assert!(
        compared
            .rows
            .iter()
            .all(|row| row.comparison.expect("samples").verdict == Verdict::Identical)
    );
    assert!(compared.remarks.is_empty(), "{:?}", compared.remarks);
}

#[test]
fn files_that_differ_in_more_than_samples_are_remarked_on() {
    let (a, mut b) = (results(), results());
    b.scale = 0.25;
    b.complete = false;
    b.cases.remove(0);
    let remarks = compare::files(&a, &b).expect("some cells in common").remarks;
    assert_eq!(
        remarks,
        [
            "scale differs: 0.5 in A, 0.25 in B",
            "B was interrupted",
            "only in A: quiet / ticket / build"
        ]
    );
    b.cases[0].unit = "ms".to_owned();
    assert!(matches!(compare::files(&a, &b), Err(CompareError::OtherUnit(_))));
    b.cases.clear();
    assert_eq!(
        compare::files(&a, &b).expect_err("nothing to compare"),
        CompareError::NothingInCommon
    );
}

#[test]
fn convoys_are_counted_run_by_run() {
    let results = results();
    let explanation = explain::explain(&results);
    let convoys = explanation.rows[0].convoys.expect("three runs");
    // 20, 40 and 60 of the time spun, 50 worked.
    assert_eq!(
        (convoys.runs, convoys.convoys, convoys.verdict()),
        (3, 1, "convoys in some runs")
    );
    for (ratio, expected) in convoys.spun_per_work.into_iter().zip([0.4, 0.8, 1.2]) {
        assert!((ratio - expected).abs() < 1e-9, "{ratio} {expected}");
    }
    assert_eq!(convoys.shares, [0.0, 0.0, 0.25]);
    assert_eq!(convoys.stalls_ns, [40_000_000, 80_000_000, 120_000_000]);
    assert_eq!(convoys.period_ns, 24_000_000);
    let measured: Vec<bool> = explanation.rows.iter().map(|row| row.measured).collect();
    assert_eq!(measured, [true, false, true, false, true, false, true, false]);
    let causes: Vec<&str> = explanation.rows[0]
        .lost_time
        .iter()
        .map(|(cause, _)| cause.as_str())
        .collect();
    assert_eq!(causes, ["useful", "spin_preempted_waiter", "idle"]);
}

#[test]
fn predictions_stand_beside_what_was_published() {
    let validation = validate(&[results()]);
    assert_eq!(validation.rows.len(), 1, "only cells with a published figure");
    let row = &validation.rows[0];
    assert_eq!((row.predicted, row.published, row.ratio), (Some(24.0), 20.0, Some(1.2)));
    assert_eq!(row.inside_spread, Some(true));
    assert!(validation.orders.is_empty(), "an order needs two published variants");
}
