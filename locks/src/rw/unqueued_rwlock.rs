//! Reader-writer lock without a queue: Linux's on x86 until 3.15 (`arch_rwlock_t`, `read_lock` and `write_lock`). Its
//! ports to 32-bit Arm and PowerPC still have locks of this kind.
//!
//! ```text
//!  31           20 19            0
//! +---------------+---------------+
//! | writers       | readers       |
//! +---------------+---------------+
//! ```
//!
//! A CPU adds itself first and looks afterwards. If the lock is taken, it subtracts itself again, waits until the word
//! looks free, and repeats. So the word also counts CPUs that try, and all waiters spin on one cache line.
//!
//! - **Exclusion**: a writer holds the lock if its addition found a zero word. A reader holds it if its addition found
//!   no writer. A holder stays counted until it unlocks: a writer's addition that comes later finds it, and so does a
//!   reader's if the holder is a writer.
//! - **No order**: readers overtake a waiting writer without end, and any CPU may overtake any waiter. A writer that
//!   tries makes readers that arrive at this moment try again.
//! - **Word untouched after release**: the release is one addition.
//!
//! Linux counts down from a bias, which needs the same instructions. The word has room for 2048 CPUs, as Linux's has up
//! to that number of CPUs. Deliberately missing: trying without waiting, which the kernel here never does.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::platform::{Platform, Word, wait_for};
use crate::cpu::steps::{AllSteps, Steps, unless_omitted};
use crate::raw::RawRwlock;

const READER: u32 = 1;
const WRITER: u32 = 1 << 20;

/// A reader-writer lock of one word, for up to [`UnqueuedRwlock::CPUS_MAX`] CPUs. `S` is the steps that it takes.
pub struct UnqueuedRwlock<W, S = AllSteps> {
    word: W,
    steps: PhantomData<fn() -> S>,
}

impl<W, S> UnqueuedRwlock<W, S> {
    /// The most CPUs that may use one lock: as many can try to write it at the same time.
    pub const CPUS_MAX: u32 = 2048;

    /// Makes a lock of `word`, which must be zero. Usable in a `static`.
    pub const fn from_word(word: W) -> Self {
        UnqueuedRwlock {
            word,
            steps: PhantomData,
        }
    }

    /// Makes an unlocked lock.
    pub fn new() -> Self
    where
        W: Word<u32>,
    {
        Self::from_word(W::new(0))
    }

    /// Returns the word of the state, by which tracepoints name the lock. The caller must not write it.
    pub fn word(&self) -> &W {
        &self.word
    }
}

impl<P: Platform, S: Steps> RawRwlock<P> for UnqueuedRwlock<P::Word, S> {
    fn unlocked() -> Self {
        Self::new()
    }

    #[inline]
    fn lock_shared(&self, cpu: &P) {
        if !add::<P, S>(cpu, &self.word, READER, is_unwritten) {
            wait::<P, S>(cpu, &self.word, READER, is_unwritten);
        }
    }

    #[inline]
    fn unlock_shared(&self, cpu: &P) {
        release::<P, S>(cpu, &self.word, READER);
    }

    #[inline]
    fn lock_exclusive(&self, cpu: &P) {
        if !add::<P, S>(cpu, &self.word, WRITER, is_free) {
            wait::<P, S>(cpu, &self.word, WRITER, is_free);
        }
    }

    #[inline]
    fn unlock_exclusive(&self, cpu: &P) {
        release::<P, S>(cpu, &self.word, WRITER);
    }

    fn is_locked(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        !is_free(cpu.load(&self.word, Relaxed))
    }
}

fn is_free(word: u32) -> bool {
    word == 0
}

fn is_unwritten(word: u32) -> bool {
    word < WRITER
}

/// Adds `share` to the word. Returns whether the word was as `wanted` before, so that the share holds the lock.
#[inline]
fn add<P: Platform, S: Steps>(cpu: &P, word: &P::Word, share: u32, wanted: fn(u32) -> bool) -> bool {
    // ORDERING: Acquire; pairs with the Release in `release`, so that earlier critical sections are seen. The additions
    // of CPUs that only tried lie in between and continue the release.
    wanted(cpu.fetch_add(word, share, unless_omitted(S::LOCK_ACQUIRE, Acquire)))
}

/// Waits for the lock, after an addition in vain, until this CPU's `share` holds it.
#[cold]
fn wait<P: Platform, S: Steps>(cpu: &P, word: &P::Word, share: u32, wanted: fn(u32) -> bool) {
    cpu.contention_begin(word);
    loop {
        if S::TAKE_BACK {
            // ORDERING: Relaxed; the share held nothing.
            cpu.fetch_add(word, share.wrapping_neg(), Relaxed);
        }
        // ORDERING: Relaxed; only a hint when to try.
        wait_for(cpu, word, Relaxed, wanted);
        if add::<P, S>(cpu, word, share, wanted) {
            break;
        }
    }
    cpu.contention_end(word);
}

#[inline]
fn release<P: Platform, S: Steps>(cpu: &P, word: &P::Word, share: u32) {
    // ORDERING: Release; pairs with the Acquire of the next holder: it must see what this writer wrote, and must not
    // change what this reader reads.
    cpu.fetch_add(word, share.wrapping_neg(), unless_omitted(S::UNLOCK_RELEASE, Release));
}

impl<W: Word<u32>, S> Default for UnqueuedRwlock<W, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W, S> fmt::Debug for UnqueuedRwlock<W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnqueuedRwlock").finish_non_exhaustive()
    }
}
