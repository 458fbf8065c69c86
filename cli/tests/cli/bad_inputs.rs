//! Bad usage and bad input, as the table `bad-inputs.txt` lists them: nothing on standard output, exit status 2, and
//! messages that say what was found and what was expected.

use std::fs;
use std::path::Path;

use crate::command::{Ran, holdfast_in, scratch};
use crate::input::EXPERIMENT;

const TABLE: &str = include_str!("bad-inputs.txt");

/// Fewest entries of the table.
const ENTRIES_MIN: usize = 150;

/// An entry of the table.
#[derive(Default)]
struct Entry<'t> {
    /// Line of the command in the table.
    line: usize,
    command: &'t str,
    /// File, text in it, replacement.
    changes: Vec<(&'t str, &'t str, String)>,
    status: i32,
    messages: Vec<&'t str>,
    more: bool,
}

fn entries() -> Vec<Entry<'static>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (index, line) in TABLE.lines().enumerate() {
        if let Some(command) = line.strip_prefix('$') {
            entries.push(Entry {
                line: index + 1,
                command: command.trim(),
                ..Entry::default()
            });
        }
        let Some(entry) = entries.last_mut() else { continue };
        if let Some(change) = line.strip_prefix("~ ") {
            let (file, change) = change.split_once(": ").expect("a file");
            let (from, to) = change.split_once(" ->").expect("a replacement");
            entry.changes.push((file, from, to.trim_start().replace("\\n", "\n")));
        } else if let Some(message) = line.strip_prefix("| ") {
            entry.messages.push(message);
        } else if line == "..." {
            entry.more = true;
        } else if let Some((status, message)) = line.split_once(": ")
            && let Ok(status) = status.parse()
        {
            entry.status = status;
            entry.messages.push(message);
        }
    }
    entries
}

/// Splits a command line at spaces outside of double quotes.
fn split(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in command.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn fill(folder: &Path, changes: &[(&str, &str, String)]) {
    let machine = include_str!("../../../machines/generic-x86.toml");
    let results = include_str!("../../../lab/tests/integration/real-host.json");
    for (name, text) in [
        ("mine.toml", EXPERIMENT),
        ("box.toml", machine),
        ("r.json", results),
        ("page.html", "<!DOCTYPE html><title>x</title>"),
        ("taken", "precious"),
    ] {
        let mut text = text.to_owned();
        for (_, from, to) in changes.iter().filter(|(file, _, _)| *file == name) {
            assert!(text.contains(from), "{name} lacks {from}");
            text = text.replacen(from, to, 1);
        }
        fs::write(folder.join(name), text).expect("writable");
    }
    fs::create_dir_all(folder.join("dir")).expect("writable");
}

/// Returns what is wrong with `ran`, if anything is.
fn complaint(entry: &Entry<'_>, ran: &Ran) -> Option<String> {
    let lines: Vec<&str> = ran.err.lines().filter(|line| !line.trim().is_empty()).collect();
    let said = |(line, message): (&&str, &&str)| line.strip_prefix("error: ").unwrap_or(line).starts_with(message);
    let as_many = if entry.more {
        lines.len() > entry.messages.len()
    } else {
        lines.len() == entry.messages.len()
    };
    let whole = as_many && lines.iter().zip(&entry.messages).all(said);
    let fits = ran.status == entry.status && ran.out.is_empty() && whole && !ran.err.contains('\u{1b}');
    let shown = || {
        let (status, out) = (ran.status, &ran.out);
        format!(
            "bad-inputs.txt:{}: {}\nstatus {status}\n{out}{}",
            entry.line, entry.command, ran.err
        )
    };
    (!fits).then(shown)
}

#[test]
fn every_bad_input_is_refused_as_what_it_is() {
    let folder = scratch();
    let entries = entries();
    assert!(entries.len() >= ENTRIES_MIN, "{} entries", entries.len());
    let mut complaints = Vec::new();
    for entry in &entries {
        assert!(!entry.messages.is_empty(), "bad-inputs.txt:{}: no message", entry.line);
        fill(folder.path(), &entry.changes);
        let ran = holdfast_in(folder.path(), &split(entry.command));
        complaints.extend(complaint(entry, &ran));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let taken = fs::read_to_string(folder.path().join("taken")).expect("readable");
    assert_eq!(taken, "precious");
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["box.toml", "dir", "mine.toml", "page.html", "r.json", "taken"]);
}

#[test]
fn command_lines_are_split_as_in_a_shell() {
    assert_eq!(split("run --set \"a=1 s\" -x"), ["run", "--set", "a=1 s", "-x"]);
    assert_eq!(split("run \"\" b"), ["run", "", "b"]);
    assert_eq!(split(""), [""; 0]);
}
