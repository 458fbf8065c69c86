//! `predictions/`: what was filed stays as it was filed, has a status, and its command is still understood.

use std::fmt::Write as _;

use crate::coverage::dead_command;
use crate::house::{read, root};

const FOLDER: &str = "predictions";
/// The files that may change: the page that says what came of the entries, and the checksums.
const OWN: [&str; 2] = ["README.md", "filed.txt"];

/// Returns the checksum of a file as `filed.txt` has it: FNV-1a of 64 bits.
fn checksum(text: &str) -> String {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// A ledger: the page, the checksums, and the name and the text of each filed file.
struct Ledger {
    page: String,
    seals: String,
    filed: Vec<(String, String)>,
}

impl Ledger {
    fn read() -> Ledger {
        let folder = std::fs::read_dir(root().join(FOLDER)).expect("the folder of predictions");
        let names = folder.map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a plain name")
        });
        let mut names: Vec<String> = names.filter(|name| !OWN.contains(&name.as_str())).collect();
        names.sort();
        let text = |name: &str| read(&format!("{FOLDER}/{name}"));
        Ledger {
            page: text(OWN[0]),
            seals: text(OWN[1]),
            filed: names.into_iter().map(|name| (name.clone(), text(&name))).collect(),
        }
    }

    /// Returns what is wrong with the ledger.
    fn mistakes(&self) -> String {
        let mut wrong = String::new();
        let mut say = |what: String| writeln!(wrong, "{what}").expect("a string takes all");
        let rows: Vec<&str> = self.page.lines().filter(|line| line.starts_with("| 2")).collect();
        for (name, text) in &self.filed {
            let seal = format!("{} {name}", checksum(text));
            if !self.seals.lines().any(|line| line == seal) {
                say(format!(
                    "{name} is not as it was filed; a new one is \"{seal}\" in filed.txt"
                ));
            }
            let Some(row) = rows.iter().find(|row| row.contains(&format!("({name})"))) else {
                say(format!("{name} has no row in the table"));
                continue;
            };
            let status = row
                .trim_end_matches(['|', ' '])
                .rsplit('|')
                .next()
                .unwrap_or_default()
                .trim();
            if !["open", "right", "wrong"].contains(&status) {
                say(format!("{name} has the status {status:?}"));
            }
            let entry = name.strip_suffix(".md");
            if entry.is_some_and(|entry| status != "open" && !self.page.contains(&format!("## {entry}\n"))) {
                say(format!("{name} is {status}, and the page does not say why"));
            }
            if entry.is_some() && commands(text).is_empty() {
                say(format!("{name} has no command"));
            }
            for command in commands(text) {
                // The page says so: what was filed cannot be changed.
                let command = command.replace("validate --against ", "validate ");
                if let Some(why) = dead_command(&command) {
                    say(format!("{name}: holdfast {command}: {why}"));
                }
            }
        }
        for line in self.seals.lines() {
            let named = line.split_once(' ').map(|(_, name)| name);
            if !self.filed.iter().any(|(name, _)| Some(name.as_str()) == named) {
                say(format!("filed.txt names {named:?}, which is gone"));
            }
        }
        wrong
    }
}

/// Returns the arguments of the commands `holdfast ARGS` in the fences of `text`.
fn commands(text: &str) -> Vec<String> {
    let fences = text.split("```").skip(1).step_by(2);
    let lines = fences.flat_map(|fence| {
        fence
            .replace("\\\n", " ")
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let arguments = lines.filter_map(|line| Some(line.strip_prefix("holdfast ")?.to_owned()));
    arguments.collect()
}

#[test]
fn each_entry_is_as_it_was_filed_and_has_a_status() {
    let ledger = Ledger::read();
    assert!(ledger.filed.len() >= 3, "{} files", ledger.filed.len());
    let wrong = ledger.mistakes();
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_changed_ledger_is_found() {
    let changed = |change: fn(&mut Ledger)| {
        let mut ledger = Ledger::read();
        change(&mut ledger);
        ledger.mistakes()
    };
    let entry = |ledger: &mut Ledger| -> usize {
        let at = ledger.filed.iter().position(|(name, _)| name == "lazy-preemption.md");
        at.expect("an entry")
    };
    type Change = fn(&mut Ledger);
    let faults: [(Change, &str); 6] = [
        (
            |ledger| ledger.filed[1].1 = ledger.filed[1].1.replacen('4', "5", 1),
            "not as it was filed",
        ),
        (
            |ledger| ledger.page = ledger.page.replace("| wrong |", "| nearly |"),
            "the status \"nearly\"",
        ),
        (
            |ledger| ledger.page = ledger.page.replace("## lazy-preemption", ""),
            "does not say why",
        ),
        (
            |ledger| ledger.page = ledger.page.replace("(lazy-preemption.md)", ""),
            "no row in the table",
        ),
        (|ledger| drop(ledger.filed.remove(0)), "which is gone"),
        (|ledger| ledger.seals.clear(), "not as it was filed"),
    ];
    for (fault, found) in faults {
        let wrong = changed(fault);
        assert!(wrong.contains(found), "{found}: {wrong}");
    }
    let mut ledger = Ledger::read();
    let at = entry(&mut ledger);
    ledger.filed[at].1 = ledger.filed[at].1.replace("host.preempt=full", "host.preempts=full");
    assert!(ledger.mistakes().contains("host.preempts"), "{}", ledger.mistakes());
}
