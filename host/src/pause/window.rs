//! The window of a vCPU's pause loops (docs/spec/host.md, "Pause windows"). It grows while yielding does not help, and
//! shrinks when the vCPU has waited for a pCPU.

use alloc::vec::Vec;

use super::config::{PauseControls, PauseExit};
use crate::boundary::{Command, VcpuId};
use crate::config::HostConfig;
use crate::step::Step;
use crate::vcpu::Vcpu;
use crate::wings::Wings;

/// Returns the pause-detection parameters before any vCPU runs, as the handler's kernel sets them.
pub(crate) fn base_controls(config: &HostConfig) -> PauseControls {
    let handling = &config.pause;
    match config.pause_controls {
        _ if handling.exit == PauseExit::None => PauseControls::Off,
        PauseControls::Filter { count, .. } if !handling.filter_threshold => {
            PauseControls::Filter { count, threshold: 0 }
        }
        controls => controls,
    }
}

/// Sets the parameters of pause detection for every vCPU.
pub(crate) fn set_pause_controls(on: &mut Wings, out: &mut Vec<Command>) {
    let controls = base_controls(&on.config);
    let window = window_of(controls);
    let guests = &mut on.guests;
    for vcpu in guests.vcpus.iter_mut() {
        vcpu.spin.window = window;
        let controls = match guests.vms[vcpu.vm].config.cpu_pm {
            true => PauseControls::Off,
            false => controls,
        };
        let vcpu = vcpu.id;
        out.push(Command::PauseControls { vcpu, controls });
    }
}

/// Sets the parameters of pause detection for `vcpu`, which begins to run.
pub(crate) fn begin_pause_window(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let controls = match on.guests.vm_of(vcpu).config.cpu_pm {
        true => PauseControls::Off,
        false => base_controls(&on.config),
    };
    on.guests.vcpus[vcpu].spin.window = window_of(base_controls(&on.config));
    step.out.push(Command::PauseControls { vcpu, controls });
}

/// Grows the window of `at` after a pause exit.
pub(super) fn grow_pause_window(config: &HostConfig, at: &mut Vcpu, step: &mut Step<'_>) {
    let (base, max) = window_bounds(config);
    let rule = config.pause.window;
    let old = at.spin.window;
    at.counters.pause_window_sum += u64::from(old);
    let new = grown(old, rule.grow, base, max);
    at.counters.pause_window_grown += u64::from(new > old);
    at.spin.window_max = at.spin.window_max.max(new.max(old));
    move_pause_window(config, at, new, step);
}

/// Shrinks the window of `at`, which gets a pCPU again.
pub(crate) fn shrink_pause_window(config: &HostConfig, at: &mut Vcpu, step: &mut Step<'_>) {
    let (base, _) = window_bounds(config);
    let old = at.spin.window;
    let new = shrunk(old, config.pause.window.shrink, base);
    if new == old || config.planted.pause.window_stays {
        return;
    }
    at.counters.pause_window_shrunk += 1;
    move_pause_window(config, at, new, step);
}

/// Returns the smallest and the largest window.
fn window_bounds(config: &HostConfig) -> (u32, u32) {
    let controls = base_controls(config);
    let most = controls.window_max();
    (window_of(controls), config.pause.window.max.unwrap_or(most).min(most))
}

fn move_pause_window(config: &HostConfig, at: &mut Vcpu, window: u32, step: &mut Step<'_>) {
    let controls = match base_controls(config) {
        PauseControls::Off => return,
        PauseControls::Ple { gap, .. } => PauseControls::Ple { gap, window },
        // AMD's window changes only with a threshold.
        PauseControls::Filter { threshold: 0, .. } => return,
        PauseControls::Filter { threshold, .. } => PauseControls::Filter {
            count: window,
            threshold,
        },
    };
    if at.spin.window != window {
        at.spin.window = window;
        let vcpu = at.id;
        step.out.push(Command::PauseControls { vcpu, controls });
    }
}

fn window_of(controls: PauseControls) -> u32 {
    match controls {
        PauseControls::Off => 0,
        PauseControls::Ple { window, .. } => window,
        PauseControls::Filter { count, .. } => count,
    }
}

fn grown(window: u32, grow: u32, base: u32, max: u32) -> u32 {
    let grown = match grow {
        0 => u64::from(base),
        factor if factor < base => u64::from(window) * u64::from(factor),
        step => u64::from(window) + u64::from(step),
    };
    grown.min(u64::from(max)) as u32
}

fn shrunk(window: u32, shrink: u32, base: u32) -> u32 {
    let shrunk = match shrink {
        0 => base,
        divisor if divisor < base => window / divisor,
        step => window.saturating_sub(step),
    };
    shrunk.max(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn windows_move_as_the_parameters_say() {
        assert_eq!(grown(4096, 2, 4096, u32::MAX), 8192);
        assert_eq!(grown(u32::MAX / 2 + 1, 2, 4096, u32::MAX), u32::MAX);
        assert_eq!(grown(8192, 0, 4096, u32::MAX), 4096);
        assert_eq!(grown(4096, 5000, 4096, 65535), 9096);
        assert_eq!(shrunk(65536, 0, 4096), 4096);
        assert_eq!(shrunk(65536, 2, 4096), 32768);
        assert_eq!(shrunk(5000, 2, 4096), 4096);
        assert_eq!(shrunk(65536, 10_000, 4096), 55_536);
        // A parameter is a factor up to the base, which is a step already.
        assert_eq!(grown(8192, 4095, 4096, u32::MAX), 8192 * 4095);
        assert_eq!(grown(8192, 4096, 4096, u32::MAX), 8192 + 4096);
        assert_eq!(shrunk(1 << 30, 4095, 4096), (1 << 30) / 4095);
        assert_eq!(shrunk(1 << 30, 4096, 4096), (1 << 30) - 4096);
    }

    proptest! {
        #[test]
        fn windows_stay_within_their_bounds(
            base in 1u32..100_000, above in any::<u32>(), moves in proptest::collection::vec(any::<(bool, u32)>(), 0..50),
        ) {
            let max = base.saturating_add(above);
            let mut window = base;
            for (grow, parameter) in moves {
                window = if grow { grown(window, parameter, base, max) } else { shrunk(window, parameter, base) };
                prop_assert!((base..=max).contains(&window));
            }
        }
    }
}
