//! Keys of the host kernel and the hypervisor.

use holdfast_host::{PauseExit, PauseHandling, SchedulerKind, TickPhase};

use super::{key, number};
use crate::keys::slot::{Choice, Slot, choices};
use crate::keys::{Key, Target};

choices!(SchedulerKind {
    "cfs-3.3" => SchedulerKind::Cfs33,
});

choices!(TickPhase {
    "aligned" => TickPhase::Aligned,
    "half-skewed" => TickPhase::HalfSkewed,
    "spread" => TickPhase::Spread,
});

// Not by `choices!`: what a kernel did is more than its handler, and single switches can differ from it.
impl Choice for PauseHandling {
    fn names(&self) -> Vec<&'static str> {
        PauseHandling::PRESETS.iter().map(|(name, _)| *name).collect()
    }

    fn name(&self) -> &'static str {
        match self.exit {
            PauseExit::None => "none",
            PauseExit::Sleep { .. } => "sleep-100us",
            PauseExit::DirectedYield => "directed-yield-2011",
        }
    }

    fn choose(&mut self, name: &str) -> bool {
        let preset = PauseHandling::PRESETS.iter().find(|(known, _)| *known == name);
        preset.map(|(_, preset)| *self = *preset).is_some()
    }
}

/// A place of the host's configuration.
macro_rules! host {
    ($slot:ident, $($field:ident).+) => { Target::Host(|host| Some(Slot::$slot(&mut host.$($field).+))) };
}

