//! Commands that repeat runs.

use crate::options::Options;
use crate::plan::{Cell, Plan};

/// Returns the command for the whole plan.
pub fn all(plan: &Plan, target: &str) -> String {
    let options = &plan.options;
    let first = plan.seeds.first().copied().unwrap_or(options.first_seed);
    let seeds = match options.adaptive {
        Some(_) => options.seeds.unwrap_or(plan.experiment.seeds) as usize,
        None => plan.seeds.len(),
    };
    let mut words = begin(plan, target, seeds, first);
    if let Some(adaptive) = options.adaptive {
        let share = format!("{}%", adaptive.percent);
        let most = adaptive.seeds_max.to_string();
        words.extend(["--until-ci".to_owned(), share, "--seeds-max".to_owned(), most]);
    }
    for case in &options.cases {
        words.extend(["--case".to_owned(), case.clone()]);
    }
    for variant in &options.variants {
        words.extend(["--variant".to_owned(), variant.clone()]);
    }
    finish(words, options)
}

/// Returns the command for one run.
pub fn one(plan: &Plan, target: &str, cell: &Cell, seed: u64) -> String {
    let mut words = begin(plan, target, 1, seed);
    words.extend([
        "--case".to_owned(),
        cell.case.clone(),
        "--variant".to_owned(),
        cell.variant.clone(),
    ]);
    finish(words, &plan.options)
}

fn begin(plan: &Plan, target: &str, seeds: usize, first: u64) -> Vec<String> {
    let words = [
        "holdfast",
        "run",
        target,
        "--seeds",
        &seeds.to_string(),
        "--first-seed",
        &first.to_string(),
        "--scale",
    ];
    words
        .into_iter()
        .map(str::to_owned)
        .chain([plan.scale.to_string()])
        .collect()
}

fn finish(mut words: Vec<String>, options: &Options) -> String {
    for (option, values) in [
        ("--set", &options.set),
        ("--sweep", &options.sweep),
        ("--sweep-variants", &options.sweep_variants),
    ] {
        for value in values {
            words.extend([option.to_owned(), value.clone()]);
        }
    }
    if options.no_skip {
        words.push("--no-skip".to_owned());
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Returns `word` quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_change_is_quoted() {
        assert_eq!(quoted("vm.0.lock=tas"), "vm.0.lock=tas");
        assert_eq!(quoted("vm.*.lock=tas"), "'vm.*.lock=tas'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
