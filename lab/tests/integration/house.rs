//! The house as ARCHITECTURE.md describes it: which room may use which, and that what it names exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every package with the packages of ours that it may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("locks", &[]),
    ("locks/history", &["locks"]),
    ("holdfast", &["locks", "threads"]),
    ("machine", &["abi"]),
    ("guest", &["abi", "locks"]),
    ("workloads", &["guest", "locks"]),
    ("host", &["abi"]),
    (
        "platforms/sim",
        &["abi", "guest", "host", "locks", "machine", "workloads"],
    ),
    ("platforms/words", &[]),
    ("platforms/threads", &["locks", "words"]),
    ("platforms/threads/capi", &["threads"]),
    ("platforms/threads/peers", &[]),
    ("platforms/threads/preload", &["threads"]),
    ("platforms/model", &["abi", "host", "locks", "machine"]),
    ("platforms/kvm", &["abi", "locks", "protocol", "workloads"]),
    ("platforms/kvm/protocol", &["locks", "workloads"]),
    (
        "platforms/kvm/image",
        &["abi", "guest", "locks", "protocol", "words", "workloads"],
    ),
    ("lab", &["history", "host", "locks", "machine", "sim", "workloads"]),
    (
        "real-host",
        &[
            "host",
            "kvm",
            "lab",
            "locks",
            "machine",
            "peers",
            "sim",
            "threads",
            "workloads",
        ],
    ),
    ("cli", &["lab", "real-host"]),
];

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn members() -> Vec<String> {
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

#[test]
fn rooms_use_only_the_rooms_that_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    for member in members() {
        let may = allowed
            .get(member.as_str())
            .unwrap_or_else(|| panic!("{member} is not in the list of rooms"));
        for used in dependencies(&member) {
            assert!(
                may.contains(&used.as_str()),
                "{member} uses {used}: a new edge is a decision, written down"
            );
        }
    }
}

#[test]
fn what_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    for member in members() {
        let last = member.rsplit('/').next().unwrap_or(&member);
        assert!(
            text.contains(&format!("{last}/")),
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
