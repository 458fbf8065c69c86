//! The pages of `docs/findings` show the figures that `docs/findings/renew` made, and name the commands that it ran.
//! Tables of other origin say when they were measured.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::coverage::dead_command;

/// Begins a comment that names a table of the data.
const FIGURES: &str = "<!-- figures: ";
/// Begins a comment that says when, where and by what the next table was measured.
const MEASURED: &str = "<!-- measured: ";

/// The content of `docs/findings/figures.json`.
#[derive(Deserialize)]
struct Figures {
    tables: Vec<Table>,
}

#[derive(Clone, Deserialize)]
struct Table {
    page: String,
    name: String,
    commit: String,
    commands: Vec<String>,
    rows: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/findings")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the pages without the index, by name and text.
fn pages() -> Vec<(String, String)> {
    let entries = fs::read_dir(folder())
        .expect("the findings")
        .map(|entry| entry.expect("a finding").path());
    let documents = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let names = documents.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned());
    let mut pages: Vec<_> = names
        .filter(|name| name != "README")
        .map(|name| (name.clone(), read(&format!("{name}.md"))))
        .collect();
    pages.sort();
    pages
}

/// Returns the tables of a page, each with the comment before it.
fn tables(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut comment = "";
    let mut in_table = false;
    for line in text.lines() {
        if line.starts_with('|') {
            if !in_table {
                found.push((comment, Vec::new()));
            }
            found.last_mut().expect("a table").1.push(line);
            comment = "";
        } else if !line.is_empty() {
            comment = line;
        }
        in_table = line.starts_with('|');
    }
    found
}

/// Returns the commands in the code blocks of a page, each on one line, without remarks.
fn commands(text: &str) -> Vec<String> {
    let blocks = text
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.replace("\\\n", " "));
    let lines: Vec<String> = blocks
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let words = lines
        .iter()
        .map(|line| line.split(" # ").next().unwrap_or_default().split_whitespace());
    words.map(|words| words.collect::<Vec<_>>().join(" ")).collect()
}

/// Returns whether a comment says a day, as in 2026-11-25.
fn says_a_day(comment: &str) -> bool {
    comment.split(|c: char| !c.is_ascii_digit() && c != '-').any(|word| {
        let parts: Vec<usize> = word.split('-').map(str::len).collect();
        parts == [4, 2, 2]
    })
}

/// Returns what is wrong with a page, given the tables that were made for it.
fn violations(text: &str, made: &[Table]) -> Vec<String> {
    let shown = tables(text);
    let named = commands(text);
    let mut found = Vec::new();
    if shown.is_empty() {
        found.push("no table of figures".to_owned());
    }
    for (comment, rows) in &shown {
        if let Some(name) = comment.strip_prefix(FIGURES).and_then(|rest| rest.strip_suffix(" -->")) {
            match made.iter().find(|table| table.name == name) {
                Some(table) if table.rows == *rows => {}
                Some(_) => found.push(format!("the table {name} is not that of figures.json")),
                None => found.push(format!("figures.json has no table {name}")),
            }
        } else if !(comment.starts_with(MEASURED) && says_a_day(comment)) {
            found.push(format!("a table without origin: {}", rows[0]));
        }
    }
    for table in made {
        if !shown
            .iter()
            .any(|(comment, _)| *comment == format!("{FIGURES}{} -->", table.name))
        {
            found.push(format!("the table {} is not shown", table.name));
        }
        // A command without spaces is a file that the figures come from.
        for command in &table.commands {
            let is_named = if command.contains(' ') {
                named.contains(command)
            } else {
                text.contains(command)
            };
            if !is_named {
                found.push(format!("not named: {command}"));
            }
        }
    }
    for command in named.iter().filter(|command| command.starts_with("holdfast run ")) {
        if !made.iter().any(|table| table.commands.contains(command)) {
            found.push(format!("no figures are made by: {command}"));
        }
    }
    found
}

