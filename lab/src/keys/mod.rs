//! The keys of an experiment: one table that the parser, the validator, the messages and the reference all read.
//!
//! - **One table.** One entry states a key's path, unit, range, documentation and target. The key's default is the
//!   value in a new configuration.
//! - **Order.** Keys are set in the order of the table. A key that chooses a profile or a workload comes before the
//!   keys that refine it.

mod destination;
mod key;
mod names;
mod own;
mod reference;
mod renamed;
mod resolved;
pub mod search;
mod table;

use std::collections::BTreeMap;

use holdfast_host::Linux;
use holdfast_machine::Costs;
use holdfast_workloads::Parameter;

use crate::diagnostic::{Findings, Place};
use crate::document::{Node, Value};
use crate::draft::Draft;
use crate::extensions::Extensions;
use crate::linux::TODAY;
use crate::slot::{Range, Slot};
use names::{Item, position};

pub(crate) use destination::TO;
pub use key::{Key, Target, costs};
pub use names::{Family, Names};
pub(crate) use names::{Items, takes_list};
pub use reference::{Described, markdown};
pub use resolved::Parameters;
pub(crate) use resolved::resolved;
pub use table::KEYS;

/// Returns the keys that fit `words`, the best first: their paths, synonyms and documentation are searched.
pub fn search(words: &str, with: Extensions) -> Vec<&'static Key> {
    let fit = |key: &Key| search::fit(words, key.path, &key.doc(with));
    let mut found: Vec<(search::Fit, &Key)> = KEYS.iter().filter_map(|key| Some((fit(key)?, *key))).collect();
    found.sort_by_key(|(fit, _)| *fit);
    found.into_iter().map(|(_, key)| key).collect()
}

/// A key's value and its place.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Path as the user wrote it.
    pub path: String,
    /// Value and its place.
    pub node: Node,
}

/// Returns what a configuration must have to take the key of `path`, which is known.
pub(crate) fn needed_by(path: &str, names: &Names) -> String {
    let items = names.resolve(path).map(|(items, _)| items).unwrap_or_default();
    items.first().map(|item| KEYS[item.key].needs()).unwrap_or_default()
}

/// The effective values. Later layers replace earlier ones. Within a layer a path that names its guest takes precedence
/// over a path with `*`.
#[derive(Clone, Debug, Default)]
pub struct Effective<'s> {
    values: BTreeMap<Item, (&'s Setting, bool)>,
    /// The settings of `*`, and what each of them names, also where another setting replaces it.
    wide: Vec<(&'s Setting, Vec<Item>)>,
}

impl<'s> Effective<'s> {
    /// Adds a layer of `settings`. Unknown paths are reported to `findings`.
    pub(crate) fn layer(&mut self, settings: &'s [Setting], names: &Names, findings: &mut Findings) {
        let mut resolved = Vec::new();
        // The number of guests is no parameter of a guest.
        for setting in settings.iter().filter(|setting| names.counted(&setting.path).is_none()) {
            match names.resolve(&setting.path) {
                Ok((items, _)) if items.is_empty() => {
                    let expected = "a group, guest or task that takes it: there is none";
                    findings.add(&setting.node.place, &setting.path, "a key that nothing takes", expected);
                }
                Ok((items, exact)) => resolved.push((exact, items, setting)),
                Err(expected) => findings.add(&setting.node.place, &setting.path, "an unknown key", expected),
            }
        }
        // The sort is stable: settings of equal precedence keep the order of the text.
        resolved.sort_by_key(|(exact, _, _)| *exact);
        let first = settings.as_ptr_range();
        for (exact, items, setting) in resolved {
            for item in &items {
                for other in forms(item.key) {
                    let other = Item {
                        key: other,
                        ..item.clone()
                    };
                    // A form in another layer is replaced.
                    let Some((replaced, _)) = self.values.remove(&other) else {
                        continue;
                    };
                    if first.contains(&std::ptr::from_ref(replaced)) {
                        let expected = format!("one of the two forms: {} is set too", replaced.path);
                        findings.add(&setting.node.place, &setting.path, "a key in two forms", expected);
                    }
                }
                self.values.insert(item.clone(), (setting, exact));
            }
            if !exact {
                self.wide.push((setting, items));
            }
        }
    }

    /// Returns the setting of the machine profile, if there is one.
    pub(crate) fn profile(&self) -> Option<&'s Setting> {
        self.first("machine.profile")
    }

    /// Returns the setting of the file with a real host's topology, if there is one.
    pub(crate) fn topology(&self) -> Option<&'s Setting> {
        self.first("machine.topology")
    }

    /// Returns the setting of `path`, of which there is one, for what is read before all other keys are set.
    fn first(&self, path: &str) -> Option<&'s Setting> {
        let key = position(path).ok()?;
        self.values.get(&Item::new(key, 0)).map(|(setting, _)| *setting)
    }

    /// Returns the setting of the other host's machine profile, if there is one.
    pub(crate) fn destination_profile(&self) -> Option<&'s Setting> {
        let profile = position("machine.profile").ok()?;
        let of = |item: &Item| item.instance == profile && matches!(KEYS[item.key].target, Target::Destination);
        let mut values = self.values.iter();
        values.find_map(|(item, (setting, _))| of(item).then_some(*setting))
    }

    /// Returns the version of the host's Linux. A name that is none is reported when it is set.
    pub(crate) fn host_kernel(&self) -> Linux {
        let named = self.first("host.kernel").and_then(|setting| match &setting.node.value {
            Value::Text(name) => Linux::by_name(name),
            _ => None,
        });
        named.unwrap_or(TODAY)
    }

    /// Sets all values in `draft`, in the order of the table. Mistakes go to `findings`.
    pub(crate) fn apply(&self, draft: &mut Draft, findings: &mut Findings) {
        for (item, (setting, exact)) in &self.values {
            let key = &KEYS[item.key];
            let place = &setting.node.place;
            let range = range(draft, item);
            match slot(draft, item) {
                // A `*` also reaches guests to which the key does not apply. A named guest must have it.
                None if !exact => {}
                None => {
                    let own = matches!(key.target, Target::Own).then(|| &mut draft.vms[item.instance]);
                    let needs = own.and_then(|vm| own::needs(vm, &item.name));
                    let needs = needs.unwrap_or_else(|| key.needs());
                    findings.add(place, &setting.path, "a key that does not apply here", needs);
                }
                Some(slot) => {
                    if let Err(expected) = slot.set(&setting.node.value, range) {
                        findings.add(place, &setting.path, setting.node.value.to_string(), expected);
                    }
                }
            }
        }
    }

    /// Returns the settings of `*`, and whether a group, guest or task of `draft` takes each. To be called after
    /// [`Effective::apply`], since other keys decide that.
    pub(crate) fn taken(&self, draft: &mut Draft) -> Vec<(&'s Setting, bool)> {
        let wide = self.wide.iter();
        wide.map(|(setting, items)| (*setting, items.iter().any(|item| slot(draft, item).is_some())))
            .collect()
    }

    /// Returns the place where the value of `path` was set, or `None` if it was not set.
    pub(crate) fn set_at(&self, path: &str, names: &Names) -> Option<Place> {
        let items = names.resolve(path).map(|(items, _)| items).unwrap_or_default();
        let set = items.iter().find_map(|item| self.values.get(item));
        set.map(|(setting, _)| setting.node.place.clone())
    }

    /// Returns the place where the value of `path` was set, or `default` if it was not set.
    pub(crate) fn place(&self, path: &str, names: &Names, default: &Place) -> Place {
        self.set_at(path, names).unwrap_or_else(|| default.clone())
    }
}

