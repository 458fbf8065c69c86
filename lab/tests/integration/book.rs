//! The site made of `docs/`: its table of contents is complete, its pages lead nowhere outside, and the experiments of
//! its tutorial are valid. `mdbook build docs` makes the site; the tests do not need that program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_lab::experiment::Experiment;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Appends the names of all documents below `folder`, relative to `docs`.
fn pages(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of documents") {
        let path = entry.expect("an entry of that folder").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(docs()).expect("below docs").to_string_lossy();
            found.push(name.into_owned());
        }
    }
}

fn read(page: &str) -> String {
    fs::read_to_string(docs().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns the targets of the links and pictures in a document, except those with a scheme.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://")).collect()
}

/// Returns the anchor that a heading has in the site and in repository browsers.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn the_contents_name_each_document_once() {
    let mut found = Vec::new();
    pages(&docs(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    let contents = read("SUMMARY.md");
    let mut named = BTreeMap::<&str, u32>::new();
    for page in links(&contents) {
        *named.entry(page).or_default() += 1;
    }
    for page in found.iter().filter(|page| *page != "SUMMARY.md") {
        let times = named.remove(page.as_str()).unwrap_or(0);
        assert_eq!(times, 1, "docs/SUMMARY.md names {page} {times} times");
    }
    assert!(named.is_empty(), "docs/SUMMARY.md names what does not exist: {named:?}");
}

#[test]
fn links_stay_in_the_site_and_lead_to_headings() {
    let mut found = Vec::new();
    pages(&docs(), &mut found);
    let root = docs().canonicalize().expect("docs exists");
    let mut seen = 0;
    for page in found {
        let text = read(&page);
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = root.join(&page);
            let target = match file {
                "" => folder,
                file => folder.parent().expect("a page is in a folder").join(file),
            };
            let target = target
                .canonicalize()
                .unwrap_or_else(|_| panic!("docs/{page}: no {link}"));
            assert!(target.starts_with(&root), "docs/{page}: {link} leads out of the site");
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).expect("a document");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|line| anchor(line) == heading),
                    "docs/{page}: no heading {link}"
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} links");
}

#[test]
fn experiments_of_the_tutorial_are_valid() {
    let mut found = Vec::new();
    pages(&docs().join("tutorial"), &mut found);
    let mut checked = 0;
    for page in found {
        let text = read(&page);
        for block in text.split("```toml\n").skip(1) {
            let (experiment, _) = block.split_once("```").expect("the end of a block");
            let parsed = Experiment::parse(&page, experiment);
            assert!(parsed.is_ok(), "docs/{page}: {:?}", parsed.err());
            checked += 1;
        }
    }
    assert!(checked > 0, "the tutorial has an experiment");
}

#[test]
fn the_policy_of_the_tutorial_is_the_example() {
    let (page, example) = (
        read("tutorial/own-policy.md"),
        read("../examples/own-policy/src/lib.rs"),
    );
    let code = page
        .split("```rust\n")
        .nth(1)
        .and_then(|block| block.split("```").next());
    let code = code.expect("the page has code");
    let (uses, rest) = code.split_once("\n\n").expect("the code begins with what it uses");
    assert!(example.contains(uses), "{uses}");
    assert!(example.ends_with(rest), "{rest}");
    assert!(code.lines().count() < 50);
}

#[test]
fn the_guest_policy_and_the_workload_of_the_tutorial_are_the_examples() {
    let page = read("tutorial/own-policy.md");
    let block = |kind: &str, part: &str| {
        let blocks = page.split(kind).skip(1).filter_map(|block| block.split("```").next());
        let mut found = blocks.filter(|block| block.contains(part)).map(str::to_owned);
        found.next().expect("the page has the code")
    };
    let policy = read("../examples/own-policy/src/guest.rs");
    assert!(policy.ends_with(&block("```rust\n", "struct OffPreempted")));
    let workload = read("../examples/own-workload/src/lib.rs").replace("\n    ", "\n");
    assert!(workload.contains(&block("```text\n", "fn run(")));
}