/// What the host is like.
pub(super) static HOST: &[Key] = &[
    number(
        "host.hz",
        "1/s",
        (10.0, 10_000.0),
        "scheduler ticks per second of each pCPU",
        host!(U32, hz),
    ),
    key(
        "host.tick_phase",
        "how the ticks of the pCPUs lie to each other",
        host!(Choice, tick_phase),
    ),
    key("host.scheduler", "the host's scheduler", host!(Choice, scheduler)),
    key(
        "host.latency",
        "period in which each runnable thread runs once (sched_latency), before scaling",
        host!(Nanos, latency_ns),
    ),
    key(
        "host.min_granularity",
        "shortest slice (sched_min_granularity), before scaling",
        host!(Nanos, min_granularity_ns),
    ),
    key(
        "host.wakeup_granularity",
        "by how much a woken thread must be behind to preempt (sched_wakeup_granularity), before scaling",
        host!(Nanos, wakeup_granularity_ns),
    ),
    key(
        "host.scale_by_pcpus",
        "whether those three are multiplied by 1 + log2(min(pCPUs, 8))",
        host!(Flag, scale_by_pcpus),
    ),
    key(
        "host.shares_window",
        "window over which a group's load on one pCPU is averaged",
        host!(Nanos, shares_window_ns),
    ),
    key(
        "host.features.gentle_fair_sleepers",
        "a woken thread gets half a period of credit instead of a whole one",
        host!(Flag, features.gentle_fair_sleepers),
    ),
    key(
        "host.features.start_debit",
        "a new thread starts one virtual slice late",
        host!(Flag, features.start_debit),
    ),
    key(
        "host.features.wakeup_preemption",
        "a woken thread that may preempt does so",
        host!(Flag, features.wakeup_preemption),
    ),
    key(
        "host.features.next_buddy",
        "the thread woken last is favoured even if it did not preempt",
        host!(Flag, features.next_buddy),
    ),
    key(
        "host.features.last_buddy",
        "the thread preempted last is favoured",
        host!(Flag, features.last_buddy),
    ),
    key(
        "host.features.cache_hot_buddy",
        "buddies count as cache-hot",
        host!(Flag, features.cache_hot_buddy),
    ),
    key(
        "host.features.affine_wakeups",
        "the waking pCPU is considered in wake placement",
        host!(Flag, features.affine_wakeups),
    ),
    key(
        "host.features.ttwu_queue",
        "a wake-up across last-level caches is carried out by the target pCPU on an IPI",
        host!(Flag, features.ttwu_queue),
    ),
    key(
        "host.features.lb_bias",
        "balancing compares loads biased by their history",
        host!(Flag, features.lb_bias),
    ),
    number(
        "host.balance.smt.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between threads of one core",
        host!(U64, balance.smt.min_interval_ms),
    ),
    number(
        "host.balance.smt.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between threads of one core",
        host!(U64, balance.smt.max_interval_ms),
    ),
    number(
        "host.balance.smt.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between threads of one core",
        host!(U64, balance.smt.busy_factor),
    ),
    number(
        "host.balance.smt.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between threads of one core",
        host!(U64, balance.smt.imbalance_pct),
    ),
    number(
        "host.balance.smt.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between threads of one core",
        host!(U32, balance.smt.cache_nice_tries),
    ),
    number(
        "host.balance.cache.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between cores that share a last-level cache",
        host!(U64, balance.cache.min_interval_ms),
    ),
    number(
        "host.balance.cache.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between cores that share a last-level cache",
        host!(U64, balance.cache.max_interval_ms),
    ),
    number(
        "host.balance.cache.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between cores that share a last-level cache",
        host!(U64, balance.cache.busy_factor),
    ),
    number(
        "host.balance.cache.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between cores that share a last-level cache",
        host!(U64, balance.cache.imbalance_pct),
    ),
    number(
        "host.balance.cache.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between cores that share a last-level cache",
        host!(U32, balance.cache.cache_nice_tries),
    ),
    number(
        "host.balance.package.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between sockets of one memory node",
        host!(U64, balance.package.min_interval_ms),
    ),
    number(
        "host.balance.package.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between sockets of one memory node",
        host!(U64, balance.package.max_interval_ms),
    ),
    number(
        "host.balance.package.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between sockets of one memory node",
        host!(U64, balance.package.busy_factor),
    ),
    number(
        "host.balance.package.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between sockets of one memory node",
        host!(U64, balance.package.imbalance_pct),
    ),
    number(
        "host.balance.package.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between sockets of one memory node",
        host!(U32, balance.package.cache_nice_tries),
    ),
    number(
        "host.balance.numa.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between memory nodes",
        host!(U64, balance.numa.min_interval_ms),
    ),
    number(
        "host.balance.numa.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between memory nodes",
        host!(U64, balance.numa.max_interval_ms),
    ),
    number(
        "host.balance.numa.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between memory nodes",
        host!(U64, balance.numa.busy_factor),
    ),
    number(
        "host.balance.numa.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between memory nodes",
        host!(U64, balance.numa.imbalance_pct),
    ),
    number(
        "host.balance.numa.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between memory nodes",
        host!(U32, balance.numa.cache_nice_tries),
    ),
    key(
        "host.balance.sockets_are_nodes",
        "whether each socket is a memory node of its own",
        host!(Flag, balance.sockets_are_nodes),
    ),
    number(
        "host.balance.nr_migrate",
        "",
        (1.0, 1e6),
        "threads looked at in one balancing pass (sched_nr_migrate)",
        host!(U32, balance.nr_migrate),
    ),
    key(
        "host.balance.migration_cost",
        "a thread that ran less than this long ago is cache-hot (sched_migration_cost)",
        host!(Nanos, balance.migration_cost_ns),
    ),
    number(
        "host.balance.smt_gain",
        "1/1024",
        (1.0, 1e6),
        "what all threads of a core can do together",
        host!(U64, balance.smt_gain),
    ),
    key(
        "host.halt_poll",
        "longest time for which a halted vCPU's pCPU polls before its thread sleeps (halt_poll_ns); 0: never",
        host!(Nanos, halt_poll_ns),
    ),
    number(
        "host.halt_poll_grow",
        "",
        (0.0, 1000.0),
        "factor by which the polling time grows",
        host!(U64, halt_poll_grow),
    ),
    key(
        "host.halt_poll_grow_start",
        "what it grows to from 0",
        host!(Nanos, halt_poll_grow_start_ns),
    ),
    number(
        "host.halt_poll_shrink",
        "",
        (0.0, 1000.0),
        "divisor by which it shrinks; 0: to nothing at once",
        host!(U64, halt_poll_shrink),
    ),
    key(
        "host.pause_exit",
        "what a pause exit does: a handler as it was introduced, or all that a kernel did about spinning guests; it sets the \
         switches below, which can then differ one by one",
        host!(Choice, pause),
    ),
    key(
        "host.pause_exit_sleep",
        "how long a pause exit sleeps at most, with host.pause_exit = \"sleep-100us\"",
        Target::Host(|host| match &mut host.pause.exit {
            PauseExit::Sleep { ns } => Some(Slot::Nanos(ns)),
            PauseExit::None | PauseExit::DirectedYield => None,
        }),
    ),
    key(
        "host.yield.spin_loop_eligibility",
        "a vCPU that is itself in the handler is yielded to every second time only (3.6)",
        host!(Flag, pause.filters.eligibility),
    ),
    key(
        "host.yield.undercommit",
        "a yield is refused where both pCPUs have one thread only (-ESRCH, 3.9)",
        host!(Flag, pause.filters.undercommit),
    ),
    number(
        "host.yield.tries",
        "",
        (0.0, 1e6),
        "such refusals after which the handler gives up (3 since 3.9); 0: it looks at all vCPUs",
        host!(U32, pause.filters.tries),
    ),
    key(
        "host.yield.preempted_only",
        "only preempted vCPUs are yielded to (3.10)",
        host!(Flag, pause.filters.preempted),
    ),
    key(
        "host.yield.in_kernel",
        "a spinner in kernel mode yields to no vCPU that was preempted in user mode (yield_to_kernel_mode, 4.14)",
        host!(Flag, pause.filters.in_kernel),
    ),
    key(
        "host.yield.ready",
        "vCPUs that were just woken count as preempted (5.3)",
        host!(Flag, pause.filters.ready),
    ),
    key(
        "host.yield.pending_interrupt",
        "one preempted in user mode is yielded to all the same if an interrupt is pending for it (6.9, uncertain)",
        host!(Flag, pause.filters.pending_interrupt),
    ),
    key(
        "host.yield.ipi_aware",
        "the vCPU whose answer to an IPI is missing comes first (proposed 2025, in no kernel, uncertain)",
        host!(Flag, pause.filters.ipi_aware),
    ),
    number(
        "host.pause_window.grow",
        "",
        (0.0, 4_294_967_295.0),
        "growth of a vCPU's window at each pause exit: a factor if below the window, else a summand; 0: none \
         (ple_window_grow, 2 since 3.18)",
        host!(U32, pause.window.grow),
    ),
    number(
        "host.pause_window.shrink",
        "",
        (0.0, 4_294_967_295.0),
        "shrinking of the window when a vCPU gets a pCPU again: a divisor or a subtrahend; 0: back to its base \
         (ple_window_shrink)",
        host!(U32, pause.window.shrink),
    ),
    number(
        "host.pause_window.max",
        "cycles, or PAUSEs on AMD",
        (1.0, 4_294_967_295.0),
        "largest window; \"auto\": what the part's field holds (ple_window_max)",
        host!(OptionalU32, pause.window.max),
    ),
    key(
        "host.amd.filter_threshold",
        "whether the host uses the pause filter's threshold, without which the window does not move (4.17)",
        host!(Flag, pause.filter_threshold),
    ),
    key(
        "host.amd.skips_pause",
        "whether the PAUSE that exited is skipped, as on Intel, instead of executed again (after 4.19, uncertain)",
        host!(Flag, pause.skips_amd_pause),
    ),
    key(
        "host.kick_yields",
        "whether the kick hypercall tries a directed yield to its target (since July 2019)",
        host!(Flag, pause.kick_yields),
    ),
    number(
        "host.apic_bus_hz",
        "Hz",
        (1e6, 1e11),
        "frequency that the emulated LAPIC timer divides",
        host!(U64, apic_bus_hz),
    ),
    key(
        "host.min_timer_period",
        "shortest period of a periodic LAPIC timer (min_timer_period_us)",
        host!(Nanos, min_timer_period_ns),
    ),
];
