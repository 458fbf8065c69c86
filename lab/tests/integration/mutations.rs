//! Any text gives a valid plan or located problems; never a panic.

use holdfast_lab::diagnostic::Problems;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::profile::MachineProfile;
use holdfast_lab::shipped::{EXPERIMENTS, MACHINES, Shipped};
use proptest::prelude::*;

/// One change of a text.
#[derive(Clone, Debug)]
enum Change {
    /// A line is removed.
    Drop(usize),
    /// A line is doubled.
    Double(usize),
    /// Two lines are exchanged.
    Swap(usize, usize),
    /// The value of a line is replaced.
    Value(usize, &'static str),
    /// The key of a line is replaced.
    Key(usize, &'static str),
    /// A byte is replaced.
    Byte(usize, u8),
    /// The text ends early.
    Cut(usize),
}

const VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "254",
    "255",
    "4294967296",
    "9223372036854775807",
    "1e308",
    "nan",
    "inf",
    "true",
    "\"\"",
    "\"ticket\"",
    "\"auto\"",
    "\"1 parsec\"",
    "\"1e300 s\"",
    "\"0-99999999\"",
    "[]",
    "[[0], [1]]",
    "[99]",
    "{}",
    "{ a = 1 }",
    "2011-01-26",
    "\"\\u0000\"",
    "0x7fffffffffffffff",
    "\"*\"",
];

const KEYS: &[&str] = &[
    "name",
    "vcpus",
    "scale",
    "seeds",
    "set",
    "\"vm.*.lock\"",
    "vm",
    "machine.profile",
    "\"\"",
    "limit",
    "values",
    "case",
    "affinity",
    "value",
    "unit",
    "costs.pause",
];

fn change() -> impl Strategy<Value = Change> {
    let line = 0_usize..1000;
    prop_oneof![
        line.clone().prop_map(Change::Drop),
        line.clone().prop_map(Change::Double),
        (line.clone(), line.clone()).prop_map(|(a, b)| Change::Swap(a, b)),
        (line.clone(), prop::sample::select(VALUES)).prop_map(|(line, value)| Change::Value(line, value)),
        (line, prop::sample::select(KEYS)).prop_map(|(line, key)| Change::Key(line, key)),
        (0_usize..20_000, 0_u8..128).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (0_usize..20_000).prop_map(Change::Cut),
    ]
}

fn apply(text: &str, changes: &[Change]) -> String {
    let mut text = text.to_owned();
    for change in changes {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let count = lines.len();
        if count == 0 {
            break;
        }
        let halves = |line: &str| {
            line.split_once('=')
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
        };
        match change {
            Change::Drop(line) => drop(lines.remove(line % count)),
            Change::Double(line) => lines.insert(line % count, lines[line % count].clone()),
            Change::Swap(a, b) => lines.swap(a % count, b % count),
            Change::Value(line, value) => {
                if let Some((key, _)) = halves(&lines[line % count]) {
                    lines[line % count] = format!("{key}= {value}");
                }
            }
            Change::Key(line, key) => {
                if let Some((_, value)) = halves(&lines[line % count]) {
                    lines[line % count] = format!("{key} ={value}");
                }
            }
            Change::Byte(at, byte) => {
                let mut bytes = text.into_bytes();
                let length = bytes.len();
                bytes[at % length] = *byte;
                text = String::from_utf8_lossy(&bytes).into_owned();
                continue;
            }
            Change::Cut(at) => {
                text = text.chars().take(at % text.len().max(1)).collect();
                continue;
            }
        }
        text = lines.join("\n");
    }
    text
}

fn check(problems: &Problems, text: &str) -> Result<(), TestCaseError> {
    prop_assert!(!problems.0.is_empty());
    for problem in &problems.0 {
        prop_assert!(problem.place.line <= text.lines().count() + 1, "{}", problem);
        prop_assert!(!problem.found.is_empty() && !problem.expected.is_empty(), "{}", problem);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn changed_experiments_are_plans_or_located_problems(
        which in 0..EXPERIMENTS.len(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let shipped: &Shipped = &EXPERIMENTS[which];
        let text = apply(shipped.text, &changes);
        match Experiment::parse("changed.toml", &text).and_then(|experiment| Plan::new(experiment, &Options::default())) {
            Ok(plan) => prop_assert!(plan.runs() > 0),
            Err(problems) => check(&problems, &text)?,
        }
    }

    #[test]
    fn changed_profiles_are_profiles_or_located_problems(
        which in 0..MACHINES.len(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let text = apply(MACHINES[which].text, &changes);
        match MachineProfile::parse("changed.toml", &text) {
            Ok(profile) => prop_assert!(profile.build().is_some()),
            Err(problems) => check(&problems, &text)?,
        }
    }

    #[test]
    fn any_option_is_a_plan_or_a_problem(key in "[a-z.*0-9_]{0,24}", value in ".{0,12}") {
        let shipped = &EXPERIMENTS[0];
        let experiment = Experiment::parse(shipped.file, shipped.text).expect("a shipped experiment");
        let options = Options { set: vec![format!("{key}={value}")], ..Options::default() };
        if let Err(problems) = Plan::new(experiment, &options) {
            check(&problems, shipped.text)?;
        }
    }
}
