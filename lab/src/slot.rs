//! Parameters that keys set: their kinds, how values are read into them, and how they are shown.

use holdfast_host::{Inhibit, Inhibits};
use holdfast_locks::LockKind;
use holdfast_machine::CpuModel;

use crate::amount::{self, Amount, show_nanos};
use crate::diagnostic::one_of;
use crate::document::{Node, Value};

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

/// Sets of pCPUs: one for each vCPU, or one for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// The set for all vCPUs. An empty set stands for all pCPUs.
    Same(Vec<u32>),
    /// One set for each vCPU.
    Each(Vec<Vec<u32>>),
}

/// NUMA nodes that a guest's firmware reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VirtualNodes {
    /// All vCPUs are on one node, and there is no table.
    One,
    /// Each vCPU is on the node of the socket that it is pinned to.
    Pinned,
    /// The node of each vCPU.
    Each(Vec<u32>),
}

/// Highest node number. Linux has up to 1024 nodes (CONFIG_NODES_SHIFT).
const NODE_MAX: u32 = 1023;

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
    /// Sets of pCPUs for the vCPUs.
    Affinity(&'a mut Affinity),
    /// A set of pCPUs.
    Cpus(&'a mut Vec<u32>),
    /// NUMA nodes for the vCPUs.
    Nodes(&'a mut VirtualNodes),
    /// Reasons against APIC virtualization.
    Inhibits(&'a mut Inhibits),
}

/// Smallest and largest number that a key accepts.
pub type Range = (f64, f64);

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
            Slot::OptionalFlag(_) => "true, false or \"auto\"".to_owned(),
            Slot::U32(_) | Slot::U64(_) | Slot::I8(_) => format!("a whole number{between}"),
            Slot::OptionalU32(_) => format!("a whole number{between}, or \"auto\""),
            Slot::F64(_) => format!("a number{between}"),
            Slot::Nanos(_) => amount::EXPECTED_NO_CYCLES.to_owned(),
            Slot::Hertz(_) => "a frequency with its unit, such as \"2.93 GHz\" or \"2930 MHz\"".to_owned(),
            Slot::Name(_) => "a name".to_owned(),
            Slot::Group(_) => "the name of a [[group]], or \"root\"".to_owned(),
            Slot::Guest(_) => "the name of another [[vm]], or \"none\"".to_owned(),
            Slot::OptionalNanos(_) | Slot::NanosOrNever(_) => format!("{}, or \"auto\"", amount::EXPECTED_NO_CYCLES),
            Slot::Amount(_) => amount::EXPECTED.to_owned(),
            Slot::Choice(choice) => format!("one of {}", choice.names().join(", ")),
            Slot::Lock(_, known) => format!("one of {}", names_of(known).join(", ")),
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
            Slot::Affinity(slot) => put(slot, affinity(value)),
            Slot::Cpus(slot) => put(slot, cpus(value)),
            Slot::Nodes(slot) => put(slot, nodes(value)),
            Slot::Inhibits(slot) => put(slot, inhibits(value)?),
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
            Slot::U64(_) => whole(0.0, i64::MAX as f64),
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

    /// Changes the value. Returns `false` for a choice, which can change other parameters too.
    #[cfg(test)]
    pub fn alter(self) -> bool {
        match self {
            Slot::Flag(value) => *value = !*value,
            Slot::OptionalFlag(value) => *value = Some(!value.unwrap_or_default()),
            Slot::U32(value) => *value += 1,
            Slot::U64(value) | Slot::Nanos(value) | Slot::Hertz(value) => *value += 1,
            Slot::NanosOrNever(value) => *value = 7,
            Slot::I8(value) => *value += 1,
            Slot::OptionalU32(value) => *value = Some(value.unwrap_or_default() + 1),
            Slot::OptionalNanos(value) => *value = Some(value.unwrap_or_default() + 1),
            Slot::F64(value) => *value += 1.0,
            Slot::Group(value) | Slot::Guest(value) => *value = Some("other".to_owned()),
            Slot::Amount(value) => *value = Amount::from_nanos(123_456),
            Slot::Affinity(value) => *value = Affinity::Same(vec![1, 2]),
            Slot::Cpus(value) => *value = vec![1, 2],
            Slot::Nodes(value) => *value = VirtualNodes::Pinned,
            Slot::Inhibits(value) => value.set(Inhibit::Sev, true),
            Slot::Choice(_) | Slot::Lock(..) | Slot::Name(_) => return false,
        }
        true
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
            Slot::Name(name) => format!("{name:?}"),
            Slot::Group(name) => format!("{:?}", name.as_deref().unwrap_or("root")),
            Slot::Guest(name) => format!("{:?}", name.as_deref().unwrap_or("none")),
            Slot::Amount(value) => format!("\"{value}\""),
            Slot::Choice(choice) => format!("\"{}\"", choice.name()),
            Slot::Lock(kind, _) => format!("\"{kind}\""),
            Slot::Affinity(Affinity::Same(cpus)) => format!("{cpus:?}"),
            Slot::Affinity(Affinity::Each(sets)) => format!("{sets:?}"),
            Slot::Cpus(cpus) => format!("{cpus:?}"),
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

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        _ => None,
    }
}

/// Reads a name, or `none` for no name. It is looked up when all names are known.
fn name_or(value: &Value, none: &str) -> Option<Option<String>> {
    match value {
        Value::Text(name) => Some(Some(name.clone()).filter(|name| name != none)),
        _ => None,
    }
}

fn number(value: &Value, (min, max): Range) -> Option<f64> {
    let number = match value {
        Value::Integer(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return None,
    };
    (number.is_finite() && min <= number && number <= max).then_some(number)
}

fn whole_number(value: &Value, range: Range) -> Option<i64> {
    match value {
        Value::Integer(whole) => number(value, range).map(|_| *whole),
        _ => None,
    }
}

fn nanos(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(nanos) => u64::try_from(*nanos).ok(),
        _ => Amount::of_value(value)?.nanos(),
    }
}

/// Reads a frequency from 1 MHz to 100 GHz.
fn hertz(value: &Value) -> Option<u64> {
    let Value::Text(text) = value else { return None };
    let (number, factor) = match (text.trim().strip_suffix("GHz"), text.trim().strip_suffix("MHz")) {
        (Some(number), _) => (number, 1e9),
        (None, Some(number)) => (number, 1e6),
        (None, None) => return None,
    };
    let hertz = number.trim().parse::<f64>().ok()? * factor;
    (1e6..=1e11).contains(&hertz).then(|| hertz.round() as u64)
}

fn affinity(value: &Value) -> Option<Affinity> {
    match value {
        Value::Array(items) if items.iter().any(|item| !matches!(item.value, Value::Integer(_))) => {
            let each = |item: &Node| match item.value {
                // A number among lists pins its vCPU to that pCPU.
                Value::Integer(cpu) => u32::try_from(cpu).ok().map(|cpu| vec![cpu]),
                _ => cpus(&item.value),
            };
            items.iter().map(each).collect::<Option<Vec<_>>>().map(Affinity::Each)
        }
        _ => cpus(value).map(Affinity::Same),
    }
}

fn nodes(value: &Value) -> Option<VirtualNodes> {
    let node = |item: &Node| match item.value {
        Value::Integer(node) => u32::try_from(node).ok().filter(|node| *node <= NODE_MAX),
        _ => None,
    };
    match value {
        Value::Text(text) if text == "one" => Some(VirtualNodes::One),
        Value::Text(text) if text == "pinned" => Some(VirtualNodes::Pinned),
        Value::Array(items) => items.iter().map(node).collect::<Option<_>>().map(VirtualNodes::Each),
        _ => None,
    }
}

/// Reads inhibit reasons, `["sev", "pit_reinj"]` or `"sev,pit_reinj"`. Returns `None` if the value is neither.
///
/// # Errors
/// Returns the reasons that there are if a name is not among them.
fn inhibits(value: &Value) -> Result<Option<Inhibits>, String> {
    let names: Option<Vec<&str>> = match value {
        Value::Text(list) => Some(list.split(',').map(str::trim).collect()),
        Value::Array(items) => items
            .iter()
            .map(|item| match &item.value {
                Value::Text(name) => Some(name.as_str()),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    let mut reasons = Inhibits::NONE;
    for name in names.iter().flatten() {
        let reason = Inhibit::by_name(name).ok_or_else(|| one_of(name, Inhibit::ALL.map(Inhibit::name).to_vec()))?;
        reasons.set(reason, true);
    }
    Ok(names.map(|_| reasons))
}

/// Reads a set of pCPUs, `[0, 1, 4]` or `"0-1,4"`, and sorts it.
fn cpus(value: &Value) -> Option<Vec<u32>> {
    let mut cpus = match value {
        Value::Array(items) => items
            .iter()
            .map(|item| match item.value {
                Value::Integer(cpu) => u32::try_from(cpu).ok(),
                _ => None,
            })
            .collect::<Option<Vec<u32>>>()?,
        Value::Integer(cpu) => vec![u32::try_from(*cpu).ok()?],
        Value::Text(list) => cpu_list(list)?,
        _ => return None,
    };
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

fn cpu_list(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // A number beyond any machine is refused before the list takes memory.
        if last < first || last > 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_read_as_the_kernel_writes_them() {
        let read = |text: &str| cpus(&Value::Text(text.to_owned()));
        assert_eq!(read("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(read("3"), Some(vec![3]));
        for wrong in ["", "a", "2-1", "0-", "-1", "0-99999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn out_of_range_is_refused_and_changes_nothing() {
        let mut value = 7_u32;
        let refused = Slot::U32(&mut value).set(&Value::Integer(300), (1.0, 254.0));
        assert_eq!(refused, Err("a whole number from 1 to 254".to_owned()));
        assert_eq!(value, 7);
    }

    #[test]
    fn inhibit_reasons_are_read_as_they_are_shown() {
        let node = |value| Node {
            value,
            place: crate::diagnostic::Place::new(&"a.toml".into(), 1),
        };
        for bits in 0_u32..1 << Inhibit::ALL.len() {
            let (mut shown, mut found) = (Inhibits::NONE, Inhibits::NONE);
            for reason in Inhibit::ALL {
                shown.set(reason, bits >> reason as u8 & 1 == 1);
            }
            let names = shown
                .reasons()
                .map(|reason| node(Value::Text(reason.name().to_owned())));
            let value = Value::Array(names.collect());
            assert_eq!(Slot::Inhibits(&mut found).set(&value, (0.0, 0.0)), Ok(()));
            assert_eq!(found, shown);
            assert_eq!(
                Slot::Inhibits(&mut found).show().matches('"').count(),
                2 * bits.count_ones() as usize
            );
        }
        let mut reasons = Inhibits::NONE;
        let unknown = Value::Array(vec![node(Value::Text("pit_rein".to_owned()))]);
        let refused = Slot::Inhibits(&mut reasons).set(&unknown, (0.0, 0.0));
        assert!(refused.is_err_and(|expected| expected.contains("pit_reinj")));
        for wrong in [
            Value::Text("sev,".to_owned()),
            Value::Array(vec![node(Value::Integer(3))]),
        ] {
            assert!(Slot::Inhibits(&mut reasons).set(&wrong, (0.0, 0.0)).is_err());
        }
        assert_eq!(reasons, Inhibits::NONE);
        let listed = Value::Text("pit_reinj, sev".to_owned());
        assert_eq!(Slot::Inhibits(&mut reasons).set(&listed, (0.0, 0.0)), Ok(()));
        assert_eq!(Slot::Inhibits(&mut reasons).show(), "[\"pit_reinj\", \"sev\"]");
    }
}
