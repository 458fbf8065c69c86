//! Small programs over a lock, with assertions that must hold in every execution.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, Paravirt, RawLock, Word};

use crate::checker::{Cell, Checker};
use crate::cpu::Cpu;
use crate::machine::{Machine, Setup};
use crate::word::ModelWord;

type Jobs<C> = Vec<(CpuId, Job<Cpu<C>>)>;

/// A lock and the memory that it protects.
#[derive(Debug)]
pub struct Guarded<C: Checker> {
    /// The lock.
    pub word: ModelWord<C>,
    /// The memory, which counts its updates.
    pub data: C::Cell,
}

impl<C: Checker> Guarded<C> {
    /// Makes a lock of the value `word`, and memory without updates.
    pub fn new(word: u32) -> Arc<Self> {
        Arc::new(Guarded {
            word: Word::<u32>::new(word),
            data: C::Cell::new(0),
        })
    }

    /// Takes the lock, updates the memory, and calls `inside` before the release.
    pub fn with<L: RawLock<Cpu<C>>>(&self, cpu: &Cpu<C>, inside: impl FnOnce()) {
        L::lock(cpu, &self.word);
        self.data.update(|count| count + 1);
        inside();
        L::unlock(cpu, &self.word);
    }

    /// Takes the lock if that needs no waiting, and then updates the memory.
    fn try_with<L: RawLock<Cpu<C>>>(&self, cpu: &Cpu<C>) -> bool {
        let taken = L::try_lock(cpu, &self.word);
        if taken {
            self.data.update(|count| count + 1);
            L::unlock(cpu, &self.word);
        }
        taken
    }
}

fn job<C: Checker>(cpu: u32, body: impl FnOnce(&Cpu<C>) + Send + 'static) -> (CpuId, Job<Cpu<C>>) {
    (CpuId(cpu), Job::new(body))
}

/// Each CPU takes the lock `rounds` times. Checks **exclusion** and **no lost kick**. `initial` is the word of a free
/// lock.
pub fn contention<C: Checker, L: RawLock<Cpu<C>> + 'static>(
    setup: &Setup,
    rounds: u32,
    initial: u32,
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || {
        let lock = Guarded::<C>::new(initial);
        let each = |cpu| {
            let lock = Arc::clone(&lock);
            job(cpu, move |cpu| (0..rounds).for_each(|_| lock.with::<L>(cpu, || ())))
        };
        let jobs: Jobs<C> = (0..setup.cpus).map(each).collect();
        let machine = Machine::new(&setup);
        machine.run(jobs);
        assert_eq!(lock.data.get(), rounds * setup.cpus, "updates under the lock were lost");
        let is_locked = L::is_locked(&Cpu::inspector(machine), &lock.word);
        assert!(
            !is_locked,
            "a lock that no CPU holds or waits for cannot be taken without waiting"
        );
    }
}

/// CPU 0 holds the lock before the other CPUs start, so that one preemption is enough for all of them to queue.
pub fn queue<C: Checker, L: RawLock<Cpu<C>> + 'static>(setup: &Setup) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || queue_with::<C, L>(&setup, Vec::new())
}

/// Like [`queue`], with one more CPU, which kicks CPU 1 for no reason.
pub fn stray_kick<C: Checker, L: RawLock<Cpu<C>> + 'static>(setup: &Setup) -> impl Fn() + Send + Sync + use<C, L> {
    let with_kicker = Setup {
        cpus: setup.cpus + 1,
        ..setup.clone()
    };
    let lockers = setup.cpus;
    move || {
        let kick = job(lockers, move |cpu: &Cpu<C>| cpu.kick(CpuId(lockers - 1)));
        queue_with::<C, L>(&with_kicker, vec![kick]);
    }
}

fn queue_with<C: Checker, L: RawLock<Cpu<C>> + 'static>(setup: &Setup, others: Jobs<C>) {
    let lock = Guarded::<C>::new(0);
    let lockers = setup.cpus - others.len() as u32;
    let holder = Arc::clone(&lock);
    let mut jobs: Jobs<C> = vec![job(0, move |cpu| {
        holder.data.update(|count| count + 1);
        L::unlock(cpu, &holder.word);
    })];
    jobs.extend((1..lockers).map(|cpu| {
        let lock = Arc::clone(&lock);
        job(cpu, move |cpu| lock.with::<L>(cpu, || ()))
    }));
    jobs.extend(others);
    Machine::new(setup).run_after(|cpu| L::lock(cpu, &lock.word), jobs);
    assert_eq!(lock.data.get(), lockers, "updates under the lock were lost");
}

/// CPU 0 takes the lock, and the other CPUs call `try_lock`. Checks that `try_lock` excludes, too, and that it has no
/// effect if it fails.
pub fn try_lock<C: Checker, L: RawLock<Cpu<C>> + 'static>(setup: &Setup) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || {
        let lock = Guarded::<C>::new(0);
        let taken = Arc::new(AtomicU32::new(0));
        let first = Arc::clone(&lock);
        let mut jobs: Jobs<C> = vec![job(0, move |cpu| first.with::<L>(cpu, || ()))];
        jobs.extend((1..setup.cpus).map(|cpu| {
            let (lock, taken) = (Arc::clone(&lock), Arc::clone(&taken));
            job(cpu, move |cpu| {
                taken.fetch_add(lock.try_with::<L>(cpu).into(), Ordering::Relaxed);
            })
        }));
        let machine = Machine::new(&setup);
        machine.run(jobs);
        assert_eq!(
            lock.data.get(),
            1 + taken.load(Ordering::Relaxed),
            "updates under the lock were lost"
        );
    }
}

/// Two CPUs take the lock, and the last one frees its memory at once. Checks **word untouched after release**.
pub fn freed_at_once<C: Checker, L: RawLock<Cpu<C>> + 'static>(setup: &Setup) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || {
        let lock = Guarded::<C>::new(0);
        let each = |cpu| {
            let lock = Arc::clone(&lock);
            job(cpu, move |cpu| {
                L::lock(cpu, &lock.word);
                let mut uses = 0;
                lock.data.update(|count| {
                    uses = count + 1;
                    uses
                });
                L::unlock(cpu, &lock.word);
                if uses == 2 {
                    lock.word.free();
                }
            })
        };
        Machine::new(&setup).run((0..2).map(each).collect());
    }
}

/// CPU 1 waits for a lock and is interrupted by a handler that waits for another lock. Checks **nested use**.
pub fn interrupted_waiter<C: Checker, L: RawLock<Cpu<C>> + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = Setup {
        interrupts: true,
        ..setup.clone()
    };
    move || {
        let (task, interrupt) = (Guarded::<C>::new(0), Guarded::<C>::new(0));
        let waiter = Arc::clone(&task);
        let holder = Arc::clone(&task);
        let held = Arc::clone(&interrupt);
        let jobs: Jobs<C> = vec![
            job(0, move |cpu| {
                holder.with::<L>(cpu, || {
                    let handler = Arc::clone(&held);
                    held.with::<L>(cpu, || {
                        cpu.interrupt(CpuId(1), Job::new(move |cpu| handler.with::<L>(cpu, || ())));
                    });
                });
            }),
            job(1, move |cpu| waiter.with::<L>(cpu, || ())),
        ];
        Machine::new(&setup).run(jobs);
        assert_eq!(task.data.get(), 2, "updates under the lock were lost");
    }
}
