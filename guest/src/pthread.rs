//! Mutexes and condition variables of user programs, as NPTL makes them of futexes.
//!
//! **Exclusion**: the value is reachable through a [`UserMutexGuard`] only, made by who changed the word from free.
//! **No system call** while nobody waits.

#![expect(unsafe_code, reason = "a mutex lends its value to the task that holds it")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Platform, Word};

use crate::local::Local32;
use crate::machine::Machine;
use crate::os::Os;
use crate::sync::WordOf;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody may sleep.
const CONTENDED: u32 = 2;

/// A value behind a `pthread_mutex_t` of the default kind: it does not spin, and whoever comes first takes it.
pub struct UserMutex<T, M: Machine> {
    word: WordOf<M>,
    value: UnsafeCell<T>,
}

/// The holder. Releases the mutex when dropped.
pub struct UserMutexGuard<'a, T, M: Machine> {
    mutex: &'a UserMutex<T, M>,
    os: &'a Os<M>,
}

impl<T, M: Machine> UserMutex<T, M> {
    /// A free mutex.
    pub fn new(value: T) -> Self {
        UserMutex {
            word: WordOf::<M>::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the mutex; sleeps while it is taken.
    pub fn lock<'a>(&'a self, os: &'a Os<M>) -> UserMutexGuard<'a, T, M> {
        let on = os.here();
        // ORDERING: Acquire, here and below, pairs with the Release of the last holder's unlock.
        if on
            .cpu
            .compare_exchange(&self.word, FREE, TAKEN, Acquire, Relaxed)
            .is_err()
        {
            while os.here().cpu.swap(&self.word, CONTENDED, Acquire) != FREE {
                os.futex_wait(&self.word, CONTENDED);
            }
        }
        UserMutexGuard { mutex: self, os }
    }
}

impl<T, M: Machine> Deref for UserMutexGuard<'_, T, M> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: **Exclusion**: a guard is made only by who changed the word from FREE, and it returns to FREE only when
        // the guard is dropped: there is one guard at a time.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T, M: Machine> DerefMut for UserMutexGuard<'_, T, M> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the one guard is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T, M: Machine> Drop for UserMutexGuard<'_, T, M> {
    fn drop(&mut self) {
        let word = &self.mutex.word;
        // ORDERING: Release pairs with the Acquire of the next holder.
        if self.os.here().cpu.swap(word, FREE, Release) == CONTENDED {
            self.os.futex_wake(word, 1);
        }
    }
}

/// A `pthread_cond_t`, used with one mutex: every call needs its guard.
pub struct UserCondition<M: Machine> {
    /// Changes with every signal.
    sequence: WordOf<M>,
    /// Who waits and has not been signalled. Under the mutex.
    waiters: Local32,
}

impl<M: Machine> UserCondition<M> {
    /// Nobody waits.
    pub fn new() -> Self {
        UserCondition {
            sequence: WordOf::<M>::new(0),
            waiters: Local32::new(0),
        }
    }

    /// Releases the mutex, sleeps until signalled, takes it again. It may return without a signal: look at the condition.
    pub fn wait<'a, T>(&self, guard: UserMutexGuard<'a, T, M>) -> UserMutexGuard<'a, T, M> {
        let (mutex, os) = (guard.mutex, guard.os);
        self.waiters.add(1);
        // ORDERING: Relaxed: the mutex is held; the futex compares again.
        let sequence = os.here().cpu.load(&self.sequence, Relaxed);
        drop(guard);
        os.futex_wait(&self.sequence, sequence);
        mutex.lock(os)
    }

    /// Wakes one who waits, if any.
    pub fn signal<T>(&self, guard: &UserMutexGuard<'_, T, M>) {
        if !self.waiters.is_set() {
            return;
        }
        self.waiters.sub(1);
        // ORDERING: Relaxed: who waits compares under the futex's bucket lock, which the waker takes afterwards.
        guard.os.here().cpu.fetch_add(&self.sequence, 1, Relaxed);
        guard.os.futex_wake(&self.sequence, 1);
    }
}

impl<M: Machine> Default for UserCondition<M> {
    fn default() -> Self {
        UserCondition::new()
    }
}
