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
];
