//! Comparing, explaining, validating.

use holdfast_lab::compare::{self, CompareError};
use holdfast_lab::display;
use holdfast_lab::doubts::doubts;
use holdfast_lab::explain;
use holdfast_lab::report;
use holdfast_lab::results::{self, Results};
use holdfast_lab::stats::{Method, Verdict};
use holdfast_lab::validate::validate;

use crate::fake::{self, results};

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
fn answers_that_were_refused_are_remarked_on_for_hosts_and_guests() {
    let mut results = results();
    assert!(explain::explain(&results).remarks.is_empty());
    let counters = [("policy_refusals", 3.0), ("guest.policy_refusals", 7.5)];
    for (case, (name, count)) in results.cases.iter_mut().zip(counters) {
        case.counters.insert(name.to_owned(), count);
    }
    let remarks = explain::explain(&results).remarks;
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    assert!(
        remarks[0].contains("the host's policy") && remarks[0].contains("(3 times)"),
        "{remarks:?}"
    );
    assert!(
        remarks[1].contains("the guest's policy") && remarks[1].contains("(8 times)"),
        "{remarks:?}"
    );
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
    // Of the time 20, 40 and 60 were spent spinning, and 50 working.
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
fn halts_for_locks_have_a_verdict() {
    let mut results = results();
    let verdicts = [(0.0, 0.0), (0.01, 0.0), (0.1, 0.0), (0.1, 0.2), (0.5, 0.0)].map(|(halted, woken)| {
        let case = &mut results.cases[0];
        case.lost_time = [
            ("useful", 0.2),
            ("critical_section", 0.05),
            ("halted_for_lock", halted),
            ("wake_latency", woken),
        ]
        .map(|(cause, share)| (cause.to_owned(), share))
        .into();
        let halts = explain::explain(&results).rows[0].halts.expect("a simulated guest");
        assert_eq!(halts.share, halted);
        assert!((halts.per_work - halted / 0.25).abs() < 1e-9);
        halts.verdict()
    });
    assert_eq!(
        verdicts,
        [
            "hardly halts for locks",
            "halts for locks",
            "loses time halted for locks",
            "loses time halted for locks, and more until it runs after a wakeup",
            "is halted for locks longer than it works",
        ]
    );
    let measured = fake::results_of(&fake::measure);
    assert!(explain::explain(&measured).rows.iter().all(|row| row.halts.is_none()));
}

#[test]
fn runs_that_are_too_short_or_too_few_are_named() {
    let mut results = results();
    assert_eq!(
        doubts(&results),
        [""; 0],
        "three runs of ten seconds that hardly differ"
    );
    // Ten periods of 24 ms are long enough.
    results.cases[2].lengths_ns = vec![240_000_000; 3];
    assert_eq!(doubts(&results), [""; 0]);
    results.cases[2].lengths_ns[1] = 43_000_000;
    results.cases[3].lengths_ns[0] = 239_999_999;
    let case = &mut results.cases[1];
    (case.min, case.max) = (Some(3.0), Some(6.9));
    assert_eq!(
        doubts(&results),
        [
            "runs of 2 of 4 cells are shorter than 10 periods of the host's scheduler: loud / ticket / build lasted 43 \
             ms, a period is 24 ms. Use a larger --scale",
            "samples of 1 of 4 cells differ twofold or more: 3 samples of quiet / tas / build by 2.3 times. Use more \
             --seeds, or a larger --scale",
        ]
    );
    // Five samples show their spread.
    results.cases[1].samples = vec![5.0; 5];
    assert_eq!(doubts(&results).len(), 1);
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

/// Returns results of a real host: as collected now, and from a file of an older version.
fn of_real_hosts() -> [Results; 2] {
    let old = results::parse(std::path::Path::new("real-host.json"), fake::REAL_HOST);
    [fake::results_of(&fake::measure), old.expect("a whole file")]
}

#[test]
fn what_a_real_host_cannot_know_is_not_recorded() {
    let measured = fake::results_of(&fake::measure);
    for case in &measured.cases {
        assert_eq!(case.samples.len(), 3);
        assert!(case.convoys.is_empty() && case.longest_stalls_ns.is_empty() && case.lost_time.is_empty());
        assert!(case.work_shares.is_empty() && case.preempted_spin_shares.is_empty());
        assert_eq!((case.history_hash.as_str(), case.history_hashes.len()), ("", 0));
    }
    let again = results::parse(std::path::Path::new("measured.json"), &measured.to_json());
    assert_eq!(again.expect("a whole file"), measured);
}

#[test]
fn results_of_a_real_host_say_nothing_about_convoys() {
    for results in of_real_hosts() {
        let explanation = explain::explain(&results);
        assert!(explanation.of_real_host);
        assert!(explanation.rows.iter().all(|row| row.convoys.is_none()));
        for figures in explanation
            .rows
            .iter()
            .map(|row| row.host_figures.expect("the threads' accounts"))
        {
            assert!(
                (0.0..1.0).contains(&figures.without_cpu) && figures.ran_s > 0.0,
                "{figures:?}"
            );
        }
        let row = display::result_row(&results.cases[0]);
        assert_eq!(row[9], "not known");
        let page = report::html(&results);
        for (words, said) in [
            ("Time of the vCPU threads on a real host", true),
            ("none (real host)", true),
            ("no convoy", false),
            ("0 of 2", false),
            ("time went", false),
            ("predicted", false),
        ] {
            assert_eq!(page.contains(words), said, "{words}");
        }
    }
    let simulated = explain::explain(&results());
    assert!(!simulated.of_real_host && simulated.rows.iter().all(|row| row.host_figures.is_none()));
    let figures = explain::explain(&fake::results_of(&fake::measure)).rows[0].host_figures;
    assert_eq!(
        figures.map(|figures| (figures.without_cpu, figures.halted_s)),
        Some((0.25, None))
    );
}

#[test]
fn runs_of_a_real_host_are_not_paired_by_seed() {
    let (simulated, measured) = (results(), fake::results_of(&fake::measure));
    let method = |a: &Results, b: &Results| {
        let compared = compare::files(a, b).expect("the same cells");
        (compared.rows[0].comparison.expect("samples").method, compared.remarks)
    };
    assert_eq!(method(&simulated, &simulated), (Method::PairedT, Vec::new()));
    for (a, b, said) in [
        (&simulated, &measured, "A is simulated; B is from a real host"),
        (&measured, &simulated, "A is from a real host, "),
        (&measured, &measured, "A and B are from a real host"),
    ] {
        let (method, remarks) = method(a, b);
        assert_eq!(method, Method::WelchT);
        assert!(remarks.iter().any(|remark| remark.contains(said)), "{remarks:?}");
    }
    let variants = compare::variants(&measured, None).expect("a first variant");
    assert_eq!(variants.remarks.len(), 1, "{:?}", variants.remarks);
}
