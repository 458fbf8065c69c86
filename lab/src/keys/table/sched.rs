//! Keys of the host's scheduler and of its task groups.

use holdfast_host::{SchedConfig, SchedulerKind, YieldRule};

use super::{key, number};
use crate::keys::{Key, Target};
use crate::slot::{Choice, Slot, choices};

// Without `choices!`, since choosing a scheduler sets all its parameters, which other keys may change afterwards.
impl Choice for SchedConfig {
    fn names(&self) -> Vec<&'static str> {
        SchedulerKind::ALL.map(SchedulerKind::name).to_vec()
    }

    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn choose(&mut self, name: &str) -> bool {
        let kind = SchedulerKind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.map(|kind| *self = SchedConfig::of(kind)).is_some()
    }
}

choices!(YieldRule {
    "own-group" => YieldRule::OwnGroup,
    "own-group-compat" => YieldRule::OwnGroupCompat,
    "whole" => YieldRule::Whole,
    "forfeit" => YieldRule::Forfeit,
});

/// Parameters of the scheduler.
pub(super) static SCHED: &[Key] = &[
    key(
        "host.scheduler",
        "The host's scheduler. It sets the keys from host.latency to host.balance to what its kernel has; these then \
         refine it, in whatever order the file has them.",
        host!(Choice, sched),
    ),
    key(
        "host.latency",
        "CFS: period in which each runnable thread runs once, before scaling by the number of pCPUs \
         (`sched_latency_ns`).",
        host!(Nanos, sched.latency_ns),
    ),
    key(
        "host.min_granularity",
        "CFS: shortest slice, before scaling by the number of pCPUs (`sched_min_granularity_ns`).",
        host!(Nanos, sched.min_granularity_ns),
    ),
    key(
        "host.wakeup_granularity",
        "CFS: how far behind a woken thread must be to preempt the running one, before scaling by the number of \
         pCPUs (`sched_wakeup_granularity_ns`).",
        host!(Nanos, sched.wakeup_granularity_ns),
    ),
    key(
        "host.base_slice",
        "EEVDF: slice that a thread asks for, before scaling by the number of pCPUs (`base_slice_ns`).",
        host!(Nanos, sched.base_slice_ns),
    ),
    key(
        "host.bandwidth_slice",
        "CPU time that a pCPU draws from a group's quota at once (`sched_cfs_bandwidth_slice_us`).",
        host!(Nanos, sched.bandwidth_slice_ns),
    ),
    key(
        "host.yield",
        "What `sched_yield` does. \"own-group\" (until 2.6.38) has no effect for a thread that is alone in its \
         group. \"own-group-compat\" is the same with `sched_compat_yield`. \"whole\" acts on all levels (CFS) or on \
         the deadline (EEVDF). \"forfeit\" (EEVDF, 6.19) ends an eligible thread's slice as if it had been used.",
        host!(Choice, sched.yields),
    ),
    key(
        "host.features.gentle_fair_sleepers",
        "CFS: a woken thread gets half a period of credit, not a whole one (GENTLE_FAIR_SLEEPERS).",
        host!(Flag, sched.features.gentle_fair_sleepers),
    ),
    key(
        "host.features.wakeup_preemption",
        "A woken thread may preempt the running one (WAKEUP_PREEMPTION).",
        host!(Flag, sched.features.wakeup_preemption),
    ),
    key(
        "host.features.next_buddy",
        "The thread woken last is preferred even if it did not preempt (NEXT_BUDDY).",
        host!(Flag, sched.features.next_buddy),
    ),
    key(
        "host.features.ttwu_queue",
        "The target pCPU carries out a wakeup from another last-level cache, on an IPI (TTWU_QUEUE, 3.0).",
        host!(Flag, sched.features.ttwu_queue),
    ),
    key(
        "host.features.yield_to",
        "Threads can yield to a thread of their choice (`yield_to`, 2.6.39).",
        host!(Flag, sched.features.yield_to),
    ),
    key(
        "host.features.place_lag",
        "EEVDF: a thread keeps its lag across sleep and migration (PLACE_LAG).",
        host!(Flag, sched.features.place_lag),
    ),
    key(
        "host.features.run_to_parity",
        "EEVDF: the running thread is not replaced before its deadline or until its lag is used up (RUN_TO_PARITY).",
        host!(Flag, sched.features.run_to_parity),
    ),
    key(
        "host.features.delay_dequeue",
        "EEVDF: a thread that sleeps with negative lag stays queued until the lag is 0 (DELAY_DEQUEUE, 6.12).",
        host!(Flag, sched.features.delay_dequeue),
    ),
    key(
        "host.balance.sockets_are_nodes",
        "Whether each socket is a memory node of its own. Set it to false where a profile counts cache complexes as \
         sockets, as epyc-rome does.",
        host!(Flag, sched.balance.sockets_are_nodes),
    ),
    number(
        "host.balance.nr_migrate",
        "",
        (1.0, 1e6),
        "Threads that one balancing pass looks at (`sched_nr_migrate`).",
        host!(U32, sched.balance.nr_migrate),
    ),
    key(
        "host.balance.migration_cost",
        "A thread that ran less than this long ago counts as cache-hot (`sched_migration_cost_ns`).",
        host!(Nanos, sched.balance.migration_cost_ns),
    ),
];

/// A parameter of a task group.
macro_rules! group {
    ($slot:ident, $($field:ident).+) => { Target::Group(|group| Some(Slot::$slot(&mut group.$($field).+))) };
}

/// Parameters of task groups.
pub(super) static GROUP: &[Key] = &[
    key(
        "group.*.parent",
        "The group above this one. At most 32 levels in all.",
        group!(Group, parent),
    ),
    number(
        "group.*.shares",
        "",
        (2.0, 262_144.0),
        "Weight of the group (cgroup v1 `cpu.shares`).",
        group!(U64, shares),
    ),
    key(
        "group.*.quota",
        "CPU time in each period, over all pCPUs (`cpu.cfs_quota_us`): from 1 ms to one period for each pCPU. \
         \"auto\" is no limit.",
        group!(OptionalNanos, limit.quota_ns),
    ),
    key(
        "group.*.period",
        "Period of the quota (`cpu.cfs_period_us`): from 1 ms to 1 s.",
        group!(Nanos, limit.period_ns),
    ),
];
