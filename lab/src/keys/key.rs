//! A key: what it is called, what it sets, and how it is documented.

use holdfast_machine::Costs;
use holdfast_sim::HostTask;

use super::own;
use crate::draft::{Draft, DraftVm};
use crate::extensions::Extensions;
use crate::groups::DraftGroup;
use crate::profile::MachineProfile;
use crate::slot::{Range, Slot};

/// A key: its path, its documentation, and the parameter that it sets.
pub struct Key {
    /// Path of the key, with `*` for the name or number of a group, guest or task.
    pub path: &'static str,
    /// Struct and fields of the parameter, as `HostConfig.sched.latency_ns`. The last field's doc comment documents the
    /// key. Empty if the note is the whole documentation.
    pub(super) field: &'static str,
    /// What concerns the key only, not the field: the names of values, and other keys.
    pub(super) note: &'static str,
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
    /// A parameter of a program's own workload or guest policy, by the name that it has there.
    Own,
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
pub(super) fn field_doc(path: &str) -> String {
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
            "host.policy" => with.about_policies(),
            "vm.*.guest_policy" => with.about_guest_policies(),
            "vm.*.own.*" => [self.note, &own::about(with)].join(" "),
            _ => self.note.to_owned(),
        };
        [field_doc(self.field), note].join(" ").trim().to_owned()
    }

    /// Returns whether it sets a parameter of the host.
    pub(crate) fn is_of_host(&self) -> bool {
        matches!(self.target, Target::Host(_))
    }

    /// Returns what the configuration must have for the key to apply.
    pub(super) fn needs(&self) -> String {
        match self.path.split('.').collect::<Vec<_>>()[..] {
            ["vm", _, "own", _] => {
                "a guest with a workload or policy of the program's own that has this parameter".to_owned()
            }
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
