//! The pinned histories of all shipped experiments, whole (all cases and variants) with one seed at a small scale, and
//! of `histories/settings.toml`, which has settings that no shipped experiment has.
//!
//! - **No shipped experiment fails.** Every run of every cell ends with a result.
//! - **Pinned by version.** `histories/VERSION.txt` has the hash of each run's history. A change of any event of any
//!   run changes its hash.
//! - **Every setting matters.** Each variant of `settings.toml` has another history than the first one in some case.
//! - **Build profiles agree.** Each profile compares with the same table: `cargo test -p holdfast-lab --test
//!   integration histories`, and the same with `--release`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use holdfast_lab::collect;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::run::{self, Execution};
use holdfast_lab::shipped::{EXPERIMENTS, Shipped};
use holdfast_sim::CallOff;

/// Scale of an experiment that is not in [`SCALES`].
const SCALE: f64 = 0.005;

/// Scales of the experiments that need another one: smaller where a run takes long, larger where nothing would be left.
const SCALES: &[(&str, f64)] = &[
    ("amqp-directed-yield", 0.01),
    ("avic-hackbench", 0.00005),
    ("boot-64", 0.05),
    ("kernel-build-contention", 0.0005),
    ("linux-hackbench", 0.0005),
    ("linux-pvspin", 0.002),
    ("settings", 0.01),
    ("who-should-wait", 0.05),
];

/// Many settings, each in three mixtures of workloads.
pub const SETTINGS: Shipped = Shipped {
    name: "settings",
    file: "settings.toml",
    text: include_str!("histories/settings.toml"),
};

/// Number of differing rows that a failure shows.
const SHOWN: usize = 10;

/// Variable that makes the test write the table.
const WRITE: &str = "HOLDFAST_WRITE_HISTORIES";

/// Runs `shipped`. Returns the row of each cell: experiment, case, variant, hash of the history.
fn rows(shipped: &Shipped, scale: f64, failures: &mut String) -> Vec<String> {
    let experiment = Experiment::parse(shipped.file, shipped.text).unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options {
        seeds: Some(1),
        scale: Some(scale),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
    let execution = Execution {
        runner: &run::simulate,
        jobs: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        call_off: &CallOff::new(),
        progress: &|_| {},
    };
    let results = collect::results(&plan, &run::run(&plan, execution), shipped.name, "test");
    for failed in &results.failures {
        let _ = writeln!(failures, "{}\n  {}", failed.replay, failed.error);
    }
    // Measured guests of one cell share the history.
    let mut rows: Vec<String> = results
        .cases
        .iter()
        .map(|case| {
            let hash = case.history_hashes.first().map_or("failed", String::as_str);
            format!("{} | {} | {} | {hash}", shipped.name, case.case, case.variant)
        })
        .collect();
    rows.dedup();
    rows
}

/// Returns the rows of all shipped experiments, and the failed runs with the commands that repeat them.
fn all_rows() -> (String, String) {
    let (mut table, mut failures) = (String::new(), String::new());
    for shipped in EXPERIMENTS.iter().chain([&SETTINGS]) {
        let scale = SCALES.iter().find(|(name, _)| *name == shipped.name);
        let scale = scale.map_or(SCALE, |(_, scale)| *scale);
        let _ = writeln!(table, "# {} --seeds 1 --scale {scale}", shipped.name);
        for row in rows(shipped, scale, &mut failures) {
            let _ = writeln!(table, "{row}");
        }
    }
    (table, failures)
}

/// Returns the first differences between two tables, or `None` if they are equal.
fn differences(pinned: &str, found: &str) -> Option<String> {
    let lacks = |other: &str, row: &&str| !other.lines().any(|line| line == *row);
    let gone = pinned.lines().filter(|row| lacks(found, row));
    let new = found.lines().filter(|row| lacks(pinned, row));
    let (gone, new): (Vec<&str>, Vec<&str>) = (gone.collect(), new.collect());
    if gone.is_empty() && new.is_empty() {
        return None;
    }
    let mut text = format!(
        "{} pinned rows are not found, {} found rows are not pinned:",
        gone.len(),
        new.len()
    );
    for (sign, rows) in [('-', gone), ('+', new)] {
        for row in rows.iter().take(SHOWN) {
            let _ = write!(text, "\n{sign} {row}");
        }
    }
    Some(text)
}

/// Returns the name of the pinned table, below the folder of this crate, and its path.
fn table() -> (String, PathBuf) {
    let file = format!("tests/integration/histories/{}.txt", env!("CARGO_PKG_VERSION"));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(&file);
    (file, path)
}

#[test]
fn every_shipped_experiment_runs_whole_with_its_pinned_histories() {
    let (file, path) = table();
    let (found, failures) = all_rows();
    assert!(failures.is_empty(), "shipped experiments fail:\n{failures}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some(differences) = differences(&pinned, &found) {
        panic!(
            "histories differ from lab/{file}: {differences}\nIf they are meant to differ, write the table again:\n  {WRITE}=1 \
             cargo test -p holdfast-lab --test integration histories"
        );
    }
}

#[test]
fn every_setting_matters() {
    let pinned = std::fs::read_to_string(table().1).expect("the pinned table");
    let mut histories: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for row in pinned.lines().filter_map(|row| row.strip_prefix("settings | ")) {
        if let [case, variant, hash] = row.split(" | ").collect::<Vec<_>>()[..] {
            histories.entry(variant).or_default().insert(case, hash);
        }
    }
    let plain = histories.remove("plain").expect("the settings have a plain variant");
    let idle: Vec<&str> = histories
        .iter()
        .filter(|(_, found)| **found == plain)
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(idle, [""; 0], "settings that change no history");
}

#[test]
fn a_changed_history_and_a_missing_row_are_named() {
    let pinned = "# a\na | 1x | ticket | 01\na | 1x | tas | 02\n";
    assert_eq!(differences(pinned, pinned), None);
    let changed = differences(pinned, &pinned.replace("02", "03")).expect("a difference");
    assert_eq!(
        changed,
        "1 pinned rows are not found, 1 found rows are not pinned:\n- a | 1x | tas | 02\n+ a | 1x | tas | 03"
    );
    let missing = differences(pinned, "# a\na | 1x | tas | 02\n").expect("a difference");
    assert!(missing.contains("- a | 1x | ticket | 01"), "{missing}");
}
