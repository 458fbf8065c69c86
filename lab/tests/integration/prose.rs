//! The rules for prose, in documents and in comments: width, words, doc comments; and the list of modules with unsafe
//! code.

use std::path::{Path, PathBuf};

/// Widest line of prose in columns, indentation and comment marker included.
const COLUMNS_MAX: usize = 120;

/// Words and phrases that say less than the field's word, or the thing's name.
const HOUSE_WORDS: &[&str] = &[
    "anew",
    "beneath",
    "courtesy",
    "everybody",
    "for ever",
    "look on",
    "looks on",
    "nobody",
    "somebody",
    "whoever",
    "whomever",
];

/// Beginnings of words in British spelling. American spelling is used, as in Linux and Rust.
const BRITISH: &[&str] = &[
    "behaviour",
    "colour",
    "favour",
    "generalis",
    "initialis",
    "judgement",
    "labell",
    "minimis",
    "modell",
    "neighbour",
    "normalis",
    "optimisa",
    "optimise",
    "organis",
    "recognis",
    "serialis",
    "signall",
    "summaris",
    "synchronis",
    "unoptimise",
    "virtualis",
];

/// A line of prose: a line of a document, or a comment on a line of its own.
struct Prose<'a> {
    /// Number of the line, from 1.
    number: usize,
    line: &'a str,
    /// The line without the comment marker.
    body: &'a str,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the paths, relative to the root, and the texts of all files below `folder`, except build outputs and files
/// that are not text.
fn files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("a directory entry is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && (!name.starts_with('.') || name == ".ci") {
                    folders.push(path);
                }
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let relative = path.strip_prefix(root()).expect("the walk starts at the root");
                found.push((relative.to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Returns whether `path` is `folder` or a file in it.
fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the body of the comment that `line` of a file named `path` is, or the whole line of a document. Returns
/// `None` for code.
fn body<'a>(path: &str, text: &str, line: &'a str) -> Option<&'a str> {
    let code = line.trim_start();
    match Path::new(path).extension().and_then(|extension| extension.to_str()) {
        Some("md") => Some(line),
        Some("rs") => ["///", "//!", "//"].iter().find_map(|marker| code.strip_prefix(marker)),
        Some("c" | "h" | "css" | "ld") => ["//", "/*", "*"].iter().find_map(|marker| code.strip_prefix(marker)),
        Some("toml" | "sh") => code.strip_prefix('#'),
        None if text.starts_with("#!") => code.strip_prefix('#').filter(|body| !body.starts_with('!')),
        _ => None,
    }
}

/// Returns the lines of prose of a file. Fenced code and tables are no prose.
fn prose<'a>(path: &str, text: &'a str) -> Vec<Prose<'a>> {
    let mut lines = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(body) = body(path, text, line) else {
            fenced = false;
            continue;
        };
        if body.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !body.trim_start().starts_with('|') {
            lines.push(Prose { number, line, body });
        }
    }
    lines
}

/// Returns whether a line is too wide. A URL cannot be broken.
fn is_wide(prose: &Prose<'_>) -> bool {
    prose.line.chars().count() > COLUMNS_MAX && !prose.line.contains("://")
}

/// Returns the first house word or British spelling in a line. Code in backticks and text in quotation marks, such as a
/// title, do not count.
fn house_word(prose: &Prose<'_>) -> Option<String> {
    let outside = |text: &str, mark: char| text.split(mark).step_by(2).collect::<Vec<_>>().join(" ");
    let text = outside(&outside(prose.body, '`'), '"').to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '-')
        .filter(|word| !word.is_empty())
        .collect();
    let padded = format!(" {} ", words.join(" "));
    let house = HOUSE_WORDS.iter().find(|word| padded.contains(&format!(" {word} ")));
    let british = words
        .iter()
        .find(|word| BRITISH.iter().any(|stem| word.starts_with(stem)));
    house.or(british).map(|word| (*word).to_owned())
}

/// Returns the numbers of the lines in Rust source `text` where a doc comment begins whose summary is a single word.
fn one_word_docs(text: &str) -> Vec<usize> {
    let doc = |line: &str| {
        let line = line.trim_start().to_owned();
        let body = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(body.trim().to_owned())
    };
    let lines: Vec<Option<String>> = text.lines().map(doc).collect();
    let is_text = |index: usize| {
        lines
            .get(index)
            .is_some_and(|line| line.as_deref().is_some_and(|body| !body.is_empty()))
    };
    let starts = |index: &usize| is_text(*index) && (*index == 0 || lines[index - 1].is_none()) && !is_text(index + 1);
    let is_word = |index: &usize| lines[*index].as_deref().is_some_and(|body| !body.contains(' '));
    (0..lines.len())
        .filter(starts)
        .filter(is_word)
        .map(|index| index + 1)
        .collect()
}

/// Returns one line for each violation of the rules in a file.
fn violations(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(path, text) {
        if is_wide(&line) {
            let columns = line.line.chars().count();
            found.push(format!("{path}:{}: {columns} columns of prose", line.number));
        }
        if let Some(word) = house_word(&line) {
            found.push(format!("{path}:{}: the word \"{word}\"", line.number));
        }
    }
    if path.ends_with(".rs") {
        let docs = one_word_docs(text).into_iter();
        found.extend(docs.map(|number| format!("{path}:{number}: a doc comment of one word")));
    }
    found
}

