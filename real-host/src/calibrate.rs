//! `holdfast calibrate`: measures this machine's costs with small benchmarks and makes a machine profile.
//!
//! - **Measured or copied.** Each cost is the median of many short samples, with the quartiles as its spread. A cost
//!   that a program cannot measure is copied from a named profile and marked as uncertain.
//! - **Sums are divided.** A program sees sums of costs: a kick, a system call, a wakeup. The simulator runs the same
//!   small benchmarks one after another. Each determines the one cost that the benchmarks before it leave open. All
//!   benchmarks then run again with the new profile ([`Closure`]). A figure that differs there was divided wrongly.
//! - **No contended lock.** No benchmark waits for a lock.

mod calibration;
mod fit;
mod guest;
mod host;
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
pub use host::Host;
pub use micro::Micro;
pub use noise::Noise;
pub use parameter::{CalibrateError, Closure, Parameter};
pub use profile::to_toml;
pub use sample::Sampled;
pub use stage::{machine_of, waits};

/// Settings of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of samples of each figure.
    pub samples: u32,
    /// Time for which noise is watched before and after, in milliseconds.
    pub watch_ms: u64,
    /// Whether guests on this host's KVM also measure: exits, kicks, and instructions in a guest.
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

/// Measures this machine. `base` supplies the costs that cannot be measured. `step` gets the name of each next step and
/// may stop the calibration.
///
/// # Errors
/// If the calibration was stopped, or this machine cannot be measured.
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
    step("noise of the machine")?;
    let before = noise::watch(settings.watch_ms);
    let host = Host::here();
    let mut parameters = memory::measure(settings.samples, &mut step)?;
    let readings = system::read(settings.samples, &before, &mut step)?;
    parameters.extend(system::seen(&readings));
    step("noise of the machine")?;
    let after = noise::watch(settings.watch_ms);
    machine.note_load_after();
    let mut profile = profile::build(base, &parameters, &machine);
    step("the benchmarks in the simulator")?;
    let divided = system::divide(&mut profile, &host, &readings.measured, &system::COSTS);
    parameters.extend(divided);
    let mut closure = stage::closure(&profile, &host, &readings.measured);
    if settings.guests {
        // A guest's figures replace a program's, since the costs of locks in guests are the subject then.
        let here = &mut |bench, samples| guest::here(bench, samples, &host);
        let found = guest::measure(settings.samples, here, &mut step)?;
        step("the benchmarks in simulated guests")?;
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
