//! Outcome of a run.

use std::collections::BTreeMap;

use crate::books::convoy::Convoy;

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The guests, in the order of the configuration.
    pub vms: Vec<VmOutcome>,
    /// Virtual time at the end, in nanoseconds.
    pub end_ns: u64,
    /// Hash of the whole history: every ordered operation, event and command with its time.
    pub history_hash: u64,
    /// Engine statistics: events, switches, parks.
    pub engine: BTreeMap<&'static str, u64>,
}

/// Outcome of one guest.
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
    /// Time of its vCPUs by cause, in picoseconds: from the guest's start to its end. The sum is exactly
    /// `vcpu_time_ps`.
    pub lost_time_ps: BTreeMap<&'static str, u64>,
    /// Time from the guest's start to its end times number of vCPUs, in picoseconds. A guest ends when its workload is
    /// done, when its VM is removed, or with the run.
    pub vcpu_time_ps: u64,
    /// The longest time in which no vCPU of this guest did useful or critical work, in nanoseconds, until the guest's
    /// end. A convoy shows here.
    pub longest_stall_ns: u64,
    /// Its convoys until its end, if it had any.
    pub convoy: Option<Convoy>,
}
