//! Keys of the host's scheduler and of its task groups.

use holdfast_host::{Preempt, SchedConfig, SchedulerKind, YieldRule};

use super::key;
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

choices!(Preempt {
    "none" => Preempt::None,
    "voluntary" => Preempt::Voluntary,
    "full" => Preempt::Full,
    "lazy" => Preempt::Lazy,
});

/// Parameters of the scheduler.
pub(super) static SCHED: &[Key] = &[
    key("host.scheduler", host!(Choice, sched)).note(
        "It sets the keys from host.latency to host.balance to what its kernel has; these then refine it, in \
         whatever order the file has them.",
    ),
    key(
        "host.policy",
        (
            "HostConfig.policy",
            Target::Run(|draft| Some(Slot::Policy(&mut draft.host.policy, draft.policies))),
        ),
    ),
    key("host.siblings_apart", host!(Flag, siblings_apart)),
    key("host.slices_aligned", host!(OptionalNanos, slices_aligned_ns)),
    key("host.latency", host!(Nanos, sched.latency_ns)),
    key("host.min_granularity", host!(Nanos, sched.min_granularity_ns)),
    key("host.wakeup_granularity", host!(Nanos, sched.wakeup_granularity_ns)),
    key("host.base_slice", host!(Nanos, sched.base_slice_ns)),
    key("host.bandwidth_slice", host!(Nanos, sched.bandwidth_slice_ns)),
    key("host.yield", host!(Choice, sched.yields)).note(
        "\"own-group\" (until 2.6.38) has no effect for a thread that is alone in its group. \
         \"own-group-compat\" is the same with `sched_compat_yield`. \"whole\" acts on all levels (CFS) or on \
         the deadline (EEVDF). \"forfeit\" (EEVDF, 6.19, and 6.12 and 6.18 since their updates of December \
         2025) ends an eligible thread's slice as if it had been used.",
    ),
    key("host.preempt", host!(Choice, sched.preempt)).note(
        "Under \"lazy\" (Linux 6.13; since 7.0 there are only \"full\" and \"lazy\") a vCPU that an IPI, a timer or a \
         device wakes on a busy pCPU waits for the running thread's next exit or tick. The other three treat vCPUs \
         alike. host.scheduler leaves it \"voluntary\".",
    ),
    key(
        "host.features.gentle_fair_sleepers",
        host!(Flag, sched.features.gentle_fair_sleepers),
    ),
    key(
        "host.features.wakeup_preemption",
        host!(Flag, sched.features.wakeup_preemption),
    ),
    key("host.features.next_buddy", host!(Flag, sched.features.next_buddy)),
    key("host.features.yield_to", host!(Flag, sched.features.yield_to)),
    key("host.features.place_lag", host!(Flag, sched.features.place_lag)),
    key("host.features.run_to_parity", host!(Flag, sched.features.run_to_parity)),
    key("host.features.delay_dequeue", host!(Flag, sched.features.delay_dequeue)),
    key("host.balance.nr_migrate", host!(U32, sched.balance.nr_migrate)).range(1.0, 1e6),
    key(
        "host.balance.migration_cost",
        host!(Nanos, sched.balance.migration_cost_ns),
    ),
];

/// A parameter of a task group.
macro_rules! group {
    ($($parameter:tt)+) => { parameter!(DraftGroup, Group, $($parameter)+) };
}

/// Parameters of task groups.
pub(super) static GROUP: &[Key] = &[
    key("group.*.parent", group!(Group, parent)),
    key("group.*.shares", group!(U64, shares)).range(2.0, 262_144.0),
    key("group.*.quota", group!(OptionalNanos, limit.quota_ns))
        .note("It counts all pCPUs (`cpu.cfs_quota_us`): from 1 ms to one period for each pCPU."),
    key("group.*.burst", group!(Nanos, limit.burst_ns)).note("In Linux `cpu.max.burst`, since 5.14. It needs a quota."),
    key("group.*.period", group!(Nanos, limit.period_ns)).note("In Linux `cpu.cfs_period_us`."),
    key(
        "group.*.cpu.weight",
        ("", Target::Group(|group| Some(Slot::Weight(&mut group.shares)))),
    )
    .range(1.0, 10_000.0)
    .form_of(&["shares"])
    .note("The key shares in the unit of cgroup v2 (`cpu.weight`): 100 is 1024 shares."),
    key(
        "group.*.cpu.max",
        ("", Target::Group(|group| Some(Slot::CpuMax(&mut group.limit)))),
    )
    .form_of(&["quota", "period"])
    .note("The keys quota and period as in the file `cpu.max` of cgroup v2."),
];
