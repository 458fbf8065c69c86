//! Keys of the host's scheduler and of its task groups.

use holdfast_host::{SchedConfig, SchedulerKind, ShareRule, YieldRule};

use super::{key, number};
use crate::keys::slot::{Choice, Slot, choices};
use crate::keys::{Key, Target};

/// The schedulers, each with all parameters of its kernel.
const SCHEDULERS: [(&str, SchedulerKind); 5] = [
    ("cfs-2.6.37", SchedulerKind::Cfs2637),
    ("cfs-3.3", SchedulerKind::Cfs33),
    ("cfs-4.12", SchedulerKind::Cfs412),
    ("eevdf-6.6", SchedulerKind::Eevdf66),
    ("eevdf-6.12", SchedulerKind::Eevdf612),
];

// Not by `choices!`: choosing a scheduler sets all of its parameters, and these may be changed afterwards.
impl Choice for SchedConfig {
    fn names(&self) -> Vec<&'static str> {
        SCHEDULERS.iter().map(|(name, _)| *name).collect()
    }

    fn name(&self) -> &'static str {
        let found = SCHEDULERS.iter().find(|(_, kind)| *kind == self.kind);
        found.map_or("", |(name, _)| name)
    }

    fn choose(&mut self, name: &str) -> bool {
        let Some((_, kind)) = SCHEDULERS.iter().find(|(known, _)| *known == name) else {
            return false;
        };
        *self = SchedConfig::of(*kind);
        true
    }
}

choices!(YieldRule {
    "own-group" => YieldRule::OwnGroup,
    "own-group-compat" => YieldRule::OwnGroupCompat,
    "whole" => YieldRule::Whole,
    "forfeit" => YieldRule::Forfeit,
});

