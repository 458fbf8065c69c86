//! Comparison of predictions with this machine: the locks on host threads, and the same threads in virtual time.
//!
//! **One source**: lock, the way in which threads wait, and what they do between are the same code on both sides
//! ([`holdfast_locks::thread`], `Hammer`), with the same parameters. The simulator's side is a machine profile that
//! [`calibrate`](crate::calibrate) made without taking a lock.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::stats::Summary;
use holdfast_locks::LockKind;
use holdfast_peers::affinity;
use holdfast_sim::{Failure, SimThread, SimWord, run_threads};
use holdfast_threads::{ThisThread, ThreadWord};

use super::judge::Row;
use super::{Session, Settings};
use crate::calibrate::{machine_of, waits};
use crate::hammer::{Hammer, Span};

/// Number of CPUs.
const CPUS: u32 = 2;

/// One lock in one topology.
#[derive(Clone, Copy, Debug)]
struct Setup {
    kind: LockKind,
    threads: u32,
    span: Span,
}

/// Measures and predicts.
///
/// # Errors
/// Only [`Failure::CalledOff`]. Rows contain other failures.
pub fn compare(settings: &Settings, session: &mut Session<'_>) -> Result<(), Failure> {
    let topologies = settings.contenders.len() * settings.sections_ns.len();
    let total = (topologies * settings.locks.len()) as u64 * u64::from(settings.rounds + 1);
    for &threads in &settings.contenders {
        for &section_ns in &settings.sections_ns {
            let span = Span::lasting(section_ns);
            let cell = |kind| Setup { kind, threads, span };
            let mut samples = vec![Vec::new(); settings.locks.len()];
            for round in 0..settings.rounds {
                for (&kind, samples) in settings.locks.iter().zip(&mut samples) {
                    let what = format!("{threads} threads, {section_ns} ns, round {}: {kind}", round + 1);
                    session.next(&what, total)?;
                    samples.push(measure(cell(kind), settings.cell_ms));
                }
            }
            for (&kind, samples) in settings.locks.iter().zip(samples) {
                session.next(&format!("{threads} threads, {section_ns} ns, predicted: {kind}"), total)?;
                let predicted = predict(cell(kind), settings.cell_ms, session);
                if predicted == Err(Failure::CalledOff) {
                    return Err(Failure::CalledOff);
                }
                (session.keep)(row(cell(kind), samples, predicted));
            }
        }
    }
    Ok(())
}

fn row(cell: Setup, samples: Vec<f64>, predicted: Result<f64, Failure>) -> Row {
    Row {
        threads: cell.threads,
        section_ns: cell.span.ns,
        path: None,
        lock: cell.kind.name().to_owned(),
        failure: predicted.as_ref().err().map(Failure::to_string),
        predicted: predicted.ok(),
        measured: Summary::of(&samples).map_or(0.0, |summary| summary.median),
        samples,
        retries: 0,
        lost: Vec::new(),
    }
}

/// Returns the acquisitions per second on host threads.
///
/// # Panics
/// If the lock let two threads in at once.
fn measure(cell: Setup, cell_ms: u64) -> f64 {
    let hammer = &Hammer::<ThreadWord>::new(cell.kind, cell.threads, cell.span, cell.span);
    let start = &Barrier::new(cell.threads as usize + 1);
    let rate = thread::scope(|scope| {
        for index in 0..cell.threads {
            scope.spawn(move || {
                // If pinning is refused, the system places this thread.
                affinity::pin((index % CPUS) as usize);
                start.wait();
                hammer.contend(&ThisThread::new(), index as usize);
            });
        }
        start.wait();
        let (begin, before) = (Instant::now(), hammer.total());
        thread::sleep(Duration::from_millis(cell_ms));
        let total = hammer.stop(&ThisThread::new());
        (total - before) as f64 / begin.elapsed().as_secs_f64()
    });
    assert!(
        hammer.excluded(&ThisThread::new()),
        "{} let two threads in at once",
        cell.kind
    );
    rate
}

/// Returns the acquisitions per second in the simulator. One more thread controls the measurement, as on the host.
fn predict(cell: Setup, cell_ms: u64, session: &Session<'_>) -> Result<f64, Failure> {
    let machine = machine_of(session.profile, session.host);
    let machine = machine.ok_or_else(|| Failure::Invalid("a cost is beyond all measure".to_owned()))?;
    let hammer = Hammer::<SimWord>::new(cell.kind, cell.threads, cell.span, cell.span);
    let rate = Rc::new(Cell::new(0.0));
    let told = Rc::clone(&rate);
    let body = move |thread: &SimThread| {
        if thread.index() < cell.threads {
            return hammer.contend(thread, thread.index() as usize);
        }
        thread.begin();
        let (begin, before) = (holdfast_locks::Paravirt::now_ns(thread), hammer.total());
        thread.sleep(cell_ms * 1_000_000);
        let total = hammer.stop(thread);
        let elapsed = (holdfast_locks::Paravirt::now_ns(thread) - begin) as f64 / 1e9;
        told.set((total - before) as f64 / elapsed);
        thread.done(Some(total - before));
    };
    let mut affinities: Vec<Vec<u32>> = (0..cell.threads).map(|thread| vec![thread % CPUS]).collect();
    affinities.push(Vec::new());
    run_threads(&machine, session.call_off, &affinities, waits(), body)?;
    Ok(rate.get())
}
