//! What the path of a key names: which key, of which groups, guests and tasks.

use holdfast_machine::Costs;

use super::destination::{TO, path_at_destination};
use super::key::Target;
use super::renamed::renamed;
use super::search;
use super::table::KEYS;
use crate::diagnostic::nearest;
use crate::draft::DraftVm;
use crate::slot::Slot;

/// A key of one group, guest, task or cost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    /// Index in [`KEYS`].
    pub(super) key: usize,
    /// Index of the group, guest, task or cost, or of the key for the first host.
    pub(super) instance: usize,
    /// Name of the parameter of an own workload or guest policy. Empty if it is none.
    pub(super) name: String,
}

impl Item {
    pub(super) fn new(key: usize, instance: usize) -> Item {
        Item {
            key,
            instance,
            name: String::new(),
        }
    }
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
    pub(super) fn resolve(&self, path: &str) -> Result<(Vec<Item>, bool), String> {
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
                (Some(key), Some(instance)) => Ok((vec![Item::new(key, instance)], true)),
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
                (Some(key), Some(instance)) => Ok((vec![Item::new(key, instance)], true)),
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
            let own = rest.strip_prefix("own.").filter(|_| prefix == "vm");
            let key = match own.and_then(|_| KEYS.iter().position(|key| matches!(key.target, Target::Own))) {
                Some(key) => key,
                None => position(&format!("{prefix}.*.{rest}"))?,
            };
            let item = |instance| Item {
                name: own.unwrap_or_default().to_owned(),
                ..Item::new(key, instance)
            };
            return Ok((instances.into_iter().map(item).collect(), exact));
        }
        position(path).map(|key| (vec![Item::new(key, 0)], true))
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

pub(super) fn position(path: &str) -> Result<usize, String> {
    let found = KEYS
        .iter()
        .position(|key| key.path == path && !matches!(key.target, Target::Cost | Target::Destination | Target::Own));
    found.ok_or_else(|| match path {
        // Fields of the whole experiment, which have options of their own.
        "seeds" | "scale" => format!("a known key; give it by --{path}"),
        _ if renamed(path).is_some() => {
            format!("the key that took its place: now {}", renamed(path).unwrap_or_default())
        }
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
