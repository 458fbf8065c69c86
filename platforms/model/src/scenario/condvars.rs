//! Small programs over a condition variable. A lost notification shows as no progress.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use holdfast_locks::conformance::Job;
use holdfast_locks::{Budget, Condvar, CondvarTable, CpuId, Platform, RawLock, Steps, Word};

use crate::checker::{Cell, Checker};
use crate::cpu::Cpu;
use crate::machine::{Machine, Setup};
use crate::word::ModelWord;

/// How many waiters a broadcast wakes at once: the others are in the chain.
const AT_ONCE: u32 = 1;

/// A counter, and a condition variable for its changes. `L` is the kind of both locks.
struct Counter<C: Checker, L, S> {
    mutex: ModelWord<C>,
    changed: Condvar<ModelWord<C>, L, S>,
    table: CondvarTable<ModelWord<C>, ModelWord<C>>,
    count: C::Cell,
}

impl<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static> Counter<C, L, S> {
    fn new(setup: &Setup) -> Arc<Self> {
        Arc::new(Counter {
            mutex: Word::<u32>::new(0),
            changed: Condvar::new(),
            table: CondvarTable::new(setup.cpus as usize),
            count: C::Cell::new(0),
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
            let notified = self.changed.wait::<_, L>(cpu, &self.table, &self.mutex, || false);
            assert!(notified, "a wait without a time limit has ended by itself");
        }
        self.count.update(by);
        L::unlock(cpu, &self.mutex);
    }
}

fn job<C: Checker>(cpu: u32, body: impl FnOnce(&Cpu<C>) + Send + 'static) -> (CpuId, Job<Cpu<C>>) {
    (CpuId(cpu), Job::new(body))
}

/// CPU 0 sets the counter and notifies all others, which wait for that.
pub fn broadcast<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    let setup = setup.clone();
    move || {
        let counter = Counter::<C, L, S>::new(&setup);
        let shared = Arc::clone(&counter);
        let mut jobs = vec![job(0, move |cpu: &Cpu<C>| {
            shared.change(cpu, |_| 1);
            shared.changed.notify_all(cpu, &shared.table, AT_ONCE);
        })];
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

/// The CPUs increment the counter in turn, `rounds` times each, and notify all or one.
pub fn turns<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
    rounds: u32,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    let setup = setup.clone();
    move || {
        let counter = Counter::<C, L, S>::new(&setup);
        let cpus = setup.cpus;
        let each = |number| {
            let counter = Arc::clone(&counter);
            job(number, move |cpu: &Cpu<C>| {
                for _ in 0..rounds {
                    counter.change_once(cpu, |count| count % cpus == number, |count| count + 1);
                    if cpus > 2 {
                        counter.changed.notify_all(cpu, &counter.table, AT_ONCE);
                    } else {
                        counter.changed.notify_one(cpu, &counter.table);
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
pub fn impatient_waiter<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    let setup = Setup {
        cpus: 3,
        ..setup.clone()
    };
    move || {
        let counter = Counter::<C, L, S>::new(&setup);
        let [first, second, third] = [(); 3].map(|()| Arc::clone(&counter));
        let jobs = vec![
            job(0, move |cpu: &Cpu<C>| {
                first.change(cpu, |count| count + 1);
                first.changed.notify_one(cpu, &first.table);
            }),
            job(1, move |cpu: &Cpu<C>| {
                L::lock(cpu, &second.mutex);
                let notified = second.changed.wait::<_, L>(cpu, &second.table, &second.mutex, || true);
                L::unlock(cpu, &second.mutex);
                if notified {
                    second.changed.notify_one(cpu, &second.table);
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

/// CPU 1 and CPU 2 wait, with a mutex each. CPU 0 notifies both while it holds the mutex of CPU 1, and then waits until
/// CPU 2 has gone on. So CPU 2 must not depend on CPU 1.
pub fn two_mutexes<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    let setup = Setup {
        cpus: 3,
        ..setup.clone()
    };
    move || {
        let counter = Counter::<C, L, S>::new(&setup);
        // The mutex of CPU 1; whether CPU 1 waits; whether CPU 2 is done.
        let others: Arc<[ModelWord<C>; 3]> = Arc::new([(); 3].map(|()| Word::<u32>::new(0)));
        let [first, second, third] = [(); 3].map(|()| (Arc::clone(&counter), Arc::clone(&others)));
        let pass = |cpu: &Cpu<C>, gate: &ModelWord<C>| {
            let passed = cpu.wait_until(gate, Budget::UNBOUNDED, Acquire, |value| value == 1);
            assert_eq!(passed, Ok(1));
        };
        let jobs = vec![
            job(0, move |cpu: &Cpu<C>| {
                let (counter, others) = &first;
                let [mutex, waits, done] = &**others;
                pass(cpu, waits);
                L::lock(cpu, mutex);
                counter.change(cpu, |_| 1);
                counter.changed.notify_all(cpu, &counter.table, AT_ONCE);
                pass(cpu, done);
                L::unlock(cpu, mutex);
            }),
            job(1, move |cpu: &Cpu<C>| {
                let (counter, others) = &second;
                let [mutex, waits, _] = &**others;
                L::lock(cpu, mutex);
                cpu.store(waits, 1, Release);
                counter.changed.wait::<_, L>(cpu, &counter.table, mutex, || false);
                L::unlock(cpu, mutex);
            }),
            job(2, move |cpu: &Cpu<C>| {
                let (counter, others) = &third;
                counter.change_once(cpu, |count| count > 0, |count| count + 1);
                cpu.store(&others[2], 1, Release);
            }),
        ];
        Machine::new(&setup).run(jobs);
        assert_eq!(counter.count.get(), 2, "a waiter has not gone on");
    }
}
