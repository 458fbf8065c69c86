//! Which thread is which CPU.
//!
//! A thread becomes a CPU when it first needs to be one, which is when it first finds a lock taken, and stops when it
//! ends. Numbers are dense: the lowest free one is taken.
//!
//! **One thread per number**: a number is taken by setting its bit in [`TAKEN`], which only one thread can do, and given
//! back by that thread's last destructor. C's thread-specific data is used for that, not Rust's: it runs later, and again
//! if a later destructor took a number anew.

use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::CpuId;

use crate::exit;

/// How many threads can be CPUs at the same time.
pub const CPUS_MAX: u32 = 4096;

/// A bit for each number in use.
static TAKEN: [AtomicU64; CPUS_MAX as usize / 64] = [const { AtomicU64::new(0) }; CPUS_MAX as usize / 64];

thread_local! {
    /// This thread's number + 1, or 0. Without a destructor, so that it works in destructors, too.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// The number of the calling thread, which takes one if it has none.
///
/// # Panics
/// If [`CPUS_MAX`] other threads have one each.
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
    panic!("cannot give this thread a CPU number: all {CPUS_MAX} are in use by threads that still run");
}

/// Why a thread cannot have the number that it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The number is not below [`CPUS_MAX`].
    OutOfRange(CpuId),
    /// Another thread has it.
    InUse(CpuId),
    /// The calling thread already is a CPU, with this number.
    AlreadyCpu(CpuId),
}

impl core::fmt::Display for ClaimError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cannot give this thread the CPU number that it asked for: ")?;
        match self {
            ClaimError::OutOfRange(cpu) => write!(f, "expected less than {CPUS_MAX}, found {}", cpu.0),
            ClaimError::InUse(cpu) => write!(f, "another thread is CPU {}", cpu.0),
            ClaimError::AlreadyCpu(cpu) => write!(f, "it already is CPU {}", cpu.0),
        }
    }
}

impl core::error::Error for ClaimError {}

/// Makes the calling thread CPU `cpu`, for those who want to say which thread is which: for benchmarks and tests.
///
/// # Errors
/// If it cannot be; see [`ClaimError`].
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

/// Takes a number, if nobody has it.
fn take(cpu: CpuId) -> bool {
    let (bits, bit) = bit(cpu);
    // ORDERING: Acquire; pairs with the Release in `give_back`: the last owner's use of the queue nodes is over.
    bits.fetch_or(bit, Acquire) & bit == 0
}

/// Makes the taken number the calling thread's.
fn adopt(cpu: CpuId) {
    exit::give_back_at_exit(cpu);
    CURRENT.set(cpu.0 + 1);
}

/// Ends the calling thread's being a CPU. It may become one again.
pub(crate) fn give_back(cpu: CpuId) {
    CURRENT.set(0);
    let (bits, bit) = bit(cpu);
    // ORDERING: Release; pairs with the Acquire in `take`.
    bits.fetch_and(!bit, Release);
}
