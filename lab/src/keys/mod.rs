//! The keys of an experiment: one table that the parser, the validator, the messages and the reference all read.
//!
//! - **One table.** One entry states a key's path, unit, range, documentation and target. The key's default is the
//!   value in a new configuration.
//! - **Order.** Keys are set in the order of the table. A key that chooses a profile or a workload comes before the
//!   keys that refine it.

mod destination;
mod reference;
mod resolved;
pub mod search;
mod table;

use std::collections::BTreeMap;

use crate::diagnostic::{Findings, Place, nearest};
use crate::document::{Node, Value};
use crate::draft::{Draft, DraftVm};
use crate::extensions::Extensions;
use crate::groups::DraftGroup;
use crate::linux::TODAY;
use crate::profile::MachineProfile;
use crate::slot::{Range, Slot};

pub(crate) use destination::TO;
use destination::path_at_destination;
pub use reference::{Described, markdown};
pub use resolved::Parameters;
pub(crate) use resolved::resolved;
pub use table::KEYS;

use holdfast_host::Linux;
use holdfast_machine::Costs;
use holdfast_sim::HostTask;

/// A key: its path, its documentation, and the parameter that it sets.
pub struct Key {
    /// Path of the key, with `*` for the name or number of a group, guest or task.
    pub path: &'static str,
    /// Struct and fields of the parameter, as `HostConfig.sched.latency_ns`. The last field's doc comment documents the
    /// key. Empty if the note is the whole documentation.
    field: &'static str,
    /// What concerns the key only, not the field: the names of values, and other keys.
    note: &'static str,
    /// Unit of a bare number; empty if it has none.
    pub unit: &'static str,
    /// Smallest and largest number.
    pub range: Range,
    /// Last components of the keys of which this one is another form, in other units. Empty if it is none.
    pub form_of: &'static [&'static str],
    /// Parameter that the key sets.
    pub target: Target,
}

