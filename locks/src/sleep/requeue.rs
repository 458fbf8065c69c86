//! Condition variables over the kernel's queues of sleepers (Linux: `futex(2)`), for callers who may free one as soon
//! as they have notified its waiters.
//!
//! | word | |
//! |---|---|
//! | `sequence` | counts notifications; waiters sleep on it |
//! | `waiters` | see below |
//! | `mutex` | the key of the waiters' mutex, 0 before the first wait, or [`MIXED`] |
//!
//! ```text
//!  31        24 23              2     1          0
//! +------------+-----------------+----------+-----------+
//! | generation | waiters         | requeues | destroyed |
//! +------------+-----------------+----------+-----------+
//! ```
//!
//! - **No lost notification**: a waiter reads `sequence` and counts itself before it unlocks the mutex. So a CPU that
//!   changes the condition with the mutex held, and then notifies, finds the waiter, and changes the value on which it
//!   goes to sleep.
//! - **Few at a time**: a broadcast to many wakes as many waiters as can run, and moves the others to the mutex's
//!   queue, without waking them. Each waiter that was woken there or here wakes the next one when it has got the mutex
//!   (**Chain**). So no crowd runs for a mutex that only one of them can have.
//! - **Chain**: while CPUs sleep in a mutex's queue, a woken waiter has yet to get the mutex. A broadcast moves CPUs
//!   only if it wakes some as well, and the kernel does both at once.
//! - **Last access**: a waiter counts itself out before it locks the mutex, and then knows the mutex only. So
//!   [`RequeueCondvar::destroy`] need not wait for the mutex, which its caller may hold.
//! - **Generation**: the child of a process that forks has none of the waiters that its memory counts. It has another
//!   generation, in which they do not count.
//!
//! The notification is lost if a waiter is stopped between its unlock and its sleep for exactly 2^32 notifications.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::platform::{Platform, Word};
use crate::cpu::steps::{AllSteps, Steps};

/// A CPU whose kernel has a queue of sleepers for each key of a word.
///
/// The operations on queues have a total order. What a CPU wrote before one of them is visible after a later one of
/// another CPU, and after a wakeup.
pub trait Futexes: Platform {
    /// Sleeps in the queue of `word` if it holds `value`. Returns whether the caller was woken from a queue. May return
    /// `false` at any time.
    fn sleep(&self, word: &Self::Word, value: u32) -> bool;
    /// Wakes up to `count` CPUs that sleep in the queue of `key`, those first that have slept for longest.
    fn wake(&self, key: usize, count: u32);
    /// [`wake`](Futexes::wake) for the key of a word that still exists.
    fn wake_word(&self, word: &Self::Word, count: u32) {
        self.wake(self.key(word), count);
    }
    /// Wakes up to `count` CPUs that sleep in the queue of `word`, and moves the others to the queue of `key`, if
    /// `word` holds `value`. Returns whether it did.
    fn requeue(&self, word: &Self::Word, value: u32, count: u32, key: usize) -> bool;
    /// Returns the process's generation: a child of a process that forks has the next one.
    fn generation(&self) -> u8 {
        0
    }
}

const DESTROYED: u32 = 1;
const REQUEUES: u32 = 1 << 1;
const ONE: u32 = 1 << 2;
const COUNT: u32 = 0x00ff_fffc;
const GENERATION_SHIFT: u32 = 24;

/// Stands for a mutex's key if CPUs have waited with several mutexes. Then a broadcast wakes all of them, because their
/// progress must not depend on one mutex. No word has this key, since words are aligned.
const MIXED: usize = u32::MAX as usize;

/// A condition variable. `S` are the steps that it takes.
pub struct RequeueCondvar<W, A, S = AllSteps> {
    sequence: W,
    waiters: W,
    mutex: A,
    algorithm: PhantomData<fn() -> S>,
}

impl<W, A, S> RequeueCondvar<W, A, S> {
    /// Makes a condition variable of words, which must be zero. Usable in a `static`.
    pub const fn from_words(sequence: W, waiters: W, mutex: A) -> Self {
        RequeueCondvar {
            sequence,
            waiters,
            mutex,
            algorithm: PhantomData,
        }
    }

