//! `holdfast calibrate`: this machine's few parameters, by small benchmarks, as a machine profile.
//!
//! - **Measured or copied, and said so.** Each cost is the median of many short samples, with the spread of their middle half;
//!   what cannot be measured from a program is copied from a named profile and stays uncertain.
//! - **Parts of what was measured.** A program sees sums: a kick, a system call, a wake-up. How they are made up the simulator
//!   knows: the same small benchmarks run there, one after another, and each determines the one cost that those before it have
//!   left open. All of them run once more with the new profile ([`Closure`]): what does not come out there was divided wrongly.
//! - **No contended lock.** Nothing here waits for one.

mod calibration;
mod fit;
mod guest;
mod kernel;
mod memory;
mod micro;
mod noise;
mod parameter;
mod pauses;
mod profile;
mod sample;
mod stage;
mod system;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use holdfast_lab::profile::MachineProfile;

use crate::machine::Machine;

pub use calibration::{Calibration, SCHEMA};
pub use micro::Micro;
pub use noise::Noise;
pub use parameter::{CalibrateError, Closure, Parameter};
pub use profile::to_toml;
pub use sample::Sampled;
pub use stage::{machine_of, waits};
pub use system::Host;

/// What is measured, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Samples of each figure.
    pub samples: u32,
    /// For how long the machine is watched before and after, in milliseconds.
    pub watch_ms: u64,
    /// Whether guests on this host's KVM measure, too: what exits and kicks cost, and instructions in a guest.
    pub guests: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            samples: 101,
            watch_ms: 500,
            guests: false,
        }
    }
}

/// Measures, with `base` for what cannot be measured. `step` is told what comes next and may stop it.
///
/// # Errors
/// If it was stopped, or this machine cannot be measured.
pub fn calibrate(
    settings: &Settings,
    base: &MachineProfile,
    step: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<Calibration, CalibrateError> {
    let mut step = |what: &str| match step(what) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(CalibrateError::CalledOff),
    };
    let mut machine = Machine::here();
    if machine.cpus < 2 {
        return Err(CalibrateError::OneCpu);
    }
    step("how quiet the machine is")?;
    let before = noise::watch(settings.watch_ms);
    let host = Host::here();
    let mut parameters = memory::measure(settings.samples, &mut step)?;
    let readings = system::read(settings.samples, &before, &mut step)?;
    parameters.extend(system::seen(&readings));
    step("how quiet the machine is")?;
    let after = noise::watch(settings.watch_ms);
    machine.note_load_after();
    let mut profile = profile::build(base, &parameters, &machine);
    step("the same benchmarks in the simulator")?;
    let divided = system::divide(&mut profile, &host, &readings.measured, &system::COSTS);
    parameters.extend(divided);
    let mut closure = stage::closure(&profile, &host, &readings.measured);
    if settings.guests {
        // A guest's figures take the place of a program's: what locks cost there is the subject then.
        let found = guest::measure(settings.samples, &host, &mut step)?;
        step("the same benchmarks in simulated guests")?;
        profile.pauses = pauses::of_this_host();
        for parameter in guest::refine(&mut profile, &host, &found, &guest::COSTS) {
            parameters.retain(|other| other.name != parameter.name);
            parameters.push(parameter);
        }
        closure.extend(guest::closure(&profile, &host, &found));
    }
    let copied = profile::copied(&parameters);
    Ok(Calibration {
        schema: SCHEMA,
        machine,
        base: base.name.clone(),
        noise: before.worse(after),
        copied,
        parameters,
        closure,
        settings: host.settings(),
        host,
        profile,
    })
}
