//! Waiting times and CPU time of mutexes under contention: `cargo bench -p holdfast --bench waits`. Arguments may be a
//! number of rounds, a part of the names of rows, and a file for the raw figures: `-- 5 quota raw=waits.csv`.
//!
//! Threads lock, work, unlock, and work for as long again. All locks are measured in the same run, round-robin, so that
//! a disturbance hits all alike. Percentiles are of the waits of all threads and rounds together. A wait includes one
//! reading of the clock. CPU time is that of the threads alone, without the hogs next to them.
//!
//! Rows named *quota* run in a control group that may use half of the CPUs. They need the right to make one.

mod circumstances;
#[path = "machine/quota.rs"]
mod quota;

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use quota::Quota;

/// A mutex around a number.
trait Lock: Sync {
    fn new() -> Self;
    fn with(&self, section: impl FnOnce(&mut u64));
}

macro_rules! locks {
    ($($type:ty: |$mutex:ident| $lock:expr;)+) => {$(
        impl Lock for $type {
            fn new() -> Self {
                <$type>::new(0)
            }
            #[inline]
            fn with(&self, section: impl FnOnce(&mut u64)) {
                let $mutex = self;
                section(&mut $lock);
            }
        }
    )+};
}

type Pthread<const ADAPTIVE: bool> = lock_api_05::Mutex<holdfast_peers::PthreadMutex<ADAPTIVE>, u64>;

locks! {
    holdfast::Mutex<u64>: |mutex| mutex.lock();
    std::sync::Mutex<u64>: |mutex| mutex.lock().expect("no section panics");
    parking_lot::Mutex<u64>: |mutex| mutex.lock();
    usync::Mutex<u64>: |mutex| mutex.lock();
    Pthread<false>: |mutex| mutex.lock();
    Pthread<true>: |mutex| mutex.lock();
    spin::Mutex<u64>: |mutex| mutex.lock();
}

/// A queue of spinning threads.
impl Lock for mcslock::raw::spins::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn with(&self, section: impl FnOnce(&mut u64)) {
        let mut node = mcslock::raw::MutexNode::new();
        self.lock_with_then(&mut node, section);
    }
}

/// What happened in one round.
struct Round {
    waits: Histogram<u64>,
    calls: u64,
    cpu_ns: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// As many threads that only compute as there are CPUs.
    Hogs,
    /// A quota of half of the CPUs.
    Quota,
}

struct Row {
    threads: usize,
    section_ns: u64,
    beside: Beside,
}

impl Row {
    fn name(&self) -> String {
        let beside = match self.beside {
            Beside::Nothing => "",
            Beside::Hogs => ", hogs",
            Beside::Quota => ", quota",
        };
        format!("{} threads, {} ns{beside}", self.threads, self.section_ns)
    }
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The number of steps of [`work`] in a microsecond.
fn steps_per_us() -> f64 {
    const STEPS: u64 = 1_000_000;
    let sample = |_| {
        let start = Instant::now();
        work(STEPS);
        start.elapsed().as_nanos() as f64 / 1000.0
    };
    STEPS as f64 / (0..9).map(sample).fold(f64::INFINITY, f64::min)
}

fn work(steps: u64) {
    for step in 0..steps {
        black_box(step);
    }
}

/// Returns the CPU time of the calling thread in nanoseconds.
fn cpu_ns() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let used = times.split(' ').next().and_then(|used| used.parse().ok());
    used.unwrap_or(0)
}

fn measure<L: Lock>(row: &Row, steps: u64) -> Round {
    const TIME: Duration = Duration::from_millis(100);
    let histogram = || Histogram::new(3).expect("three digits are possible");
    let (lock, stop, start) = (L::new(), AtomicBool::new(false), Barrier::new(row.threads + 1));
    let sum = Mutex::new(Round {
        waits: histogram(),
        calls: 0,
        cpu_ns: 0,
    });
    thread::scope(|scope| {
        for _ in 0..if row.beside == Beside::Hogs { cpus() } else { 0 } {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    work(100);
                }
            });
        }
        for _ in 0..row.threads {
            scope.spawn(|| {
                let (mut waits, mut calls) = (histogram(), 0);
                start.wait();
                let before = cpu_ns();
                while !stop.load(Relaxed) {
                    let asked = Instant::now();
                    lock.with(|number| {
                        let waited = asked.elapsed().as_nanos() as u64;
                        waits.record(waited).expect("the histogram grows");
                        *number += 1;
                        work(steps);
                    });
                    work(steps);
                    calls += 1;
                }
                let used = cpu_ns() - before;
                let mut sum = sum.lock().expect("no thread panics");
                sum.waits.add(waits).expect("the histograms have the same digits");
                sum.calls += calls;
                sum.cpu_ns += used;
            });
        }
        start.wait();
        thread::sleep(TIME);
        stop.store(true, Relaxed);
    });
    sum.into_inner().expect("no thread panics")
}

