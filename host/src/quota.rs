//! A limit on CPU time, as a host is configured with it.

/// A limit on the CPU time of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time in each period on all pCPUs together, from 1 ms to one period for each pCPU. Nanoseconds.
    pub quota_ns: u64,
    /// The period, from 1 ms to 1 s. Nanoseconds.
    pub period_ns: u64,
    /// CPU time that may be kept from earlier periods and used beyond the quota, at most the quota (`cpu.max.burst`,
    /// Linux 5.14). Nanoseconds.
    pub burst_ns: u64,
}