    /// Returns the words, which the caller must not write: the one on which waiters sleep, their number, the mutex.
    pub fn words(&self) -> (&W, &W, &A) {
        (&self.sequence, &self.waiters, &self.mutex)
    }
}

impl<W, A, S: Steps> RequeueCondvar<W, A, S> {
    /// Waits with the mutex of `key`, which the caller holds. `unlock` releases it, `sleep` sleeps as
    /// [`Futexes::sleep`] does, and `lock` takes the mutex again.
    pub fn wait<P: Futexes<Word = W, Address = A>>(
        &self,
        cpu: &P,
        key: usize,
        unlock: impl FnOnce(),
        sleep: impl FnOnce(&W, u32) -> bool,
        lock: impl FnOnce(),
    ) {
        let enters = || self.enter(cpu, key);
        let value = if S::ENLIST_FIRST {
            let value = enters();
            unlock();
            value
        } else {
            unlock();
            enters()
        };
        let woken = sleep(&self.sequence, value);
        let passes = self.leave(cpu) && woken;
        lock();
        if passes {
            self.pass_on(cpu, key);
        }
    }

    /// Counts the caller as a waiter with the mutex of `key`, which it holds. Returns the value to sleep on: **No lost
    /// notification**. A caller that uses this instead of [`wait`](Self::wait) must call [`leave`](Self::leave).
    pub fn enter<P: Futexes<Word = W, Address = A>>(&self, cpu: &P, key: usize) -> u32 {
        // ORDERING: Relaxed, all; the mutex orders waiters with it. A waiter with another mutex only decides that there
        // are several.
        let known = cpu.load_address(&self.mutex, Relaxed);
        if known != key {
            let first = known == 0
                && cpu
                    .compare_exchange_address(&self.mutex, 0, key, Relaxed, Relaxed)
                    .is_ok();
            if !first && cpu.load_address(&self.mutex, Relaxed) != MIXED {
                cpu.store_address(&self.mutex, MIXED, Relaxed);
                // A broadcast under way that knows one mutex must look again.
                cpu.fetch_add(&self.sequence, 1, Relaxed);
            }
        }
        let mine = u32::from(cpu.generation()) << GENERATION_SHIFT;
        // ORDERING: Relaxed, here and below: **No lost notification**, by the mutex.
        let mut seen = cpu.load(&self.waiters, Relaxed);
        loop {
            let kept = if seen & !(COUNT | REQUEUES | DESTROYED) == mine {
                seen
            } else {
                seen & REQUEUES | mine
            };
            match cpu.compare_exchange(&self.waiters, seen, kept + ONE, Relaxed, Relaxed) {
                Ok(_) => return cpu.load(&self.sequence, Relaxed),
                Err(now) => seen = now,
            }
        }
    }

    /// Counts the caller out: **Last access**. Returns whether it must call [`pass_on`](Self::pass_on) once it has got
    /// the mutex, if it was woken.
    pub fn leave<P: Futexes<Word = W, Address = A>>(&self, cpu: &P) -> bool {
        let key = cpu.key(&self.waiters);
        // ORDERING: Release; pairs with the Acquire in `destroy`: the memory may be freed then. A broadcast that has
        // moved the caller has set `REQUEUES` before, and the kernel's queues order the two.
        let before = cpu.fetch_add(&self.waiters, ONE.wrapping_neg(), Release);
        if before & DESTROYED != 0 && before & COUNT == ONE && S::LEAVE_RECHECK {
            cpu.wake(key, u32::MAX);
        }
        before & REQUEUES != 0
    }

    /// Wakes the next CPU in the queue of the mutex, which the caller holds: **Chain**.
    pub fn pass_on<P: Futexes<Word = W, Address = A>>(&self, cpu: &P, key: usize) {
        pass_on::<P, S>(cpu, key);
    }

