//! Benchmark of the locks on this machine, compared with locks of other libraries.
//!
//! Every contestant is measured in the same run, round-robin: round 1 of each, then round 2 of each, so that a
//! disturbance hits all alike. Figures are medians over rounds. A row's ratio compares it with the best *peer* of its
//! table, which is the alternative to Holdfast.

mod contended;
mod contestant;
mod lock;
mod report;
mod rounds;
mod rows;
mod settings;
mod uncontended;

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use report::{Contended, ContendedRow, Origin, Overtaking, Report, SCHEMA, Uncontended, UncontendedRow, Waits};
pub use rows::{Table, noise, tables};
pub use settings::Settings;

use contended::{Cell, Clock};
use contestant::{CONTESTANTS, Contestant};

use crate::work::Work;

/// Returns the names of all contestants that [`Settings::locks`] can choose from.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTESTANTS.iter().map(|contestant| contestant.name)
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Number of finished measurements.
    pub done: u64,
    /// Number of all measurements.
    pub total: u64,
    /// Name of the last measurement.
    pub what: &'a str,
}

/// Measures what the settings of `report` ask for. Each table is stored in `report` as soon as it is complete, so that
/// another thread can read it. `progress` is called after each measurement and may stop the run.
pub fn run(report: &Mutex<Report>, mut progress: impl FnMut(Progress<'_>) -> ControlFlow<()>) {
    let settings = enter(report, |report| report.settings.clone());
    let contestants: Vec<&Contestant> = CONTESTANTS
        .iter()
        .filter(|contestant| settings.takes_part(contestant.name))
        .collect();
    let cells = settings.sections_ns.len() * settings.threads.len();
    let total = (cells as u64 + 1) * u64::from(settings.rounds) * contestants.len() as u64;
    let mut done = 0;
    let mut step = |what: &str| {
        done += 1;
        progress(Progress { done, total, what })
    };
    let flow = fill(report, &settings, &contestants, &mut step);
    enter(report, |report| {
        report.complete = flow.is_continue();
        report.machine.note_load_after();
    });
}

/// Changes the report. A panic of another thread cannot have left it half changed.
fn enter<T>(report: &Mutex<Report>, change: impl FnOnce(&mut Report) -> T) -> T {
    change(&mut report.lock().unwrap_or_else(PoisonError::into_inner))
}

fn fill(
    report: &Mutex<Report>,
    settings: &Settings,
    contestants: &[&Contestant],
    step: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let uncontended = rounds::uncontended(contestants, settings, step)?;
    enter(report, |report| report.uncontended = Some(uncontended));
    let clock = Clock::calibrated();
    for &section_ns in &settings.sections_ns {
        let work = Work::lasting(Duration::from_nanos(section_ns));
        for &threads in &settings.threads {
            let cell = Cell {
                threads,
                work,
                duration: Duration::from_millis(settings.cell_ms),
                pin: settings.pin,
            };
            let rows = rounds::contended(contestants, &cell, clock, settings.rounds, step)?;
            let table = Contended {
                threads,
                section_ns,
                rows,
            };
            enter(report, |report| report.contended.push(table));
        }
    }
    ControlFlow::Continue(())
}
