//! What a run gives.

use std::collections::BTreeMap;

/// What one run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each guest, in the order of the configuration.
    pub vms: Vec<VmOutcome>,
    /// Virtual time at the end, in nanoseconds.
    pub end_ns: u64,
    /// Hash over the whole history: every ordered operation, event and command with its time.
    pub history_hash: u64,
    /// Engine statistics: events, switches, parks.
    pub engine: BTreeMap<&'static str, u64>,
}

/// What one guest did.
#[derive(Clone, Debug)]
pub struct VmOutcome {
    /// Its name.
    pub name: String,
    /// Nanoseconds from the workload's begin to its end; `None` for a guest that is not measured.
    pub elapsed_ns: Option<u64>,
    /// Operations completed in that interval, for workloads that measure throughput.
    pub operations: Option<u64>,
    /// Counters of guest, locks, host and machine.
    pub counters: BTreeMap<String, u64>,
    /// Where its vCPUs' time went, picoseconds by cause; sums to `vcpu_time_ps` exactly.
    pub lost_time_ps: BTreeMap<&'static str, u64>,
    /// Elapsed time times vCPUs.
    pub vcpu_time_ps: u64,
    /// The longest time for which no vCPU of this guest did useful work or held a lock while running, in nanoseconds: a
    /// convoy shows here.
    pub longest_stall_ns: u64,
    /// The convoys that it fell into, if it did.
    pub convoy: Option<Convoy>,
}

/// Time in which a guest's vCPUs spent longer spinning behind vCPUs that were not running than on their own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convoy {
    /// When the first one began, nanoseconds since power-on.
    pub since_ns: u64,
    /// How long all of them lasted together, in nanoseconds.
    pub total_ns: u64,
}
