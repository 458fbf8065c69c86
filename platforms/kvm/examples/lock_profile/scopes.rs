//! Which CPUs and tasks share a lock, from the addresses that the CPUs lock in turn.

use std::collections::{BTreeMap, HashMap};

use crate::classes;
use crate::hooks::Kind;
use crate::records::Run;
use crate::symbols::Symbols;

/// The scopes of the locks that each operation takes.
pub struct Scopes(BTreeMap<(String, &'static str), &'static str>);

/// The CPUs of the machine whose records show the scopes.
const CPUS: usize = 3;

/// The classes of locks that lie in structures for a memory node. Each cache of objects has one for a node
/// (`kmem_cache_node`), so that few CPUs meet in it.
const OF_NODES: [&str; 3] = ["lru", "slab", "zone"];

/// How often each CPU took the locks of one class, by address.
type Addresses = BTreeMap<u32, HashMap<u64, u32>>;

impl Scopes {
    /// Derives the scopes from runs on CPUs 0 and 1, which are on one memory node, and 2, which is on another.
    pub fn of(runs: &[Run], symbols: &Symbols) -> Scopes {
        let mut groups: BTreeMap<(String, &'static str), Addresses> = BTreeMap::new();
        let mut scopes = BTreeMap::new();
        let mut fixed: BTreeMap<(String, &'static str), [u32; 3]> = BTreeMap::new();
        for run in runs {
            for call in run.calls.iter().filter(|call| call.kind == Kind::Lock) {
                let function = symbols.function(call.caller);
                let class = classes::class(symbols, &run.offsets, call.first, function);
                let key = (function.to_owned(), class);
                let place = if symbols.is_per_cpu(call.first, &run.offsets[..run.offsets.len().min(CPUS)]) {
                    1
                } else {
                    usize::from(symbols.variable(call.first).is_none()) * 2
                };
                fixed.entry(key.clone()).or_default()[place] += 1;
                if place == 2 {
                    let addresses = groups.entry(key).or_default().entry(run.cpu).or_default();
                    *addresses.entry(call.first).or_default() += 1;
                }
            }
        }
        for (key, [global, cpu, elsewhere]) in fixed {
            let most = global.max(cpu).max(elsewhere);
            let scope = match () {
                () if most == global => "global",
                () if most == cpu => "cpu",
                () if OF_NODES.contains(&key.1) => "node",
                () => sharing(&groups[&key]),
            };
            scopes.insert(key, scope);
        }
        Scopes(scopes)
    }

    /// The scope of the locks of `class` that `function` takes. "object" if the CPUs did not show it, or "node" if the
    /// class says so.
    pub fn get(&self, function: &str, class: &'static str) -> &'static str {
        let unseen = if OF_NODES.contains(&class) { "node" } else { "object" };
        self.0.get(&(function.to_owned(), class)).copied().unwrap_or(unseen)
    }
}

/// Smallest share of a CPU's acquisitions at addresses of another CPU with which their locks count as shared. Some
/// functions take a shared lock and an object's in turn.
const COMMON: f64 = 0.4;

fn sharing(addresses: &Addresses) -> &'static str {
    let of = |cpu: u32| addresses.get(&cpu);
    // The share of a CPU's acquisitions that concern addresses of another CPU.
    let common = |one: u32, other: u32| {
        let (Some(one), Some(other)) = (of(one), of(other)) else {
            return 0.0;
        };
        let all: u32 = one.values().sum();
        let shared: u32 = one
            .iter()
            .filter(|(address, _)| other.contains_key(address))
            .map(|(_, count)| count)
            .sum();
        f64::from(shared) / f64::from(all)
    };
    if common(2, 0) > COMMON && common(1, 0) > COMMON {
        return "shared";
    }
    if common(1, 0) > COMMON && common(2, 0) < 0.1 {
        return "node";
    }
    let (mut distinct, mut all) = (0, 0);
    for counts in addresses.values() {
        distinct += counts.len();
        all += counts.values().map(|count| *count as usize).sum::<usize>();
    }
    if distinct * 10 < all { "process" } else { "object" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(of: [&[u64]; 3]) -> Addresses {
        let each = of.iter().zip(0..);
        each.map(|(list, cpu)| (cpu, list.iter().map(|address| (*address, 20)).collect()))
            .collect()
    }

    #[test]
    fn locks_of_nodes_are_known_as_such_where_no_cpu_took_them() {
        let none = Scopes(BTreeMap::new());
        assert_eq!(none.get("free_pcppages_bulk", "zone"), "node");
        assert_eq!(none.get("dput", "dentry"), "object");
    }

    #[test]
    fn sharing_follows_from_which_cpus_meet_at_an_address() {
        assert_eq!(sharing(&addresses([&[1], &[1], &[1]])), "shared");
        assert_eq!(sharing(&addresses([&[1], &[1], &[2]])), "node");
        assert_eq!(sharing(&addresses([&[1], &[2], &[3]])), "process");
        let many: Vec<u64> = (100..200).collect();
        let once = |cpu: u64| many.iter().map(move |address| (address + 1_000 * cpu, 1)).collect();
        let objects: Addresses = (0..3).map(|cpu| (cpu, once(u64::from(cpu)))).collect();
        assert_eq!(sharing(&objects), "object");
    }
}