/// Parameter that a key sets. A function returns `None` if the configuration lacks the parameter, as with another
/// workload's parameter.
pub enum Target {
    /// A parameter of the machine.
    Machine(fn(&mut MachineProfile) -> Option<Slot<'_>>),
    /// A cost of the machine, named by the last component of the path.
    Cost,
    /// A parameter of the host.
    Host(fn(&mut holdfast_host::HostConfig) -> Option<Slot<'_>>),
    /// A parameter of a task group.
    Group(fn(&mut DraftGroup) -> Option<Slot<'_>>),
    /// A parameter of a guest.
    Vm(fn(&mut DraftVm) -> Option<Slot<'_>>),
    /// A parameter of a host task.
    Task(fn(&mut HostTask) -> Option<Slot<'_>>),
    /// A parameter of the other host to which guests migrate, by the key that sets it on the first host.
    Destination,
    /// A parameter of the run.
    Run(fn(&mut Draft) -> Option<Slot<'_>>),
}

/// Struct, field, type and documentation of each field of the configuration, from the doc comments.
static FIELDS: &[(&str, &str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/fields.rs"));

/// Returns the documentation of `path`, a struct and its fields, as in `HostConfig.sched.latency_ns`. Returns an empty
/// text for an unknown field.
fn field_doc(path: &str) -> String {
    let mut fields = path.split('.');
    let first = (fields.next().unwrap_or_default(), "");
    let last = fields.fold(first, |(container, _), field| {
        let known = FIELDS.iter().find(|known| (known.0, known.1) == (container, field));
        known.map_or(("", ""), |(_, _, kind, doc)| (*kind, *doc))
    });
    last.1.replace("`None`", "\"auto\"")
}

/// Returns the name and the documentation of each cost.
pub fn costs() -> impl Iterator<Item = (&'static str, String)> {
    let names = Costs::COSTS.iter().copied();
    names.map(|name| (name, field_doc(&format!("Costs.{name}"))))
}

impl Key {
    /// Returns the documentation: that of the field, and what concerns the key only, `with` what a program adds.
    pub fn doc(&self, with: Extensions) -> String {
        let note = match self.path {
            "vm.*.lock" => with.about_locks(),
            _ => self.note.to_owned(),
        };
        [field_doc(self.field), note].join(" ").trim().to_owned()
    }

    /// Returns whether it sets a parameter of the host.
    pub(crate) fn is_of_host(&self) -> bool {
        matches!(self.target, Target::Host(_))
    }

    /// Returns what the configuration must have for the key to apply.
    fn needs(&self) -> String {
        match self.path.split('.').collect::<Vec<_>>()[..] {
            ["vm", _, workload, _] if workload != "cpu" => format!("a guest with workload = \"{workload}\""),
            ["machine", key] if key.starts_with("ple") => {
                "an Intel CPU; an AMD CPU has the machine.pause_filter keys".to_owned()
            }
            ["machine", key] if key.starts_with("pause_filter") => {
                "an AMD CPU; an Intel CPU has the machine.ple keys".to_owned()
            }
            ["vm", _, "vcpu_quota" | "vcpu_period"] => "a guest with cgroup = \"own-with-vcpu-groups\"".to_owned(),
            ["vm", _, "shares" | "quota" | "period" | "burst"] | ["vm", _, "cpu", _] => {
                "a guest with cgroup = \"own\" or \"own-with-vcpu-groups\"".to_owned()
            }
            _ => "a configuration that has this parameter".to_owned(),
        }
    }
}

/// Returns the keys that fit `words`, the best first: their paths, synonyms and documentation are searched.
pub fn search(words: &str, with: Extensions) -> Vec<&'static Key> {
    let fit = |key: &Key| search::fit(words, key.path, &key.doc(with));
    let mut found: Vec<(search::Fit, &Key)> = KEYS.iter().filter_map(|key| Some((fit(key)?, *key))).collect();
    found.sort_by_key(|(fit, _)| *fit);
    found.into_iter().map(|(_, key)| key).collect()
}

/// A key of one group, guest, task or cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    /// Index in [`KEYS`].
    key: usize,
    /// Index of the group, guest, task or cost, or of the key for the first host.
    instance: usize,
}

/// A key's value and its place.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Path as the user wrote it.
    pub path: String,
    /// Value and its place.
    pub node: Node,
}

/// Names that paths can use.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names of the task groups.
    pub groups: Vec<String>,
    /// Names of the guests.
    pub vms: Vec<String>,
    /// Identical guests among `vms`.
    pub families: Vec<Family>,
    /// Names of the host tasks.
    pub tasks: Vec<String>,
}

/// Guests that one `[[vm]]` with a `count` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The name in the file. A path with it names all of them.
    pub name: String,
    /// Index of the first guest.
    pub first: usize,
    /// Number of guests, at most: the largest count that a cell has.
    pub count: usize,
    /// Number of guests in the file.
    pub stated: usize,
}

impl Names {
    /// Returns the guests whose number `path` sets, as in `vm.web.count`.
    pub(crate) fn counted(&self, path: &str) -> Option<&Family> {
        let name = path.strip_prefix("vm.")?.strip_suffix(".count")?;
        self.families.iter().find(|family| family.name == name)
    }

    /// Returns the items that `path` names, and whether it names a single group, guest or task instead of all.
    fn resolve(&self, path: &str) -> Result<(Vec<Item>, bool), String> {
        // `guest.X` is the short form of `vm.*.X`.
        let long;
        let path = match path.strip_prefix("guest.") {
            Some(rest) => {
                long = format!("vm.*.{rest}");
                &long
            }
            None => path,
        };
        if let Some(cost) = path.strip_prefix("machine.costs.") {
            let key = KEYS.iter().position(|key| matches!(key.target, Target::Cost));
            let instance = Costs::COSTS.iter().position(|name| *name == cost);
            return match (key, instance) {
                (Some(key), Some(instance)) => Ok((vec![Item { key, instance }], true)),
                _ => Err(unknown(cost, Costs::COSTS.iter().copied(), "machine.costs.")),
            };
        }
        if path.starts_with(TO) {
            let key = KEYS.iter().position(|key| matches!(key.target, Target::Destination));
            let instance = KEYS
                .iter()
                .position(|key| path_at_destination(key).is_some_and(|known| known == path));
            let known = KEYS
                .iter()
                .filter_map(|key| path_at_destination(key))
                .collect::<Vec<_>>();
            return match (key, instance) {
                (Some(key), Some(instance)) => Ok((vec![Item { key, instance }], true)),
                _ => Err(unknown(path, known.iter().map(String::as_str), "")),
            };
        }
        for (prefix, names) in [("group", &self.groups), ("vm", &self.vms), ("task", &self.tasks)] {
            let Some(rest) = path.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            let (instance, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let family = self
                .families
                .iter()
                .find(|family| prefix == "vm" && family.name == instance);
            let (instances, exact) = match family {
                Some(family) => ((family.first..family.first + family.count).collect(), true),
                None => instances(prefix, instance, names)?,
            };
            let pattern = format!("{prefix}.*.{rest}");
            let key = position(&pattern)?;
            return Ok((
                instances.into_iter().map(|instance| Item { key, instance }).collect(),
                exact,
            ));
        }
        position(path).map(|key| (vec![Item { key, instance: 0 }], true))
    }
}

/// Returns the groups, guests or tasks that `text` names, and whether it names a single one instead of all.
fn instances(prefix: &str, text: &str, names: &[String]) -> Result<(Vec<usize>, bool), String> {
    if text == "*" {
        return Ok(((0..names.len()).collect(), false));
    }
    let by_number = text.parse().ok().filter(|number| *number < names.len());
    if let Some(index) = names.iter().position(|name| name == text).or(by_number) {
        return Ok((vec![index], true));
    }
    let known = names
        .iter()
        .enumerate()
        .map(|(index, name)| format!("{index} ({name})"));
    let known: Vec<String> = known.collect();
    let which = if known.is_empty() {
        "none here".to_owned()
    } else {
        known.join(", ")
    };
    Err(format!("a {prefix} by its number or name: {which}"))
}

fn position(path: &str) -> Result<usize, String> {
    let found = KEYS
        .iter()
        .position(|key| key.path == path && !matches!(key.target, Target::Cost | Target::Destination));
    found.ok_or_else(|| match path {
        // Fields of the whole experiment, which have options of their own.
        "seeds" | "scale" => format!("a known key; give it by --{path}"),
        _ => match &search::meant(path, KEYS.iter().map(|key| key.path))[..] {
            [] => unknown(path, KEYS.iter().map(|key| key.path), ""),
            meant => {
                let meant: Vec<String> = meant.iter().map(|path| format!("`{path}`")).collect();
                format!(
                    "a known key; by its meaning {} (`holdfast keys WORD` searches)",
                    meant.join(" or ")
                )
            }
        },
    })
}

/// Returns whether the values of the key of `path`, such as a guest's `affinity`, are lists. `false` for an unknown
/// path.
pub(crate) fn takes_list(path: &str) -> bool {
    let path = path
        .strip_prefix("guest.")
        .map_or_else(|| path.to_owned(), |rest| format!("vm.*.{rest}"));
    let pattern = match path.split('.').collect::<Vec<_>>()[..] {
        [kind @ ("vm" | "group" | "task"), _, ref rest @ ..] => format!("{kind}.*.{}", rest.join(".")),
        _ => path,
    };
    let is_list = |slot: Option<Slot<'_>>| {
        matches!(
            slot,
            Some(Slot::Affinity(_) | Slot::Cpus(_) | Slot::Nodes(_) | Slot::Inhibits(_))
        )
    };
    match position(&pattern).map(|key| &KEYS[key].target) {
        Ok(Target::Vm(target)) => is_list(target(&mut DraftVm::new("", crate::linux::TODAY))),
        Ok(Target::Task(target)) => is_list(target(&mut crate::draft::new_task(""))),
        _ => false,
    }
}

fn unknown<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, prefix: &str) -> String {
    match nearest(word, known) {
        Some(meant) => format!("a known key; did you mean `{prefix}{meant}`? (`holdfast keys` lists all)"),
        None => "a known key (`holdfast keys` lists all)".to_owned(),
    }
}

/// Returns what a configuration must have to take the key of `path`, which is known.
pub(crate) fn needed_by(path: &str, names: &Names) -> String {
    let items = names.resolve(path).map(|(items, _)| items).unwrap_or_default();
    items.first().map(|item| KEYS[item.key].needs()).unwrap_or_default()
}

/// The groups, guests, tasks and costs whose key a path names.
pub(crate) struct Items(Vec<Item>, bool);

impl Items {
    /// Returns the items that `path` names; none for an unknown path.
    pub(crate) fn of(path: &str, names: &Names) -> Items {
        let (items, exact) = names.resolve(path).unwrap_or_default();
        Items(items, exact)
    }

    /// Returns whether both name the same items with the same precedence.
    pub(crate) fn is_same(&self, other: &Items) -> bool {
        !self.0.is_empty() && self.1 == other.1 && self.0 == other.0
    }

    /// Returns whether every item of `other` is among these.
    pub(crate) fn includes(&self, other: &Items) -> bool {
        !other.0.is_empty() && other.0.iter().all(|item| self.0.contains(item))
    }

    /// Returns whether some item is in both.
    pub(crate) fn meets(&self, other: &Items) -> bool {
        other.0.iter().any(|item| self.0.contains(item))
    }
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
                    let other = Item { key: other, ..*item };
                    // A form in another layer is replaced.
                    let Some((replaced, _)) = self.values.remove(&other) else {
                        continue;
                    };
                    if first.contains(&std::ptr::from_ref(replaced)) {
                        let expected = format!("one of the two forms: {} is set too", replaced.path);
                        findings.add(&setting.node.place, &setting.path, "a key in two forms", expected);
                    }
                }
                self.values.insert(*item, (setting, exact));
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
        self.values.get(&Item { key, instance: 0 }).map(|(setting, _)| *setting)
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
            match slot(draft, *item) {
                // A `*` also reaches guests to which the key does not apply. A named guest must have it.
                None if !exact => {}
                None => findings.add(place, &setting.path, "a key that does not apply here", key.needs()),
                Some(slot) => {
                    let range = match key.target {
                        Target::Destination => KEYS[item.instance].range,
                        _ => key.range,
                    };
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
        wide.map(|(setting, items)| (*setting, items.iter().any(|item| slot(draft, *item).is_some())))
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

fn slot(draft: &mut Draft, item: Item) -> Option<Slot<'_>> {
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
