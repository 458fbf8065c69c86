//! The tutorial "from a slow VM to the fix in ten minutes": its commands print what the page shows.

use std::fs;
use std::path::Path;

use crate::command::{holdfast_in, scratch};

/// Returns the code blocks of `page`: what language they name, and their lines.
fn blocks(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(language) if !is_open => blocks.push((language, Vec::new())),
            Some(_) => {}
            None if is_open => blocks.last_mut().expect("an open block").1.push(line),
            None => {}
        }
        is_open ^= line.starts_with("```");
    }
    blocks
}

/// Carries out `page`: writes its experiment, runs its commands, and returns each line of its outputs (`text`) that the
/// commands before it did not print, with the number of commands.
fn misprints(page: &str) -> (Vec<String>, usize) {
    let folder = scratch();
    let (mut printed, mut missing, mut commands) = (String::new(), Vec::new(), 0);
    for (language, lines) in blocks(page) {
        match language {
            "toml" => fs::write(folder.path().join("slow.toml"), lines.join("\n")).expect("writable"),
            "text" => {
                let is_printed = |line: &&str| printed.lines().any(|printed| printed.trim_end() == line.trim_end());
                missing.extend(
                    lines
                        .iter()
                        .filter(|line| !is_printed(line))
                        .map(|line| (*line).to_owned()),
                );
            }
            _ => {
                printed.clear();
                for line in lines {
                    let arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
                    let ran = holdfast_in(folder.path(), &arguments);
                    assert_eq!(ran.status, 0, "{line}: {}", ran.err);
                    printed += &ran.out;
                    commands += 1;
                }
            }
        }
    }
    (missing, commands)
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorial/slow-vm.md");
    fs::read_to_string(path).expect("the page")
}

#[test]
fn the_tutorial_of_the_slow_vm_prints_what_it_shows() {
    let (missing, commands) = misprints(&page());
    assert!(commands >= 5, "{commands} commands");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A planted fault is seen: a figure of the page is another one.
#[test]
fn another_figure_on_the_page_is_noticed() {
    let page = "```toml\nname = \"a\"\n```\n\n```\nholdfast list\n```\n\n```text\nno experiment has this name\n```\n";
    assert_eq!(misprints(page), (vec!["no experiment has this name".to_owned()], 1));
}
