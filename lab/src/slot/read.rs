//! Readers of the values that parameters take, which return `None` for a value of another form, and their types.

use holdfast_host::{Inhibit, Inhibits};

use crate::amount::Amount;
use crate::diagnostic::one_of;
use crate::document::{Node, Value};

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
pub(super) const NODE_MAX: u32 = 1023;

/// Smallest and largest number that a key accepts.
pub type Range = (f64, f64);

pub(super) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        _ => None,
    }
}

/// Reads a name, or `none` for no name. It is looked up when all names are known.
pub(super) fn name_or(value: &Value, none: &str) -> Option<Option<String>> {
    match value {
        Value::Text(name) => Some(Some(name.clone()).filter(|name| name != none)),
        _ => None,
    }
}

pub(super) fn number(value: &Value, (min, max): Range) -> Option<f64> {
    let number = match value {
        Value::Integer(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return None,
    };
    (number.is_finite() && min <= number && number <= max).then_some(number)
}

pub(super) fn whole_number(value: &Value, range: Range) -> Option<i64> {
    match value {
        Value::Integer(whole) => number(value, range).map(|_| *whole),
        _ => None,
    }
}

pub(super) fn nanos(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(nanos) => u64::try_from(*nanos).ok(),
        _ => Amount::of_value(value)?.nanos(),
    }
}

/// Reads a frequency from 1 MHz to 100 GHz.
pub(super) fn hertz(value: &Value) -> Option<u64> {
    let Value::Text(text) = value else { return None };
    let (number, factor) = match (text.trim().strip_suffix("GHz"), text.trim().strip_suffix("MHz")) {
        (Some(number), _) => (number, 1e9),
        (None, Some(number)) => (number, 1e6),
        (None, None) => return None,
    };
    let hertz = number.trim().parse::<f64>().ok()? * factor;
    (1e6..=1e11).contains(&hertz).then(|| hertz.round() as u64)
}

pub(super) fn affinity(value: &Value) -> Option<Affinity> {
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

pub(super) fn nodes(value: &Value) -> Option<VirtualNodes> {
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
pub(super) fn inhibits(value: &Value) -> Result<Option<Inhibits>, String> {
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
pub(super) fn cpus(value: &Value) -> Option<Vec<u32>> {
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
