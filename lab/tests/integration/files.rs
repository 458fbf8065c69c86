//! Result files: written whole or not at all, read strictly.

use std::fs;
use std::path::Path;

use holdfast_lab::explain::explain;
use holdfast_lab::results::{self, Case, ReadError};
use holdfast_lab::{compare, report};
use proptest::prelude::*;

use crate::fake::results;

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let written = results();
    let path = written.write(&folder.path().join("new")).expect("a writable folder");
    assert_eq!(
        path.file_name().and_then(|name| name.to_str()),
        Some("fake.results.json")
    );
    assert_eq!(results::read(&path).expect("a whole file"), written);
}

#[test]
fn a_failed_write_leaves_nothing_and_spoils_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    // A folder has the name of the file, so the last step fails.
    fs::create_dir_all(folder.path().join("fake.results.json/in the way")).expect("a writable folder");
    let error = results()
        .write(folder.path())
        .expect_err("a folder cannot be replaced by a file")
        .to_string();
    assert!(error.contains("fake.results.json: cannot write it"), "{error}");
    let left: Vec<_> = fs::read_dir(folder.path())
        .expect("readable")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    assert_eq!(left, ["fake.results.json"], "no temporary file is left");
    // A file has the name of the folder.
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("writable");
    assert!(results().write(&file).is_err());
    assert_eq!(fs::read_to_string(&file).expect("readable"), "x");
}

fn complaint(text: &str) -> String {
    results::parse(Path::new("r.json"), text)
        .expect_err("no result file")
        .to_string()
}

#[test]
fn what_is_no_result_file_is_named() {
    let whole = results().to_json();
    assert!(complaint("").starts_with("r.json:1: found the end of the file"));
    let half = &whole[..whole.len() / 2];
    assert!(complaint(half).contains("found the end of the file, expected more of a holdfast.results/2 document"));
    assert_eq!(
        complaint("{\"a\": 1}"),
        "r.json: found no schema, expected a results file with \"schema\": \"holdfast.results/2\", as `holdfast run --out DIR` \
         writes it"
    );
    assert!(complaint(&whole.replace("results/2", "results/3")).contains("found \"schema\": \"holdfast.results/3\""));
    assert!(complaint(&whole.replace("\"complete\"", "\"finished\"")).contains("missing field `complete`"));
    assert!(
        complaint(&whole.replacen("22.0", "-22.0", 1)).contains("found the sample -22, expected a positive number")
    );
    let mut leaky = results();
    leaky.cases[0].lost_time.insert("leak".to_owned(), 0.5);
    assert!(complaint(&leaky.to_json()).contains("lost_time that sums to 1.5, expected 1"));
    let other = complaint("{\"schema\": \"holdfast.reality/1\"}");
    assert!(
        other.contains("found \"schema\": \"holdfast.reality/1\" (of `holdfast validate threads` or `kvm`: "),
        "{other}"
    );
    let missing = results::read(Path::new("no/such/file")).expect_err("no file");
    assert!(matches!(missing, ReadError::Io(..)));
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let mut later: serde_json::Value = serde_json::from_str(&results().to_json()).expect("JSON");
    later["new"] = 1.into();
    for place in ["/cases/0", "/cases/2/published", "/cases/2/convoys/2"] {
        later.pointer_mut(place).unwrap_or_else(|| panic!("{place}"))["new"] = "x".into();
    }
    let read = results::parse(Path::new("r.json"), &later.to_string()).expect("a whole file");
    assert_eq!(read, results());
}

#[test]
fn a_file_that_contradicts_itself_is_refused() {
    let refused = |change: &dyn Fn(&mut Case), expected: &str| {
        let mut bad = results();
        change(&mut bad.cases[0]);
        let said = complaint(&bad.to_json());
        assert!(said.starts_with("r.json: case ") && said.contains(expected), "{said}");
    };
    refused(&|case| case.convoys.truncate(1), "found 3 seeds for 1 samples");
    refused(&|case| case.work_shares.clear(), "found 3 seeds for 0 samples");
    refused(
        &|case| case.better = "more".to_owned(),
        "better: found \"more\", expected \"lower\"",
    );
    refused(
        &|case| {
            case.lost_time.insert("a".to_owned(), -1.0);
            case.lost_time.insert("b".to_owned(), 1.0);
        },
        "lost_time.a: found -1, expected a share",
    );
    // Figures that the samples do not give.
    refused(
        &|case| case.mean = case.mean.map(|mean| mean * 1.001),
        "found the mean 2",
    );
    refused(&|case| case.sd = None, "found the sd null, expected ");
    refused(&|case| case.median = case.max, "found the median ");
    refused(&|case| case.lengths_ns[1] += 1_000_000, "which the run's length gives");
    refused(
        &|case| case.history_hashes[0] = "0".repeat(16),
        "found the history hash ",
    );
    // A terminal would execute this sequence.
    refused(
        &|case| case.vm = "\u{1b}[2J".to_owned(),
        "found the name \"\\u{1b}[2J\", expected one without",
    );
    let mut bad = results();
    bad.cases[2].published.as_mut().expect("published").mean = 0.0;
    assert!(complaint(&bad.to_json()).contains("published.mean: found 0, expected a positive number"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Any truncation and any changed byte gives an error or a consistent document, never a panic.
    #[test]
    fn damaged_files_never_panic(cut in 0_usize..20_000, at in 0_usize..20_000, byte in 0_u8..128) {
        let mut text = results().to_json().into_bytes();
        let length = text.len();
        text[at % length] = byte;
        text.truncate(1 + cut % length);
        let still = String::from_utf8(text).ok().and_then(|text| results::parse(Path::new("r.json"), &text).ok());
        if let Some(still) = still {
            let _ = (explain(&still), compare::files(&still, &results()), report::html(&still));
        }
    }

    /// A truncated file is never accepted as complete.
    #[test]
    fn truncated_files_are_refused(cut in 0_usize..20_000) {
        let text = results().to_json();
        let whole = text.trim_end().len();
        let cut = &text[..cut % whole];
        prop_assert!(results::parse(Path::new("r.json"), cut).is_err());
    }
}
