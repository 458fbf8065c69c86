//! The types next to those of `std` and `parking_lot`: `cargo bench -p holdfast`. Arguments may be a number of rounds,
//! a part of the names of rows, and a file for the raw figures: `-- 31 condvar raw=runs.csv`. The table and that file
//! name the machine, its load and the commit.
//!
//! All libraries are measured in the same run, round-robin, so that a disturbance hits all alike. Figures are medians
//! over rounds, in nanoseconds. A round of one thread alone takes the least of 50 short samples. The last column is the
//! ratio to the better peer: the larger one of the two ratios to a peer, each of them a median over the ratios of the
//! rounds. (The ratio to the better peer of each round would be above 1 for a lock that is equal to both.) These peers
//! are `std` and `parking_lot`; the column of `absl` is empty if Abseil was not installed.
//!
//! Where the kernel shows the energy of the CPU packages, a second table has it for each call.

mod circumstances;
#[path = "machine/energy.rs"]
mod energy;
mod libraries;

use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_peers::absl;

use libraries::{Absl, Biased, Conditions, Holdfast, Mutexes, Onces, ParkingLot, RwLocks, Std};

/// Returns nanoseconds for each of many calls: the least of several samples, each far shorter than a time slice.
fn each(mut call: impl FnMut()) -> f64 {
    const LOOPS: u32 = 625;
    /// Calls in a turn of the loop. The time of a loop of one call depends on where the compiler has put the loop.
    const CALLS: u32 = 8;
    let sample = |_| {
        let start = Instant::now();
        for _ in 0..LOOPS {
            // Written out, so that the compiler cannot make a loop of it.
            call();
            call();
            call();
            call();
            call();
            call();
            call();
            call();
        }
        start.elapsed().as_nanos() as f64 / f64::from(LOOPS * CALLS)
    };
    (0..50).map(sample).fold(f64::INFINITY, f64::min)
}

/// A lock in cache lines of its own. Next to what the loop keeps on the stack, each library's lock takes up to twice as
/// long, by where the kernel has put the stack.
#[repr(align(128))]
struct Apart<T>(T);

fn mutex_alone<L: Mutexes>() -> f64 {
    let mutex = Apart(L::mutex());
    each(|| L::with(black_box(&mutex.0), |number| *number += 1))
}

fn read_alone<L: RwLocks>() -> f64 {
    let lock = Apart(L::rwlock());
    each(|| {
        black_box(L::read(black_box(&lock.0), |number| *number));
    })
}

fn write_alone<L: RwLocks>() -> f64 {
    let lock = Apart(L::rwlock());
    each(|| L::write(black_box(&lock.0), |number| *number += 1))
}

fn once_done<L: Onces>() -> f64 {
    let once = L::once();
    L::call_once(&once);
    each(|| L::call_once(black_box(&once)))
}

/// A common start of several threads, and the time since the first of them has begun. The main thread may get a CPU
/// long after the others have begun, and long after its sleep is over.
struct Start {
    together: Barrier,
    made: Instant,
    begun_ns: AtomicU64,
}

