//! The scheduler's times.

/// Returns the factor of the scheduler's times: 1 + log2 of the CPUs, of which at most 8 count (`kernel/sched/fair.c`).
pub(crate) fn scale(cpus: u32) -> u64 {
    1 + u64::from(cpus.clamp(1, 8).ilog2())
}

/// `sysctl_sched_latency`, unscaled: in this time each ready task runs once. Nanoseconds.
pub(crate) const LATENCY: u64 = 6_000_000;
/// `sysctl_sched_min_granularity`, unscaled.
pub(crate) const MIN_GRANULARITY: u64 = 750_000;
/// `sysctl_sched_wakeup_granularity`, unscaled.
pub(crate) const WAKEUP_GRANULARITY: u64 = 1_000_000;
/// `sysctl_sched_migration_cost`: a task that ran less than this ago is cache hot. Never scaled.
pub(crate) const MIGRATION_COST: u64 = 500_000;
/// `sched_nr_latency`: with more tasks than this the period grows beyond the latency.
pub(crate) const LATENCY_TASKS: u64 = LATENCY / MIN_GRANULARITY;

/// The time that each of `tasks` ready tasks runs before the next task's turn.
pub(crate) fn slice(cpus: u32, tasks: u32) -> u64 {
    let tasks = u64::from(tasks.max(1));
    let period = tasks.max(LATENCY_TASKS) * MIN_GRANULARITY * scale(cpus);
    period / tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_of_a_linux_of_that_size() {
        // docs/spec/costs.md, "Host scheduler": two tasks on 8 or more CPUs get 12 ms, three 8 ms, eight or more 3 ms.
        assert_eq!(slice(8, 2), 12_000_000);
        assert_eq!(slice(16, 3), 8_000_000);
        assert_eq!(slice(8, 8), 3_000_000);
        assert_eq!(slice(8, 20), 3_000_000);
        assert_eq!(slice(1, 2), 3_000_000);
        assert_eq!(slice(4, 1), 18_000_000);
    }
}
