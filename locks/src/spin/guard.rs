//! Data protected by a lock: the container and its guard. This is the only module of the crate that accesses memory by
//! unsafe code.
//!
//! **Guarded access**: a reference to the data exists only through a guard. A guard exists only between `lock` (or a
//! successful `try_lock`) and `unlock` of its lock. By **Exclusion** of [`Exclusive`] there is at most one guard at a
//! time.

#![expect(unsafe_code, reason = "hands out references to the data that the lock protects")]

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::cpu::platform::{Interrupts, Platform, Word};
use crate::spin::exclusive::Exclusive;

/// Data of type `T` protected by a spinlock with algorithm `L` over a word `W`.
///
/// The caller passes the CPU that it runs on:
///
/// ```
/// use holdfast_locks::{Platform, SpinLock, Ticket};
///
/// fn count<P: Platform>(cpu: &P, events: &SpinLock<u64, Ticket, P::Word>) {
///     *events.lock(cpu) += 1;
/// }
/// ```
pub struct SpinLock<T: ?Sized, L, W> {
    word: W,
    algorithm: PhantomData<fn() -> L>,
    data: UnsafeCell<T>,
}

// SAFETY: by **Guarded access** one CPU at a time uses the data, which so moves from CPU to CPU: this needs `T: Send`.
unsafe impl<T: ?Sized + Send, L, W: Sync> Sync for SpinLock<T, L, W> {}

impl<T, L, W> SpinLock<T, L, W> {
    /// Makes a lock over `word`, which must be zero. Usable in a `static`.
    pub const fn from_word(word: W, data: T) -> Self {
        SpinLock {
            word,
            algorithm: PhantomData,
            data: UnsafeCell::new(data),
        }
    }

    /// Makes an unlocked lock.
    pub fn new(data: T) -> Self
    where
        W: Word<u32>,
    {
        Self::from_word(W::new(0), data)
    }

    /// Consumes the lock and returns the data.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized, L, W> SpinLock<T, L, W> {
    /// Waits until this CPU holds the lock.
    #[inline]
    pub fn lock<'a, P>(&'a self, cpu: &'a P) -> Guard<'a, T, L, P>
    where
        P: Platform<Word = W>,
        L: Exclusive<P>,
    {
        L::lock(cpu, &self.word);
        Guard {
            lock: self,
            cpu,
            not_send: PhantomData,
        }
    }

    /// Takes the lock if that needs no waiting. Returns `None` if the lock was not taken.
    #[inline]
    pub fn try_lock<'a, P>(&'a self, cpu: &'a P) -> Option<Guard<'a, T, L, P>>
    where
        P: Platform<Word = W>,
        L: Exclusive<P>,
    {
        let taken = L::try_lock(cpu, &self.word);
        taken.then(|| Guard {
            lock: self,
            cpu,
            not_send: PhantomData,
        })
    }

    /// Masks interrupts, then waits for the lock. It is meant for locks that interrupt handlers take, too.
    ///
    /// The guard restores interrupts after it has released the lock. Guards must be dropped in the reverse order of
    /// their creation.
    #[inline]
    pub fn lock_irqsave<'a, P>(&'a self, cpu: &'a P) -> IrqGuard<'a, T, L, P>
    where
        P: Interrupts + Platform<Word = W>,
        L: Exclusive<P>,
    {
        let masked = Masked {
            cpu,
            enabled: cpu.irq_save(),
        };
        IrqGuard {
            guard: self.lock(cpu),
            _masked: masked,
        }
    }

    /// Returns whether a CPU held the lock at some moment during the call.
    pub fn is_locked<P>(&self, cpu: &P) -> bool
    where
        P: Platform<Word = W>,
        L: Exclusive<P>,
    {
        L::is_locked(cpu, &self.word)
    }

    /// Returns whether a CPU waited for the lock at some moment during the call. Always `false` if the word does not
    /// show waiters.
    pub fn is_contended<P>(&self, cpu: &P) -> bool
    where
        P: Platform<Word = W>,
        L: Exclusive<P>,
    {
        L::is_contended(cpu, &self.word)
    }

    /// Returns the data. An exclusive borrow needs no locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<T: ?Sized, L, W> fmt::Debug for SpinLock<T, L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Showing the data would need a CPU that takes the lock.
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

/// Access to the data, until the guard is dropped. It stays on the CPU that took the lock, which it needs for unlock: a
/// paravirtual unlock kicks.
///
/// ```compile_fail,E0277
/// use holdfast_locks::{Guard, Platform, Ticket};
///
/// fn send(_: impl Send) {}
///
/// fn to_another_cpu<P: Platform + Sync>(guard: Guard<'_, u64, Ticket, P>) where P::Word: Sync {
///     send(guard);
/// }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard<'a, T: ?Sized, L: Exclusive<P>, P: Platform> {
    lock: &'a SpinLock<T, L, P::Word>,
    cpu: &'a P,
    /// Makes the guard `!Send`: another CPU must not unlock.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives only shared references to the data, which need `T: Sync`, and to its CPU, which need
// `P: Sync`. `not_send` has no content.
unsafe impl<T: ?Sized + Sync, L: Exclusive<P>, P: Platform + Sync> Sync for Guard<'_, T, L, P> {}

impl<T: ?Sized, L: Exclusive<P>, P: Platform> Deref for Guard<'_, T, L, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: **Guarded access**: this guard is the only one, and it is borrowed here, so not mutably borrowed
        // elsewhere.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized, L: Exclusive<P>, P: Platform> DerefMut for Guard<'_, T, L, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: **Guarded access**: this guard is the only one, and it is mutably borrowed here.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized, L: Exclusive<P>, P: Platform> Drop for Guard<'_, T, L, P> {
    #[inline]
    fn drop(&mut self) {
        L::unlock(self.cpu, &self.lock.word);
    }
}

impl<T: ?Sized + fmt::Debug, L: Exclusive<P>, P: Platform> fmt::Debug for Guard<'_, T, L, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A [`Guard`] that also keeps interrupts masked; see [`SpinLock::lock_irqsave`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct IrqGuard<'a, T: ?Sized, L: Exclusive<P>, P: Interrupts> {
    // Fields are dropped in this order: first the lock, then the mask.
    guard: Guard<'a, T, L, P>,
    _masked: Masked<'a, P>,
}

struct Masked<'a, P: Interrupts> {
    cpu: &'a P,
    enabled: bool,
}

impl<P: Interrupts> Drop for Masked<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.cpu.irq_restore(self.enabled);
    }
}

impl<T: ?Sized, L: Exclusive<P>, P: Interrupts> Deref for IrqGuard<'_, T, L, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized, L: Exclusive<P>, P: Interrupts> DerefMut for IrqGuard<'_, T, L, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug, L: Exclusive<P>, P: Interrupts> fmt::Debug for IrqGuard<'_, T, L, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
