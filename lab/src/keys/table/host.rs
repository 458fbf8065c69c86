//! Keys of the host kernel and the hypervisor.

use holdfast_host::{PauseExit, PauseHandling, TickPhase};

use super::{key, number};
use crate::keys::slot::{Choice, Slot, choices};
use crate::keys::{Key, Target};

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
];

/// What it does for guests that halt and spin.
pub(super) static GUESTS: &[Key] = &[
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
