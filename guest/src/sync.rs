//! The kernel's spinlocks: the very locks under test, with data, a class, statistics and tracepoints.
//!
//! **Exclusion**: the value is reachable through a [`SpinGuard`] only, and a guard exists only while its CPU holds the
//! lock. **No sleep**: a CPU that holds a spinlock does not call the scheduler, which asserts it; the run queue's lock is
//! the exception: the task that is switched to releases it ([`SpinLock::take_over`]).

#![expect(unsafe_code, reason = "a spinlock lends its value to the CPU that holds it")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use holdfast_locks::{BootLock, Interrupts, Line, Platform, Word};

use crate::class::LockClass;
use crate::kernel::OnCpu;
use crate::local::Local32;
use crate::machine::{Cpu, Machine};

/// The shared word of machine `M`.
pub(crate) type WordOf<M> = <<M as Machine>::Cpu as Platform>::Word;

/// A value behind a spinlock.
pub(crate) struct SpinLock<T, M: Machine> {
    lock: BootLock<WordOf<M>>,
    class: LockClass,
    /// CPU + 1 for which the last holder left the lock taken; 0: nobody did.
    left_to: Local32,
    value: UnsafeCell<T>,
}

/// The lock's holder. Releases it when dropped.
pub(crate) struct SpinGuard<'a, T, M: Machine> {
    lock: &'a SpinLock<T, M>,
    on: &'a OnCpu<'a, M>,
    /// Whether interrupts are to be enabled again.
    enable: bool,
}

impl<T, M: Machine> SpinLock<T, M> {
    pub(crate) fn new(class: LockClass, value: T) -> Self {
        SpinLock {
            lock: BootLock::new(),
            class,
            left_to: Local32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Says which line the lock's word lies on.
    pub(crate) fn place(&self, line: Line) {
        Word::<u32>::place(self.lock.word(), line);
    }

    /// Takes the lock. No interrupt handler may want it, unless interrupts are masked already.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, on: &'a OnCpu<'a, M>) -> SpinGuard<'a, T, M> {
        self.acquire(on);
        SpinGuard {
            lock: self,
            on,
            enable: false,
        }
    }

    /// Masks interrupts and takes the lock (`spin_lock_irqsave`).
    #[inline]
    pub(crate) fn lock_irq<'a>(&'a self, on: &'a OnCpu<'a, M>) -> SpinGuard<'a, T, M> {
        let enable = on.cpu.irq_save();
        self.acquire(on);
        SpinGuard { lock: self, on, enable }
    }

    #[inline]
    fn acquire(&self, on: &OnCpu<'_, M>) {
        on.local.preempt_count.add(1);
        let before = on.cpu.contentions();
        self.lock.lock(on.kernel.lock_kind(), &on.cpu);
        on.cpu.lock_acquired(self.lock.word());
        on.cpu.lock_class(self.lock.word(), self.class);
        on.local.count_lock(self.class, on.cpu.contentions() != before);
    }

    /// The guard of a lock whose last holder [left](SpinGuard::leave) it to this CPU.
    pub(crate) fn take_over<'a>(&'a self, on: &'a OnCpu<'a, M>) -> SpinGuard<'a, T, M> {
        assert_eq!(
            self.left_to.get(),
            on.index + 1,
            "a run queue lock was not left to cpu {}",
            on.index
        );
        self.left_to.set(0);
        SpinGuard {
            lock: self,
            on,
            enable: false,
        }
    }
}

impl<T, M: Machine> SpinGuard<'_, T, M> {
    /// Keeps the lock held after this flow of control; whoever runs next on this CPU [takes it over](SpinLock::take_over).
    pub(crate) fn leave(self) {
        self.lock.left_to.set(self.on.index + 1);
        core::mem::forget(self);
    }
}

impl<T, M: Machine> Deref for SpinGuard<'_, T, M> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: **Exclusion**: this guard's CPU holds the lock, and a guard is only made by who took the lock or, once,
        // by who took it over.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, M: Machine> DerefMut for SpinGuard<'_, T, M> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; and the guard is borrowed mutably, so that this is the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, M: Machine> Drop for SpinGuard<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        let (lock, on) = (&self.lock.lock, self.on);
        on.cpu.lock_released(lock.word());
        lock.unlock(on.kernel.lock_kind(), &on.cpu);
        on.local.preempt_count.sub(1);
        if self.enable {
            on.cpu.irq_restore(true);
        }
    }
}
