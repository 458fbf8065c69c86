//! What a run gave.

use std::collections::BTreeMap;
use std::time::Duration;

/// What one run gave.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each VM, in the order given.
    pub vms: Vec<VmReport>,
    /// From the first VM's creation to the end of the last measured one.
    pub elapsed: Duration,
}

/// What one VM did.
#[derive(Clone, Debug, Default)]
pub struct VmReport {
    /// Its name.
    pub name: String,
    /// From `KVM_CREATE_VM` to the first instruction of the workload on the last of its vCPUs, on the host's clock.
    pub boot: Option<Duration>,
    /// Nanoseconds of the guest's clock from the workload's begin to its end.
    pub elapsed_ns: Option<u64>,
    /// Operations completed in that interval, for workloads that measure throughput; acquisitions, for bare contention.
    pub operations: Option<u64>,
    /// What the guest has counted, and of the host's statistics of the whole VM those that are not 0, as `kvm.NAME`.
    pub counters: BTreeMap<String, u64>,
    /// Each vCPU.
    pub vcpus: Vec<VcpuReport>,
    /// What the guest has written for people.
    pub log: Vec<String>,
}

/// What one vCPU did.
#[derive(Clone, Debug, Default)]
pub struct VcpuReport {
    /// The host's number of its thread, as traces name it.
    pub thread: u32,
    /// Bare contention: times that it took the lock within the interval.
    pub acquisitions: u64,
    /// Of these, how many had to wait.
    pub waits: u64,
    /// Hypercalls that kicked another vCPU.
    pub kicks: u64,
    /// Halts.
    pub halts: u64,
    /// The longest of its waits, nanoseconds; 0 unless waits were timed.
    pub longest_wait_ns: u64,
    /// KVM's own statistics of this vCPU (`halt_exits`, `directed_yield_attempted`, `hypercalls`, `exits` ...), cumulative
    /// over its life.
    pub stats: BTreeMap<String, u64>,
    /// Time that its thread was on a CPU, nanoseconds (`schedstat`).
    pub run_ns: u64,
    /// Time that its thread was ready and on none, nanoseconds (`schedstat`).
    pub wait_ns: u64,
}

impl VmReport {
    /// Acquisitions of all vCPUs: bare contention.
    pub fn acquisitions(&self) -> u64 {
        self.vcpus.iter().map(|vcpu| vcpu.acquisitions).sum()
    }

    /// Acquisitions, or operations, per second of the measured interval.
    pub fn per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed_ns.filter(|&ns| ns > 0)?;
        Some(self.operations? as f64 * 1e9 / elapsed as f64)
    }

    /// Sum over the vCPUs of KVM's statistic `name`.
    pub fn stat(&self, name: &str) -> u64 {
        self.vcpus.iter().filter_map(|vcpu| vcpu.stats.get(name)).sum()
    }
}
