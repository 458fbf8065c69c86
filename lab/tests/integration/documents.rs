//! Citations and links: every document and heading that a comment or a document names exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the cited documents.
const SPEC: &str = "docs/spec/";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Appends the paths of all files under `folder` that have one of `extensions`, without build output and hidden
/// folders.
fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry of that folder").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                files(&path, extensions, found);
            }
        } else if path
            .extension()
            .is_some_and(|is| extensions.iter().any(|wanted| is == *wanted))
        {
            found.push(path);
        }
    }
}

fn repository(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), extensions, &mut found);
    found.sort();
    assert!(found.len() > 5, "the repository has files with {extensions:?}");
    found
}

/// Returns the prose of a file as one line: a whole document, or the comments of a source file.
fn prose(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let marker = match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") => "",
        Some("rs" | "h") => "//",
        _ => "#",
    };
    let comments = text
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with(marker));
    let words = comments.flat_map(|line| {
        let line = line.strip_prefix(marker).unwrap_or(line);
        line.trim_start_matches(['/', '!', '>']).split_whitespace()
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the headings of each document in `docs/spec`, by the document's name.
fn headings() -> BTreeMap<String, Vec<String>> {
    let mut found = Vec::new();
    files(&root().join(SPEC), &["md"], &mut found);
    let document = |path: PathBuf| {
        let name = path
            .file_name()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path).expect("a document");
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let headings = headings.map(|line| line.trim_start_matches('#').trim().to_owned());
        (name, headings.collect())
    };
    found.into_iter().map(document).collect()
}

/// Returns the quoted headings at the beginning of `text`: `, "A" and "B"`.
fn quoted(text: &str) -> Vec<&str> {
    let mut rest = text.trim_start_matches('`');
    let mut found = Vec::new();
    while let Some(after) = [", \"", " and \""].iter().find_map(|join| rest.strip_prefix(join)) {
        let Some((heading, after)) = after.split_once('"') else {
            break;
        };
        found.push(heading.trim_end_matches(','));
        rest = after;
    }
    found
}

/// Returns each document that `prose` cites, with the cited headings.
fn citations(prose: &str) -> Vec<(&str, Vec<&str>)> {
    let cited = prose.split(SPEC).skip(1).filter_map(|rest| {
        let (name, after) = rest.split_once(".md")?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        is_name.then(|| (name, quoted(after)))
    });
    cited.collect()
}

/// Returns one line for each wrong citation in `prose`.
fn dead_citations(prose: &str, documents: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut dead = Vec::new();
    for (name, cited) in citations(prose) {
        let Some(headings) = documents.get(&format!("{name}.md")) else {
            dead.push(format!("{SPEC}{name}.md does not exist"));
            continue;
        };
        let missing = cited
            .iter()
            .filter(|heading| !headings.iter().any(|known| known == *heading));
        dead.extend(missing.map(|heading| format!("{SPEC}{name}.md has no heading \"{heading}\"")));
    }
    dead
}

#[test]
fn cited_headings_exist() {
    let documents = headings();
    let mut cited = 0;
    for path in repository(&["rs", "toml", "md", "h"]) {
        let prose = prose(&path);
        let dead = dead_citations(&prose, &documents);
        assert!(dead.is_empty(), "{}: {dead:?}", path.display());
        cited += citations(&prose).len();
        assert!(
            !prose.contains('§'),
            "{}: a section sign; cite a heading of {SPEC}, or a section of a named manual",
            path.display()
        );
    }
    assert!(cited > 50, "the code cites {SPEC}: found {cited} citations");
}

#[test]
fn dead_citations_are_found() {
    let documents = headings();
    let dead = |prose: &str| dead_citations(prose, &documents).len();
    assert_eq!(dead("HLT (docs/spec/host.md, \"Halt and polling\" and \"CFS\")."), 0);
    assert_eq!(dead("HLT (docs/spec/host.md, \"Halt and napping\")."), 1);
    assert_eq!(
        dead("HLT (docs/spec/host.md, \"CFS\" and \"CFQ\"), and `docs/spec/costs.md`."),
        1
    );
    assert_eq!(dead("See docs/spec/hosts.md."), 1);
}

#[test]
fn documents_cite_their_own_sections_rightly() {
    for (name, known) in headings() {
        let prose = prose(&root().join(SPEC).join(&name));
        for rest in prose.split("section \"").skip(1) {
            let (heading, _) = rest.split_once('"').expect("a closing quotation mark");
            assert!(
                known.iter().any(|is| is == heading),
                "{SPEC}{name} has no section \"{heading}\""
            );
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for path in repository(&["md"]) {
        let text = fs::read_to_string(&path).expect("a document");
        let folder = path.parent().expect("a document is in a folder");
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(
                folder.join(target).exists(),
                "{}: a link to {target}, which does not exist",
                path.display()
            );
        }
    }
}
