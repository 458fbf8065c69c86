//! The assignment of CPU numbers to threads.
//!
//! A thread takes a number when it first finds a lock taken, and gives it back when it ends. Numbers are dense: a
//! thread takes the lowest free one.
//!
//! **One thread per number**: a thread takes a number by setting its bit in [`TAKEN`], which only one thread can do.
//! The thread's last destructor gives it back. That destructor belongs to C's thread-specific data, not Rust's: it runs
//! later, and runs again if another destructor took a number again.

use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::CpuId;

use crate::exit;

/// The number of threads that can have CPU numbers at the same time.
pub const CPUS_MAX: u32 = 4096;

/// A bit for each number in use.
static TAKEN: [AtomicU64; CPUS_MAX as usize / 64] = [const { AtomicU64::new(0) }; CPUS_MAX as usize / 64];

thread_local! {
    /// This thread's number + 1, or 0 if it has none. It has no destructor, so that it also works in destructors.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Returns the number of the calling thread, which takes one if it has none.
///
/// # Panics
/// If [`CPUS_MAX`] other threads have numbers.
#[inline]
pub(crate) fn current() -> CpuId {
    match CURRENT.get() {
        0 => register(),
        number => CpuId(number - 1),
    }
}

#[cold]
fn register() -> CpuId {
    for (index, bits) in TAKEN.iter().enumerate() {
        // ORDERING: Relaxed; `take` confirms it.
        let mut seen = bits.load(Relaxed);
        while seen != u64::MAX {
            let cpu = CpuId(index as u32 * 64 + seen.trailing_ones());
            if take(cpu) {
                adopt(cpu);
                return cpu;
            }
            seen = bits.load(Relaxed);
        }
    }
    panic!("cannot give this thread a CPU number: {CPUS_MAX} threads that have not ended have them all");
}

/// The reason why a thread cannot have the CPU number that it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The number is not below [`CPUS_MAX`].
    OutOfRange(CpuId),
    /// Another thread has this number.
    InUse(CpuId),
    /// The calling thread already has this number.
    AlreadyCpu(CpuId),
}

impl core::fmt::Display for ClaimError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cannot give this thread the CPU number that it asked for: ")?;
        match self {
            ClaimError::OutOfRange(cpu) => write!(f, "expected less than {CPUS_MAX}, found {}", cpu.0),
            ClaimError::InUse(cpu) => write!(f, "another thread is CPU {}", cpu.0),
            ClaimError::AlreadyCpu(cpu) => write!(f, "it is already CPU {}", cpu.0),
        }
    }
}

impl core::error::Error for ClaimError {}

/// Gives the calling thread the number `cpu`. Benchmarks and tests use it to choose which thread is which CPU.
///
/// # Errors
/// If the number is too large or in use, or the thread already has a number; see [`ClaimError`].
pub fn claim(cpu: CpuId) -> Result<(), ClaimError> {
    if cpu.0 >= CPUS_MAX {
        return Err(ClaimError::OutOfRange(cpu));
    }
    if let Some(number) = CURRENT.get().checked_sub(1) {
        return Err(ClaimError::AlreadyCpu(CpuId(number)));
    }
    if !take(cpu) {
        return Err(ClaimError::InUse(cpu));
    }
    adopt(cpu);
    Ok(())
}

fn bit(cpu: CpuId) -> (&'static AtomicU64, u64) {
    (&TAKEN[cpu.0 as usize / 64], 1 << (cpu.0 % 64))
}

/// Takes a number if it is free. Returns whether it was taken.
fn take(cpu: CpuId) -> bool {
    let (bits, bit) = bit(cpu);
    // ORDERING: Acquire; pairs with the Release in `give_back`, after which the previous owner no longer uses the queue
    // nodes.
    bits.fetch_or(bit, Acquire) & bit == 0
}

/// Gives the number, which must have been taken, to the calling thread.
fn adopt(cpu: CpuId) {
    exit::give_back_at_exit(cpu);
    CURRENT.set(cpu.0 + 1);
}

/// Frees the number of the calling thread, which may take one again.
pub(crate) fn give_back(cpu: CpuId) {
    CURRENT.set(0);
    let (bits, bit) = bit(cpu);
    // ORDERING: Release; pairs with the Acquire in `take`.
    bits.fetch_and(!bit, Release);
}
