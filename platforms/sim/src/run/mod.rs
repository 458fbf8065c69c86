//! A run: builds the machine, plays it, and gathers its outcome.

mod build;
mod gather;
pub mod migrating;
pub mod outcome;
mod play;

use std::rc::Rc;

use holdfast_guest::GuestImage;
use holdfast_host::TaskId;

use crate::books::timeline::{Recorder, Timeline, Window};
use crate::config::{Config, Vm as VmConfig};
use crate::core::failure::{CallOff, Failure};
use crate::engine::handle::EngineCell;
use crate::guests::machine::SimMachine;
use crate::guests::process::{Body, Image, Process, Waits};
use crate::guests::thread::SimThread;
use crate::migration::journey::Journey;
use crate::run::play::play;
use crate::tasks::vmm::Vmm;
use build::build;
use gather::gather;
use outcome::Outcome;

/// Runs `config` to its end. Deterministic: equal configurations give equal outcomes, hash included.
///
/// # Errors
/// [`Failure`] says why the run could not finish.
pub fn run(config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
    run_images(config, call_off, |vm, machine| {
        holdfast_workloads::image(machine, &vm.boot)
    })
}

/// As [`run`], but with the caller's kernels: `image` builds one for each guest.
///
/// # Errors
/// As [`run`].
pub fn run_images(
    config: &Config,
    call_off: &CallOff,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<Outcome, Failure> {
    execute(&*start(config, image)?, config, call_off)
}

/// Runs one program on the machine of `config`, without a guest. It has as many threads as `affinities` has entries;
/// each runs on the pCPUs of its entry, or on all if that is empty. Each thread executes `body`, which ends the run by
/// reporting that the work is done. `config` names one VM with `bare_metal`, which stands for the program.
///
/// # Errors
/// As [`run`].
pub fn run_threads(
    config: &Config,
    call_off: &CallOff,
    affinities: &[Vec<u32>],
    waits: Waits,
    body: impl Fn(&SimThread) + 'static,
) -> Result<Outcome, Failure> {
    let body: Body = Rc::new(body);
    let pcpus = config.machine.topology.pcpus();
    let cell = build(config, |_, machine| {
        let process = Process::new(affinities.len() as u32, pcpus, waits, Rc::clone(&body));
        Box::new(Image::new(machine, process))
    })?;
    cell.with(|engine| {
        if let Some(native) = &mut engine.tasks.native {
            native.affinities = affinities.to_vec();
        }
    });
    execute(&cell, config, call_off)
}

/// As [`run`], and records a timeline of `window`, up to a failure if there is one. The outcome is that of [`run`],
/// bit for bit.
///
/// # Errors
/// As [`run`], if the run cannot begin.
pub fn record(
    config: &Config,
    call_off: &CallOff,
    window: Window,
) -> Result<(Result<Outcome, Failure>, Timeline), Failure> {
    record_images(config, call_off, window, |vm, machine| {
        holdfast_workloads::image(machine, &vm.boot)
    })
}

/// As [`record`], but with the caller's kernels.
///
/// # Errors
/// As [`record`].
pub fn record_images(
    config: &Config,
    call_off: &CallOff,
    window: Window,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<(Result<Outcome, Failure>, Timeline), Failure> {
    let cell = start(config, image)?;
    cell.with(|engine| {
        let tasks = &engine.tasks;
        let named = tasks.all.iter().map(|(id, task)| (*id, task.name.clone()));
        let vmm = |(id, vmm): (&TaskId, &Vmm)| (*id, format!("{}-vmm", config.vms[vmm.vm.0 as usize].name));
        let named = named.chain(tasks.vmms.iter().map(vmm));
        let recorder = Recorder::new(window, engine.pcpus.len(), engine.vcpus.len(), named);
        engine.books.record(recorder);
    });
    let outcome = execute(&cell, config, call_off);
    let mut timeline = cell.with(|engine| {
        let (books, view) = engine.books_and_view();
        books.take_timeline(&view, outcome.is_ok())
    });
    let machine = &config.machine;
    for (pcpu, index) in timeline.pcpus.iter_mut().zip(0..) {
        pcpu.number = machine.numbering.number(&machine.topology, index);
    }
    Ok((outcome, timeline))
}

/// Builds the machine of `config`, with its live migrations.
fn start(
    config: &Config,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<Rc<EngineCell>, Failure> {
    if config.migration.is_none() {
        return build(config, image);
    }
    let journey = Journey {
        then_every: config.migration,
        ..Journey::default()
    };
    migrating::prepare(config, &journey, image)
}

pub(crate) fn execute(cell: &EngineCell, config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
    cell.with(|engine| {
        engine.power_on();
        if let Some(at_ns) = config.zero_at_ns {
            engine.plan_zero(at_ns);
        }
        engine.set_watchdog();
    });
    play(cell, call_off);
    cell.with(|engine| match engine.books.failure().or(engine.end.failure.as_ref()) {
        Some(failure) => Err(failure.clone()),
        None => Ok(gather(engine, config)),
    })
}
