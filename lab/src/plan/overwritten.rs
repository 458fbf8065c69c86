//! Keys that options set although something else sets them too: refused where a value would be lost without a word, and
//! else remarked on.

use crate::diagnostic::Findings;
use crate::document::Value;
use crate::experiment::{Axis, Experiment, Layer};
use crate::keys::{Items, Setting};

/// Number of names that a remark lists.
const NAMES_MAX: usize = 3;

/// Checks the sweeps of `experiment`, of which the first `stated` are its file's and the others options, and the
/// settings `set` of options against each other and against the chosen cases and variants. Returns remarks on cases and
/// variants whose names no longer say what is run.
pub(super) fn check(
    experiment: &Experiment,
    stated: usize,
    set: &[Setting],
    [cases, variants]: [&[Layer]; 2],
    findings: &mut Findings,
) -> Vec<String> {
    let names = &experiment.names;
    let items = |path: &str| Items::of(path, names);
    for (index, sweep) in experiment.sweeps.iter().enumerate() {
        let swept = items(&sweep.key);
        let place = sweep.values.first().map(|value| &value.place);
        let Some(place) = place else { continue };
        if experiment.sweeps[..index]
            .iter()
            .any(|other| items(&other.key).is_same(&swept))
        {
            findings.add(
                place,
                &sweep.key,
                "a key that another sweep has too",
                "one sweep for each key",
            );
        }
        let shown: Vec<String> = sweep.values.iter().map(|value| shown(&value.value)).collect();
        if let Some((_, twice)) = shown
            .iter()
            .enumerate()
            .find(|(at, value)| shown[..*at].contains(value))
        {
            findings.add(place, &sweep.key, format!("the value {twice} twice"), "each value once");
        }
        if let Some(setting) = set.iter().find(|setting| items(&setting.path).includes(&swept)) {
            let found = format!("a key that {} sets in all cells", setting.node.place);
            findings.add(place, &sweep.key, found, "a key that only the sweep sets");
        }
        // A sweep of the file is its author's choice.
        if index >= stated {
            // A variant swept over sets the key itself. What counts is what its file says.
            let of_file: Vec<Layer> = match sweep.axis {
                Axis::Cases => variants.to_vec(),
                Axis::Variants => experiment
                    .variants
                    .iter()
                    .filter(|layer| is_chosen(layer, variants))
                    .cloned()
                    .collect(),
            };
            let over: Vec<&str> = overwriting(&of_file, |path| items(path).includes(&swept));
            if !over.is_empty() {
                let found = format!("a key that the variants {} set themselves", listed(&over));
                let expected = "a key that no variant sets, or other variants (--variant)";
                findings.add(place, &sweep.key, found, expected);
            }
        }
    }
    for (index, setting) in set.iter().enumerate() {
        let ours = items(&setting.path);
        if set[..index].iter().any(|other| items(&other.path).is_same(&ours)) {
            findings.add(
                &setting.node.place,
                &setting.path,
                "a key that another --set has too",
                "one --set for each key",
            );
        }
    }
    renamed(set, &items, [cases, variants])
}

/// Returns whether `layer` of the file, or one of its swept values, is among the `chosen` layers.
fn is_chosen(layer: &Layer, chosen: &[Layer]) -> bool {
    let is_of_it = |name: &str| {
        name.strip_prefix(&layer.name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    chosen.iter().any(|chosen| is_of_it(&chosen.name))
}

/// Returns remarks on cases and variants that set a key of `set` too.
fn renamed(set: &[Setting], items: &dyn Fn(&str) -> Items, [cases, variants]: [&[Layer]; 2]) -> Vec<String> {
    let mut remarks = Vec::new();
    for setting in set {
        let ours = items(&setting.path);
        for (what, layers) in [("cases", cases), ("variants", variants)] {
            let over = overwriting(layers, |path| ours.meets(&items(path)));
            if !over.is_empty() {
                remarks.push(format!(
                    "{} replaces what the {what} {} set: their names do not say what is run",
                    setting.node.place,
                    listed(&over)
                ));
            }
        }
    }
    remarks
}

/// Returns the names of the layers that set a key for which `is_it` returns true.
fn overwriting(layers: &[Layer], is_it: impl Fn(&str) -> bool) -> Vec<&str> {
    let sets = |layer: &&Layer| layer.settings.iter().any(|setting| is_it(&setting.path));
    layers.iter().filter(sets).map(|layer| layer.name.as_str()).collect()
}

fn listed(names: &[&str]) -> String {
    match names.len() {
        more if more > NAMES_MAX => format!("{} and {} more", names[..NAMES_MAX].join(", "), more - NAMES_MAX),
        _ => names.join(", "),
    }
}

/// Returns a value as its layer is named after it.
fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => other.to_string(),
    }
}