impl Start {
    fn of(threads: usize) -> Start {
        Start {
            together: Barrier::new(threads),
            made: Instant::now(),
            begun_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// Waits for all threads.
    fn wait(&self) {
        self.together.wait();
        self.begun_ns.fetch_min(self.made.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Returns nanoseconds since the first thread has begun.
    fn elapsed_ns(&self) -> f64 {
        self.made.elapsed().as_nanos() as f64 - self.begun_ns.load(Relaxed) as f64
    }
}

/// Lets `threads` threads call `work` with their own counters for a while. Returns nanoseconds of elapsed time for each
/// call.
fn together(threads: usize, work: impl Fn(u64) + Sync) -> f64 {
    const TIME: Duration = Duration::from_millis(40);
    let (stop, calls, start) = (AtomicBool::new(false), AtomicU64::new(0), Start::of(threads + 1));
    let mut elapsed_ns = 0.0;
    thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (work, stop, calls, start) = (&work, &stop, &calls, &start);
            scope.spawn(move || {
                start.wait();
                let mut done = 0;
                while !stop.load(Relaxed) {
                    work(done + 31 * thread);
                    done += 1;
                }
                calls.fetch_add(done, Relaxed);
            });
        }
        start.wait();
        thread::sleep(TIME);
        stop.store(true, Relaxed);
        elapsed_ns = start.elapsed_ns();
    });
    elapsed_ns / calls.load(Relaxed) as f64
}

/// Some tens of nanoseconds of work.
fn section() {
    for step in 0..100 {
        black_box(step);
    }
}

fn mutex_together<L: Mutexes, const THREADS: usize>() -> f64 {
    let mutex = L::mutex();
    together(THREADS, |_| {
        L::with(&mutex, |number| {
            *number += 1;
            section();
        });
        section();
    })
}

/// [`mutex_together`] next to two threads that only compute.
fn mutex_beside_hogs<L: Mutexes, const THREADS: usize>() -> f64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    section();
                }
            });
        }
        let figure = mutex_together::<L, THREADS>();
        stop.store(true, Relaxed);
        figure
    })
}

/// The public collapse `lock-bench 32 2 10000 100` (parking_lot's issue 437): threads add to two numbers, each of them
/// 10 000 times. Returns nanoseconds for each of its rounds.
fn two_locks<L: Mutexes, const THREADS: usize>() -> f64 {
    let (locks, start) = ([L::mutex(), L::mutex()], Start::of(THREADS));
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (locks, start) = (&locks, &start);
            scope.spawn(move || {
                let mut random = thread + 1;
                start.wait();
                for _ in 0..10_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    L::with(&locks[random as usize % 2], |number| *number += 1);
                }
            });
        }
    });
    start.elapsed_ns()
}

/// The public collapse of parking_lot's pull request 419: multiplications inside and outside of the lock, `WORK` each.
fn iterations<L: Mutexes, const THREADS: usize, const WORK: u64>() -> f64 {
    let mutex = L::mutex();
    let multiply = |number: &mut u64| (0..WORK).for_each(|_| *number = black_box(number.wrapping_mul(0x9e37_79b9) + 1));
    together(THREADS, |call| {
        L::with(&mutex, multiply);
        multiply(&mut { call });
    })
}

/// Threads read and write. `section` is what they do with the lock and, for as long again, without it.
fn readers_with<L: RwLocks>(threads: usize, percent: u64, section: fn()) -> f64 {
    let lock = Apart(L::rwlock());
    together(threads, |call| {
        if call.wrapping_mul(37) % 100 < percent {
            L::read(&lock.0, |number| {
                black_box(*number);
                section();
            });
        } else {
            L::write(&lock.0, |number| {
                *number += 1;
                section();
            });
        }
        section();
    })
}

fn readers<L: RwLocks, const THREADS: usize, const PERCENT: u64>() -> f64 {
    readers_with::<L>(THREADS, PERCENT, section)
}

/// [`readers`] of a number, without further work.
fn short_readers<L: RwLocks, const THREADS: usize, const PERCENT: u64>() -> f64 {
    readers_with::<L>(THREADS, PERCENT, || ())
}

/// Two threads take turns. Returns nanoseconds for each turn.
fn ping_pong<L: Conditions>() -> f64 {
    const TURNS: u64 = 2_000;
    let (mutex, changed) = (L::mutex(), L::condvar());
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..2 {
            let (mutex, changed) = (&mutex, &changed);
            scope.spawn(move || {
                for _ in 0..TURNS / 2 {
                    L::wait(mutex, changed, |turn| *turn % 2 != thread, |turn| *turn += 1);
                    L::notify_one(changed);
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / TURNS as f64
}

/// One thread wakes eight, which it waits for in turn. Returns nanoseconds for each broadcast.
fn broadcast<L: Conditions>() -> f64 {
    const WAITERS: u64 = 8;
    const ROUNDS: u64 = 100;
    let (round, changed, answers, answered) = (L::mutex(), L::condvar(), L::mutex(), L::condvar());
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                for this in 1..=ROUNDS {
                    L::wait(&round, &changed, |round| *round < this, |_| ());
                    if L::with(&answers, |answers| {
                        *answers += 1;
                        *answers == WAITERS * this
                    }) {
                        L::notify_one(&answered);
                    }
                }
            });
        }
        for this in 1..=ROUNDS {
            L::with(&round, |round| *round = this);
            L::notify_all(&changed);
            L::wait(&answers, &answered, |answers| *answers < WAITERS * this, |_| ());
        }
    });
    start.elapsed().as_nanos() as f64 / ROUNDS as f64
}

