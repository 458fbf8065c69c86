//! What operators measure of a guest, as the tools of hypervisors and guests show it: CPU ready, steal, soft lockups,
//! throttling, exits.

use std::collections::BTreeMap;

use holdfast_sim::VmOutcome;
use serde::{Deserialize, Serialize};

/// Figures of one guest over all runs, from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operators {
    /// Time for which vCPUs were ready without a pCPU, in ms per 20 s, of all vCPUs together (VMware's "CPU ready").
    pub ready_ms_per_20s: f64,
    /// The same in percent of the vCPUs' time.
    pub ready_percent: f64,
    /// Stolen time as the guest's kernel reports it, in percent of the vCPUs' time; null if the guest is not told.
    pub steal_percent: Option<f64>,
    /// Longest time for which a vCPU was ready without a pCPU, in ms.
    pub longest_wait_ms: f64,
    /// Longest time between two timer ticks of a vCPU that was not idle, in ms. A Linux guest reports a soft lockup
    /// after 20 s.
    pub longest_tick_gap_ms: f64,
    /// Periods of the guest's quota in which it was throttled, as a mean over the runs; null without a quota.
    pub throttled_periods: Option<f64>,
    /// The same in percent of the periods.
    pub throttled_percent: Option<f64>,
    /// Exits per second of the measured interval, by kind; empty for a guest that is not measured.
    pub exits_per_second: BTreeMap<String, f64>,
}

/// What the names of exits by kind begin with.
const EXITS: &str = "exits per second";

impl Operators {
    /// Returns the figures of the runs `vms` of a guest with `vcpus`. `is_told`: it has a steal-time record. `None`
    /// without runs, and for a real host.
    pub(crate) fn of<'o>(
        vms: impl Iterator<Item = &'o VmOutcome> + Clone,
        vcpus: u32,
        is_told: bool,
    ) -> Option<Operators> {
        let vms = vms.filter(|vm| vm.counters.contains_key("ready_ns"));
        let runs = vms.clone().count() as f64;
        let sum = |name: &str| -> f64 {
            let values = vms.clone().filter_map(|vm| vm.counters.get(name));
            values.map(|value| *value as f64).sum()
        };
        let largest = |name: &str| -> f64 {
            let values = vms.clone().filter_map(|vm| vm.counters.get(name));
            values.copied().max().unwrap_or(0) as f64 / 1e6
        };
        let vcpu_ns: f64 = vms.clone().map(|vm| vm.vcpu_time_ps as f64 / 1e3).sum();
        if runs == 0.0 || vcpu_ns <= 0.0 {
            return None;
        }
        let ready = sum("ready_ns") / vcpu_ns;
        let periods = sum("bandwidth_periods");
        let throttled = sum("bandwidth_throttled_periods");
        let measured_s: f64 = vms
            .clone()
            .filter_map(|vm| vm.elapsed_ns)
            .map(|ns| ns as f64 / 1e9)
            .sum();
        let mut exits = BTreeMap::new();
        for name in vms.clone().flat_map(|vm| vm.counters.keys()) {
            if let Some(kind) = name.strip_prefix("measured_exits.").filter(|_| measured_s > 0.0) {
                let kind = kind.strip_prefix("exit_").unwrap_or(kind);
                exits.entry(kind.to_owned()).or_insert_with(|| sum(name) / measured_s);
            }
        }
        Some(Operators {
            ready_ms_per_20s: ready * f64::from(vcpus) * 20_000.0,
            ready_percent: ready * 100.0,
            steal_percent: is_told.then(|| sum("steal_ns") / vcpu_ns * 100.0),
            longest_wait_ms: largest("pcpu_wait_ns_max"),
            longest_tick_gap_ms: largest("tick_gap_ns_max"),
            throttled_periods: (periods > 0.0).then_some(throttled / runs),
            throttled_percent: (periods > 0.0).then(|| throttled / periods * 100.0),
            exits_per_second: exits,
        })
    }

    /// Returns the figure called `name`, if there is one.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let mut figures = self.figures().into_iter();
        figures.find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns names and values, exits by kind last. A value that there is not is left out.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let figures = [
            ("CPU ready, ms per 20 s", Some(self.ready_ms_per_20s)),
            ("CPU ready, %", Some(self.ready_percent)),
            ("steal, %", self.steal_percent),
            ("longest wait for a pCPU, ms", Some(self.longest_wait_ms)),
            ("longest time between ticks, ms", Some(self.longest_tick_gap_ms)),
            ("throttled periods", self.throttled_periods),
            ("throttled periods, %", self.throttled_percent),
        ];
        let figures = figures.into_iter();
        let mut found: Vec<(String, f64)> = figures
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        let exits = self.exits_per_second.iter();
        found.extend(exits.map(|(kind, rate)| (format!("{EXITS}, {kind}"), *rate)));
        found
    }
}

/// Returns the names of the figures that `guests` have, in the order of [`Operators::figures`] and each once; without
/// exits by kind unless `all`.
pub fn names<'o>(guests: impl Iterator<Item = &'o Operators>, all: bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in guests.flat_map(Operators::figures) {
        if !names.contains(&name) && (all || !name.starts_with(EXITS)) {
            names.push(name);
        }
    }
    names
}
