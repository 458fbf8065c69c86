//! `docs/coverage.md`: each file, function, test, experiment, case, variant, key and command that a row names exists.

use holdfast_lab::experiment::Experiment;
use holdfast_lab::extensions::Extensions;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::shipped::{self, EXPERIMENTS, MACHINES};

use crate::house::{code_spans, defines, named_items, named_paths, read, root};

/// The word for what is not here.
const MISSING: &str = "missing";

/// What a cell begins with if no test shows the row. The reason follows.
const NO_TEST: &str = "no test: ";

/// The most characters of a cell.
const CELL_MAX: usize = 200;

/// Returns the rows of all tables, each as its cells, without the heads of the tables.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let table = page.lines().filter(|line| line.starts_with('|'));
    let rows = table.map(|line| line.trim_matches('|').split('|').map(str::trim).collect());
    rows.filter(|cells: &Vec<&str>| cells[0] != "what" && !cells[0].starts_with("---"))
        .collect()
}

/// Returns what is wrong with the files and items that a cell names.
fn dead_items(cell: &str) -> Vec<String> {
    let paths = named_paths(cell);
    let absent = paths.iter().filter(|path| !root().join(path).exists());
    let mut dead: Vec<String> = absent.map(|path| format!("{path} does not exist")).collect();
    if dead.is_empty() {
        let items = named_items(cell).into_iter();
        let wrong = items.filter(|(path, item)| !defines(&read(path), item));
        dead.extend(wrong.map(|(path, item)| format!("{path} does not define {item}")));
    }
    dead
}

/// Returns whether `source` has a test called `name`.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let tests = lines.iter().enumerate().filter(|(_, line)| line.starts_with("#[test]"));
    let mut bodies = tests.filter_map(|(at, _)| lines[at..].iter().find(|line| line.starts_with("fn ")));
    bodies.any(|line| line.starts_with(&format!("fn {name}(")))
}

/// Returns what is wrong with the tests that a cell names. A file alone is no evidence.
fn dead_tests(cell: &str) -> Vec<String> {
    if let Some(reason) = cell.strip_prefix(NO_TEST) {
        let is_reason = reason.split_whitespace().count() >= 3;
        return if is_reason {
            Vec::new()
        } else {
            vec!["no reason why there is no test".to_owned()]
        };
    }
    let named = named_items(cell);
    let mut dead = dead_items(cell);
    for path in named_paths(cell) {
        let mut names = named
            .iter()
            .filter(|(of, _)| *of == path)
            .map(|(_, name)| *name)
            .peekable();
        if names.peek().is_none() {
            dead.push(format!("{path} without a function in it"));
        } else if dead.is_empty() {
            let absent = names.filter(|name| !has_test(&read(&path), name));
            dead.extend(
                absent
                    .map(|name| format!("{path} has no test {name}"))
                    .collect::<Vec<_>>(),
            );
        }
    }
    if named.is_empty() {
        dead.push("no test".to_owned());
    }
    dead
}

/// Returns what is wrong with the command `holdfast ARGS`, if anything.
pub fn dead_command(args: &str) -> Option<String> {
    let known = read("docs/commands.md");
    let words: Vec<&str> = args.split_whitespace().collect();
    let (command, rest) = match words.as_slice() {
        ["kvm", which, rest @ ..] => (format!("kvm {which}"), rest),
        [which, rest @ ..] => ((*which).to_owned(), rest),
        [] => return Some("no command".to_owned()),
    };
    if !known.contains(&format!("`holdfast {command}")) {
        return Some(format!("docs/commands.md has no command {command}"));
    }
    let mut options = Options::default();
    let mut named = None;
    let mut left = rest.iter();
    while let Some(&word) = left.next() {
        let list = match word {
            "--case" => &mut options.cases,
            "--variant" => &mut options.variants,
            "--set" => &mut options.set,
            "--sweep" => &mut options.sweep,
            flag if flag.starts_with("--") => {
                if !known.contains(flag) {
                    return Some(format!("docs/commands.md has no option {flag}"));
                }
                continue;
            }
            word => {
                named = named.or(Some(word));
                continue;
            }
        };
        list.push((*left.next()?).to_owned());
    }
    let name = named.unwrap_or(shipped::DEFAULT_EXPERIMENT);
    match command.as_str() {
        "run" | "trace" | "kvm run" => {
            let Some(file) = shipped::find(EXPERIMENTS, name) else {
                return Some(format!("no experiment {name}"));
            };
            let experiment = Experiment::parse(file.file, file.text).expect("shipped experiments are valid");
            Plan::new(experiment, &options)
                .err()
                .map(|problems| problems.to_string())
        }
        "show" => {
            let found = shipped::find(EXPERIMENTS, name).or(shipped::find(MACHINES, name));
            found.is_none().then(|| format!("nothing is called {name}"))
        }
        _ => None,
    }
}

