//! Keys of the host kernel and the hypervisor.

use holdfast_host::{PauseExit, PauseHandling, TickPhase};

use super::{key, number};
use crate::keys::{Key, Target};
use crate::slot::{Choice, Slot, choices};

choices!(TickPhase {
    "aligned" => TickPhase::Aligned,
    "half-skewed" => TickPhase::HalfSkewed,
    "spread" => TickPhase::Spread,
});

// Without `choices!`, since a preset sets more than the handler, and single keys may refine it.
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

/// The host's timer ticks.
pub(super) static HOST: &[Key] = &[
    number(
        "host.hz",
        "1/s",
        (10.0, 10_000.0),
        "Scheduler ticks of each pCPU in a second (CONFIG_HZ).",
        host!(U32, hz),
    ),
    key(
        "host.tick_phase",
        "Phase between the pCPUs' ticks. With \"aligned\" they coincide: `skew_tick=0`, the kernel's default. With \
         \"half-skewed\" they are spread over half a period (`skew_tick=1`), with \"spread\" over a whole one.",
        host!(Choice, tick_phase),
    ),
];

/// Halt polling and pause exits.
pub(super) static GUESTS: &[Key] = &[
    key(
        "host.halt_poll",
        "Longest time for which the pCPU of a halted vCPU polls before the vCPU's thread sleeps (kvm \
         `halt_poll_ns`). With 0 it never polls.",
        host!(Nanos, halt_poll_ns),
    ),
    number(
        "host.halt_poll_grow",
        "",
        (0.0, 1000.0),
        "Factor by which the polling time grows (kvm `halt_poll_ns_grow`).",
        host!(U64, halt_poll_grow),
    ),
    key(
        "host.halt_poll_grow_start",
        "First non-zero polling time (kvm `halt_poll_ns_grow_start`).",
        host!(Nanos, halt_poll_grow_start_ns),
    ),
    number(
        "host.halt_poll_shrink",
        "",
        (0.0, 1000.0),
        "Divisor by which the polling time shrinks (kvm `halt_poll_ns_shrink`). With 0 it drops to 0 at once.",
        host!(U64, halt_poll_shrink),
    ),
    key(
        "host.pause_exit",
        "What the host does at a pause exit: one handler as it was introduced, or everything that a kernel version \
         does about spinning guests. It sets the keys host.yield.ipi_aware, host.pause_window and host.amd; these \
         then refine it, in whatever order the file has them.",
        host!(Choice, pause),
    ),
    key(
        "host.yield.ipi_aware",
        "A spinner yields first to the vCPU whose IPI acknowledgement it waits for. Proposed in 2025, in no kernel \
         (uncertain).",
        host!(Flag, pause.filters.ipi_aware),
    ),
    number(
        "host.pause_window.grow",
        "",
        (0.0, 4_294_967_295.0),
        "Growth of a vCPU's window at each pause exit (kvm_intel `ple_window_grow`, 2 since 3.18). Below the base \
         window it is a factor, otherwise a summand. With 0 the window stays.",
        host!(U32, pause.window.grow),
    ),
    number(
        "host.pause_window.shrink",
        "",
        (0.0, 4_294_967_295.0),
        "Shrinking of the window when a vCPU gets a pCPU again (kvm_intel `ple_window_shrink`). Below the base \
         window it is a divisor, otherwise a subtrahend. With 0 the window returns to its base.",
        host!(U32, pause.window.shrink),
    ),
    number(
        "host.pause_window.max",
        "cycles, or PAUSEs on AMD",
        (1.0, 4_294_967_295.0),
        "Largest window (kvm_intel `ple_window_max`). \"auto\" is the most that the CPU's field holds.",
        host!(OptionalU32, pause.window.max),
    ),
    key(
        "host.amd.filter_threshold",
        "Whether the host uses the pause filter's threshold (4.17). Without it the window does not move.",
        host!(Flag, pause.filter_threshold),
    ),
];
