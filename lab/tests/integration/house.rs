//! The house as ARCHITECTURE.md describes it: which room may use which, and that what it names exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let list = manifest
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.expect("the workspace lists its members");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The packages of ours under `[dependencies]`.
fn dependencies(member: &str) -> Vec<String> {
    let manifest = read(&format!("{member}/Cargo.toml"));
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| line.strip_prefix("holdfast-"));
    names
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .map(str::to_owned)
        .collect()
}

/// The last part of a package's folder.
fn short(member: &str) -> &str {
    member.rsplit('/').next().unwrap_or(member)
}

/// Every package with the packages of ours that it may depend on, as the list under "Allowed edges" in `text` says.
fn edges(text: &str) -> BTreeMap<String, Vec<String>> {
    let section = text
        .split("## Allowed edges")
        .nth(1)
        .expect("ARCHITECTURE.md lists edges");
    let list = section.split("```").nth(1).expect("the list is a block of code");
    let names = |names: &str| names.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
    let mut edges = BTreeMap::new();
    for line in list.lines().filter(|line| !line.is_empty()) {
        let (from, to) = match line.split_once(" → ") {
            Some((from, to)) => (from, names(to)),
            None => (
                line.strip_suffix(": nothing").expect("`a → b` or `a: nothing`"),
                Vec::new(),
            ),
        };
        for from in names(from) {
            assert!(edges.insert(from, to.clone()).is_none(), "{line}: a second line");
        }
    }
    edges
}

#[test]
fn rooms_use_only_the_rooms_that_they_may() {
    let allowed = edges(&read("ARCHITECTURE.md"));
    let members = members();
    for member in &members {
        let may = allowed
            .get(short(member))
            .unwrap_or_else(|| panic!("{member} is not in the list of edges"));
        for used in dependencies(member) {
            assert!(
                may.contains(&used),
                "{member} uses {used}: a new edge is a decision, written down"
            );
        }
    }
    for (from, to) in &allowed {
        for name in [from].into_iter().chain(to) {
            assert!(
                members.iter().any(|member| short(member) == name),
                "the list of edges has {name}, which is no package"
            );
        }
    }
}

#[test]
fn what_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    for member in members() {
        assert!(
            text.contains(&format!("{}/", short(&member))),
            "ARCHITECTURE.md does not mention {member}"
        );
    }
    for path in named_paths(&text) {
        assert!(
            root().join(&path).exists(),
            "ARCHITECTURE.md names {path}, which does not exist"
        );
    }
}

#[test]
fn the_architecture_stays_short() {
    let (architecture, readme) = (read("ARCHITECTURE.md"), read("README.md"));
    assert!(architecture.len() <= 14_000, "{} bytes", architecture.len());
    assert!(readme.lines().count() <= 110, "{} lines", readme.lines().count());
}

