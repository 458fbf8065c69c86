//! Which orders and levels are right, and what a summary counts.

use super::*;

#[test]
fn an_order_is_right_only_if_proven() {
    use Verdict::{Higher, Identical, Lower, NoDifferenceProven, TooFewSamples};
    let published_ratio = |published| if published == Lower { 0.9 } else { 1.0 };
    for (published, predicted, ratio, expected) in [
        (Lower, Lower, 0.2, Order::Right),
        (Lower, Lower, 0.96, Order::Right),
        (Lower, Lower, 0.98, Order::Slight),
        (Lower, NoDifferenceProven, 0.9, Order::Unproven),
        (Lower, Identical, 1.0, Order::Unproven),
        (Lower, Higher, 1.2, Order::Wrong),
        (Lower, TooFewSamples, 0.5, Order::Right),
        (Identical, NoDifferenceProven, 1.3, Order::Uncertain),
        (Identical, Identical, 1.0, Order::Uncertain),
        (Identical, Lower, 0.995, Order::Uncertain),
        (Identical, Lower, 0.9, Order::Wrong),
        (NoDifferenceProven, NoDifferenceProven, 1.0, Order::Uncertain),
        (NoDifferenceProven, Lower, 0.1, Order::Uncertain),
        (TooFewSamples, Higher, 2.0, Order::Uncertain),
    ] {
        let judged = judge((published, published_ratio(published)), (predicted, ratio));
        assert_eq!(judged, expected, "{published:?} {predicted:?} {ratio}");
    }
}

#[test]
fn published_figures_prove_what_their_runs_prove() {
    use Verdict::{Higher, Identical, Lower, NoDifferenceProven, TooFewSamples};
    let figure = |mean, sd, runs| PublishedFigure {
        mean,
        sd,
        runs,
        ..PublishedFigure::default()
    };
    for (a, b, expected) in [
        // kernbench at 2x: three runs each, of which the first reads from a disk.
        (
            (778.622, Some(1092.68), Some(3)),
            (129.342, Some(156.324), Some(3)),
            NoDifferenceProven,
        ),
        ((447.2, Some(13.88), Some(10)), (593.5, Some(21.03), Some(10)), Higher),
        // Single runs.
        ((5.02, None, Some(1)), (6.76, None, Some(1)), TooFewSamples),
        ((5.02, Some(0.1), Some(1)), (6.76, Some(0.1), Some(9)), TooFewSamples),
        // Runs of unknown number, or without a spread: the means count.
        ((10.26, None, None), (10.10, None, None), Identical),
        ((273.76, None, None), (248.53, None, None), Lower),
        ((100.0, None, Some(30)), (141.0, None, Some(30)), Higher),
        ((100.0, Some(90.0), None), (141.0, Some(90.0), None), Higher),
    ] {
        let published = |(mean, sd, runs)| figure(mean, sd, runs);
        assert_eq!(published_order(&published(a), &published(b)), expected, "{a:?} {b:?}");
    }
}

fn pair(order: Order, published_ratio: f64, predicted_ratio: f64) -> OrderRow {
    let text = String::new;
    OrderRow {
        experiment: text(),
        case: text(),
        vm: text(),
        variant_a: text(),
        variant_b: text(),
        published_ratio,
        predicted_ratio,
        order,
    }
}

fn level(ratio: Option<f64>, calibrate: bool) -> Row {
    let text = String::new;
    Row {
        experiment: text(),
        case: text(),
        variant: text(),
        vm: text(),
        unit: text(),
        predicted: ratio,
        predicted_sd: None,
        published: 1.0,
        published_sd: Some(0.5),
        ratio,
        inside_spread: ratio.map(|ratio| (ratio - 1.0).abs() <= 0.5),
        spread_below_mean: true,
        calibrate,
        single: None,
    }
}

#[test]
fn a_single_run_has_a_place_among_the_predicted_ones() {
    let runs = [1.0, 2.0, 2.0, 4.0];
    for (published, below, is_among) in [(0.5, 0, false), (2.0, 1, true), (3.0, 3, true), (9.0, 4, false)] {
        let single = Single::of(published, Some(1), &runs).expect("a single run");
        assert_eq!((single.below, single.is_among()), (below, is_among), "{published}");
    }
    for (runs, predicted) in [(Some(2), &runs[..]), (None, &runs), (Some(1), &[])] {
        assert_eq!(Single::of(2.0, runs, predicted), None, "{runs:?}");
    }
}

#[test]
fn a_size_counts_only_in_the_right_order_and_either_way() {
    // Published, predicted, and whether the size is right.
    for (order, published, predicted, sized) in [
        (Order::Right, 2.0, 3.0, true),
        (Order::Right, 2.0, 3.01, false),
        (Order::Slight, 0.5, 0.75, true),
        (Order::Slight, 0.5, 0.76, false),
        (Order::Unproven, 2.0, 2.0, false),
        (Order::Wrong, 1.1, 0.9, false),
        (Order::Uncertain, 2.0, 2.0, false),
    ] {
        let row = pair(order, published, predicted);
        assert_eq!(row.is_sized(), sized, "{order:?} {published} {predicted}");
        let is_large = published != 1.1 && order != Order::Uncertain;
        assert_eq!(row.is_large(), is_large, "{order:?} {published}");
    }
}

fn single(row: Row, below: usize) -> Row {
    let single = Some(Single { below, runs: 20 });
    Row { single, ..row }
}

#[test]
fn a_summary_counts_predictions_and_no_calibrated_rows() {
    let validation = Validation {
        schema: SCHEMA.to_owned(),
        rows: vec![
            level(Some(0.5), false),
            single(level(Some(4.0), false), 0),
            single(level(Some(1.25), false), 19),
            level(None, false),
            single(level(Some(9.0), true), 3),
        ],
        orders: vec![
            pair(Order::Right, 2.0, 2.0),
            pair(Order::Right, 1.2, 1.2),
            pair(Order::Slight, 0.2, 0.9),
            pair(Order::Wrong, 3.0, 0.3),
            pair(Order::Uncertain, 9.0, 9.0),
        ],
        fitted: BTreeSet::new(),
    };
    let expected = Summary {
        orders: 4,
        uncertain: 1,
        ordered: 3,
        sized: 2,
        large: 3,
        large_ordered: 2,
        large_sized: 1,
        levels: 4,
        level: Some(2.0),
        spreads: 4,
        inside: 2,
        calibrated: 1,
        singles: 2,
        among: 1,
    };
    assert_eq!(validation.summary(), expected);
}