#[test]
fn pages_show_what_their_commands_have_printed() {
    let figures: Figures = serde_json::from_str(&read("figures.json")).expect("the figures");
    let pages = pages();
    assert!(pages.len() >= 10, "{} pages", pages.len());
    for table in &figures.tables {
        assert!(
            pages.iter().any(|(page, _)| *page == table.page),
            "figures.json: no page {}",
            table.page
        );
        assert!(
            table.commit.len() >= 12 && table.commit.bytes().all(|c| c.is_ascii_hexdigit()),
            "{}",
            table.commit
        );
        // Quotation marks are the shell's.
        let commands = table.commands.iter().map(|command| command.replace('\'', ""));
        let dead = commands.filter_map(|command| dead_command(command.strip_prefix("holdfast ")?));
        assert_eq!(dead.collect::<Vec<_>>(), Vec::<String>::new(), "{}", table.name);
    }
    for (page, text) in &pages {
        let made: Vec<Table> = figures
            .tables
            .iter()
            .filter(|table| table.page == *page)
            .cloned()
            .collect();
        let found = violations(text, &made);
        assert!(found.is_empty(), "docs/findings/{page}.md: {found:#?}");
    }
}

/// Returns the numbers in a text, without the targets of its links.
fn numbers(text: &str) -> Vec<&str> {
    let parts = text
        .split("](")
        .enumerate()
        .map(|(i, part)| match part.split_once(')') {
            Some((_, rest)) if i > 0 => rest,
            _ => part,
        });
    let words = parts.flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '.'));
    let words = words.map(|word| word.trim_matches('.'));
    words
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

#[test]
fn the_index_has_no_number_that_its_page_lacks() {
    let index = read("README.md");
    let mut links = 0;
    for item in index.split("\n- ").skip(1) {
        let Some((_, rest)) = item.split_once("](") else {
            continue;
        };
        let target = rest.split(')').next().expect("a target");
        let page = read(target);
        links += 1;
        for number in numbers(item) {
            assert!(
                numbers(&page).contains(&number),
                "the index says {number}, {target} does not"
            );
        }
    }
    assert_eq!(links, pages().len(), "the index names each page once");
}

#[test]
fn a_page_that_differs_from_its_data_is_found() {
    let page =
        "```\nholdfast run a \\\n    --seeds 2      # seconds\n```\n\n<!-- figures: b -->\n\n| x |\n|---|\n| 1 |\n";
    let made = Table {
        page: "page".to_owned(),
        name: "b".to_owned(),
        commit: "0123456789ab".to_owned(),
        commands: vec!["holdfast run a --seeds 2".to_owned()],
        rows: ["| x |", "|---|", "| 1 |"].map(str::to_owned).to_vec(),
    };
    let check = |text: &str| violations(text, std::slice::from_ref(&made));
    assert!(check(page).is_empty(), "{:?}", check(page));
    assert_eq!(
        check(&page.replace("| 1 |", "| 2 |")),
        ["the table b is not that of figures.json"]
    );
    assert_eq!(
        check(&page.replace("--seeds 2", "--seeds 3")),
        [
            "not named: holdfast run a --seeds 2",
            "no figures are made by: holdfast run a --seeds 3"
        ]
    );
    assert_eq!(
        check(&page.replace("<!-- figures: b -->", "Text.")),
        ["a table without origin: | x |", "the table b is not shown"]
    );
    let other = "\n<!-- measured: here, by hand, 2026-11-25 -->\n\n| y |\n";
    assert!(check(&format!("{page}{other}")).is_empty());
    assert_eq!(
        check(&format!("{page}{}", other.replace("2026-11-25", "then"))),
        ["a table without origin: | y |"]
    );
    assert_eq!(violations("Text.", &[]), ["no table of figures"]);
    assert_eq!(numbers("[4 of 20](a/15.md) take 1.5, 3."), ["4", "20", "1.5", "3"]);
}
