//! Counts how often a thread is preempted while it holds a lock, without and with the time slice extension.
//!
//! Usage: `slices [SECTIONS [MICROSECONDS]]`. A thread takes the lock SECTIONS times, holds it for so many microseconds
//! each time, and works for half as long in between. It shares one CPU with a thread that only computes. If that one
//! has run between lock and unlock, the holder was preempted. Without the extension the second half is SKIPPED, with
//! exit status 77. `slice-extension/check` runs it where the kernel has it.

#![expect(unsafe_code, reason = "confines the process to one CPU; unlocks")]

use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Instant;

use holdfast_threads::{Extended, RawHybrid, has_restartable_sequences, has_slice_extension};
use lock_api_04::RawMutex;

/// What the other thread has done.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Computes: calls no system, reads no clock.
fn compute(rounds: u64) {
    for round in 0..rounds {
        black_box(round);
    }
}

/// Returns how many rounds take a microsecond.
fn rounds_per_us() -> u64 {
    const ROUNDS: u64 = 20_000;
    let fastest = (0..20).map(|_| {
        let start = Instant::now();
        compute(ROUNDS);
        start.elapsed().as_nanos()
    });
    let ns = fastest.min().unwrap_or(1).max(1);
    (u128::from(ROUNDS) * 1000 / ns).max(1) as u64
}

/// How often the other thread has run within a section, and between two of them.
#[derive(Debug, Default)]
struct Preempted {
    inside: u32,
    outside: u32,
}

fn take<R: RawMutex>(sections: u32, rounds: u64) -> Preempted {
    let lock = R::INIT;
    let mut preempted = Preempted::default();
    let mut left = STEPS.load(Relaxed);
    for _ in 0..sections {
        lock.lock();
        let entered = STEPS.load(Relaxed);
        compute(rounds);
        let leaving = STEPS.load(Relaxed);
        // SAFETY: just locked.
        unsafe { lock.unlock() };
        preempted.inside += u32::from(leaving != entered);
        preempted.outside += u32::from(entered != left);
        left = leaving;
        compute(rounds / 2);
    }
    preempted
}

/// Runs `take` next to a thread that only computes.
fn beside<T>(take: impl FnOnce() -> T) -> T {
    static DONE: AtomicBool = AtomicBool::new(false);
    DONE.store(false, Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !DONE.load(Relaxed) {
                STEPS.fetch_add(1, Relaxed);
            }
        });
        let taken = take();
        DONE.store(true, Relaxed);
        taken
    })
}

/// Confines this process to the first CPU.
#[cfg(target_os = "linux")]
fn confine() {
    // SAFETY: a set of CPUs is bits, all of which may be 0.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is below the capacity of the set.
    unsafe { libc::CPU_SET(0, &mut set) };
    // SAFETY: `set` is a local variable of that size.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    assert_eq!(failed, 0, "cannot run on the first CPU");
}

#[cfg(not(target_os = "linux"))]
fn confine() {}

/// Returns how many bytes of the rseq area the kernel uses, or 0.
fn area_bytes() -> u64 {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is passed. `AT_RSEQ_FEATURE_SIZE` is 27.
    let bytes = unsafe { libc::getauxval(27) };
    #[cfg(not(target_os = "linux"))]
    let bytes = 0;
    bytes
}

/// Returns the kernel's counts of the extension since it started, each with its name; none if it does not show them.
fn counts() -> Vec<(String, u64)> {
    let stats = fs::read_to_string("/sys/kernel/debug/rseq/stats").unwrap_or_default();
    let count = |line: &str| {
        let (name, count) = line.split_once(':')?;
        let ours = matches!(name, "sgrant" | "sexpir" | "srevok" | "syield" | "sabort");
        ours.then_some((name.to_owned(), count.trim().parse().ok()?))
    };
    stats.lines().filter_map(count).collect()
}

fn main() -> ExitCode {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sections = numbers.first().copied().unwrap_or(20_000);
    let microseconds = numbers.get(1).copied().unwrap_or(20);
    confine();
    println!(
        "the kernel's rseq area: {} bytes; restartable sequences: {}; time slice extension: {}",
        area_bytes(),
        has_restartable_sequences(),
        has_slice_extension()
    );
    let rounds = rounds_per_us() * u64::from(microseconds);
    let report = |name: &str, preempted: Preempted| {
        println!(
            "{name}: {sections} sections of {microseconds} us, {} preempted inside, {} outside",
            preempted.inside, preempted.outside
        );
    };
    report("without", beside(|| take::<RawHybrid>(sections, rounds)));
    if !has_slice_extension() {
        println!("SKIPPED: the kernel or the C library has no time slice extension");
        return ExitCode::from(77);
    }
    let before = counts();
    report("with", beside(|| take::<Extended<RawHybrid>>(sections, rounds)));
    for ((name, after), (_, before)) in counts().iter().zip(&before) {
        println!("  {name} {}", after - before);
    }
    ExitCode::SUCCESS
}
