//! The assignment of CPU numbers to threads.
//!
//! A thread takes a number when it first queues for a lock, and gives it back when it ends. Numbers are dense: a thread
//! takes the lowest free one. If there is none, the thread waits without a number: it does not enter queues, and
//! spins and yields instead of halting.
//!
//! **One thread per number**: a thread takes a number by setting its bit in [`TAKEN`], which only one thread can do.
//! The thread's last destructor gives it back (but see `exit.rs`). That destructor belongs to C's thread-specific data,
//! not Rust's: it runs later, and runs again if another destructor took a number again.
//!
//! A copy of this code that uses the state of another one ([`crate::process`]) asks that one for the number.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_locks::{CpuId, Layout, Narrow};

use crate::os;
use crate::process::{LINES_MAX, process};

/// The number of threads that can have CPU numbers at the same time. A lock word has room for 16383, and this is a
/// multiple of 64.
pub const CPUS_MAX: u32 = 16_320;

const _: () = assert!(CPUS_MAX.is_multiple_of(64) && CPUS_MAX <= Narrow::CPUS_MAX);

/// A bit for each number in use.
pub(crate) static TAKEN: Taken = [const { AtomicU64::new(0) }; CPUS_MAX as usize / 64];

pub(crate) type Taken = [AtomicU64; CPUS_MAX as usize / 64];

/// A number that is larger than all numbers that have been in use.
pub(crate) static END: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// This thread's number + 1, or 0 if it has none. It has no destructor, so that it also works in destructors.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
    /// The number of this thread's line for reads with a bias + 1, or 0 if it has none yet. It stays.
    static LINE: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of the calling thread, which takes one if it has none.
///
/// # Panics
/// If it cannot have one; see [`number`].
#[inline]
pub(crate) fn current() -> CpuId {
    number().expect("a thread without a CPU number should not ask for it")
}

/// Returns the number of the calling thread, which takes one if it has none. Returns `None` if [`CPUS_MAX`] other
/// threads have numbers, or if the C library cannot call a destructor that gives the number back.
#[inline]
pub(crate) fn number() -> Option<CpuId> {
    numbered().or_else(register)
}

/// Returns the number of the calling thread if it has one.
#[inline]
pub(crate) fn numbered() -> Option<CpuId> {
    CURRENT.get().checked_sub(1).map(CpuId)
}

/// Returns a number that is larger than the numbers of all threads that have ever waited.
pub(crate) fn end() -> u32 {
    // ORDERING: Relaxed; a thread stores it before it announces itself on a lock with a Release.
    process().numbers_end.load(Relaxed)
}

#[cold]
fn register() -> Option<CpuId> {
    let process = process();
    if !process.is_own() {
        // Never kept here: the copy that has the state forgets it when the thread ends.
        return (process.number)().checked_sub(1).map(CpuId);
    }
    os::give_back_of_gone_threads();
    for (index, bits) in TAKEN.iter().enumerate() {
        // ORDERING: Relaxed; `take` confirms it.
        let mut seen = bits.load(Relaxed);
        while seen != u64::MAX {
            let cpu = CpuId(index as u32 * 64 + seen.trailing_ones());
            if take(cpu) {
                return adopt(cpu).then_some(cpu);
            }
            seen = bits.load(Relaxed);
        }
    }
    None
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
    /// The C library cannot give this number back when the thread ends: all keys for thread-specific data are in use.
    NoKey(CpuId),
}

impl core::fmt::Display for ClaimError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cannot give this thread the CPU number that it asked for: ")?;
        match self {
            ClaimError::OutOfRange(cpu) => write!(f, "expected less than {CPUS_MAX}, found {}", cpu.0),
            ClaimError::InUse(cpu) => write!(f, "another thread is CPU {}", cpu.0),
            ClaimError::AlreadyCpu(cpu) => write!(f, "it is already CPU {}", cpu.0),
            ClaimError::NoKey(cpu) => write!(f, "no thread-specific key is left to give back CPU {}", cpu.0),
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
    let process = process();
    if let Some(number) = (process.numbered)().checked_sub(1) {
        return Err(ClaimError::AlreadyCpu(CpuId(number)));
    }
    if !take(cpu) {
        return Err(ClaimError::InUse(cpu));
    }
    if (process.adopt)(cpu.0) {
        Ok(())
    } else {
        Err(ClaimError::NoKey(cpu))
    }
}

/// [`number`] for all copies of this code: the number + 1, or 0 if the thread cannot have one.
pub(crate) extern "C" fn thread_number() -> u32 {
    number().map_or(0, |cpu| cpu.0 + 1)
}

/// [`numbered`] for all copies of this code, in the same way.
pub(crate) extern "C" fn thread_numbered() -> u32 {
    CURRENT.get()
}

/// [`adopt`] for all copies of this code.
pub(crate) extern "C" fn thread_adopts(cpu: u32) -> bool {
    adopt(CpuId(cpu))
}

/// Returns the number of the calling thread's line for reads with a bias, which stays the same.
pub(crate) extern "C" fn thread_line() -> usize {
    LINE.get().checked_sub(1).unwrap_or_else(|| {
        // Without a number there is no better line than another one.
        let line = number().map_or(0, |cpu| cpu.0 as usize % LINES_MAX);
        LINE.set(line + 1);
        line
    })
}

fn bit(cpu: CpuId) -> (&'static AtomicU64, u64) {
    (&process().numbers[cpu.0 as usize / 64], 1 << (cpu.0 % 64))
}