/// The columns. `biased` is a `BiasedRwLock`.
const LIBRARIES: [&str; 5] = ["std", "parking_lot", "absl", "holdfast", "biased"];
/// The columns that the ratio compares: peers, and ours.
const PEERS: [usize; 2] = [0, 1];
const OURS: usize = 3;

type Measure = Option<fn() -> f64>;

/// A row: its name, and its measurement with each library that has what it measures.
struct Row {
    name: &'static str,
    measure: [Measure; LIBRARIES.len()],
}

/// Returns the measurement if Abseil is installed.
fn if_installed(measure: fn() -> f64) -> Measure {
    absl::INSTALLED.then_some(measure)
}

/// Makes the rows of mutexes and condition variables (`both`), of reader-writer locks and of the rest.
macro_rules! rows {
    ($($of:ident $name:literal: $function:ident $(, $argument:literal)*;)+) => {
        [$(Row {
            name: $name,
            measure: rows!(@$of $function $(, $argument)*),
        }),+]
    };
    (@both $function:ident $(, $argument:literal)*) => {
        [
            Some($function::<Std $(, $argument)*>),
            Some($function::<ParkingLot $(, $argument)*>),
            if_installed($function::<Absl $(, $argument)*>),
            Some($function::<Holdfast $(, $argument)*>),
            None,
        ]
    };
    (@rwlock $function:ident $(, $argument:literal)*) => {
        [
            Some($function::<Std $(, $argument)*>),
            Some($function::<ParkingLot $(, $argument)*>),
            if_installed($function::<Absl $(, $argument)*>),
            Some($function::<Holdfast $(, $argument)*>),
            Some($function::<Biased $(, $argument)*>),
        ]
    };
    (@rest $function:ident $(, $argument:literal)*) => {
        [
            Some($function::<Std $(, $argument)*>),
            Some($function::<ParkingLot $(, $argument)*>),
            None,
            Some($function::<Holdfast $(, $argument)*>),
            None,
        ]
    };
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The figures of one library in one row, of each round: nanoseconds for each call and, if there is a meter,
/// nanojoules.
struct Figures {
    ns: Vec<f64>,
    nj: Vec<f64>,
}

impl Figures {
    const fn new() -> Figures {
        Figures {
            ns: Vec::new(),
            nj: Vec::new(),
        }
    }

    /// Makes one round. The energy for each call is the machine's power in the round times the call's time.
    fn measure(&mut self, measure: Measure, meter: Option<&energy::Meter>) {
        let Some(measure) = measure else { return };
        let read = || meter.and_then(|meter| Some((meter, meter.read()?)));
        let (start, before) = (Instant::now(), read());
        let ns = measure();
        let elapsed_us = start.elapsed().as_micros() as f64;
        self.ns.push(ns);
        if let (Some((meter, before)), Some((_, after))) = (before, read()) {
            self.nj.push(meter.between(&before, &after) as f64 / elapsed_us * ns);
        }
    }
}

/// Returns the medians as cells of a table.
fn cells(figures: &[Figures], of: fn(&Figures) -> &Vec<f64>) -> String {
    let cell = |figures: &Figures| match &of(figures)[..] {
        [] => " |".to_owned(),
        values => format!(" {:.1} |", median(values)),
    };
    figures.iter().map(cell).collect()
}

fn main() {
    let arguments = circumstances::Arguments::read(11);
    let rounds = arguments.rounds;
    let rows = rows! {
        both "mutex, 1 thread": mutex_alone;
        both "mutex, 2 threads": mutex_together, 2;
        both "mutex, 4 threads": mutex_together, 4;
        both "mutex, 16 threads": mutex_together, 16;
        both "mutex, 64 threads": mutex_together, 64;
        both "mutex, 4 threads beside 2 hogs": mutex_beside_hogs, 4;
        both "mutex, 32 threads, 2 locks, 10000 additions each": two_locks, 32;
        both "mutex, 18 threads, 5 iterations in and out": iterations, 18, 5;
        rwlock "rwlock, read, 1 thread": read_alone;
        rwlock "rwlock, write, 1 thread": write_alone;
        rwlock "rwlock, 100 % readers, 2 threads": readers, 2, 100;
        rwlock "rwlock, 95 % readers, 2 threads": readers, 2, 95;
        rwlock "rwlock, 50 % readers, 2 threads": readers, 2, 50;
        rwlock "rwlock, 100 % readers, 4 threads": readers, 4, 100;
        rwlock "rwlock, 95 % readers, 4 threads": readers, 4, 95;
        rwlock "rwlock, 50 % readers, 4 threads": readers, 4, 50;
        rwlock "rwlock, 100 % readers, 2 threads, short": short_readers, 2, 100;
        rwlock "rwlock, 95 % readers, 2 threads, short": short_readers, 2, 95;
        rwlock "rwlock, 100 % readers, 4 threads, short": short_readers, 4, 100;
        both "condvar, ping-pong": ping_pong;
        both "condvar, broadcast to 8": broadcast;
        rest "once, done": once_done;
    };
    let facts = circumstances::describe();
    let meter = energy::Meter::of(Path::new("/sys/class/powercap"));
    let mut runs: String = facts.lines().map(|line| format!("# {line}\n")).collect();
    runs += "row,round";
    runs.extend(LIBRARIES.map(|name| format!(",{name}_ns")));
    if meter.is_some() {
        runs.extend(LIBRARIES.map(|name| format!(",{name}_nj")));
    }
    runs += "\n";
    println!("{facts}\n| {rounds} rounds, ns | {} | ratio |", LIBRARIES.join(" | "));
    println!("|---|{}---|", "---|".repeat(LIBRARIES.len()));
    let mut energies = String::new();
    for row in rows.iter().filter(|row| arguments.takes(row.name)) {
        let mut figures = [const { Figures::new() }; LIBRARIES.len()];
        for round in 0..rounds {
            for (figures, measure) in figures.iter_mut().zip(row.measure) {
                figures.measure(measure, meter.as_ref());
            }
            let last = |of: fn(&Figures) -> &Vec<f64>| {
                let last = |figures: &Figures| of(figures).last().map_or(",".into(), |last| format!(",{last:.1}"));
                figures.iter().map(last).collect::<String>()
            };
            runs += &format!("\"{}\",{round}{}", row.name, last(|figures| &figures.ns));
            if meter.is_some() {
                runs += &last(|figures| &figures.nj);
            }
            runs += "\n";
        }
        let ratio_to = |peer: usize| {
            let ratios = figures[OURS].ns.iter().zip(&figures[peer].ns);
            median(&ratios.map(|(ours, peer)| ours / peer).collect::<Vec<_>>())
        };
        let ratio = PEERS.map(ratio_to).into_iter().fold(0.0, f64::max);
        println!(
            "| {} |{} {ratio:.2} |",
            row.name,
            cells(&figures, |figures| &figures.ns)
        );
        if meter.is_some() {
            energies += &format!("| {} |{}\n", row.name, cells(&figures, |figures| &figures.nj));
        }
    }
    if !energies.is_empty() {
        println!(
            "\n| energy of the CPU packages for each call, nJ | {} |",
            LIBRARIES.join(" | ")
        );
        println!("|---|{}\n{energies}", "---|".repeat(LIBRARIES.len()));
    }
    arguments.write(&runs);
}