    /// Returns how many CPUs wait.
    fn count<P: Futexes<Word = W, Address = A>>(&self, cpu: &P) -> u32 {
        // ORDERING: Relaxed; **No lost notification**: the mutex orders it.
        present(cpu, cpu.load(&self.waiters, Relaxed))
    }

    /// Notifies one waiter. Returns `false` if no CPU waits.
    pub fn notify_one<P: Futexes<Word = W, Address = A>>(&self, cpu: &P) -> bool {
        if self.count(cpu) == 0 {
            return false;
        }
        // ORDERING: Relaxed; the kernel orders it with the sleeps.
        cpu.fetch_add(&self.sequence, 1, Relaxed);
        if S::KICK {
            cpu.wake_word(&self.sequence, 1);
        }
        true
    }

    /// Notifies all waiters, of which `at_once` (at least 1) wake now and the others **few at a time**. Returns how
    /// many there were, with those that were notified before and have not woken yet.
    pub fn notify_all<P: Futexes<Word = W, Address = A>>(&self, cpu: &P, at_once: u32) -> u32 {
        let count = self.count(cpu);
        if count == 0 {
            return 0;
        }
        if count > at_once {
            // ORDERING: Relaxed; the kernel's queues order it with `leave`.
            cpu.fetch_or(&self.waiters, REQUEUES, Relaxed);
        }
        // ORDERING: Relaxed, all; as in `notify_one`.
        let mut value = cpu.fetch_add(&self.sequence, 1, Relaxed).wrapping_add(1);
        loop {
            let mutex = cpu.load_address(&self.mutex, Relaxed);
            if count <= at_once || mutex == MIXED || mutex == 0 {
                cpu.wake_word(&self.sequence, u32::MAX);
                return count;
            }
            if cpu.requeue(&self.sequence, value, at_once.max(1), mutex) {
                return count;
            }
            value = cpu.load(&self.sequence, Relaxed);
        }
    }

    /// Waits until no CPU accesses the condition variable any more, so that its memory may be freed. All waiters must
    /// have been notified. The caller may hold their mutex.
    pub fn destroy<P: Futexes<Word = W, Address = A>>(&self, cpu: &P) {
        loop {
            // ORDERING: Acquire; pairs with the Release in `leave`.
            let seen = cpu.fetch_or(&self.waiters, DESTROYED, Acquire) | DESTROYED;
            if present(cpu, seen) == 0 {
                return;
            }
            // ORDERING: Relaxed, both; the kernel orders them with the sleeps.
            cpu.fetch_add(&self.sequence, 1, Relaxed);
            cpu.wake_word(&self.sequence, u32::MAX);
            // Those that a broadcast has moved.
            let mutex = cpu.load_address(&self.mutex, Relaxed);
            if mutex != MIXED && mutex != 0 {
                cpu.wake(mutex, u32::MAX);
            }
            cpu.sleep(&self.waiters, seen);
        }
    }
}

/// Returns the number of waiters in `waiters`: **Generation**.
fn present<P: Futexes>(cpu: &P, waiters: u32) -> u32 {
    if waiters >> GENERATION_SHIFT == u32::from(cpu.generation()) {
        (waiters & COUNT) / ONE
    } else {
        0
    }
}

fn pass_on<P: Futexes, S: Steps>(cpu: &P, key: usize) {
    if S::PASS_ON {
        cpu.wake(key, 1);
    }
}

impl<W, A, S> fmt::Debug for RequeueCondvar<W, A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequeueCondvar").finish_non_exhaustive()
    }
}

impl<W: Word<u32>, A: Word<usize>, S> RequeueCondvar<W, A, S> {
    /// Makes a condition variable for which no CPU waits.
    pub fn new() -> Self {
        let new = Self::from_words(W::new(0), W::new(0), A::new(0));
        let line = new.sequence.line();
        new.waiters.place(line);
        new.mutex.place(line);
        new
    }
}

impl<W: Word<u32>, A: Word<usize>, S> Default for RequeueCondvar<W, A, S> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
