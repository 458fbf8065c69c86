//! Small programs over a condition variable. A lost notification shows as no progress.

use std::marker::PhantomData;
use std::sync::Arc;

use holdfast_locks::{RawLock, Word};
use holdfast_model::{Cell, Checker, Cpu, Machine, ModelWord, Setup};

use super::job;

/// How many waiters a broadcast wakes at once: the others are in the chain, or in the mutex's queue.
pub(super) const AT_ONCE: u32 = 1;

/// A condition variable of some kind.
pub(super) trait Condition<C: Checker>: Send + Sync + 'static {
    fn new(cpus: u32) -> Self;
    /// Releases `mutex`, waits, and takes it again. An impatient waiter gives up at once. Returns whether it was
    /// notified.
    fn wait(&self, cpu: &Cpu<C>, mutex: &ModelWord<C>, patient: bool) -> bool;
    fn notify_one(&self, cpu: &Cpu<C>);
    fn notify_all(&self, cpu: &Cpu<C>);
}

/// A counter, and a condition variable for its changes. `L` is the kind of the mutex.
pub(super) struct Counter<C: Checker, L, V> {
    pub(super) mutex: ModelWord<C>,
    pub(super) changed: V,
    pub(super) count: C::Cell,
    kind: PhantomData<fn() -> L>,
}

impl<C: Checker, L: RawLock<Cpu<C>> + 'static, V: Condition<C>> Counter<C, L, V> {
    fn new(setup: &Setup) -> Arc<Self> {
        Arc::new(Counter {
            mutex: Word::<u32>::new(0),
            changed: V::new(setup.cpus),
            count: C::Cell::new(0),
            kind: PhantomData,
        })
    }

    /// Changes the counter with the mutex held.
    fn change(&self, cpu: &Cpu<C>, by: impl FnOnce(u32) -> u32) {
        L::lock(cpu, &self.mutex);
        self.count.update(by);
        L::unlock(cpu, &self.mutex);
    }

    /// Waits until `until` accepts the counter, then changes it.
    fn change_once(&self, cpu: &Cpu<C>, until: impl Fn(u32) -> bool, by: impl FnOnce(u32) -> u32) {
        L::lock(cpu, &self.mutex);
        while !until(self.count.get()) {
            self.changed.wait(cpu, &self.mutex, true);
        }
        self.count.update(by);
        L::unlock(cpu, &self.mutex);
    }
}

/// CPU 0 does `set`, which sets the counter and notifies all others: they wait for that.
pub(super) fn broadcast_by<C, L, V, F>(setup: &Setup, set: F) -> impl Fn() + Send + Sync + use<C, L, V, F>
where
    C: Checker,
    L: RawLock<Cpu<C>> + 'static,
    V: Condition<C>,
    F: Fn(&Cpu<C>, &Counter<C, L, V>) + Copy + Send + Sync + 'static,
{
    let setup = setup.clone();
    move || {
        let counter = Counter::<C, L, V>::new(&setup);
        let shared = Arc::clone(&counter);
        let mut jobs = vec![job(0, move |cpu: &Cpu<C>| set(cpu, &shared))];
        jobs.extend((1..setup.cpus).map(|number| {
            let counter = Arc::clone(&counter);
            job(number, move |cpu: &Cpu<C>| {
                counter.change_once(cpu, |count| count > 0, |count| count + 1);
            })
        }));
        Machine::new(&setup).run(jobs);
        assert_eq!(counter.count.get(), setup.cpus, "a waiter has not gone on");
    }
}

/// The CPUs increment the counter in turn, `rounds` times each, and notify all, or one if there are two.
pub(super) fn turns_of<C: Checker, L: RawLock<Cpu<C>> + 'static, V: Condition<C>>(
    setup: &Setup,
    rounds: u32,
) -> impl Fn() + Send + Sync + use<C, L, V> {
    let setup = setup.clone();
    move || {
        let counter = Counter::<C, L, V>::new(&setup);
        let cpus = setup.cpus;
        let each = |number| {
            let counter = Arc::clone(&counter);
            job(number, move |cpu: &Cpu<C>| {
                for _ in 0..rounds {
                    counter.change_once(cpu, |count| count % cpus == number, |count| count + 1);
                    if cpus > 2 {
                        counter.changed.notify_all(cpu);
                    } else {
                        counter.changed.notify_one(cpu);
                    }
                }
            })
        };
        Machine::new(&setup).run((0..cpus).map(each).collect());
        assert_eq!(counter.count.get(), cpus * rounds, "a turn is missing");
    }
}

/// CPU 0 adds one and notifies one waiter, once. CPU 1 waits impatiently, and passes on a notification that it has got.
/// CPU 2 waits patiently, so it must get the one.
pub(super) fn impatience_of<C: Checker, L: RawLock<Cpu<C>> + 'static, V: Condition<C>>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L, V> {
    let setup = Setup {
        cpus: 3,
        ..setup.clone()
    };
    move || {
        let counter = Counter::<C, L, V>::new(&setup);
        let [first, second, third] = [(); 3].map(|()| Arc::clone(&counter));
        let jobs = vec![
            job(0, move |cpu: &Cpu<C>| {
                first.change(cpu, |count| count + 1);
                first.changed.notify_one(cpu);
            }),
            job(1, move |cpu: &Cpu<C>| {
                L::lock(cpu, &second.mutex);
                let notified = second.changed.wait(cpu, &second.mutex, false);
                L::unlock(cpu, &second.mutex);
                if notified {
                    second.changed.notify_one(cpu);
                }
            }),
            job(2, move |cpu: &Cpu<C>| {
                third.change_once(cpu, |count| count > 0, |count| count - 1);
            }),
        ];
        Machine::new(&setup).run(jobs);
        assert_eq!(counter.count.get(), 0, "the patient waiter got nothing");
    }
}
