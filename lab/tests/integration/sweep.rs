//! Results of a sweep: curves, heat maps, and comparisons along a key.

use holdfast_lab::collect;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::plan::{Options, Plan};
use holdfast_lab::report;
use holdfast_lab::results::{self, Results};
use holdfast_lab::stats::{Samples, compare, compare_among};
use holdfast_lab::sweep;
use holdfast_lab::swept::Swept;

use crate::fake::{self, execute, plan, simulate};

fn swept(sweep: &[&str], sweep_variants: &[&str]) -> Results {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    results_of(&plan(&Options {
        sweep: owned(sweep),
        sweep_variants: owned(sweep_variants),
        ..Options::default()
    }))
}

fn results_of(plan: &Plan) -> Results {
    collect::results(plan, &execute(plan, &simulate, 1), "fake.toml", "test")
}

#[test]
fn groups_have_every_cell_once_under_names_without_the_key() {
    let results = swept(&["host.hz=250,100,1000"], &["guest.vcpus=2,4"]);
    assert_eq!(sweep::keys(&results), ["host.hz", "guest.vcpus"]);
    for (keys, groups, cells) in [
        (&["host.hz"][..], 8, 3),
        (&["guest.vcpus"], 12, 2),
        (&["host.hz", "guest.vcpus"], 4, 6),
    ] {
        let found = sweep::groups(&results, keys);
        assert_eq!(found.len(), groups, "{keys:?}");
        assert!(found.iter().all(|group| group.cells.len() == cells));
        let mut all: Vec<_> = found
            .iter()
            .flat_map(|group| &group.cells)
            .map(|(_, it)| it.case.id())
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), results.cases.len());
    }
    let both = sweep::groups(&results, &["host.hz", "guest.vcpus"]);
    assert_eq!(
        (both[0].name().as_str(), both[0].values(0)),
        ("quiet / ticket / build", vec!["250", "100", "1000"])
    );
    let one = sweep::groups(&results, &["host.hz"]);
    assert_eq!(one[0].name(), "quiet / ticket vcpus=2 / build");
}

#[test]
fn a_step_is_removed_from_a_name_wherever_it_is() {
    let step = |value: &str| Swept {
        key: "vm.*.slice".to_owned(),
        value: value.to_owned(),
        step: format!("slice={value}"),
    };
    assert_eq!(step("3 ms").removed_from("loud slice=3 ms hz=250"), "loud hz=250");
    assert_eq!(step("3 ms").removed_from("slice=3 ms"), "");
    assert_eq!(step("3").removed_from("loud slice=30"), "loud slice=30");
}

#[test]
fn intervals_along_a_key_are_corrected_for_their_number() {
    let results = swept(&["host.hz=250,100,1000"], &[]);
    let along = sweep::along(&results, "host.hz").expect("it is swept");
    assert_eq!((along.comparisons, along.rows.len()), (8, 8));
    let row = &along.rows[0];
    assert_eq!(
        (row.from.as_str(), row.to.as_str(), row.case.as_str()),
        ("250", "100", "quiet")
    );
    assert_eq!(row.mean_from, row.mean_to, "the stand-in does not depend on the key");
    assert_eq!(row.change_percent, Some(0.0));
    let unknown = sweep::along(&results, "host.hx").expect_err("not swept").to_string();
    assert!(unknown.contains("did you mean \"host.hz\"?"), "{unknown}");
    let none = sweep::along(&fake::results(), "host.hz")
        .expect_err("not swept")
        .to_string();
    assert!(none.contains("these have no swept key"), "{none}");
    // Chance shows a difference in one of many comparisons: the interval of one among many is wider.
    // Paired by seed the stand-in's ratios have no spread.
    let unpaired = |case: usize| Samples {
        paired: false,
        ..results.cases[case].samples()
    };
    let (ticket, tas) = (unpaired(0), unpaired(1));
    let alone = compare(ticket, tas).and_then(|it| it.interval).expect("samples");
    assert_eq!(compare_among(1, ticket, tas), compare(ticket, tas));
    let mut last = alone;
    for count in [2, 8, 100] {
        let wider = compare_among(count, ticket, tas)
            .and_then(|it| it.interval)
            .expect("samples");
        assert!(wider.0 < last.0 && last.1 < wider.1, "{count}: {wider:?} and {last:?}");
        last = wider;
    }
}

#[test]
fn identical_guests_are_one_curve() {
    let text = fake::EXPERIMENT.replacen("name = \"build\"\n", "name = \"build\"\ncount = 3\n", 1);
    let text = text.split("[[published]]").next().expect("a beginning");
    let experiment = Experiment::parse("fake.toml", text).expect("valid");
    let options = Options {
        sweep: vec!["host.hz=100,250".to_owned()],
        ..Options::default()
    };
    let results = results_of(&Plan::new(experiment, &options).expect("valid"));
    assert_eq!(results.cases.len(), 3 * 8);
    let figures = sweep::figures(&results);
    assert_eq!(figures.len(), 8);
    assert!(figures.iter().all(|figure| figure.vm() == "3 x build"));
    assert_eq!(figures[0].samples().values, results.totals[0].samples);
}

#[test]
fn pages_of_sweeps_have_curves_or_heat_maps_and_no_row_for_each_cell() {
    let one = report::html(&swept(&["host.hz=250,100,1000"], &[]));
    assert_eq!(one.matches("class=\"plot curve\"").count(), 2, "a chart for each case");
    assert!(one.contains("What host.hz buys") && one.contains("corrected for 8 comparisons"));
    let two = report::html(&swept(&["host.hz=250,100,1000", "guest.vcpus=2,4"], &[]));
    assert_eq!(
        two.matches("class=\"heat\"").count(),
        4,
        "a map for each case and variant"
    );
    assert_eq!(two.matches("style=\"--heat").count(), 24);
    for page in [&one, &two] {
        let (before, _) = page
            .split_once("Samples, tables, lost time")
            .expect("a summary of the details");
        assert!(before.contains("What host.hz buys") && !before.contains("class=\"dot\""));
    }
    let plain = report::html(&fake::results());
    assert!(!plain.contains("Every cell") && !plain.contains("plot curve"));
}

#[test]
fn results_without_a_sweep_are_as_before() {
    assert!(!fake::results().to_json().contains("swept"));
    let results = swept(&["host.hz=250,100"], &[]);
    let again = results::parse("fake.json".as_ref(), &results.to_json()).expect("its own");
    assert_eq!(again, results);
}
