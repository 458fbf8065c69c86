//! Parameters that keys set: their kinds, how values are read into them, and how they are shown.

mod cgroup;
mod read;
#[cfg(test)]
mod tests;

use holdfast_host::{Inhibit, Inhibits, PolicyKind};
use holdfast_locks::LockKind;
use holdfast_machine::CpuModel;
use holdfast_workloads::{GuestPolicyKind, OwnWorkload, Place, Workload};

use crate::amount::{self, Amount, show_nanos};
use crate::diagnostic::one_of;
use crate::document::Value;
use crate::extensions::workloads_with;
use crate::groups::Limit;
pub use read::{Affinity, Range, VirtualNodes};
use read::{NODE_MAX, affinity, cpus, flag, hertz, inhibits, name_or, nanos, nodes, number, whole_number};

/// A parameter that is chosen by name.
pub trait Choice {
    /// Returns all names.
    fn names(&self) -> Vec<&'static str>;
    /// Returns the name of the current choice.
    fn name(&self) -> &'static str;
    /// Chooses `name`. Returns `false` if there is no such name.
    fn choose(&mut self, name: &str) -> bool;
}

/// Implements [`Choice`] for an enum, from a name for each variant.
macro_rules! choices {
    ($type:ty { $($name:literal => $value:pat => $make:expr,)* }) => {
        impl $crate::slot::Choice for $type {
            fn names(&self) -> Vec<&'static str> {
                vec![$($name),*]
            }
            fn name(&self) -> &'static str {
                match self { $($value => $name,)* }
            }
            fn choose(&mut self, name: &str) -> bool {
                // The current choice keeps its parameters.
                if self.name() != name {
                    *self = match name { $($name => $make,)* _ => return false };
                }
                true
            }
        }
    };
    ($type:ty { $($name:literal => $value:path,)* }) => {
        choices!($type { $($name => $value => $value,)* });
    };
}
pub(crate) use choices;

impl Choice for &'static CpuModel {
    fn names(&self) -> Vec<&'static str> {
        CpuModel::ALL.iter().map(|model| model.name).collect()
    }
    fn name(&self) -> &'static str {
        self.name
    }
    fn choose(&mut self, name: &str) -> bool {
        let found = CpuModel::by_name(name);
        *self = found.unwrap_or(self);
        found.is_some()
    }
}

