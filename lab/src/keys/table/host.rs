//! Keys of the host kernel and the hypervisor.

use holdfast_host::{HostConfig, Linux, PauseExit, PauseHandling, TickPhase};

use super::key;
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
        // Other keys refine the window.
        let refined = |preset: &PauseHandling| {
            let mut preset = *preset;
            preset.window = self.window;
            preset
        };
        let found = PauseHandling::PRESETS
            .iter()
            .find(|(_, preset)| refined(preset) == *self);
        found.map_or_else(
            || match self.exit {
                PauseExit::None => "none",
                PauseExit::Sleep { .. } => "sleep-100us",
                PauseExit::DirectedYield => "directed-yield-2011",
            },
            |(name, _)| *name,
        )
    }

    fn choose(&mut self, name: &str) -> bool {
        let preset = PauseHandling::PRESETS.iter().find(|(known, _)| *known == name);
        preset.map(|(_, preset)| *self = *preset).is_some()
    }
}

// Without `choices!`, since a version sets all parameters of the host, which other keys may change afterwards.
impl Choice for HostConfig {
    fn names(&self) -> Vec<&'static str> {
        Linux::ALL.map(Linux::name).to_vec()
    }

    fn name(&self) -> &'static str {
        self.kernel.name()
    }

    fn choose(&mut self, name: &str) -> bool {
        let version = Linux::by_name(name);
        version.map(|version| *self = HostConfig::of(version)).is_some()
    }
}

/// The host's version and its timer ticks.
pub(super) static HOST: &[Key] = &[
    key(
        "host.kernel",
        ("HostConfig.kernel", Target::Host(|host| Some(Slot::Choice(host)))),
    )
    .note(
        "It sets scheduler and preempt, pause_exit, halt_poll and halt_poll_shrink, hz, avic, x2avic, avic_hybrid, \
         idle_hlt, apicv and ipiv (where the CPU has them), and what guests are offered. These keys then \
         refine it, in whatever order the file has them. `run` says which do.",
    ),
    key("host.hz", host!(U32, hz)).range(10.0, 10_000.0).unit("1/s"),
    key("host.tick_phase", host!(Choice, tick_phase)).note(
        "With \"aligned\" they coincide: `skew_tick=0`, the kernel's default. With \"half-skewed\" they are \
         spread over half a period (`skew_tick=1`), with \"spread\" over a whole one.",
    ),
    key("host.noise", parameter!(Draft, Run, F64, noise)).range(0.0, 1000.0),
];

/// Halt polling and pause exits.
pub(super) static GUESTS: &[Key] = &[
    key("host.halt_poll", host!(Nanos, halt_poll_ns)),
    key("host.halt_poll_grow", host!(U64, halt_poll_grow)).range(0.0, 1000.0),
    key("host.halt_poll_grow_start", host!(Nanos, halt_poll_grow_start_ns)),
    key("host.halt_poll_shrink", host!(U64, halt_poll_shrink)).range(0.0, 1000.0),
    key("host.pause_exit", host!(Choice, pause))
        .note("It sets the keys of host.pause_window, which then refine it, in whatever order the file has them."),
    key("host.pause_window.grow", host!(U32, pause.window.grow)).range(0.0, 4_294_967_295.0),
    key("host.pause_window.shrink", host!(U32, pause.window.shrink)).range(0.0, 4_294_967_295.0),
    key("host.pause_window.max", host!(OptionalU32, pause.window.max))
        .range(1.0, 4_294_967_295.0)
        .unit("cycles, or PAUSEs on AMD"),
];
