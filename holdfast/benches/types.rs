//! The types next to those of `std` and `parking_lot`: `cargo bench -p holdfast`. Arguments may be a number of rounds,
//! a part of the names of rows, and a file for the raw figures: `-- 31 condvar raw=runs.csv`. The table and that file
//! name the machine, its load and the commit.
//!
//! All libraries are measured in the same run, round-robin, so that a disturbance hits all alike. Figures are medians
//! over rounds, in nanoseconds. A round of one thread alone takes the least of 50 short samples. The last column is the
//! ratio to the better peer: the larger one of the two ratios to a peer, each of them a median over the ratios of the
//! rounds. (The ratio to the better peer of each round would be above 1 for a lock that is equal to both.)

mod circumstances;

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

/// The locks of one library, around a number.
trait Library {
    type Mutex: Sync;
    type RwLock: Sync;
    type Condvar: Sync;
    type Once: Sync;

    fn mutex() -> Self::Mutex;
    fn rwlock() -> Self::RwLock;
    fn condvar() -> Self::Condvar;
    fn once() -> Self::Once;
    fn with<R>(mutex: &Self::Mutex, section: impl FnOnce(&mut u64) -> R) -> R;
    fn read<R>(lock: &Self::RwLock, section: impl FnOnce(&u64) -> R) -> R;
    fn write<R>(lock: &Self::RwLock, section: impl FnOnce(&mut u64) -> R) -> R;
    /// Waits while `condition` holds, then changes the number.
    fn wait(
        mutex: &Self::Mutex,
        changed: &Self::Condvar,
        condition: impl FnMut(&mut u64) -> bool,
        change: impl FnOnce(&mut u64),
    );
    fn notify_one(changed: &Self::Condvar);
    fn notify_all(changed: &Self::Condvar);
    fn call_once(once: &Self::Once);
}

/// Implements [`Library`]. `$guard` makes a guard of what `lock` and its kin return.
macro_rules! library {
    ($name:ident, $root:path, $guard:path, $wait:expr) => {
        struct $name;

        const _: () = {
            use $root as root;

            impl Library for $name {
                type Mutex = root::Mutex<u64>;
                type RwLock = root::RwLock<u64>;
                type Condvar = root::Condvar;
                type Once = once::$name;

                fn mutex() -> Self::Mutex {
                    root::Mutex::new(0)
                }
                fn rwlock() -> Self::RwLock {
                    root::RwLock::new(0)
                }
                fn condvar() -> Self::Condvar {
                    root::Condvar::new()
                }
                fn once() -> Self::Once {
                    once::$name::new()
                }
                #[inline]
                fn with<R>(mutex: &Self::Mutex, section: impl FnOnce(&mut u64) -> R) -> R {
                    let mut guard = $guard(mutex.lock());
                    section(&mut guard)
                }
                #[inline]
                fn read<R>(lock: &Self::RwLock, section: impl FnOnce(&u64) -> R) -> R {
                    let guard = $guard(lock.read());
                    section(&guard)
                }
                #[inline]
                fn write<R>(lock: &Self::RwLock, section: impl FnOnce(&mut u64) -> R) -> R {
                    let mut guard = $guard(lock.write());
                    section(&mut guard)
                }
                fn wait(
                    mutex: &Self::Mutex,
                    changed: &Self::Condvar,
                    mut condition: impl FnMut(&mut u64) -> bool,
                    change: impl FnOnce(&mut u64),
                ) {
                    let mut number = $guard(mutex.lock());
                    while condition(&mut number) {
                        number = $wait(changed, number);
                    }
                    change(&mut number);
                }
                fn notify_one(changed: &Self::Condvar) {
                    changed.notify_one();
                }
                fn notify_all(changed: &Self::Condvar) {
                    changed.notify_all();
                }
                #[inline]
                fn call_once(once: &Self::Once) {
                    once.call_once(|| ());
                }
            }
        };
    };
}

mod once {
    pub use holdfast::Once as Holdfast;
    pub use parking_lot::Once as ParkingLot;
    pub use std::sync::Once as Std;
}

fn unpoisoned<G>(guard: std::sync::LockResult<G>) -> G {
    guard.expect("no section panics")
}

library!(Std, std::sync, unpoisoned, |changed: &std::sync::Condvar, number| {
    unpoisoned(changed.wait(number))
});
library!(
    ParkingLot,
    parking_lot,
    std::convert::identity,
    |changed: &parking_lot::Condvar, mut number| {
        changed.wait(&mut number);
        number
    }
);
library!(
    Holdfast,
    holdfast,
    std::convert::identity,
    |changed: &holdfast::Condvar, mut number| {
        changed.wait(&mut number);
        number
    }
);

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

fn mutex_alone<L: Library>() -> f64 {
    let mutex = Apart(L::mutex());
    each(|| L::with(black_box(&mutex.0), |number| *number += 1))
}

