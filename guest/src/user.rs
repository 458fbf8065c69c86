//! Spinlocks of user programs in shared memory, like PostgreSQL's (`s_lock`).
//!
//! Test-and-set with a bounded spin, then sleep, because a user program can be preempted while it holds the lock.

#![expect(unsafe_code, reason = "a spinlock lends its value to the task that holds it")]

use core::cell::UnsafeCell;
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

/// A value behind a user-level spinlock.
pub struct UserLock<T, M: Machine> {
    word: WordOf<M>,
    value: UnsafeCell<T>,
}

/// The holder's access to the value. Dropping it releases the lock.
pub struct UserGuard<'a, T, M: Machine> {
    lock: &'a UserLock<T, M>,
    os: &'a Os<M>,
}

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

impl<T: Default, M: Machine> Default for UserLock<T, M> {
    fn default() -> Self {
        UserLock::new(T::default())
    }
}

impl<T, M: Machine> UserLock<T, M> {
    /// Makes a free lock.
    pub fn new(value: T) -> Self {
        UserLock {
            word: WordOf::<M>::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock. Spins while it is taken, and sleeps between bounded spins.
    pub fn lock<'a>(&'a self, os: &'a Os<M>) -> UserGuard<'a, T, M> {
        // ORDERING: Acquire pairs with the Release of the last holder's unlock.
        while os.on_cpu().cpu.swap(&self.word, 1, Acquire) != 0 {
            self.wait(os);
        }
        UserGuard { lock: self, os }
    }

    #[cold]
    fn wait(&self, os: &Os<M>) {
        for _ in 0..ATTEMPTS {
            // ORDERING: Relaxed: a hint. The swap decides.
            if os
                .on_cpu()
                .cpu
                .wait_until(&self.word, ATTEMPT, Relaxed, |value| value == 0)
                .is_ok()
            {
                return;
            }
            os.user(0);
        }
        os.sleep(SLEEP_NS);
    }
}

impl<T, M: Machine> Deref for UserGuard<'_, T, M> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard is made only by a swap that changed the word from 0 to 1, and the word returns to 0 only when
        // the guard is dropped. So there is one guard at a time.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, M: Machine> DerefMut for UserGuard<'_, T, M> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`. The only guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, M: Machine> Drop for UserGuard<'_, T, M> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire of the next holder.
        self.os.on_cpu().cpu.store(&self.lock.word, 0, Release);
    }
}