choices!(ShareRule {
    "walk" => ShareRule::Walk,
    "window" => ShareRule::Window,
    "geometric" => ShareRule::Geometric,
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
        "host.scale_by_pcpus",
        "whether those four are multiplied by 1 + log2(min(pCPUs, 8))",
        host!(Flag, sched.scale_by_pcpus),
    ),
    key(
        "host.shares_window",
        "window over which a group's load on one pCPU is averaged",
        host!(Nanos, sched.shares_window_ns),
    ),
    key(
        "host.shares_rule",
        "how a group's shares divide among pCPUs: by a walk now and then, or at every event by averages over a window, or by \
         geometric ones",
        host!(Choice, sched.shares),
    ),
    key(
        "host.shares_ratelimit",
        "how long shares stay as they are under the rule \"walk\" (sched_shares_ratelimit), before scaling",
        host!(Nanos, sched.shares_ratelimit_ns),
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
        "host.features.start_debit",
        "a new thread starts one virtual slice late",
        host!(Flag, sched.features.start_debit),
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
        "host.features.last_buddy",
        "the thread preempted last is favoured",
        host!(Flag, sched.features.last_buddy),
    ),
    key(
        "host.features.cache_hot_buddy",
        "buddies count as cache-hot",
        host!(Flag, sched.features.cache_hot_buddy),
    ),
    key(
        "host.features.affine_wakeups",
        "the waking pCPU is considered in wake placement",
        host!(Flag, sched.features.affine_wakeups),
    ),
    key(
        "host.features.ttwu_queue",
        "a wake-up across last-level caches is carried out by the target pCPU on an IPI",
        host!(Flag, sched.features.ttwu_queue),
    ),
    key(
        "host.features.lb_bias",
        "balancing compares loads biased by their history",
        host!(Flag, sched.features.lb_bias),
    ),
    key(
        "host.features.yield_to",
        "threads can yield to a thread of their choice (2.6.39)",
        host!(Flag, sched.features.yield_to),
    ),
    key(
        "host.features.load_tracking",
        "loads are geometric averages by entity (3.8)",
        host!(Flag, sched.features.load_tracking),
    ),
    key(
        "host.features.wake_wide",
        "a thread that wakes many others stays away from them (3.12)",
        host!(Flag, sched.features.wake_wide),
    ),
    key(
        "host.features.wake_idle",
        "wake placement first asks which of the two pCPUs is idle (4.14)",
        host!(Flag, sched.features.wake_idle),
    ),
    key(
        "host.features.bounded_scan",
        "the search for an idle pCPU is bounded by how long the waking one is idle on average (4.12)",
        host!(Flag, sched.features.bounded_scan),
    ),
    key(
        "host.features.overload_gate",
        "a pCPU that falls idle looks for work only if some pCPU has more than one thread (3.19)",
        host!(Flag, sched.features.overload_gate),
    ),
    key(
        "host.features.bandwidth_expires",
        "slices of bandwidth expire with their period (until 5.3)",
        host!(Flag, sched.features.bandwidth_expires),
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
        "host.features.pick_buddy",
        "EEVDF: the target of a directed yield is picked while it is eligible",
        host!(Flag, sched.features.pick_buddy),
    ),
    key(
        "host.features.delay_dequeue",
        "EEVDF: who sleeps with negative lag stays queued until it has made up for it",
        host!(Flag, sched.features.delay_dequeue),
    ),
    key(
        "host.features.delay_zero",
        "EEVDF: nobody gains lag by being delayed",
        host!(Flag, sched.features.delay_zero),
    ),
    key(
        "host.features.relative_deadline",
        "EEVDF: deadlines move along with their threads",
        host!(Flag, sched.features.relative_deadline),
    ),
    number(
        "host.balance.smt.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between threads of one core",
        host!(U64, sched.balance.smt.min_interval_ms),
    ),
    number(
        "host.balance.smt.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between threads of one core",
        host!(U64, sched.balance.smt.max_interval_ms),
    ),
    number(
        "host.balance.smt.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between threads of one core",
        host!(U64, sched.balance.smt.busy_factor),
    ),
    number(
        "host.balance.smt.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between threads of one core",
        host!(U64, sched.balance.smt.imbalance_pct),
    ),
    number(
        "host.balance.smt.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between threads of one core",
        host!(U32, sched.balance.smt.cache_nice_tries),
    ),
    number(
        "host.balance.cache.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between cores that share a last-level cache",
        host!(U64, sched.balance.cache.min_interval_ms),
    ),
    number(
        "host.balance.cache.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between cores that share a last-level cache",
        host!(U64, sched.balance.cache.max_interval_ms),
    ),
    number(
        "host.balance.cache.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between cores that share a last-level cache",
        host!(U64, sched.balance.cache.busy_factor),
    ),
    number(
        "host.balance.cache.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between cores that share a last-level cache",
        host!(U64, sched.balance.cache.imbalance_pct),
    ),
    number(
        "host.balance.cache.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between cores that share a last-level cache",
        host!(U32, sched.balance.cache.cache_nice_tries),
    ),
    number(
        "host.balance.package.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between sockets of one memory node",
        host!(U64, sched.balance.package.min_interval_ms),
    ),
    number(
        "host.balance.package.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between sockets of one memory node",
        host!(U64, sched.balance.package.max_interval_ms),
    ),
    number(
        "host.balance.package.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between sockets of one memory node",
        host!(U64, sched.balance.package.busy_factor),
    ),
    number(
        "host.balance.package.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between sockets of one memory node",
        host!(U64, sched.balance.package.imbalance_pct),
    ),
    number(
        "host.balance.package.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between sockets of one memory node",
        host!(U32, sched.balance.package.cache_nice_tries),
    ),
    number(
        "host.balance.numa.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between memory nodes",
        host!(U64, sched.balance.numa.min_interval_ms),
    ),
    number(
        "host.balance.numa.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between memory nodes",
        host!(U64, sched.balance.numa.max_interval_ms),
    ),
    number(
        "host.balance.numa.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between memory nodes",
        host!(U64, sched.balance.numa.busy_factor),
    ),
    number(
        "host.balance.numa.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between memory nodes",
        host!(U64, sched.balance.numa.imbalance_pct),
    ),
    number(
        "host.balance.numa.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between memory nodes",
        host!(U32, sched.balance.numa.cache_nice_tries),
    ),
    key(
        "host.balance.sockets_are_nodes",
        "whether each socket is a memory node of its own",
        host!(Flag, sched.balance.sockets_are_nodes),
    ),
    key(
        "host.balance.intervals_by_span",
        "whether intervals are one to two milliseconds for each pCPU of the domain, instead of the levels' own",
        host!(Flag, sched.balance.intervals_by_span),
    ),
    key(
        "host.balance.scan_cost",
        "what a look at one pCPU in a bounded search for an idle one is taken to cost; the kernel measures it",
        host!(Nanos, sched.balance.scan_cost_ns),
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
    number(
        "host.balance.smt_gain",
        "1/1024",
        (1.0, 1e6),
        "what all threads of a core can do together",
        host!(U64, sched.balance.smt_gain),
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
