//! The keys of an experiment: one table that the parser, the validator, the messages and the reference all read.
//!
//! - **One table.** A key's path, unit, range, documentation and target stand in one entry; its default is what a fresh
//!   configuration of the rooms holds there.
//! - **Order.** Keys are set in the order of the table: what chooses (a profile, a workload) stands before what refines.

mod reference;
mod slot;
mod table;

use std::collections::BTreeMap;

use crate::diagnostic::{Findings, Place, nearest};
use crate::document::Node;
use crate::draft::{Draft, DraftVm};
use crate::groups::DraftGroup;
use crate::profile::{COST_NAMES, MachineProfile};

pub(crate) use reference::{DEFAULT_LIMIT_NS, fresh_task};
pub use reference::{Described, markdown};
pub use slot::{Affinity, Choice, Range, Slot, VirtualNodes};
pub use table::KEYS;

use holdfast_sim::HostTask;

/// A key.
pub struct Key {
    /// Its path, `*` for the name or number of a group, guest or task.
    pub path: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Unit of a bare number; empty: none.
    pub unit: &'static str,
    /// Smallest and largest number.
    pub range: Range,
    /// What it sets.
    pub target: Target,
}

/// What a key sets. `None`: this configuration has no such thing (a parameter of another workload).
pub enum Target {
    /// Something of the machine.
    Machine(fn(&mut MachineProfile) -> Option<Slot<'_>>),
    /// Any cost of the machine, named by the path's last part.
    Cost,
    /// Something of the host.
    Host(fn(&mut holdfast_host::HostConfig) -> Option<Slot<'_>>),
    /// Something of a task group.
    Group(fn(&mut DraftGroup) -> Option<Slot<'_>>),
    /// Something of a guest.
    Vm(fn(&mut DraftVm) -> Option<Slot<'_>>),
    /// Something of a host task.
    Task(fn(&mut HostTask) -> Option<Slot<'_>>),
    /// Something of the run.
    Run(fn(&mut Draft) -> Option<Slot<'_>>),
}

impl Key {
    /// Returns what the configuration must have for the key to apply.
    fn needs(&self) -> String {
        match self.path.split('.').collect::<Vec<_>>()[..] {
            ["vm", _, workload, _] => format!("a guest with workload = \"{workload}\""),
            ["machine", key] if key.starts_with("ple") => {
                "an Intel CPU (machine.vendor = \"intel\"); an AMD CPU has the machine.pause_filter keys".to_owned()
            }
            ["machine", key] if key.starts_with("pause_filter") => {
                "an AMD CPU (machine.vendor = \"amd\"); an Intel CPU has the machine.ple keys".to_owned()
            }
            ["vm", _, "vcpu_quota" | "vcpu_period"] => "a guest with cgroup = \"own-with-vcpu-groups\"".to_owned(),
            ["vm", _, "shares" | "quota" | "period"] => {
                "a guest with cgroup = \"own\" or \"own-with-vcpu-groups\"".to_owned()
            }
            _ => "a configuration that has this parameter".to_owned(),
        }
    }
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    /// Index in [`KEYS`].
    key: usize,
    /// Group, guest, task or cost.
    instance: usize,
}

/// A key's value with where it stands.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The path as written.
    pub path: String,
    /// The value.
    pub node: Node,
}

/// The names that paths can use.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Task groups.
    pub groups: Vec<String>,
    /// Guests.
    pub vms: Vec<String>,
    /// Host tasks.
    pub tasks: Vec<String>,
}

impl Names {
    /// The items that `path` names, and whether it names them one by one.
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
            let instance = COST_NAMES.iter().position(|(name, _)| *name == cost);
            return match (key, instance) {
                (Some(key), Some(instance)) => Ok((vec![Item { key, instance }], true)),
                _ => Err(unknown(
                    cost,
                    COST_NAMES.iter().map(|(name, _)| *name),
                    "machine.costs.",
                )),
            };
        }
        for (prefix, names) in [("group", &self.groups), ("vm", &self.vms), ("task", &self.tasks)] {
            let Some(rest) = path.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            let (instance, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let (instances, exact) = instances(prefix, instance, names)?;
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

/// The groups, guests or tasks that `text` names, and whether it is one.
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
        .position(|key| key.path == path && !matches!(key.target, Target::Cost));
    found.ok_or_else(|| unknown(path, KEYS.iter().map(|key| key.path), ""))
}

fn unknown<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, prefix: &str) -> String {
    match nearest(word, known) {
        Some(meant) => format!("a known key; did you mean `{prefix}{meant}`? (`holdfast keys` lists all)"),
        None => "a known key (`holdfast keys` lists all)".to_owned(),
    }
}

/// The values in force: later layers replace earlier ones; within a layer, a path with `*` yields to one that names its
/// guest.
#[derive(Clone, Debug, Default)]
pub struct Effective<'s> {
    values: BTreeMap<Item, (&'s Setting, bool)>,
}

impl<'s> Effective<'s> {
    /// Lays `settings` over what is there. Unknown paths go to `findings`.
    pub(crate) fn layer(&mut self, settings: &'s [Setting], names: &Names, findings: &mut Findings) {
        let mut resolved = Vec::new();
        for setting in settings {
            match names.resolve(&setting.path) {
                Ok((items, exact)) => resolved.push((exact, items, setting)),
                Err(expected) => findings.add(&setting.node.place, &setting.path, "an unknown key", expected),
            }
        }
        // A stable sort: among equals, the text's order.
        resolved.sort_by_key(|(exact, _, _)| *exact);
        for (exact, items, setting) in resolved {
            for item in items {
                self.values.insert(item, (setting, exact));
            }
        }
    }

    /// The machine profile asked for.
    pub(crate) fn profile(&self) -> Option<&'s Setting> {
        let key = position("machine.profile").ok()?;
        self.values.get(&Item { key, instance: 0 }).map(|(setting, _)| *setting)
    }

    /// Sets all values in `draft`, in the order of the table.
    pub(crate) fn apply(&self, draft: &mut Draft, findings: &mut Findings) {
        for (item, (setting, exact)) in &self.values {
            let key = &KEYS[item.key];
            let place = &setting.node.place;
            match slot(draft, *item) {
                // What a `*` reaches need not have the key; what is named must.
                None if !exact => {}
                None => findings.add(place, &setting.path, "a key that does not apply here", key.needs()),
                Some(slot) => {
                    if let Err(expected) = slot.set(&setting.node.value, key.range) {
                        findings.add(place, &setting.path, setting.node.value.to_string(), expected);
                    }
                }
            }
        }
    }

    /// Where the value of `path` was set, if it was.
    pub(crate) fn set_at(&self, path: &str, names: &Names) -> Option<Place> {
        let items = names.resolve(path).map(|(items, _)| items).unwrap_or_default();
        let set = items.iter().find_map(|item| self.values.get(item));
        set.map(|(setting, _)| setting.node.place.clone())
    }

    /// Where the value of `path` was set; `default` if it was not.
    pub(crate) fn place(&self, path: &str, names: &Names, default: &Place) -> Place {
        self.set_at(path, names).unwrap_or_else(|| default.clone())
    }
}

fn slot(draft: &mut Draft, item: Item) -> Option<Slot<'_>> {
    match KEYS[item.key].target {
        Target::Machine(target) => target(&mut draft.machine),
        Target::Cost => {
            let (name, _) = COST_NAMES[item.instance];
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
    }
}
