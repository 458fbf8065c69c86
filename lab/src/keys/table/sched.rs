//! Keys of the host's scheduler and of its task groups.

use holdfast_host::{SchedConfig, SchedulerKind, YieldRule};

use super::{key, number};
use crate::keys::slot::{Choice, Slot, choices};
use crate::keys::{Key, Target};

// Not by `choices!`: choosing a scheduler sets all of its parameters, and these may be changed afterwards.
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

/// The scheduler. Set before what the rest of the host does.
pub(super) static SCHED: &[Key] = &[
    key(
        "host.scheduler",
        "the host's scheduler: sets all keys from here to host.balance to what its kernel has; later ones refine",
        host!(Choice, sched),
    ),
    key(
        "host.latency",
        "period in which each runnable thread runs once (sched_latency), before scaling",
        host!(Nanos, sched.latency_ns),
    ),
    key(
        "host.min_granularity",
        "shortest slice (sched_min_granularity), before scaling",
        host!(Nanos, sched.min_granularity_ns),
    ),
    key(
        "host.wakeup_granularity",
        "by how much a woken thread must be behind to preempt (sched_wakeup_granularity), before scaling",
        host!(Nanos, sched.wakeup_granularity_ns),
    ),
    key(
        "host.base_slice",
        "EEVDF: the slice that a thread asks for (sched_base_slice), before scaling",
        host!(Nanos, sched.base_slice_ns),
    ),
    key(
        "host.bandwidth_slice",
        "how much of a group's quota a pCPU draws at a time (sched_cfs_bandwidth_slice_us)",
        host!(Nanos, sched.bandwidth_slice_ns),
    ),
    key(
        "host.yield",
        "what a yield does: \"own-group\" (until 2.6.38) is nothing for a thread alone in its group, \"own-group-compat\" the \
         same with sched_compat_yield, \"whole\" acts on all levels (CFS), or on the deadline (EEVDF), \"forfeit\" ends an eligible thread's slice as if it \
         had run it (EEVDF, 6.19)",
        host!(Choice, sched.yields),
    ),
    key(
        "host.features.gentle_fair_sleepers",
        "a woken thread gets half a period of credit instead of a whole one",
        host!(Flag, sched.features.gentle_fair_sleepers),
    ),
    key(
        "host.features.wakeup_preemption",
        "a woken thread that may preempt does so",
        host!(Flag, sched.features.wakeup_preemption),
    ),
    key(
        "host.features.next_buddy",
        "the thread woken last is favoured even if it did not preempt",
        host!(Flag, sched.features.next_buddy),
    ),
    key(
        "host.features.ttwu_queue",
        "a wake-up across last-level caches is carried out by the target pCPU on an IPI",
        host!(Flag, sched.features.ttwu_queue),
    ),
    key(
        "host.features.yield_to",
        "threads can yield to a thread of their choice (2.6.39)",
        host!(Flag, sched.features.yield_to),
    ),
    key(
        "host.features.place_lag",
        "EEVDF: lag is kept across sleep and migration",
        host!(Flag, sched.features.place_lag),
    ),
    key(
        "host.features.run_to_parity",
        "EEVDF: who runs is not replaced before its deadline or the loss of its lag",
        host!(Flag, sched.features.run_to_parity),
    ),
    key(
        "host.features.delay_dequeue",
        "EEVDF: who sleeps with negative lag stays queued until it has made up for it",
        host!(Flag, sched.features.delay_dequeue),
    ),
    number(
        "host.balance.nr_migrate",
        "",
        (1.0, 1e6),
        "threads looked at in one balancing pass (sched_nr_migrate)",
        host!(U32, sched.balance.nr_migrate),
    ),
    key(
        "host.balance.migration_cost",
        "a thread that ran less than this long ago is cache-hot (sched_migration_cost)",
        host!(Nanos, sched.balance.migration_cost_ns),
    ),
];

/// A place of a task group.
macro_rules! group {
    ($slot:ident, $($field:ident).+) => { Target::Group(|group| Some(Slot::$slot(&mut group.$($field).+))) };
}

/// Task groups of the host.
pub(super) static GROUP: &[Key] = &[
    key(
        "group.*.parent",
        "the group beneath which it stands; at most 32 levels in all",
        group!(Group, parent),
    ),
    number(
        "group.*.shares",
        "",
        (2.0, 262_144.0),
        "cpu.shares",
        group!(U64, shares),
    ),
    key(
        "group.*.quota",
        "CPU time in each period, of all pCPUs together (cpu.cfs_quota_us): 1 ms to a period of each pCPU; \"auto\": no limit",
        group!(OptionalNanos, limit.quota_ns),
    ),
    key(
        "group.*.period",
        "period of the quota (cpu.cfs_period_us): 1 ms to 1 s",
        group!(Nanos, limit.period_ns),
    ),
];