/// Returns the kernel versions in brackets of which a row says that they have its lock, but no lock does.
fn dead_versions<'a>(what: &'a str, code: &str) -> Option<&'a str> {
    let is_version = |text: &str| {
        text.split_once('.').is_some_and(|(major, minor)| {
            [major, minor]
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    let versions = what.split_once('(')?.1.split_once(')')?.0;
    let of_lock = ["locks/src/spin/", "locks/history/"]
        .iter()
        .any(|folder| code.contains(folder));
    let stated = |versions: &str| {
        let mut locks = Extensions::shipped().locks.iter();
        locks.any(|lock| lock.description().origin.contains(versions))
    };
    (of_lock && versions.split(" to ").all(is_version) && !stated(versions)).then_some(versions)
}

/// Returns what is wrong with a row.
fn dead(cells: &[&str]) -> Vec<String> {
    let &[what, code, test, shown] = cells else {
        return vec![format!("{} cells, expected 4", cells.len())];
    };
    let mut dead = dead_items(code);
    dead.extend(dead_versions(what, code).map(|versions| format!("no lock states that it is of Linux {versions}")));
    let long = cells.iter().filter(|cell| cell.chars().count() > CELL_MAX);
    dead.extend(long.map(|cell| format!("a cell of more than {CELL_MAX} characters: {cell}")));
    if code == MISSING {
        if test != "-" {
            dead.push("a test of what is missing".to_owned());
        }
    } else {
        if named_paths(code).is_empty() {
            dead.push("no code".to_owned());
        }
        dead.extend(dead_tests(test));
    }
    let commands = code_spans(shown).into_iter().map(|(span, _)| span);
    let commands: Vec<&str> = commands.filter_map(|span| span.strip_prefix("holdfast ")).collect();
    dead.extend(commands.iter().filter_map(|command| dead_command(command)));
    let reason = shown.split_once("missing: ").map_or("", |(_, reason)| reason);
    if reason.split_whitespace().count() < 3 && (commands.is_empty() || code == MISSING) {
        dead.push("neither a command nor the reason why it is missing".to_owned());
    }
    dead.extend(dead_items(shown));
    dead
}

#[test]
fn what_each_row_names_exists() {
    let page = read("docs/coverage.md");
    let rows = rows(&page);
    assert!(rows.len() > 80, "five sources have many mechanisms: {}", rows.len());
    let wrong = rows.iter().flat_map(|cells| {
        let dead = dead(cells).into_iter();
        dead.map(|what| format!("docs/coverage.md, {}: {what}\n", cells[0]))
    });
    let wrong: String = wrong.collect();
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn rows_without_code_or_test_are_counted() {
    let page = read("docs/coverage.md");
    let rows = rows(&page);
    let missing = rows.iter().filter(|cells| cells[1] == MISSING).count();
    let untested = rows.iter().filter(|cells| cells[2].starts_with(NO_TEST)).count();
    let count = format!(
        "Of {} rows {missing} are missing, and {untested} have no test.",
        rows.len()
    );
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(&count), "docs/coverage.md does not say: {count}");
}

#[test]
fn what_is_wrong_in_a_row_is_found() {
    let code = "`locks/src/spin/ticket.rs` `Ticket`";
    let test = "`locks/tests/locks/races.rs` `statistics_add_up`";
    let run = "`holdfast run kernbench-overcommit --case 2x --set vm.build.pv_unhalt=false`";
    let wrong = |cells: [&str; 4]| dead(&cells).len();
    assert_eq!(wrong(["a", code, test, run]), 0);
    assert_eq!(wrong(["a", MISSING, "-", "missing: no mechanism is known"]), 0);
    assert_eq!(wrong(["a", code, "no test: the figure is elsewhere", run]), 0);
    let (reasonless, long) = ("no test: none", "a ".repeat(101));
    let file = "`locks/tests/locks/races.rs`";
    let rows = [
        ["a", code, reasonless, run],
        ["a", code, file, run],
        [&long, code, test, run],
        ["a lock (4.0 to 4.7)", code, test, run],
        ["a", "`locks/src/tickets.rs`", test, run],
        ["a", "`locks/src/spin/ticket.rs` `Qspin`", test, run],
        ["a", "nowhere", test, run],
        ["a", code, "-", run],
        ["a", code, "`locks/src/raw.rs`", run],
        ["a", code, "`locks/tests/locks/races.rs` `hang`", run],
        ["a", code, test, "`holdfast ran kernbench-overcommit`"],
        ["a", code, test, "`holdfast run kernbench`"],
        ["a", code, test, "`holdfast run kernbench-overcommit --case 9x`"],
        ["a", code, test, "`holdfast run kernbench-overcommit --variant tas`"],
        ["a", code, test, "`holdfast run kernbench-overcommit --set host.hzz=1`"],
        ["a", code, test, "`holdfast run kernbench-overcommit --fast`"],
        ["a", code, test, "`holdfast show kernbench`"],
        ["a", code, test, "`--case`"],
        ["a", MISSING, "-", "missing: why"],
        ["a", MISSING, test, "missing: no mechanism is known"],
    ];
    for row in rows {
        assert!(wrong(row) > 0, "{row:?}");
    }
    assert!(!dead(&["a", code, test]).is_empty(), "a cell too few");
}