#[test]
fn prose_is_narrow_and_plain() {
    // This file names the words.
    let own = "lab/tests/integration/prose.rs";
    let checked = files("").into_iter().filter(|(path, _)| path != own);
    let found: Vec<String> = checked.flat_map(|(path, text)| violations(&path, &text)).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn wide_prose_is_found_and_code_is_not() {
    let wide = "word ".repeat(30);
    let cases = [
        ("a.md", format!("{wide}\n"), 1),
        ("a.md", format!("| {wide} |\n```\n{wide}\n```\nhttps://{wide}\n"), 0),
        ("a.rs", format!("    // {wide}\n"), 1),
        ("a.rs", format!("    /// {wide}\n"), 1),
        ("a.rs", format!("let text = \"{wide}\";\n"), 0),
        ("a.toml", format!("# {wide}\nsource = \"{wide}\"\n"), 1),
        ("run", format!("#!/bin/sh\n# {wide}\necho {wide}\n"), 1),
        ("data", format!("# {wide}\n"), 0),
    ];
    for (path, text, expected) in cases {
        assert_eq!(violations(path, &text).len(), expected, "{path}: {text}");
    }
}

#[test]
fn house_words_are_found_in_prose_only() {
    let cases = [
        ("// Whoever waits, waits for ever.\n", true),
        ("/// The lock's behaviour.\n", true),
        ("// It is virtualised.\n", true),
        ("// Nobody.\n", true),
        ("// The name `nobody`, and \"Message Signalled Interrupts\".\n", false),
        ("// Forever, and an ever-growing list.\n", false),
        ("let nobody = 1;\n", false),
    ];
    for (text, expected) in cases {
        assert_eq!(!violations("a.rs", text).is_empty(), expected, "{text}");
    }
}

#[test]
fn doc_comments_of_one_word_are_found() {
    let cases = [
        ("/// Whose.\nstruct A;\n", 1),
        ("/// `nopvspin`.\nstruct A;\n", 1),
        ("//! Time.\n", 1),
        ("/// Frequency.\n///\n/// # Panics\n/// Never.\nfn f() {}\n", 1),
        ("/// The sender.\nstruct A;\n", 0),
        ("/// A sentence that ends on the next\n/// line.\nstruct A;\n", 0),
        ("// Here.\n", 0),
    ];
    for (text, expected) in cases {
        assert_eq!(one_word_docs(text).len(), expected, "{text}");
    }
}

/// Returns whether Rust source `text` allows unsafe code, for a module or for an item.
fn allows_unsafe(text: &str) -> bool {
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code: String = code.join("\n").split_whitespace().collect();
    let levels = ["expect(", "allow(", "warn("];
    levels.iter().any(|level| code.contains(&format!("{level}unsafe_code")))
}

/// Returns the paths in backticks of the paragraph about unsafe code in ARCHITECTURE.md `text`. A path may have one
/// list in braces.
fn listed_unsafe(text: &str) -> Vec<String> {
    let start = text
        .find("**Unsafe code**")
        .expect("ARCHITECTURE.md lists the modules with unsafe code");
    let paragraph = text[start..].split("\n\n").next().unwrap_or_default();
    let mut paths = Vec::new();
    for span in paragraph.split('`').skip(1).step_by(2) {
        match span
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            Some((before, (names, after))) => {
                paths.extend(names.split(',').map(|name| format!("{before}{}{after}", name.trim())));
            }
            None => paths.push(span.to_owned()),
        }
    }
    paths
}

/// Returns one line for each difference between the `listed` paths and the `modules` with unsafe code. A listed folder
/// stands for all modules in it.
fn unsafe_differences(listed: &[String], modules: &[String]) -> Vec<String> {
    let unlisted = modules
        .iter()
        .filter(|module| !listed.iter().any(|path| is_within(module, path)))
        .map(|module| format!("{module} has unsafe code and is not listed"));
    let idle = listed
        .iter()
        .filter(|path| !modules.iter().any(|module| is_within(module, path)))
        .map(|path| format!("{path} is listed and has no unsafe code"));
    unlisted.chain(idle).collect()
}

#[test]
fn the_architecture_lists_exactly_the_modules_with_unsafe_code() {
    let is_test = |path: &str| {
        let outside = ["/tests/", "/benches/", "/examples/"];
        outside.iter().any(|folder| path.contains(folder)) || path.ends_with("/tests.rs")
    };
    let sources = files("")
        .into_iter()
        .filter(|(path, _)| path.ends_with(".rs") && !is_test(path));
    let modules: Vec<String> = sources
        .filter(|(_, text)| allows_unsafe(text))
        .map(|(path, _)| path)
        .collect();
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is readable");
    let differences = unsafe_differences(&listed_unsafe(&architecture), &modules);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_module_missing_from_the_list_or_without_unsafe_code_is_found() {
    let listed = listed_unsafe("**Unsafe code** is in `a/src/{one,two}.rs` and\nin `b`.\n\nMore of `c`.");
    assert_eq!(listed, ["a/src/one.rs", "a/src/two.rs", "b"]);
    let modules = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = modules(&["a/src/one.rs", "a/src/two.rs", "b/src/lib.rs"]);
    assert!(unsafe_differences(&listed, &all).is_empty());
    assert_eq!(unsafe_differences(&listed, &all[1..]).len(), 1);
    assert_eq!(unsafe_differences(&listed[..2], &all).len(), 1);
    assert!(allows_unsafe("#![expect(\n    unsafe_code,\n    reason = \"\"\n)]"));
    assert!(!allows_unsafe("#![forbid(unsafe_code)]\n// allow(unsafe_code)"));
}