/// A lock and its measurement.
type Contestant = (&'static str, fn(&Row, u64) -> Round);

const CONTESTANTS: &[Contestant] = &[
    ("holdfast", measure::<holdfast::Mutex<u64>>),
    ("std", measure::<std::sync::Mutex<u64>>),
    ("parking_lot", measure::<parking_lot::Mutex<u64>>),
    ("usync", measure::<usync::Mutex<u64>>),
    ("pthread", measure::<Pthread<false>>),
    ("pthread, adaptive", measure::<Pthread<true>>),
    ("spin", measure::<spin::Mutex<u64>>),
    ("mcslock", measure::<mcslock::raw::spins::Mutex<u64>>),
];

const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

fn rows() -> Vec<Row> {
    let plain = [
        (2, 100),
        (4, 100),
        (16, 100),
        (4, 1000),
        (16, 1000),
        (64, 1000),
        (16, 5000),
    ];
    let plain = plain.map(|(threads, section_ns)| (threads, section_ns, Beside::Nothing));
    let others = [
        (4, 1000, Beside::Hogs),
        (4, 1000, Beside::Quota),
        (16, 1000, Beside::Quota),
    ];
    let row = |&(threads, section_ns, beside)| Row {
        threads,
        section_ns,
        beside,
    };
    plain.iter().chain(&others).map(row).collect()
}

fn main() {
    let arguments = circumstances::Arguments::read(5);
    let facts = circumstances::describe();
    let mut runs: String = facts.lines().map(|line| format!("# {line}\n")).collect();
    runs += "row,lock,round,calls,cpu_ns_per_call,p50_ns,p90_ns,p99_ns,p99.9_ns,p99.99_ns\n";
    println!("{facts}");
    let steps_per_us = steps_per_us();
    for row in rows().iter().filter(|row| arguments.takes(&row.name())) {
        let quota = (row.beside == Beside::Quota).then(|| Quota::of(cpus() as f64 / 2.0));
        if let Some(Err(error)) = &quota {
            println!("SKIPPED: {}: {error}", row.name());
            continue;
        }
        let steps = (row.section_ns as f64 * steps_per_us / 1000.0) as u64;
        let mut rounds: Vec<Vec<Round>> = CONTESTANTS.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds {
            for (rounds, (_, measure)) in rounds.iter_mut().zip(CONTESTANTS) {
                rounds.push(measure(row, steps));
            }
        }
        drop(quota);
        println!(
            "\n| {} | calls/s | CPU, ns/call | p50 | p90 | p99 | p99.9 | p99.99 |",
            row.name()
        );
        println!("|---|---|---|---|---|---|---|---|");
        for (rounds, (name, _)) in rounds.iter().zip(CONTESTANTS) {
            print_lock(row, name, rounds, &mut runs);
        }
    }
    arguments.write(&runs);
}

fn print_lock(row: &Row, name: &str, rounds: &[Round], runs: &mut String) {
    let mut all = Histogram::<u64>::new(3).expect("three digits are possible");
    let (mut calls, mut cpu_ns) = (0, 0);
    for (number, round) in rounds.iter().enumerate() {
        let used = round.cpu_ns / round.calls.max(1);
        *runs += &format!("\"{}\",\"{name}\",{number},{},{used}", row.name(), round.calls);
        for percentile in PERCENTILES {
            *runs += &format!(",{}", round.waits.value_at_percentile(percentile));
        }
        *runs += "\n";
        all.add(&round.waits).expect("the histograms have the same digits");
        calls += round.calls;
        cpu_ns += round.cpu_ns;
    }
    let per_second = calls as f64 / (rounds.len() as f64 * 0.1);
    print!("| {name} | {per_second:.3e} | {}", cpu_ns / calls.max(1));
    for percentile in PERCENTILES {
        print!(" | {}", all.value_at_percentile(percentile));
    }
    println!(" |");
}