/// A parameter, by the kind of value that it takes.
pub enum Slot<'a> {
    /// `true` or `false`.
    Flag(&'a mut bool),
    /// `true`, `false`, or `"auto"`, which leaves it to a rule.
    OptionalFlag(&'a mut Option<bool>),
    /// A whole number.
    U32(&'a mut u32),
    /// A whole number.
    U64(&'a mut u64),
    /// A small whole number with a sign.
    I8(&'a mut i8),
    /// A whole number, or `"auto"`.
    OptionalU32(&'a mut Option<u32>),
    /// A number that need not be whole.
    F64(&'a mut f64),
    /// A time in nanoseconds.
    Nanos(&'a mut u64),
    /// A time in nanoseconds, or `"auto"`.
    OptionalNanos(&'a mut Option<u64>),
    /// A time in nanoseconds, or `"auto"` for one that never ends (`u64::MAX`).
    NanosOrNever(&'a mut u64),
    /// A frequency in hertz.
    Hertz(&'a mut u64),
    /// A name. It is read before all other keys, so that setting it here changes nothing.
    Name(&'a mut String),
    /// A file or a name that a later step reads.
    Text(&'a mut String),
    /// The name of a task group, or `"root"`.
    Group(&'a mut Option<String>),
    /// The name of a guest, or `"none"`.
    Guest(&'a mut Option<String>),
    /// A time that may be stated in cycles.
    Amount(&'a mut Amount),
    /// A choice by name.
    Choice(&'a mut dyn Choice),
    /// A lock, among those that are known.
    Lock(&'a mut LockKind, &'static [LockKind]),
    /// A host policy, among those that are known.
    Policy(&'a mut PolicyKind, &'static [PolicyKind]),
    /// A guest policy, among those that are known.
    GuestPolicy(&'a mut GuestPolicyKind, &'static [GuestPolicyKind]),
    /// A workload: one of the shipped, or of those that a program adds.
    Workload(&'a mut Workload, &'static [OwnWorkload]),
    /// Sets of pCPUs for the vCPUs.
    Affinity(&'a mut Affinity),
    /// A set of pCPUs.
    Cpus(&'a mut Vec<u32>),
    /// NUMA nodes for the vCPUs.
    Nodes(&'a mut VirtualNodes),
    /// Reasons against APIC virtualization.
    Inhibits(&'a mut Inhibits),
    /// Quota and period in the units of cgroup v2.
    CpuMax(&'a mut Limit),
    /// Shares as a weight of cgroup v2.
    Weight(&'a mut u64),
}

impl<'a> Slot<'a> {
    /// Returns the parameter at `place` of what a program brings along.
    pub(crate) fn of(place: Place<'a>) -> Slot<'a> {
        match place {
            Place::U32(value) => Slot::U32(value),
            Place::U64(value) => Slot::U64(value),
            Place::F64(value) => Slot::F64(value),
            Place::Nanos(value) => Slot::Nanos(value),
            Place::Flag(value) => Slot::Flag(value),
        }
    }
}

impl Slot<'_> {
    /// Describes the accepted values, for the reference and for messages.
    pub fn kind(&self, range: Range) -> String {
        let between = match range {
            (min, max) if max == f64::INFINITY && min == f64::NEG_INFINITY => String::new(),
            (min, max) if max == f64::INFINITY => format!(" from {min}"),
            (min, max) => format!(" from {min} to {max}"),
        };
        match self {
            Slot::Flag(_) => "true or false".to_owned(),
            Slot::CpuMax(_) => cgroup::EXPECTED_MAX.to_owned(),
            Slot::OptionalFlag(_) => "true, false or \"auto\"".to_owned(),
            Slot::U32(_) | Slot::U64(_) | Slot::I8(_) | Slot::Weight(_) => format!("a whole number{between}"),
            Slot::OptionalU32(_) => format!("a whole number{between}, or \"auto\""),
            Slot::F64(_) => format!("a number{between}"),
            Slot::Nanos(_) => amount::EXPECTED_NO_CYCLES.to_owned(),
            Slot::Hertz(_) => "a frequency with its unit, such as \"2.93 GHz\" or \"2930 MHz\"".to_owned(),
            Slot::Name(_) | Slot::Text(_) => "a name".to_owned(),
            Slot::Group(_) => "the name of a [[group]], or \"root\"".to_owned(),
            Slot::Guest(_) => "the name of another [[vm]], or \"none\"".to_owned(),
            Slot::OptionalNanos(_) | Slot::NanosOrNever(_) => format!("{}, or \"auto\"", amount::EXPECTED_NO_CYCLES),
            Slot::Amount(_) => amount::EXPECTED.to_owned(),
            Slot::Choice(choice) => format!("one of {}", choice.names().join(", ")),
            Slot::Lock(_, known) => format!("one of {}", names_of(known).join(", ")),
            Slot::Policy(_, known) => format!("one of {}", policies_of(known).join(", ")),
            Slot::GuestPolicy(_, known) => format!("one of {}", guest_policies_of(known).join(", ")),
            Slot::Workload(_, own) => format!("one of {}", workloads_of(own).join(", ")),
            Slot::Affinity(_) => {
                "pCPUs for all vCPUs, as [0, 1, 2, 3] or \"0-3\", or a list of such for each vCPU; [] for all pCPUs"
                    .to_owned()
            }
            Slot::Nodes(_) => {
                format!("\"one\", \"pinned\", or a node from 0 to {NODE_MAX} for each vCPU, as [0, 0, 1, 1]")
            }
            Slot::Cpus(_) => "pCPUs, as [0, 1, 2, 3] or \"0-3\"; [] for all".to_owned(),
            Slot::Inhibits(_) => format!(
                "names, as [\"sev\", \"pit_reinj\"] or \"sev,pit_reinj\", of {}; [] for none",
                Inhibit::ALL.map(Inhibit::name).join(", ")
            ),
        }
    }

    /// Sets the parameter to `value`.
    ///
    /// # Errors
    /// Returns the description of the accepted values if `value` is none of them.
    pub fn set(self, value: &Value, range: Range) -> Result<(), String> {
        let expected = self.limits(value, range).unwrap_or_else(|| self.kind(range));
        let whole = whole_number(value, range);
        let done = match self {
            Slot::Flag(slot) => put(slot, flag(value)),
            Slot::OptionalFlag(slot) => put_optional(slot, value, flag(value)),
            Slot::U32(slot) => put(slot, whole.and_then(|number| number.try_into().ok())),
            Slot::U64(slot) => put(slot, whole.and_then(|number| number.try_into().ok())),
            Slot::I8(slot) => put(slot, whole.and_then(|number| number.try_into().ok())),
            Slot::OptionalU32(slot) => put_optional(slot, value, whole.and_then(|number| number.try_into().ok())),
            Slot::F64(slot) => put(slot, number(value, range)),
            Slot::Nanos(slot) => put(slot, nanos(value)),
            Slot::OptionalNanos(slot) => put_optional(slot, value, nanos(value)),
            Slot::NanosOrNever(slot) => match value {
                Value::Text(text) if text == "auto" => put(slot, Some(u64::MAX)),
                _ => put(slot, nanos(value).filter(|nanos| *nanos > 0)),
            },
            Slot::Hertz(slot) => put(slot, hertz(value)),
            Slot::Name(_) => matches!(value, Value::Text(_)),
            Slot::Text(slot) => match value {
                Value::Text(text) => put(slot, Some(text.clone())),
                _ => false,
            },
            Slot::Group(slot) => put(slot, name_or(value, "root")),
            Slot::Guest(slot) => put(slot, name_or(value, "none")),
            Slot::Amount(slot) => put(slot, Amount::of_value(value).filter(|a| crate::profile::is_cost(*a))),
            Slot::Choice(slot) => {
                let Value::Text(name) = value else { return Err(expected) };
                if !slot.choose(name) {
                    return Err(one_of(name, slot.names()));
                }
                true
            }
            Slot::Lock(slot, known) => {
                let Value::Text(name) = value else { return Err(expected) };
                let found = known.iter().find(|kind| kind.name() == name);
                *slot = *found.ok_or_else(|| one_of(name, names_of(known)))?;
                true
            }
            Slot::Policy(slot, known) => {
                let Value::Text(name) = value else { return Err(expected) };
                let found = known.iter().find(|kind| kind.name() == name);
                *slot = *found.ok_or_else(|| one_of(name, policies_of(known)))?;
                true
            }
            Slot::GuestPolicy(slot, known) => {
                let Value::Text(name) = value else { return Err(expected) };
                let found = known.iter().find(|kind| kind.name() == name);
                let found = found.ok_or_else(|| one_of(name, guest_policies_of(known)))?;
                // The current policy keeps its parameters.
                if slot.name() != name {
                    slot.clone_from(found);
                }
                true
            }
            Slot::Workload(slot, own) => {
                let Value::Text(name) = value else { return Err(expected) };
                // The current workload keeps its parameters.
                if slot.name() != name {
                    let found = workloads_with(own).find(|workload| workload.name() == name);
                    *slot = found.ok_or_else(|| one_of(name, workloads_of(own)))?;
                }
                true
            }
            Slot::Affinity(slot) => put(slot, affinity(value)),
            Slot::Cpus(slot) => put(slot, cpus(value)),
            Slot::Nodes(slot) => put(slot, nodes(value)),
            Slot::Inhibits(slot) => put(slot, inhibits(value)?),
            Slot::CpuMax(slot) => {
                let burst_ns = slot.burst_ns;
                put(slot, cgroup::limit(value).map(|limit| Limit { burst_ns, ..limit }))
            }
            Slot::Weight(slot) => put(
                slot,
                whole.and_then(|weight| weight.try_into().ok()).map(cgroup::shares),
            ),
        };
        if done { Ok(()) } else { Err(expected) }
    }

    /// Returns the limits of a `value` of the right form, which must then be out of range.
    fn limits(&self, value: &Value, (min, max): Range) -> Option<String> {
        let whole = |low: f64, high: f64| match value {
            Value::Integer(_) => Some(format!("a whole number from {} to {}", min.max(low), max.min(high))),
            _ => None,
        };
        let in_unit = |units: &[&str], limits: &str| match value {
            Value::Text(text) => amount::number_and_unit(text)
                .filter(|(_, unit)| units.contains(unit))
                .map(|_| limits.to_owned()),
            Value::Integer(_) if units.contains(&"") => Some(limits.to_owned()),
            _ => None,
        };
        match self {
            Slot::U32(_) | Slot::OptionalU32(_) => whole(0.0, f64::from(u32::MAX)),
            Slot::I8(_) => whole(f64::from(i8::MIN), f64::from(i8::MAX)),
            Slot::U64(_) | Slot::Weight(_) => whole(0.0, i64::MAX as f64),
            Slot::Nanos(_) | Slot::OptionalNanos(_) => {
                in_unit(&["", "ps", "ns", "us", "ms", "s"], "0 to 2^64 ns (584 years)")
            }
            Slot::NanosOrNever(_) => in_unit(
                &["", "ps", "ns", "us", "ms", "s"],
                "more than 0, up to 2^64 ns (584 years), or \"auto\"",
            ),
            Slot::Hertz(_) => in_unit(&["MHz", "GHz"], "1 MHz to 100 GHz"),
            Slot::Amount(_) => in_unit(&["ps", "ns", "us", "ms", "s", "cycles"], "0 to 1 s"),
            _ => None,
        }
    }

    /// Returns the value as a user writes it.
    pub fn show(&self) -> String {
        let auto = || "\"auto\"".to_owned();
        match self {
            Slot::Flag(value) => value.to_string(),
            Slot::OptionalFlag(value) => value.map_or_else(auto, |value| value.to_string()),
            Slot::U32(value) => value.to_string(),
            Slot::U64(value) => value.to_string(),
            Slot::I8(value) => value.to_string(),
            Slot::OptionalU32(value) => value.map_or_else(auto, |value| value.to_string()),
            Slot::F64(value) => value.to_string(),
            Slot::Nanos(value) => format!("\"{}\"", show_nanos(**value)),
            Slot::OptionalNanos(value) => value.map_or_else(auto, |value| format!("\"{}\"", show_nanos(value))),
            Slot::NanosOrNever(value) if **value == u64::MAX => auto(),
            Slot::NanosOrNever(value) => format!("\"{}\"", show_nanos(**value)),
            Slot::Hertz(value) => format!("\"{} MHz\"", **value as f64 / 1e6),
            Slot::Name(name) | Slot::Text(name) => format!("{name:?}"),
            Slot::Group(name) => format!("{:?}", name.as_deref().unwrap_or("root")),
            Slot::Guest(name) => format!("{:?}", name.as_deref().unwrap_or("none")),
            Slot::Amount(value) => format!("\"{value}\""),
            Slot::Choice(choice) => format!("\"{}\"", choice.name()),
            Slot::Lock(kind, _) => format!("\"{kind}\""),
            Slot::Policy(kind, _) => format!("\"{}\"", kind.name()),
            Slot::GuestPolicy(kind, _) => format!("\"{}\"", kind.name()),
            Slot::Workload(workload, _) => format!("\"{}\"", workload.name()),
            Slot::Affinity(Affinity::Same(cpus)) => format!("{cpus:?}"),
            Slot::Affinity(Affinity::Each(sets)) => format!("{sets:?}"),
            Slot::Cpus(cpus) => format!("{cpus:?}"),
            Slot::CpuMax(limit) => cgroup::show_limit(limit),
            Slot::Weight(shares) => cgroup::weight(**shares).to_string(),
            Slot::Nodes(VirtualNodes::One) => "\"one\"".to_owned(),
            Slot::Nodes(VirtualNodes::Pinned) => "\"pinned\"".to_owned(),
            Slot::Nodes(VirtualNodes::Each(nodes)) => format!("{nodes:?}"),
            Slot::Inhibits(reasons) => {
                let names: Vec<&str> = reasons.reasons().map(Inhibit::name).collect();
                format!("{names:?}")
            }
        }
    }
}

fn names_of(locks: &[LockKind]) -> Vec<&'static str> {
    locks.iter().map(|kind| kind.name()).collect()
}

fn policies_of(policies: &[PolicyKind]) -> Vec<&'static str> {
    policies.iter().map(|kind| kind.name()).collect()
}

fn guest_policies_of(policies: &[GuestPolicyKind]) -> Vec<&'static str> {
    policies.iter().map(|kind| kind.name()).collect()
}

fn workloads_of(own: &'static [OwnWorkload]) -> Vec<&'static str> {
    workloads_with(own).map(|workload| workload.name()).collect()
}

fn put<T>(slot: &mut T, value: Option<T>) -> bool {
    value.map(|value| *slot = value).is_some()
}

fn put_optional<T>(slot: &mut Option<T>, raw: &Value, value: Option<T>) -> bool {
    if matches!(raw, Value::Text(text) if text == "auto") {
        *slot = None;
        return true;
    }
    put(slot, value.map(Some))
}
