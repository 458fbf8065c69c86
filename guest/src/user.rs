//! Locks of user programs in shared memory, and spinlocks like PostgreSQL's (`s_lock`).
//!
//! A spinlock is test-and-set with a bounded spin, then sleep, because a user program can be preempted while it holds
//! the lock.

#![expect(unsafe_code, reason = "a lock lends its value to the task that holds it")]

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Budget, Platform, Word};

use crate::machine::Machine;
use crate::os::Os;
use crate::sync::WordOf;

/// Iterations of one attempt.
const ATTEMPT: Budget = Budget(100);
/// Attempts before the task sleeps. PostgreSQL spins 100 to 1000 times, depending on past success. This is the maximum.
const ATTEMPTS: u32 = 10;
/// The time of a sleep. PostgreSQL's grows at random from 1 ms to 1 s.
const SLEEP_NS: u64 = 1_000_000;

/// How tasks wait for a lock of a user program whose word is 0 while it is free.
///
/// # Safety
/// A call of `take` returns only to the task that changed the word from 0, and only `release` changes it to 0.
pub unsafe trait Waiting<M: Machine> {
    /// Changes `word` from 0, and waits until it is 0 before. Acquires what the last holder released.
    fn take(word: &WordOf<M>, os: &Os<M>);
    /// Changes `word` to 0, and releases.
    fn release(word: &WordOf<M>, os: &Os<M>);
}

/// A value behind a lock of a user program.
///
/// **Exclusion**: the value is reachable only through a [`Guard`], which only the task gets that changed the word from
/// 0, and the word returns to 0 only when the guard is dropped ([`Waiting`]). So there is one guard at a time.
pub struct Locked<T, M: Machine, W: Waiting<M>> {
    word: WordOf<M>,
    waiting: PhantomData<W>,
    value: UnsafeCell<T>,
}

/// The holder's access to the value. Dropping it releases the lock.
pub struct Guard<'a, T, M: Machine, W: Waiting<M>> {
    pub(crate) lock: &'a Locked<T, M, W>,
    pub(crate) os: &'a Os<M>,
}

/// A value behind a user-level spinlock.
pub type UserLock<T, M> = Locked<T, M, Spinning>;

/// Waits by test-and-set with a bounded spin, and sleeps between spins.
pub struct Spinning;

/// A cache line of shared memory that programs read and write for its contents, not to exclude each other. Only the
/// cost of its transfers matters.
pub struct UserLine<M: Machine> {
    word: WordOf<M>,
}

impl<M: Machine> UserLine<M> {
    /// Reads the line.
    pub fn read(&self, os: &Os<M>) -> u32 {
        // ORDERING: Relaxed, here and below: code that relies on the contents holds a lock.
        os.on_cpu().cpu.load(&self.word, Relaxed)
    }

    /// Reads the line and writes it back.
    pub fn change(&self, os: &Os<M>) {
        let on = os.on_cpu();
        let value = on.cpu.load(&self.word, Relaxed);
        on.cpu.store(&self.word, value.wrapping_add(1), Relaxed);
    }

    /// Changes the line with a locked instruction.
    pub fn count(&self, os: &Os<M>) {
        os.on_cpu().cpu.fetch_add(&self.word, 1, Relaxed);
    }
}

impl<M: Machine> Default for UserLine<M> {
    fn default() -> Self {
        UserLine {
            word: WordOf::<M>::new(0),
        }
    }
}

impl<T: Default, M: Machine, W: Waiting<M>> Default for Locked<T, M, W> {
    fn default() -> Self {
        Locked::new(T::default())
    }
}

impl<T, M: Machine, W: Waiting<M>> Locked<T, M, W> {
    /// Makes a free lock.
    pub fn new(value: T) -> Self {
        Locked {
            word: WordOf::<M>::new(0),
            waiting: PhantomData,
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, and waits while it is taken.
    pub fn lock<'a>(&'a self, os: &'a Os<M>) -> Guard<'a, T, M, W> {
        W::take(&self.word, os);
        Guard { lock: self, os }
    }
}

// SAFETY: `take` returns after a swap that found 0 and left 1.
unsafe impl<M: Machine> Waiting<M> for Spinning {
    fn take(word: &WordOf<M>, os: &Os<M>) {
        // ORDERING: Acquire pairs with the Release of the last holder's unlock.
        while os.on_cpu().cpu.swap(word, 1, Acquire) != 0 {
            spin_or_sleep(word, os);
        }
    }

    fn release(word: &WordOf<M>, os: &Os<M>) {
        // ORDERING: Release pairs with the Acquire of the next holder.
        os.on_cpu().cpu.store(word, 0, Release);
    }
}

#[cold]
fn spin_or_sleep<M: Machine>(word: &WordOf<M>, os: &Os<M>) {
    for _ in 0..ATTEMPTS {
        let on = os.on_cpu();
        // ORDERING: Relaxed: a hint. The swap decides.
        if on.cpu.wait_until(word, ATTEMPT, Relaxed, |value| value == 0).is_ok() {
            return;
        }
        os.user(0);
    }
    os.sleep(SLEEP_NS);
}

impl<T, M: Machine, W: Waiting<M>> Deref for Guard<'_, T, M, W> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: **Exclusion**: this is the only guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, M: Machine, W: Waiting<M>> DerefMut for Guard<'_, T, M, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: **Exclusion**: this is the only guard, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, M: Machine, W: Waiting<M>> Drop for Guard<'_, T, M, W> {
    fn drop(&mut self) {
        W::release(&self.lock.word, self.os);
    }
}
