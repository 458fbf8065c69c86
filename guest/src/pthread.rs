//! Mutexes and condition variables of user programs, built on futexes like NPTL's.
//!
//! **Exclusion**: the value is reachable only through a [`UserMutexGuard`], which only the task gets that changed the
//! word from free. **No system call** while no task waits.

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
/// Taken, and tasks may sleep for it.
const CONTENDED: u32 = 2;

/// A value behind a `pthread_mutex_t` of the default kind: its waiters do not spin, and any task can take it when it is
/// free.
pub struct UserMutex<T, M: Machine> {
    word: WordOf<M>,
    value: UnsafeCell<T>,
}

/// The holder's access to the value. Dropping it releases the mutex.
pub struct UserMutexGuard<'a, T, M: Machine> {
    mutex: &'a UserMutex<T, M>,
    os: &'a Os<M>,
}

impl<T: Default, M: Machine> Default for UserMutex<T, M> {
    fn default() -> Self {
        UserMutex::new(T::default())
    }
}

impl<T, M: Machine> UserMutex<T, M> {
    /// Makes a free mutex.
    pub fn new(value: T) -> Self {
        UserMutex {
            word: WordOf::<M>::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the mutex, and sleeps while it is taken.
    pub fn lock<'a>(&'a self, os: &'a Os<M>) -> UserMutexGuard<'a, T, M> {
        let on = os.on_cpu();
        // ORDERING: Acquire, here and below, pairs with the Release of the last holder's unlock.
        if on
            .cpu
            .compare_exchange(&self.word, FREE, TAKEN, Acquire, Relaxed)
            .is_err()
        {
            while os.on_cpu().cpu.swap(&self.word, CONTENDED, Acquire) != FREE {
                os.futex_wait(&self.word, CONTENDED);
            }
        }
        UserMutexGuard { mutex: self, os }
    }
}

impl<T, M: Machine> Deref for UserMutexGuard<'_, T, M> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: **Exclusion**: a guard is made only by the task that changed the word from FREE, and the word returns
        // to FREE only when the guard is dropped. So there is one guard at a time.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T, M: Machine> DerefMut for UserMutexGuard<'_, T, M> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`. The only guard is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T, M: Machine> Drop for UserMutexGuard<'_, T, M> {
    fn drop(&mut self) {
        let word = &self.mutex.word;
        // ORDERING: Release pairs with the Acquire of the next holder.
        if self.os.on_cpu().cpu.swap(word, FREE, Release) == CONTENDED {
            self.os.futex_wake(word, 1);
        }
    }
}

/// A `pthread_cond_t` that is used with one mutex, whose guard every call needs.
pub struct UserCondition<M: Machine> {
    /// Changes with every signal.
    sequence: WordOf<M>,
    /// The number of tasks that wait and have not been signaled. Under the mutex.
    waiters: Local32,
}

impl<M: Machine> UserCondition<M> {
    /// Releases the mutex, sleeps until signaled, and takes the mutex again. It may return without a signal, so the
    /// caller must check the condition.
    pub fn wait<'a, T>(&self, guard: UserMutexGuard<'a, T, M>) -> UserMutexGuard<'a, T, M> {
        let (mutex, os) = (guard.mutex, guard.os);
        self.waiters.add(1);
        // ORDERING: Relaxed: the mutex is held, and the futex compares again.
        let sequence = os.on_cpu().cpu.load(&self.sequence, Relaxed);
        drop(guard);
        os.futex_wait(&self.sequence, sequence);
        mutex.lock(os)
    }

    /// Wakes one waiting task, if there is one.
    pub fn signal<T>(&self, guard: &UserMutexGuard<'_, T, M>) {
        if !self.waiters.is_set() {
            return;
        }
        self.waiters.sub(1);
        // ORDERING: Relaxed: a waiter compares under the futex's bucket lock, which the waker takes afterwards.
        guard.os.on_cpu().cpu.fetch_add(&self.sequence, 1, Relaxed);
        guard.os.futex_wake(&self.sequence, 1);
    }
}

impl<M: Machine> Default for UserCondition<M> {
    fn default() -> Self {
        UserCondition {
            sequence: WordOf::<M>::new(0),
            waiters: Local32::default(),
        }
    }
}