/// Returns the indexes of the keys that are other forms of the one at `index`.
fn forms(index: usize) -> impl Iterator<Item = usize> {
    let (section, last) = split(KEYS[index].path);
    let is_other = move |other: &Key| {
        let (of, name) = split(other.path);
        of == section && (KEYS[index].form_of.contains(&name) || other.form_of.contains(&last))
    };
    (0..KEYS.len()).filter(move |other| is_other(KEYS[*other]))
}

/// Splits a path into the section with its `*` and the rest.
fn split(path: &str) -> (&str, &str) {
    path.split_once(".*.").unwrap_or(("", path))
}

fn own_parameter<'d>(draft: &'d mut Draft, item: &Item) -> Option<Parameter<'d>> {
    own::parameter(&mut draft.vms[item.instance], &item.name)
}

/// Returns the limits of the number that `item` takes.
fn range(draft: &mut Draft, item: &Item) -> Range {
    match KEYS[item.key].target {
        Target::Destination => KEYS[item.instance].range,
        Target::Own => own_parameter(draft, item).map_or((0.0, f64::INFINITY), |parameter| parameter.range),
        _ => KEYS[item.key].range,
    }
}

fn slot<'d>(draft: &'d mut Draft, item: &Item) -> Option<Slot<'d>> {
    match KEYS[item.key].target {
        Target::Machine(target) => target(&mut draft.machine),
        Target::Cost => {
            let name = Costs::COSTS[item.instance];
            draft
                .machine
                .costs
                .by_name(name)
                .map(|cost| Slot::Amount(&mut cost.amount))
        }
        Target::Host(target) => target(&mut draft.host),
        Target::Group(target) => target(&mut draft.groups[item.instance]),
        Target::Vm(target) => target(&mut draft.vms[item.instance]),
        Target::Own => own_parameter(draft, item).map(|parameter| Slot::of(parameter.place)),
        Target::Task(target) => target(&mut draft.tasks[item.instance]),
        Target::Run(target) => target(draft),
        Target::Destination => {
            let Draft {
                machine,
                host,
                migration,
                ..
            } = draft;
            match KEYS[item.instance].target {
                Target::Machine(target) => target(migration.machine.get_or_insert_with(|| machine.clone())),
                Target::Host(target) => target(migration.host.get_or_insert_with(|| host.clone())),
                _ => None,
            }
        }
    }
}