/// The head of a package, which says where things are in it.
fn head(member: &str) -> String {
    let file = ["lib.rs", "main.rs"].map(|file| format!("{member}/src/{file}"));
    let file = file.iter().find(|file| root().join(file).exists());
    let source = read(file.unwrap_or_else(|| panic!("{member} has neither lib.rs nor main.rs")));
    let lines = source.lines().filter_map(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The paths, relative to the root, of all Rust files and folders below `folder`.
fn below(folder: &str, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    for entry in entries {
        let entry = entry.expect("a readable folder");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            below(&path, found);
            found.push(path + "/");
        } else if path.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The files that the code span `span` in the head of `member` may mean: a path from the root, or the end of a path
/// below the package's `src`. `None` if it is no path.
fn meant(member: &str, span: &str) -> Option<Vec<String>> {
    let is_ours = (span.ends_with(".rs") || span.ends_with('/')) && !span.contains([' ', '*', '<', '$']);
    if is_path(span) && root().join(span).exists() {
        return Some(vec![span.to_owned()]);
    }
    let mut found = Vec::new();
    below(&format!("{member}/src"), &mut found);
    found.retain(|path| path.ends_with(&format!("/{span}")));
    (is_ours || is_path(span)).then_some(found)
}

/// What the head `text` of `member` names and does not exist.
fn dead(member: &str, text: &str) -> Vec<String> {
    let mut dead = Vec::new();
    let spans = code_spans(text);
    for (at, (span, between)) in spans.iter().enumerate() {
        let Some(files) = meant(member, span) else {
            continue;
        };
        if files.is_empty() {
            dead.push(format!("{member} names {span}, which does not exist"));
        }
        let item = spans.get(at + 1).map(|(item, _)| *item);
        let item = item.filter(|_| span.ends_with(".rs") && !between.is_empty() && between.trim().is_empty());
        if let Some(item) = item.filter(|item| !files.iter().any(|file| defines(&read(file), item))) {
            dead.push(format!("{member} names {item} in {span}, which does not define it"));
        }
    }
    dead
}

#[test]
fn what_the_heads_of_packages_name_exists() {
    let dead: Vec<String> = members()
        .iter()
        .flat_map(|member| dead(member, &head(member)))
        .collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn what_is_wrong_in_a_head_is_found() {
    let wrong = |text: &str| dead("host", text).len();
    assert_eq!(
        wrong("`events.rs` `handle`, `sched/`, `sched/eevdf.rs`, `docs/spec/`, `a/b`, `x.rs <y>`"),
        0
    );
    assert_eq!(wrong("`event.rs`"), 0, "boundary/event.rs");
    assert_eq!(wrong("`no_such.rs`, `schedule/`, `docs/no_such.md`"), 3);
    assert_eq!(wrong("`events.rs` `handle_nothing`"), 1);
}

/// The code spans of `text` with the text that follows each, up to the next.
pub fn code_spans(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split('`').skip(1).collect();
    let pairs = parts.chunks(2);
    pairs
        .map(|pair| (pair[0], pair.get(1).copied().unwrap_or_default()))
        .collect()
}

/// Whether the code span `span` is a path in the repository: with a folder, and no spaces.
fn is_path(span: &str) -> bool {
    let is_ours = |first: &str| root().join(first).is_dir();
    span.split_once('/')
        .is_some_and(|(first, _)| is_ours(first) && !span.contains([' ', '*']))
}

/// The paths that `text` names, with lists in braces written out.
pub fn named_paths(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (span, _) in code_spans(text).into_iter().filter(|(span, _)| is_path(span)) {
        match span
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            Some((before, (names, after))) => {
                paths.extend(names.split(',').map(|name| format!("{before}{name}{after}")));
            }
            None => paths.push(span.to_owned()),
        }
    }
    paths
}

/// The pairs of a file and an item in it that `text` names: "`path` `item`".
pub fn named_items(text: &str) -> Vec<(&str, &str)> {
    let spans = code_spans(text);
    let follows = |between: &str| !between.is_empty() && between.trim().is_empty();
    let pairs = spans.windows(2).filter(|pair| {
        let (path, between) = pair[0];
        is_path(path) && path.ends_with(".rs") && follows(between)
    });
    pairs.map(|pair| (pair[0].0, pair[1].0)).collect()
}

/// Whether the Rust source `source` defines `item`: a function, a type or a trait; `Type::method` needs both.
pub fn defines(source: &str, item: &str) -> bool {
    let defined = |name: &str| {
        let keywords = ["fn", "struct", "enum", "trait", "type", "impl"];
        keywords.iter().any(|keyword| {
            let definition = format!("{keyword} {name}");
            source.match_indices(&definition).any(|(at, _)| {
                !source[at + definition.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
            })
        })
    };
    item.split("::").all(defined)
}

#[test]
fn every_function_that_the_architecture_names_is_in_its_file() {
    let text = read("ARCHITECTURE.md");
    let items = named_items(&text);
    assert!(items.len() > 25, "the life of a kick names its functions");
    for (path, item) in items {
        assert!(
            defines(&read(path), item),
            "ARCHITECTURE.md names {item} in {path}, which does not define it"
        );
    }
}

#[test]
fn a_function_in_the_wrong_file_is_found() {
    let text = "It calls `host/src/events.rs` `handle`, or `host/src/events.rs`; `locks/src/{kind,guard}.rs` too.";
    assert_eq!(named_items(text), [("host/src/events.rs", "handle")]);
    assert_eq!(named_paths(text).len(), 4);
    let source = "impl Host {\n    pub fn handle_all(&self) {}\n    pub fn begin(&self) {}\n}";
    assert!(defines(source, "begin") && defines(source, "Host::begin"));
    assert!(!defines(source, "handle") && !defines(source, "Guest::begin"));
}
