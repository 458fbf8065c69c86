//! The state of bandwidth control for a group and for a queue.

use alloc::vec::Vec;

use super::ids::QueueId;
use crate::quota::Quota;

/// A group's quota.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bandwidth {
    /// Nanoseconds per period, on all pCPUs together.
    pub(crate) quota_ns: u64,
    /// The period. Nanoseconds.
    pub(crate) period_ns: u64,
    /// What the pool may hold beyond the quota (`burst`). Nanoseconds.
    burst_ns: u64,
    /// The rest of the pool.
    pub(super) pool: u64,
    /// The pool after the last refill (`runtime_snap`).
    filled: u64,
    /// End of the present period, or of the last one if the timer is not active.
    pub(super) ends: u64,
    /// The period's timer runs.
    pub(super) active: bool,
    /// No quota was drawn in this period.
    pub(super) idle: bool,
    /// Quota was returned, and the timer that distributes it runs.
    pub(super) slack: bool,
    /// Counts periods. Slices of an earlier period may expire.
    pub(super) generation: u64,
    /// Throttled queues, the first throttled first.
    pub(super) throttled: Vec<QueueId>,
    pub(crate) counts: Throttling,
}

/// What bandwidth control did to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods that began while the group had something to run (`nr_periods`).
    pub periods: u64,
    /// Periods at whose end some pCPU of the group was throttled (`nr_throttled`).
    pub throttled_periods: u64,
    /// Time for which its queues were throttled, summed over pCPUs (`throttled_time`). Nanoseconds.
    pub throttled_ns: u64,
    /// Periods in which the group used more than its quota (`nr_bursts`).
    pub bursts: u64,
    /// Time that it used beyond its quota (`burst_time`). Nanoseconds.
    pub burst_ns: u64,
}

impl Bandwidth {
    pub(crate) fn new(quota: Quota) -> Bandwidth {
        let Quota {
            quota_ns,
            period_ns,
            burst_ns,
        } = quota;
        Bandwidth {
            quota_ns,
            period_ns,
            burst_ns,
            idle: true,
            ..Bandwidth::default()
        }
    }

    /// Starts a period (`__refill_cfs_bandwidth_runtime`): what is left stays, up to the burst. `faulty`: only the
    /// first period gets its quota.
    pub(super) fn fill(&mut self, faulty: bool) {
        if !faulty || self.generation == 0 {
            let pool = self.pool + self.quota_ns;
            if let Some(beyond) = self.filled.checked_sub(pool).filter(|beyond| *beyond > 0) {
                self.counts.bursts += 1;
                self.counts.burst_ns += beyond;
            }
            self.pool = pool.min(self.quota_ns + self.burst_ns);
            self.filled = self.pool;
        }
        self.generation += 1;
    }
}

/// A queue's part of its group's quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LocalQuota {
    /// Its group has a quota.
    pub(crate) enabled: bool,
    /// Its slice is used up, and there was no other.
    pub(crate) throttled: bool,
    /// How many of its own and its ancestors' queues on this pCPU are throttled.
    pub(crate) throttles: u32,
    /// The rest of its slice. Negative: debt. Nanoseconds.
    pub(super) left: i64,
    /// The period in which it was drawn.
    pub(super) generation: u64,
    /// The time at which it was throttled.
    pub(super) since: u64,
}
