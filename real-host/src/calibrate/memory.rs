//! Costs of the single instructions that locks execute, on one undisturbed CPU, by the platform's own operations.

use std::hint::black_box;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use std::thread;
use std::time::Instant;

use holdfast_locks::Platform;
use holdfast_peers::affinity;
use holdfast_threads::{ThisThread, ThreadWord};

use super::parameter::{CalibrateError, Parameter};
use super::sample::Sampled;

/// Operations in a sample, which take tens of microseconds, so that few samples are interrupted.
const OPERATIONS: u32 = 2000;

/// Measures each figure.
pub fn measure(
    samples: u32,
    step: &mut dyn FnMut(&str) -> Result<(), CalibrateError>,
) -> Result<Vec<Parameter>, CalibrateError> {
    type Body = fn(&[ThreadWord; 4]);
    let figures: [(&'static str, &'static str, Body); 5] = [
        ("load_hit", "loads, each of which needs the one before", loads),
        ("store", "release stores to one word", stores),
        ("rmw_hit", "locked additions to one word", additions),
        (
            "fence",
            "sequentially consistent fences, each after a store to one word",
            fences,
        ),
        ("pause", "PAUSEs", pauses),
    ];
    let mut parameters = Vec::new();
    for (name, how, body) in figures {
        step(how)?;
        let sampled = Sampled::of(time(samples, body)).ok_or(CalibrateError::no_sample(name))?;
        parameters.push(Parameter {
            name,
            ns: sampled.median_ns,
            how: how.to_owned(),
            samples: sampled,
        });
    }
    Ok(parameters)
}

fn time(samples: u32, body: fn(&[ThreadWord; 4])) -> Vec<f64> {
    let run = || {
        affinity::pin(0);
        let words = [const { ThreadWord::ZERO }; 4];
        body(&words);
        let sample = |_| {
            let begin = Instant::now();
            body(black_box(&words));
            begin.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
        };
        (0..samples).map(sample).collect()
    };
    // A separate thread, since the caller's must not be pinned.
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_default())
}

fn loads(words: &[ThreadWord; 4]) {
    let (cpu, mut index) = (ThisThread::new(), 0);
    for _ in 0..OPERATIONS {
        index = cpu.load(&words[index as usize & 3], Acquire);
    }
    black_box(index);
}

fn stores(words: &[ThreadWord; 4]) {
    let cpu = ThisThread::new();
    (0..OPERATIONS).for_each(|_| cpu.store(&words[0], 0, Release));
}

fn additions(words: &[ThreadWord; 4]) {
    let cpu = ThisThread::new();
    for _ in 0..OPERATIONS {
        cpu.fetch_add(&words[0], 0, AcqRel);
    }
}

fn fences(words: &[ThreadWord; 4]) {
    let cpu = ThisThread::new();
    for _ in 0..OPERATIONS {
        // Adjacent fences may be merged into one.
        cpu.store(&words[0], 0, Release);
        cpu.fence(SeqCst);
    }
}

fn pauses(_: &[ThreadWord; 4]) {
    let cpu = ThisThread::new();
    (0..OPERATIONS).for_each(|_| cpu.relax());
}
