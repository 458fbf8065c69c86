//! Small programs over a condition variable that uses the kernel's queues. A lost notification shows as no progress.

use std::sync::Arc;

use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, Futexes, Platform, RawLock, RequeueCondvar, Steps, Word};

use crate::checker::{Cell, Checker};
use crate::cpu::Cpu;
use crate::machine::{Machine, Setup};
use crate::word::ModelWord;

/// How many waiters a broadcast wakes at once: the others are moved to the mutex's queue.
const AT_ONCE: u32 = 1;

/// A counter, and a condition variable for its changes. `L` is the kind of the mutex.
struct Counter<C: Checker, L, S> {
    mutex: ModelWord<C>,
    changed: RequeueCondvar<ModelWord<C>, ModelWord<C>, S>,
    count: C::Cell,
    kind: std::marker::PhantomData<fn() -> L>,
}

impl<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static> Counter<C, L, S> {
    fn new() -> Arc<Self> {
        Arc::new(Counter {
            mutex: Word::<u32>::new(0),
            changed: RequeueCondvar::new(),
            count: C::Cell::new(0),
            kind: std::marker::PhantomData,
        })
    }

    /// Waits once. An impatient waiter does not sleep.
    fn wait(&self, cpu: &Cpu<C>, patient: bool) {
        self.changed.wait(
            cpu,
            cpu.key(&self.mutex),
            || L::unlock(cpu, &self.mutex),
            |word, value| patient && cpu.sleep(word, value),
            || L::lock(cpu, &self.mutex),
        );
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
            self.wait(cpu, true);
        }
        self.count.update(by);
        L::unlock(cpu, &self.mutex);
    }
}

fn job<C: Checker>(cpu: u32, body: impl FnOnce(&Cpu<C>) + Send + 'static) -> (CpuId, Job<Cpu<C>>) {
    (CpuId(cpu), Job::new(body))
}

/// CPU 0 sets the counter and notifies all others, which wait for that. If it `destroys` the condition variable it
/// holds the mutex meanwhile, and frees the memory afterwards: **Last access**.
pub fn requeued_broadcast<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
    destroys: bool,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    let setup = setup.clone();
    move || {
        let counter = Counter::<C, L, S>::new();
        let shared = Arc::clone(&counter);
        let mut jobs = vec![job(0, move |cpu: &Cpu<C>| {
            L::lock(cpu, &shared.mutex);
            shared.count.update(|_| 1);
            shared.changed.notify_all(cpu, AT_ONCE);
            if destroys {
                shared.changed.destroy(cpu);
                let (sequence, waiters, mutex) = shared.changed.words();
                [sequence, waiters, mutex].into_iter().for_each(ModelWord::free);
            }
            L::unlock(cpu, &shared.mutex);
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

/// The CPUs increment the counter in turn, `rounds` times each, and notify all, or one if there are two.
pub fn requeued_turns<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
    rounds: u32,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    let setup = setup.clone();
    move || {
        let counter = Counter::<C, L, S>::new();
        let cpus = setup.cpus;
        let each = |number| {
            let counter = Arc::clone(&counter);
            job(number, move |cpu: &Cpu<C>| {
                for _ in 0..rounds {
                    counter.change_once(cpu, |count| count % cpus == number, |count| count + 1);
                    if cpus > 2 {
                        counter.changed.notify_all(cpu, AT_ONCE);
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

/// CPU 0 adds one and notifies one waiter, once. CPU 1 waits impatiently, so it gets no notification. CPU 2 waits
/// patiently, so it must get the one.
pub fn requeued_impatience<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    let setup = Setup {
        cpus: 3,
        ..setup.clone()
    };
    move || {
        let counter = Counter::<C, L, S>::new();
        let [first, second, third] = [(); 3].map(|()| Arc::clone(&counter));
        let jobs = vec![
            job(0, move |cpu: &Cpu<C>| {
                first.change(cpu, |count| count + 1);
                first.changed.notify_one(cpu);
            }),
            job(1, move |cpu: &Cpu<C>| {
                L::lock(cpu, &second.mutex);
                second.wait(cpu, false);
                L::unlock(cpu, &second.mutex);
            }),
            job(2, move |cpu: &Cpu<C>| {
                third.change_once(cpu, |count| count > 0, |count| count - 1);
            }),
        ];
        Machine::new(&setup).run(jobs);
        assert_eq!(counter.count.get(), 0, "the patient waiter got nothing");
    }
}
