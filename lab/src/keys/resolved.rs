//! The values of all keys in one configuration.

use std::collections::BTreeMap;

use holdfast_machine::Costs;
use serde_json::Value;

use super::destination::path_at_destination;
use super::names::Item;
use super::{KEYS, Target, own, slot};
use crate::draft::Draft;

/// The value of each key that applies, by its path.
pub type Parameters = BTreeMap<String, Value>;

/// Returns a value as a user writes it. It is JSON, except a name with an escaped character.
fn json(shown: String) -> Value {
    serde_json::from_str(&shown).unwrap_or(Value::String(shown))
}

/// Returns the values of the keys that the other host has otherwise than the first one.
fn of_destination(draft: &mut Draft) -> Parameters {
    let Some(mut there) = draft.there() else {
        return Parameters::new();
    };
    let keys = KEYS.iter().enumerate();
    let differing = keys.filter_map(|(key, entry)| {
        let path = path_at_destination(entry)?;
        let item = Item::new(key, 0);
        let here = slot(draft, &item).map(|slot| slot.show());
        let shown = slot(&mut there, &item)?.show();
        let value = json(shown.clone());
        (here != Some(shown)).then_some((path, value))
    });
    differing.collect()
}

/// Returns the values of all keys that apply to `draft`. A path has `*` where all groups, guests or tasks that have the
/// key agree in its value, and a name elsewhere.
pub(crate) fn resolved(draft: &mut Draft) -> Parameters {
    let mut parameters = Parameters::new();
    // Another form of keys would say their values twice.
    let keys = KEYS.iter().enumerate().filter(|(_, entry)| entry.form_of.is_empty());
    for (key, entry) in keys {
        let names: Vec<String> = match entry.target {
            Target::Group(_) => draft.groups.iter().map(|group| group.name.clone()).collect(),
            Target::Vm(_) => draft.vms.iter().map(|vm| vm.name.clone()).collect(),
            Target::Task(_) => draft.tasks.iter().map(|task| task.name.clone()).collect(),
            Target::Cost => Costs::COSTS.iter().map(|name| (*name).to_owned()).collect(),
            Target::Machine(_) | Target::Host(_) | Target::Run(_) => vec![String::new()],
            Target::Destination => {
                parameters.extend(of_destination(draft));
                continue;
            }
            Target::Own => {
                parameters.extend(own::shown(draft).into_iter().map(|(path, shown)| (path, json(shown))));
                continue;
            }
        };
        let values = names.into_iter().enumerate().filter_map(|(instance, name)| {
            let shown = slot(draft, &Item::new(key, instance))?.show();
            Some((name, json(shown)))
        });
        let values: Vec<(String, Value)> = values.collect();
        let Some((_, first)) = values.first() else { continue };
        if !matches!(entry.target, Target::Cost) && values.iter().all(|(_, value)| value == first) {
            parameters.insert(entry.path.to_owned(), first.clone());
            continue;
        }
        for (name, value) in values {
            parameters.insert(entry.path.replacen('*', &name, 1), value);
        }
    }
    parameters
}
