//! The kernel's reader-writer spinlocks (`rwlock_t`): readers share, and writers exclude everyone.
//!
//! Their form is the kernel's choice, [`RwLocks`](crate::RwLocks). Those that queue do so by a spinlock of the kernel's
//! kind. Where readers take no part, only writers exclude each other, and a reader costs what the caller charges for
//! it.
//!
//! **Exclusion**: the value is reachable only through a [`WriteGuard`], and a guard exists only while its CPU is the
//! only holder. **No sleep**: as for a [`SpinLock`](crate::sync::SpinLock).

#![expect(unsafe_code, reason = "a reader-writer lock lends its value to the CPU that writes")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use holdfast_locks::{BootLock, BootRwlock, Interrupts, RawRwlock as _, UnqueuedRwlock};

use crate::class::LockClass;
use crate::config::RwLocks;
use crate::cpu::ThisCpu;
use crate::machine::{Cpu, Machine};
use crate::sync::WordOf;
use crate::word::Says;

/// A value behind a reader-writer lock.
pub(crate) struct RwLock<T, M: Machine> {
    queued: BootRwlock<WordOf<M>>,
    unqueued: UnqueuedRwlock<WordOf<M>>,
    /// The lock of a kernel in which readers take no part.
    writers: BootLock<WordOf<M>>,
    class: LockClass,
    value: UnsafeCell<T>,
}

/// The writer's access to the value. Dropping it releases the lock.
pub(crate) struct WriteGuard<'a, T, M: Machine> {
    lock: &'a RwLock<T, M>,
    on: &'a ThisCpu<'a, M>,
    /// Whether the release enables interrupts again.
    enable: bool,
}

/// A reader's hold. Dropping it releases the lock.
pub(crate) struct ReadGuard<'a, T, M: Machine> {
    lock: &'a RwLock<T, M>,
    on: &'a ThisCpu<'a, M>,
}

impl<T, M: Machine> RwLock<T, M> {
    pub(crate) fn new(class: LockClass, value: T) -> Self {
        RwLock {
            queued: BootRwlock::new(),
            unqueued: UnqueuedRwlock::new(),
            writers: BootLock::new(),
            class,
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock for writing (`write_lock`).
    pub(crate) fn write<'a>(&'a self, on: &'a ThisCpu<'a, M>) -> WriteGuard<'a, T, M> {
        self.write_as(on, false)
    }

    /// Masks interrupts and takes the lock for writing (`write_lock_irq`).
    pub(crate) fn write_irq<'a>(&'a self, on: &'a ThisCpu<'a, M>) -> WriteGuard<'a, T, M> {
        let enable = on.cpu.irq_save();
        self.write_as(on, enable)
    }

    fn write_as<'a>(&'a self, on: &'a ThisCpu<'a, M>, enable: bool) -> WriteGuard<'a, T, M> {
        self.acquire(on, |kind| match form(on) {
            RwLocks::WritersOnly => self.writers.lock(kind, &on.cpu),
            RwLocks::Unqueued => self.unqueued.lock_exclusive(&on.cpu),
            RwLocks::Queued => self.queued.lock_exclusive(kind, &on.cpu),
        });
        WriteGuard { lock: self, on, enable }
    }

    /// Takes the lock for reading (`read_lock`). Returns `None` if readers take no part.
    pub(crate) fn read<'a>(&'a self, on: &'a ThisCpu<'a, M>) -> Option<ReadGuard<'a, T, M>> {
        let form = form(on);
        if form == RwLocks::WritersOnly {
            return None;
        }
        self.acquire(on, |kind| match form {
            RwLocks::Queued => self.queued.lock_shared(kind, &on.cpu),
            RwLocks::Unqueued | RwLocks::WritersOnly => self.unqueued.lock_shared(&on.cpu),
        });
        Some(ReadGuard { lock: self, on })
    }

    /// Returns the word that names the lock.
    fn word(&self, on: &ThisCpu<'_, M>) -> &WordOf<M> {
        match form(on) {
            RwLocks::WritersOnly => self.writers.word(),
            RwLocks::Unqueued => self.unqueued.word(),
            RwLocks::Queued => self.queued.word(),
        }
    }

    fn acquire(&self, on: &ThisCpu<'_, M>, take: impl FnOnce(holdfast_locks::LockKind)) {
        on.local.preempt_count.add(1);
        on.say(Says::waits);
        let (before, begun) = (on.cpu.contentions(), on.cpu.lock_clock_ns());
        take(on.system.chosen.get().lock);
        on.say(Says::takes);
        on.cpu.lock_acquired(self.word(on));
        on.cpu.lock_class(self.word(on), self.class);
        let contended = on.cpu.contentions() != before;
        let taken = on.cpu.lock_clock_ns().saturating_sub(begun);
        on.local.count_lock(self.class, contended, taken);
    }
}

fn form<M: Machine>(on: &ThisCpu<'_, M>) -> RwLocks {
    on.system.config.rwlocks
}

impl<T, M: Machine> Deref for WriteGuard<'_, T, M> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: **Exclusion**: this guard's CPU is the lock's only holder. Only `write_as` makes a guard, after it
        // has taken the lock exclusively. No reader has access to the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, M: Machine> DerefMut for WriteGuard<'_, T, M> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`. The guard is borrowed mutably, so this is the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, M: Machine> Drop for WriteGuard<'_, T, M> {
    fn drop(&mut self) {
        let (lock, on) = (self.lock, self.on);
        on.cpu.lock_released(lock.word(on));
        match form(on) {
            RwLocks::WritersOnly => lock.writers.unlock(on.system.chosen.get().lock, &on.cpu),
            RwLocks::Unqueued => lock.unqueued.unlock_exclusive(&on.cpu),
            RwLocks::Queued => lock.queued.unlock_exclusive(&on.cpu),
        }
        on.say_released();
        on.local.preempt_count.sub(1);
        if self.enable {
            on.cpu.irq_restore(true);
        }
    }
}

impl<T, M: Machine> Drop for ReadGuard<'_, T, M> {
    fn drop(&mut self) {
        let (lock, on) = (self.lock, self.on);
        on.cpu.lock_released(lock.word(on));
        match form(on) {
            RwLocks::Queued => lock.queued.unlock_shared(&on.cpu),
            RwLocks::Unqueued | RwLocks::WritersOnly => lock.unqueued.unlock_shared(&on.cpu),
        }
        on.say_released();
        on.local.preempt_count.sub(1);
    }
}
