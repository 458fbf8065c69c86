//! The number of identical guests as a key: cases, variants, sweeps and options can set `vm.NAME.count`.

use crate::diagnostic::Findings;
use crate::document::{Node, Value};
use crate::draft::{DraftVm, VMS_MAX};
use crate::experiment::Experiment;
use crate::keys::{Names, Setting};

/// Returns the count that `node` states, from 1 to [`VMS_MAX`].
fn count(node: &Node) -> Option<usize> {
    match node.value {
        Value::Integer(count) => usize::try_from(count)
            .ok()
            .filter(|count| (1..=VMS_MAX).contains(count)),
        _ => None,
    }
}

/// Gives all guests of `experiment` with a count as many names as the largest count that some layer or an option `set`
/// states. Reports counts that are none.
pub(super) fn grow(experiment: &mut Experiment, set: &[Setting], findings: &mut Findings) {
    let layers = experiment.cases.iter().chain(&experiment.variants);
    let settings = layers.flat_map(|layer| &layer.settings).chain(set);
    let stated = settings.map(|setting| (&setting.path, &setting.node));
    let swept = experiment
        .sweeps
        .iter()
        .flat_map(|sweep| sweep.values.iter().map(|value| (&sweep.key, value)));
    let mut largest: Vec<usize> = experiment.names.families.iter().map(|family| family.count).collect();
    for (path, node) in stated.chain(swept) {
        let families = experiment.names.families.iter();
        let Some(at) = families
            .clone()
            .position(|family| experiment.names.counted(path) == Some(family))
        else {
            continue;
        };
        match count(node) {
            Some(count) => largest[at] = largest[at].max(count),
            None => findings.add(
                &node.place,
                path,
                node.value.to_string(),
                format!("1 to {VMS_MAX} guests"),
            ),
        }
    }
    experiment.names = grown(&experiment.names, &largest);
    let names = &experiment.names.vms;
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    let place = crate::diagnostic::Place::whole(&experiment.file);
    if let Some((_, name)) = twice {
        findings.add(
            &place,
            "vm",
            format!("{name:?} twice, by a count"),
            "names of their own",
        );
    }
    if names.len() > VMS_MAX {
        findings.add(
            &place,
            "vm",
            format!("{} of them, by counts", names.len()),
            format!("at most {VMS_MAX}"),
        );
    }
}

/// Returns `names` with the families as large as `largest` says.
fn grown(names: &Names, largest: &[usize]) -> Names {
    let mut grown = Names {
        vms: Vec::new(),
        families: Vec::new(),
        ..names.clone()
    };
    let mut at = 0;
    while at < names.vms.len() {
        let family = names
            .families
            .iter()
            .zip(largest)
            .find(|(family, _)| family.first == at);
        match family {
            None => {
                grown.vms.push(names.vms[at].clone());
                at += 1;
            }
            Some((family, count)) => {
                let mut larger = family.clone();
                (larger.first, larger.count) = (grown.vms.len(), *count);
                grown
                    .vms
                    .extend((1..=*count).map(|number| format!("{}-{number}", family.name)));
                grown.families.push(larger);
                at += family.count;
            }
        }
    }
    grown
}

/// Removes the guests that a cell does not have: of each family those beyond the count that the last of `layers`
/// states.
pub(super) fn keep(vms: &mut Vec<DraftVm>, layers: &[&[Setting]], names: &Names) {
    let settings = || layers.iter().copied().flatten();
    for family in &names.families {
        let is_its = |setting: &&Setting| names.counted(&setting.path) == Some(family);
        let last = settings().rfind(is_its);
        let kept = last.and_then(|setting| count(&setting.node)).unwrap_or(family.stated);
        let beyond: Vec<String> = (kept + 1..=family.count)
            .map(|number| format!("{}-{number}", family.name))
            .collect();
        vms.retain(|vm| !beyond.contains(&vm.name));
    }
}
