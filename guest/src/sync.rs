//! The kernel's spinlocks: the locks under test, with data, a class, statistics and tracepoints.
//!
//! **Exclusion**: the value is reachable only through a [`SpinGuard`], and a guard exists only while its CPU holds the
//! lock. **No sleep**: a CPU that holds a spinlock does not call the scheduler, which asserts this. The run queue's
//! lock is the exception: the task that is switched to releases it ([`SpinLock::take_over`]).

#![expect(unsafe_code, reason = "a spinlock lends its value to the CPU that holds it")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use holdfast_locks::{BootLock, Interrupts, Line, Platform, Word};

use crate::class::LockClass;
use crate::cpu::{Holder, ThisCpu};
use crate::lines;
use crate::local::Local32;
use crate::machine::{Cpu, Machine};
use crate::profile::LineProfile;
use crate::word::Says;

/// The shared word of machine `M`.
pub(crate) type WordOf<M> = <<M as Machine>::Cpu as Platform>::Word;

/// A value behind a spinlock.
pub(crate) struct SpinLock<T, M: Machine> {
    lock: BootLock<WordOf<M>>,
    class: LockClass,
    /// CPU + 1 for which the last holder left the lock taken. 0: the lock was not left.
    left_to: Local32,
    /// CPU that took the lock last.
    holder: LastHolder,
    value: UnsafeCell<T>,
}

/// The [`Holder`] that took a lock last.
#[derive(Default)]
struct LastHolder {
    cpu: Local32,
    caches: Local32,
}

impl LastHolder {
    #[inline(always)]
    fn get(&self) -> Holder {
        Holder {
            cpu: self.cpu.get(),
            caches: self.caches.get(),
        }
    }

    /// Sets the holder, and returns the one before.
    #[inline(always)]
    fn replace(&self, holder: Holder) -> Holder {
        let before = self.get();
        self.cpu.set(holder.cpu);
        self.caches.set(holder.caches);
        before
    }
}

/// The holder's access to the value. Dropping it releases the lock.
pub(crate) struct SpinGuard<'a, T, M: Machine> {
    lock: &'a SpinLock<T, M>,
    on: &'a ThisCpu<'a, M>,
    /// Whether the release enables interrupts again.
    enable: bool,
    /// CPU that took the lock before.
    before: Holder,
    /// The class that the lock stands for.
    class: LockClass,
    /// When this CPU took the lock, in nanoseconds.
    since: u64,
}

impl<T, M: Machine> SpinLock<T, M> {
    pub(crate) fn new(class: LockClass, value: T) -> Self {
        SpinLock {
            lock: BootLock::new(),
            class,
            left_to: Local32::new(0),
            holder: LastHolder::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Places the lock's word on `line`.
    pub(crate) fn place(&self, line: Line) {
        Word::<u32>::place(self.lock.word(), line);
    }

    /// Takes the lock. Interrupts must be masked if an interrupt handler takes it, too.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, on: &'a ThisCpu<'a, M>) -> SpinGuard<'a, T, M> {
        self.acquire(on, false, self.class).touching(lines::of(self.class))
    }

    /// Masks interrupts and takes the lock (`spin_lock_irqsave`).
    #[inline]
    pub(crate) fn lock_irq<'a>(&'a self, on: &'a ThisCpu<'a, M>) -> SpinGuard<'a, T, M> {
        let enable = on.cpu.irq_save();
        self.acquire(on, enable, self.class).touching(lines::of(self.class))
    }

    /// Takes a lock that stands for one of `class`, with interrupts masked if `masks`. The caller touches the lines of
    /// the section.
    pub(crate) fn lock_as<'a>(&'a self, on: &'a ThisCpu<'a, M>, class: LockClass, masks: bool) -> SpinGuard<'a, T, M> {
        let enable = masks && on.cpu.irq_save();
        self.acquire(on, enable, class)
    }

    /// Takes the lock, works for `ns` nanoseconds, and releases it.
    pub(crate) fn hold(&self, on: &ThisCpu<'_, M>, ns: u64) {
        let _held = self.lock(on);
        on.work(ns);
    }

    /// [`SpinLock::hold`] with interrupts masked.
    pub(crate) fn hold_irq(&self, on: &ThisCpu<'_, M>, ns: u64) {
        let _held = self.lock_irq(on);
        on.work(ns);
    }

    /// Masks interrupts, takes the lock, touches `lines`, works for `ns` nanoseconds, and releases it.
    pub(crate) fn hold_lines(&self, on: &ThisCpu<'_, M>, lines: LineProfile, ns: u64) {
        let _held = self.lock_as(on, self.class, true).touching(lines);
        on.work(ns);
    }

    #[inline]
    fn acquire<'a>(&'a self, on: &'a ThisCpu<'a, M>, enable: bool, class: LockClass) -> SpinGuard<'a, T, M> {
        on.local.preempt_count.add(1);
        on.say(Says::waits);
        let (before, begun) = (on.cpu.contentions(), on.cpu.lock_clock_ns());
        self.lock.lock(on.system.chosen.get().lock, &on.cpu);
        on.say(Says::takes);
        on.cpu.lock_acquired(self.lock.word());
        on.cpu.lock_class(self.lock.word(), class);
        let contended = on.cpu.contentions() != before;
        let since = on.cpu.lock_clock_ns();
        on.local.count_lock(class, contended, since.saturating_sub(begun));
        SpinGuard {
            lock: self,
            on,
            enable,
            before: self.holder.replace(on.take_caches()),
            class,
            since,
        }
    }

    /// Returns the guard of a lock whose last holder [left](SpinGuard::leave) it to this CPU.
    pub(crate) fn take_over<'a>(&'a self, on: &'a ThisCpu<'a, M>) -> SpinGuard<'a, T, M> {
        assert_eq!(
            self.left_to.get(),
            on.id.0 + 1,
            "take over a spinlock that was not left to cpu {}",
            on.id.0
        );
        self.left_to.set(0);
        SpinGuard {
            lock: self,
            on,
            enable: false,
            before: self.holder.get(),
            class: self.class,
            since: on.cpu.lock_clock_ns(),
        }
    }
}

impl<T, M: Machine> SpinGuard<'_, T, M> {
    /// Touches the lines of data behind the lock that the section needs.
    #[inline]
    pub(crate) fn touching(self, lines: LineProfile) -> Self {
        self.on.fetch(self.before, lines);
        self
    }

    /// Adds the time since the lock was taken to that of its class.
    #[inline]
    fn count_held(&self) {
        let held = self.on.cpu.lock_clock_ns().saturating_sub(self.since);
        self.on.local.held[self.class as usize].add(held);
    }

    /// Leaves the lock held. The next task on this CPU [takes it over](SpinLock::take_over).
    pub(crate) fn leave(self) {
        self.lock.left_to.set(self.on.id.0 + 1);
        self.count_held();
        core::mem::forget(self);
    }
}

impl<T, M: Machine> Deref for SpinGuard<'_, T, M> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: **Exclusion**: this guard's CPU holds the lock. A guard is made only by `acquire`, which takes the
        // lock, and once by `take_over` for each guard that `leave` forgot.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, M: Machine> DerefMut for SpinGuard<'_, T, M> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`. The guard is borrowed mutably, so this is the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, M: Machine> Drop for SpinGuard<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        let (lock, on) = (&self.lock.lock, self.on);
        self.count_held();
        on.cpu.lock_released(lock.word());
        lock.unlock(on.system.chosen.get().lock, &on.cpu);
        on.say_released();
        on.local.preempt_count.sub(1);
        if self.enable {
            on.cpu.irq_restore(true);
        }
    }
}
