//! Answers with ten variants and four guests: tables that fit a terminal, and parts of results.

use std::fs;
use std::path::Path;

use crate::command::{Ran, holdfast_in, scratch};

/// Ten variants and four guests.
const TEN: &str = include_str!("ten-variants.toml");
/// Columns of a terminal.
const WIDTH: usize = 100;

/// Returns a folder with the experiment and its results, and with those of a sweep of it.
fn ran() -> tempfile::TempDir {
    let folder = scratch();
    fs::write(folder.path().join("ten.toml"), TEN).expect("writable");
    let ran = holdfast_in(folder.path(), &["run", "ten.toml", "--out", "."]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert_fits(&["run"], &ran);
    let swept = [
        "run",
        "ten.toml",
        "--sweep",
        "host.wakeup_granularity=1ms,500us",
        "--out",
        "swept",
    ];
    let ran = holdfast_in(folder.path(), &swept);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert_fits(&swept, &ran);
    folder
}

/// Asserts that the tables of an output fit a terminal.
fn assert_fits(arguments: &[&str], ran: &Ran) {
    let lines: Vec<&str> = ran.out.lines().filter(|line| line.starts_with('|')).collect();
    assert!(lines.len() > 2, "{arguments:?} has a table: {}", ran.out);
    for line in lines {
        assert!(line.chars().count() <= WIDTH, "{arguments:?}: {line}");
    }
}

fn shown(folder: &Path, arguments: &[&str]) -> String {
    let ran = holdfast_in(folder, arguments);
    assert_eq!(ran.status, 0, "{arguments:?}: {}", ran.err);
    assert_fits(arguments, &ran);
    ran.out
}

#[test]
fn all_tables_of_ten_variants_and_four_guests_fit_a_terminal() {
    let folder = ran();
    let (ten, swept) = ("ten.results.json", "swept/ten.results.json");
    for arguments in [
        &["plan", "ten.toml"][..],
        &["explain", ten],
        &["explain", ten, "--all", "--counters", "--by-seed"],
        &["explain", ten, "--guest", "db"],
        &["explain", swept],
        &["compare", ten],
        &["compare", ten, "--all"],
        &["compare", ten, "--along", "variant"],
        &["compare", ten, ten, "--all"],
        &["compare", swept, "--all"],
        &["compare", swept, "--along", "host.wakeup_granularity"],
    ] {
        shown(folder.path(), arguments);
    }
}

#[test]
fn a_matrix_has_its_verdict_and_a_row_for_each_variant() {
    let folder = ran();
    let compared = shown(folder.path(), &["compare", "ten.results.json"]);
    assert!(compared.starts_with("Against \"as it is\": "), "{compared}");
    assert!(compared.contains("| all guests, % |"), "{compared}");
    assert_eq!(
        compared.lines().filter(|line| line.starts_with('|')).count(),
        2 + 9,
        "{compared}"
    );
    assert!(
        compared.contains("`--all` shows means and intervals of 36 comparisons."),
        "{compared}"
    );
    let along = shown(folder.path(), &["compare", "ten.results.json", "--along", "variant"]);
    assert_eq!(along, compared);
    let all = shown(folder.path(), &["compare", "ten.results.json", "--all"]);
    assert!(all.contains("builder-3, %"), "{all}");
}

#[test]
fn results_of_any_file_are_filtered() {
    let folder = ran();
    let ten = "ten.results.json";
    let explained = shown(
        folder.path(),
        &["explain", ten, "--guest", "builder", "--variant", "tickets"],
    );
    assert!(
        explained.contains("builder-3") && !explained.contains("db"),
        "{explained}"
    );
    let compared = shown(folder.path(), &["compare", ten, "--guest", "db", "--variant", "hz-100"]);
    assert!(
        compared.contains("| hz-100 ") && !compared.contains("builder"),
        "{compared}"
    );
    let run = ["run", "ten.toml", "--variant", "tickets", "--guest", "db"];
    let ran = shown(folder.path(), &run);
    assert!(ran.contains("guest db") && !ran.contains("builder-"), "{ran}");
    let report = [
        "report",
        ten,
        "--guest",
        "db",
        "--variant",
        "hz-100",
        "--out",
        "one.html",
    ];
    assert_eq!(holdfast_in(folder.path(), &report).status, 0);
    let page = fs::read_to_string(folder.path().join("one.html")).expect("it is there");
    let begin = page.find("<h2>Results</h2>").expect("results");
    let end = page.find("<h2>The experiment</h2>").expect("the definition");
    assert!(!page[begin..end].contains("builder") && page[begin..end].contains("hz-100"));
    for command in ["explain", "compare", "report"] {
        let ran = holdfast_in(folder.path(), &[command, ten, "--guest", "web"]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{command}");
        let expected = "error: --guest: found \"web\", expected the beginning of one of db, builder-1";
        assert!(ran.err.starts_with(expected), "{command}: {}", ran.err);
    }
    let ran = holdfast_in(folder.path(), &["explain", ten, "--case", "default", "--seeds", "3"]);
    assert_eq!(ran.status, 2, "only the names are chosen from a file");
}

#[test]
fn small_causes_are_summed_unless_all_are_asked_for() {
    let folder = ran();
    let one = ["explain", "ten.results.json", "--guest", "db", "--variant", "as it is"];
    let short = shown(folder.path(), &one);
    let causes = |text: &str| text.lines().skip_while(|line| !line.starts_with("| cause")).count();
    let sum = short.lines().find(|line| line.contains("other causes")).expect("a sum");
    let count: usize = sum
        .split_whitespace()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .expect("a number");
    assert!(count > 1, "{sum}");
    let all = shown(folder.path(), &[&one[..], &["--all"]].concat());
    assert!(!all.contains("other causes") && causes(&all) > causes(&short), "{all}");
}
