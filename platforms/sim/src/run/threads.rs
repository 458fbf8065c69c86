//! A run of one bare-metal program.

use std::rc::Rc;

use crate::core::failure::{CallOff, Failure};
use crate::guests::process::{Body, Image, Process, Waits};
use crate::guests::thread::SimThread;
use crate::run::config::Config;
use crate::run::outcome::Outcome;
use crate::run::run_pinned;

/// Runs one program on the machine of `config`, without a guest. It has as many threads as `affinities` has entries;
/// each runs on the pCPUs of its entry, or on all if that is empty. Each thread executes `body`, which ends the run by
/// reporting that the work is done. `config` names one VM with `bare_metal`, which stands for the program.
///
/// # Errors
/// As [`run`](crate::run()).
pub fn run_threads(
    config: &Config,
    call_off: &CallOff,
    affinities: &[Vec<u32>],
    waits: Waits,
    body: impl Fn(&SimThread) + 'static,
) -> Result<Outcome, Failure> {
    let body: Body = Rc::new(body);
    let pcpus = config.machine.topology.pcpus();
    run_pinned(config, call_off, affinities, |_, machine| {
        let process = Process::new(affinities.len() as u32, pcpus, waits, Rc::clone(&body));
        Box::new(Image::new(machine, process))
    })
}
