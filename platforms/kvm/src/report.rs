//! The report of a run.

use std::collections::BTreeMap;
use std::time::Duration;

/// The report of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Reports of the VMs, in the order given.
    pub vms: Vec<VmReport>,
    /// Time from the first VM's creation to the end of the last measured one.
    pub elapsed: Duration,
}

/// The report of one VM.
#[derive(Clone, Debug, Default)]
pub struct VmReport {
    /// Name of the VM.
    pub name: String,
    /// Time from `KVM_CREATE_VM` until the last vCPU executes its first instruction of the workload, on the host's
    /// clock.
    pub boot: Option<Duration>,
    /// Duration of the workload in nanoseconds of the guest's clock.
    pub elapsed_ns: Option<u64>,
    /// Nanoseconds on the guest's clock at which its counts were zeroed, or `None` if they count from its boot.
    pub zeroed_ns: Option<u64>,
    /// Number of migrations.
    pub migrations: u64,
    /// Number of kicks that were latched when the VM migrated, and arrived.
    pub migrated_kicks: u64,
    /// Number of kicks that a migration lost, since it transferred only MP_STATE.
    pub lost_kicks: u64,
    /// Number of operations completed in that interval: acquisitions for [`Task::Contention`](crate::Task::Contention),
    /// `None` for workloads that do not measure throughput.
    pub operations: Option<u64>,
    /// The guest's counters, and as `kvm.NAME` the host's statistics of the whole VM that are not 0. `lost.log_lines`
    /// and `lost.counters` count reports beyond the limits, which were not kept.
    pub counters: BTreeMap<String, u64>,
    /// Reports of the vCPUs.
    pub vcpus: Vec<VcpuReport>,
    /// The first lines of the guest's log, and the number of lost ones. Control characters and the like are escaped.
    pub log: Vec<String>,
}

/// The report of one vCPU. The first counts, up to the longest wait, are of
/// [`Task::Contention`](crate::Task::Contention) only.
#[derive(Clone, Debug, Default)]
pub struct VcpuReport {
    /// Thread ID of the vCPU on the host, as in traces.
    pub thread: u32,
    /// Number of acquisitions within the interval.
    pub acquisitions: u64,
    /// Number of acquisitions that had to wait.
    pub waits: u64,
    /// Number of kick hypercalls.
    pub kicks: u64,
    /// Number of halts.
    pub halts: u64,
    /// Longest wait in nanoseconds, or 0 if waits were not timed.
    pub longest_wait_ns: u64,
    /// KVM's statistics of this vCPU (`halt_exits`, `directed_yield_attempted`, `hypercalls`, `exits` ...) since its
    /// creation. Those without a unit count from [`Options::zero_at`](crate::Options::zero_at) on.
    pub stats: BTreeMap<String, u64>,
    /// Time that the thread was on a CPU, in nanoseconds (`schedstat`).
    pub run_ns: u64,
    /// Time that the thread was ready but on no CPU, in nanoseconds (`schedstat`).
    pub wait_ns: u64,
}

impl VmReport {
    /// Returns the number of acquisitions of all vCPUs.
    pub fn acquisitions(&self) -> u64 {
        // A guest claims these figures.
        let acquisitions = self.vcpus.iter().map(|vcpu| vcpu.acquisitions);
        acquisitions.fold(0, u64::saturating_add)
    }

    /// Returns the operations per second of the measured interval, if they were counted.
    pub fn per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed_ns.filter(|&ns| ns > 0)?;
        Some(self.operations? as f64 * 1e9 / elapsed as f64)
    }

    /// Returns the sum over the vCPUs of KVM's statistic `name`.
    pub fn stat(&self, name: &str) -> u64 {
        self.vcpus.iter().filter_map(|vcpu| vcpu.stats.get(name)).sum()
    }
}