/// Takes a number if it is free. Returns whether it was taken.
fn take(cpu: CpuId) -> bool {
    let (bits, bit) = bit(cpu);
    // ORDERING: Acquire; pairs with the Release in `give_back`, after which the previous owner no longer uses the queue
    // nodes.
    bits.fetch_or(bit, Acquire) & bit == 0
}

/// Gives the number, which must have been taken, to the calling thread. Returns `false`, and frees the number, if it
/// could not be given back.
fn adopt(cpu: CpuId) -> bool {
    if !os::give_back_at_exit(cpu) {
        give_back(cpu);
        return false;
    }
    CURRENT.set(cpu.0 + 1);
    // ORDERING: Relaxed; see `end`.
    END.fetch_max(cpu.0 + 1, Relaxed);
    true
}

/// Frees the number of the calling thread, which may take one again.
pub(crate) fn give_back(cpu: CpuId) {
    CURRENT.set(0);
    free(cpu);
}

/// Frees a number, whose thread uses it no more.
pub(crate) fn free(cpu: CpuId) {
    let (bits, bit) = bit(cpu);
    // ORDERING: Release; pairs with the Acquire in `take`.
    bits.fetch_and(!bit, Release);
}

/// Frees all numbers but `mine`: the other threads do not exist in this process.
#[cfg(target_os = "linux")]
pub(crate) fn abandon_all_but(mine: Option<CpuId>) {
    for (bits, first) in TAKEN.iter().zip((0..).step_by(64)) {
        let kept = mine.and_then(|cpu| cpu.0.checked_sub(first)).filter(|&bit| bit < 64);
        // ORDERING: Relaxed, here and below; only this thread exists.
        bits.store(kept.map_or(0, |bit| 1 << bit), Relaxed);
    }
    END.store(mine.map_or(0, |cpu| cpu.0 + 1), Relaxed);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::panic::resume_unwind;
    use std::sync::{Barrier, Mutex, PoisonError};
    use std::thread;

    use holdfast_locks::{RawLock, Word};

    use super::*;
    use crate::condvar::RawCondvar;
    use crate::{ThisThread, ThreadWord};

    /// Counts by two threads that cannot have numbers, and one that has. Threads without numbers yield instead of
    /// sleeping. On a busy machine each yield may cost a time slice of another program, so there are few rounds.
    fn count_without_numbers<L: RawLock<ThisThread>>() {
        const ROUNDS: u32 = 64;
        let (word, count) = (&ThreadWord::new(0), &AtomicU32::new(0));
        let together = &Barrier::new(3);
        let work = |numbered: bool| {
            let this = ThisThread::new();
            together.wait();
            for round in 0..ROUNDS {
                L::lock(&this, word);
                let before = count.load(Relaxed);
                if round % 16 == 0 {
                    // Long enough for the waiters to stop spinning, if they can.
                    thread::yield_now();
                    thread::yield_now();
                }
                count.store(before + 1, Relaxed);
                L::unlock(&this, word);
            }
            assert_eq!(numbered, super::numbered().is_some());
            together.wait();
        };
        thread::scope(|scope| {
            let numbered = scope.spawn(move || {
                claim(CpuId(0)).expect("only CPU 0 is free");
                work(true);
            });
            let others = [(); 2].map(|()| scope.spawn(move || work(false)));
            for other in others {
                other.join().expect("threads without a number take the lock");
            }
            numbered.join().expect("a thread with a number takes the lock");
        });
        assert_eq!(count.load(Relaxed), 3 * ROUNDS);
    }

    macro_rules! count_without_numbers {
        ($($(#[$doc:meta])* $raw:ident = $algorithm:ident;)+) => {
            $(count_without_numbers::<holdfast_locks::$algorithm>();)+
        };
    }

    /// Takes the lowest free number, without arranging that it is given back.
    #[cfg(target_os = "linux")]
    pub(crate) fn take_any() -> CpuId {
        let taken = (0..CPUS_MAX)
            .map(CpuId)
            .find(|&cpu| take(cpu))
            .expect("a number is free");
        END.fetch_max(taken.0 + 1, Relaxed);
        taken
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn is_taken(cpu: CpuId) -> bool {
        let (bits, bit) = bit(cpu);
        bits.load(Relaxed) & bit != 0
    }

    /// Runs `body` in a thread of its own, alone among the tests of this binary that use numbers. The threads of `body`
    /// must be joined: only then have they given their numbers back.
    pub(crate) fn with_numbers(body: impl FnOnce() + Send) {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = thread::scope(|scope| scope.spawn(body).join());
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    }

    #[test]
    fn threads_wait_without_numbers_when_all_are_in_use() {
        with_numbers(wait_without_numbers);
    }

    /// Takes all numbers but one.
    fn wait_without_numbers() {
        TAKEN.iter().for_each(|bits| bits.store(u64::MAX, Relaxed));
        TAKEN[0].store(u64::MAX - 1, Relaxed);
        crate::for_each_raw_lock!(count_without_numbers);
        TAKEN[0].store(u64::MAX, Relaxed);
        let unnumbered = || assert_eq!(super::numbered(), None);
        let changed = &RawCondvar::new();
        crate::condvar::tests::take_turns(changed, RawCondvar::wait, RawCondvar::notify_all, unnumbered);
        TAKEN.iter().for_each(|bits| bits.store(0, Relaxed));
    }
}
