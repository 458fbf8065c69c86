//! Results of a sweep: curves, heat maps, and comparisons along a key.

use holdfast_lab::collect;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::figure::figures;
use holdfast_lab::filter::Filter;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
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
    let figures = figures(&results);
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
fn curves_have_the_means_and_intervals_of_the_page() {
    let results = swept(&["host.hz=250,100,1000", "guest.vcpus=2,4"], &[]);
    let along = sweep::along(&results, "host.hz").expect("it is swept");
    let groups = sweep::groups(&results, &["host.hz"]);
    assert_eq!(along.curves.len(), groups.len());
    for (curve, group) in along.curves.iter().zip(&groups) {
        assert_eq!(
            (&curve.case, &curve.variant, &curve.vm),
            (&group.case, &group.variant, &group.vm)
        );
        for (point, (at, figure)) in curve.points.iter().zip(&group.cells) {
            let center = figure.center().expect("samples");
            assert_eq!(point.value, at[0]);
            assert_eq!((point.mean, point.interval), (Some(center.mean), center.interval));
            let other = figure.case.swept.iter().filter(|step| step.key != "host.hz");
            assert!(
                other
                    .clone()
                    .all(|step| curve.others.get(&step.key) == Some(&step.value))
            );
            assert_eq!((curve.others.len(), other.count()), (1, 1));
        }
    }
}

#[test]
fn lines_run_from_left_to_right_whatever_the_order_of_the_values() {
    let page = report::html(&swept(&["host.hz=250,1000,100"], &[]));
    let lines = page.split("<line class=\"s0\"").skip(1);
    let mut pieces = 0;
    for line in lines {
        let at = |name: &str| -> Option<f64> {
            let (_, rest) = line.split_once(&format!(" {name}=\""))?;
            rest.split_once("%\"")?.0.parse().ok()
        };
        // Lines of the legend have pixels, not percent.
        if let (Some(from), Some(to)) = (at("x1"), at("x2")) {
            assert!(from < to, "{from} {to}");
            pieces += 1;
        }
    }
    assert_eq!(pieces, 4, "two pieces of a line in each of two charts");
}

#[test]
fn small_differences_have_weak_colors() {
    let strongest = |ratio: f64| {
        let mut results = swept(&["host.hz=250,100,1000", "guest.vcpus=2,4"], &[]);
        for (index, case) in results.cases.iter_mut().enumerate() {
            case.samples.fill(if index % 5 == 0 { 100.0 * ratio } else { 100.0 });
        }
        results.totals.clear();
        let page = report::html(&results);
        let heats = page.split("--heat: ").skip(1).filter_map(|rest| rest.split_once('%'));
        let heats = heats.map(|(heat, _)| heat.parse::<f64>().expect("a number"));
        heats.fold(0.0, f64::max)
    };
    assert_eq!((strongest(1.0), strongest(1.01)), (0.0, 5.0));
    assert_eq!((strongest(1.1), strongest(9.0)), (50.0, 50.0));
}

#[test]
fn drawings_of_sweeps_have_the_curves_or_the_heat_maps() {
    let drawn = |results: &Results| -> Option<String> {
        let mut all = report::drawings(results).into_iter();
        all.find(|drawing| drawing.name.ends_with("-sweep"))
            .map(|drawing| drawing.svg)
    };
    let one = swept(&["host.hz=250,100,1000"], &[]);
    let svg = drawn(&one).expect("it is a sweep");
    // Each of two charts has two lines of three points; each line has one in the legend too.
    assert_eq!(svg.matches("<circle").count(), 2 * (2 * 3 + 2), "{svg}");
    let first = one.cases[0].case.split(' ').next().expect("a name").to_owned();
    let filter = Filter {
        cases: vec![first],
        ..Filter::default()
    };
    let half = drawn(&filter.of(one).expect("a case")).expect("a case");
    assert_eq!(half.matches("<circle").count(), 2 * 3 + 2, "one case");
    let two = drawn(&swept(&["host.hz=250,100,1000", "guest.vcpus=2,4"], &[])).expect("it is a sweep");
    assert_eq!(two.matches("<rect class=\"heat\"").count(), 24);
    assert!(drawn(&fake::results()).is_none(), "no sweep");
}

#[test]
fn results_without_a_sweep_are_as_before() {
    assert!(!fake::results().to_json().contains("swept"));
    let results = swept(&["host.hz=250,100"], &[]);
    let again = results::parse("fake.json".as_ref(), &results.to_json()).expect("its own");
    assert_eq!(again, results);
}
