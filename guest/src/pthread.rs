//! Mutexes and condition variables of user programs, built on futexes like NPTL's.
//!
//! **No system call** while no task waits.

#![expect(unsafe_code, reason = "the lock of a value relies on how its tasks wait")]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Platform, Word};

use crate::local::Local32;
use crate::machine::Machine;
use crate::os::Os;
use crate::sync::WordOf;
use crate::user::{Guard, Locked, Waiting};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and tasks may sleep for it.
const CONTENDED: u32 = 2;

/// A value behind a `pthread_mutex_t` of the default kind: its waiters do not spin, and any task can take it when it is
/// free.
pub type UserMutex<T, M> = Locked<T, M, Sleeping>;
/// The holder's access to the value of a [`UserMutex`].
pub type UserMutexGuard<'a, T, M> = Guard<'a, T, M, Sleeping>;

/// Waits asleep.
pub struct Sleeping;

// SAFETY: `take` returns after an exchange or a swap that found `FREE` and left another value.
unsafe impl<M: Machine> Waiting<M> for Sleeping {
    fn take(word: &WordOf<M>, os: &Os<M>) {
        let on = os.on_cpu();
        // ORDERING: Acquire, here and below, pairs with the Release of the last holder's unlock.
        if on.cpu.compare_exchange(word, FREE, TAKEN, Acquire, Relaxed).is_err() {
            while os.on_cpu().cpu.swap(word, CONTENDED, Acquire) != FREE {
                os.futex_wait(word, CONTENDED);
            }
        }
    }

    fn release(word: &WordOf<M>, os: &Os<M>) {
        // ORDERING: Release pairs with the Acquire of the next holder.
        if os.on_cpu().cpu.swap(word, FREE, Release) == CONTENDED {
            os.futex_wake_one(word);
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
        let (mutex, os) = (guard.lock, guard.os);
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
        guard.os.futex_wake_one(&self.sequence);
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