fn read_alone<L: Library>() -> f64 {
    let lock = Apart(L::rwlock());
    each(|| {
        black_box(L::read(black_box(&lock.0), |number| *number));
    })
}

fn write_alone<L: Library>() -> f64 {
    let lock = Apart(L::rwlock());
    each(|| L::write(black_box(&lock.0), |number| *number += 1))
}

fn once_done<L: Library>() -> f64 {
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

fn mutex_together<L: Library, const THREADS: usize>() -> f64 {
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
fn mutex_beside_hogs<L: Library, const THREADS: usize>() -> f64 {
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
fn two_locks<L: Library, const THREADS: usize>() -> f64 {
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
fn iterations<L: Library, const THREADS: usize, const WORK: u64>() -> f64 {
    let mutex = L::mutex();
    let multiply = |number: &mut u64| (0..WORK).for_each(|_| *number = black_box(number.wrapping_mul(0x9e37_79b9) + 1));
    together(THREADS, |call| {
        L::with(&mutex, multiply);
        multiply(&mut { call });
    })
}

fn readers<L: Library, const THREADS: usize, const PERCENT: u64>() -> f64 {
    let lock = L::rwlock();
    together(THREADS, |call| {
        if call.wrapping_mul(37) % 100 < PERCENT {
            L::read(&lock, |number| {
                black_box(*number);
                section();
            });
        } else {
            L::write(&lock, |number| {
                *number += 1;
                section();
            });
        }
        section();
    })
}

/// Two threads take turns. Returns nanoseconds for each turn.
fn ping_pong<L: Library>() -> f64 {
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
fn broadcast<L: Library>() -> f64 {
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

/// A row: its name, and its measurement with each library.
struct Row {
    name: &'static str,
    measure: [fn() -> f64; 3],
}

macro_rules! rows {
    ($($name:literal: $function:ident $(, $argument:literal)*;)+) => {
        [$(Row {
            name: $name,
            measure: [
                $function::<Std $(, $argument)*>,
                $function::<ParkingLot $(, $argument)*>,
                $function::<Holdfast $(, $argument)*>,
            ],
        }),+]
    };
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments = circumstances::Arguments::read(11);
    let rounds = arguments.rounds;
    let rows = rows! {
        "mutex, 1 thread": mutex_alone;
        "mutex, 2 threads": mutex_together, 2;
        "mutex, 4 threads": mutex_together, 4;
        "mutex, 16 threads": mutex_together, 16;
        "mutex, 64 threads": mutex_together, 64;
        "mutex, 4 threads beside 2 hogs": mutex_beside_hogs, 4;
        "mutex, 32 threads, 2 locks, 10000 additions each": two_locks, 32;
        "mutex, 18 threads, 5 iterations in and out": iterations, 18, 5;
        "rwlock, read, 1 thread": read_alone;
        "rwlock, write, 1 thread": write_alone;
        "rwlock, 100 % readers, 2 threads": readers, 2, 100;
        "rwlock, 95 % readers, 2 threads": readers, 2, 95;
        "rwlock, 50 % readers, 2 threads": readers, 2, 50;
        "rwlock, 100 % readers, 4 threads": readers, 4, 100;
        "rwlock, 95 % readers, 4 threads": readers, 4, 95;
        "rwlock, 50 % readers, 4 threads": readers, 4, 50;
        "condvar, ping-pong": ping_pong;
        "condvar, broadcast to 8": broadcast;
        "once, done": once_done;
    };
    let facts = circumstances::describe();
    let mut runs: String = facts.lines().map(|line| format!("# {line}\n")).collect();
    runs += "row,round,std_ns,parking_lot_ns,holdfast_ns\n";
    println!("{facts}\n| {rounds} rounds, ns | std | parking_lot | holdfast | ratio |");
    println!("|---|---|---|---|---|");
    for row in rows.iter().filter(|row| arguments.takes(row.name)) {
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (figures, measure) in figures.iter_mut().zip(row.measure) {
                figures.push(measure());
            }
        }
        let [std, parking_lot, ours] = &figures;
        for round in 0..rounds {
            let [std, parking_lot, ours] = [std[round], parking_lot[round], ours[round]];
            runs += &format!("\"{}\",{round},{std:.1},{parking_lot:.1},{ours:.1}\n", row.name);
        }
        let ratio_to = |peer: &[f64]| {
            let ratios: Vec<f64> = ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect();
            median(&ratios)
        };
        let ratio = ratio_to(std).max(ratio_to(parking_lot));
        let [std, parking_lot, ours] = [std, parking_lot, ours].map(|figures| median(figures));
        println!(
            "| {} | {std:.1} | {parking_lot:.1} | {ours:.1} | {ratio:.2} |",
            row.name
        );
    }
    arguments.write(&runs);
}
