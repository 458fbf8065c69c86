//! Tortures the locks in virtual time: `cargo run --release -p holdfast-sim --example torture -- --seconds 600`.
//!
//! `--seconds N`: how long, wall-clock time (60). `--seed S --lock NAME`: only this, to replay a failure. Exit status
//! 1: a violation, printed with the command that replays it; 130: Ctrl-C, after which the runs that are done are
//! summed up.
#![allow(missing_docs)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/sim/image.rs"]
mod image;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/sim/torture/mod.rs"]
mod torture;

use torture::{ALGORITHMS, Algorithm, Fault, Report};

#[derive(Default)]
struct Arguments {
    seconds: Option<u64>,
    seed: Option<u64>,
    lock: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut given = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word}: no value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{word}: found \"{value}\", expected a number"))
        };
        match word.as_str() {
            "--seconds" => given.seconds = Some(number()?),
            "--seed" => given.seed = Some(number()?),
            "--lock" if ALGORITHMS.iter().any(|each| each.name == value) => given.lock = Some(value),
            "--lock" => return Err(format!("--lock: no lock is called \"{value}\"")),
            _ => return Err(format!("unknown option {word}; expected --seconds, --seed or --lock")),
        }
    }
    Ok(given)
}

/// What all runs of a lock were like.
#[derive(Default)]
struct Total {
    runs: u64,
    acquisitions: u64,
    preemptions: u64,
    interrupts: u64,
    deepest: u32,
    overtaken_max: u64,
    vcpus_max: u32,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.acquisitions += report.acquisitions;
        self.preemptions += report.preemptions;
        self.interrupts += report.interrupts;
        self.deepest = self.deepest.max(report.deepest);
        self.overtaken_max = self.overtaken_max.max(report.overtaken_max);
        self.vcpus_max = self.vcpus_max.max(report.vcpus);
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    if let Err(error) = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)) {
        eprintln!("torture: cannot install the handler for Ctrl-C: {error}");
        return ExitCode::FAILURE;
    }
    let given = match arguments() {
        Ok(given) => given,
        Err(what) => {
            eprintln!("torture: {what}");
            return ExitCode::from(2);
        }
    };
    let chosen = |each: &&Algorithm| given.lock.as_ref().is_none_or(|name| each.name == name);
    let locks: Vec<Algorithm> = ALGORITHMS.iter().filter(chosen).copied().collect();
    let mut totals: Vec<Total> = locks.iter().map(|_| Total::default()).collect();
    let end = Instant::now() + Duration::from_secs(given.seconds.unwrap_or(60));
    let mut seed = given.seed.unwrap_or(0);
    'seeds: loop {
        for (&lock, total) in locks.iter().zip(&mut totals) {
            match torture::run(lock, seed, Fault::None) {
                Ok(report) => total.add(&report),
                Err(what) => {
                    eprintln!("torture: {} seed {seed}: {what}", lock.name);
                    eprintln!(
                        "replay: cargo run --release -p holdfast-sim --example torture -- --seed {seed} --lock '{}'",
                        lock.name
                    );
                    return ExitCode::FAILURE;
                }
            }
            let interrupted = INTERRUPTED.load(Ordering::Relaxed);
            if interrupted || (given.seed.is_none() && Instant::now() >= end) {
                break 'seeds;
            }
        }
        if given.seed.is_some() {
            break;
        }
        seed += 1;
    }
    println!(
        "{:20} {:>6} {:>12} {:>12} {:>11} {:>7} {:>9} {:>6}",
        "lock", "runs", "acquisitions", "preemptions", "interrupts", "deepest", "overtaken", "vCPUs"
    );
    for (lock, total) in locks.iter().zip(&totals) {
        println!(
            "{:20} {:>6} {:>12} {:>12} {:>11} {:>7} {:>9} {:>6}",
            lock.name,
            total.runs,
            total.acquisitions,
            total.preemptions,
            total.interrupts,
            total.deepest,
            total.overtaken_max,
            total.vcpus_max
        );
    }
    println!(
        "no violation in {} runs",
        totals.iter().map(|total| total.runs).sum::<u64>()
    );
    if INTERRUPTED.load(Ordering::Relaxed) {
        println!("incomplete: interrupted");
        return ExitCode::from(130);
    }
    ExitCode::SUCCESS
}
