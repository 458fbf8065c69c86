//! Two locks whose waiters meet in a table of the paravirtual locks.

use std::sync::Arc;

use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, RawLock};
use holdfast_model::scenario::Guarded;
use holdfast_model::{Cell, Checker, Cpu, Machine, Setup};

use super::job;

type Jobs<C> = Vec<(CpuId, Job<Cpu<C>>)>;

/// CPU 0 holds two locks, for each of which another CPU waits; their waiters share an entry of the hash table.
pub fn shared_entry<C: Checker, L: RawLock<Cpu<C>> + 'static>(setup: &Setup) -> impl Fn() + Send + Sync + use<C, L> {
    /// The numbers of the locks, which are their keys. They share a line of a table with 256 entries.
    const NUMBERS: [u32; 2] = [2, 36];
    let setup = Setup {
        cpus: 3,
        ..setup.clone()
    };
    move || {
        let locks: Vec<_> = (1..=NUMBERS[1]).map(|_| Guarded::<C>::new(0)).collect();
        let [first, second] = NUMBERS.map(|number| Arc::clone(&locks[number as usize - 1]));
        let held = [Arc::clone(&first), Arc::clone(&second)];
        let mut jobs: Jobs<C> = vec![job(0, move |cpu| {
            for lock in held {
                lock.data.update(|count| count + 1);
                L::unlock(cpu, &lock.word);
            }
        })];
        for (cpu, lock) in [(1, &first), (2, &second)] {
            let lock = Arc::clone(lock);
            jobs.push(job(cpu, move |cpu| lock.with::<L>(cpu, || ())));
        }
        let take_both = |cpu: &Cpu<C>| [&first, &second].iter().for_each(|lock| L::lock(cpu, &lock.word));
        Machine::new(&setup).run_after(take_both, jobs);
        assert_eq!(
            (first.data.get(), second.data.get()),
            (2, 2),
            "updates under the locks were lost"
        );
    }
}

/// CPU 1 waits for one lock and then for another. CPU 2 waits for the second lock, with the ticket number that CPU 1
/// had at the first. Checks **valid when seen**: an unlocker that looks for CPU 2 may read a record of CPU 1 that is
/// half old and half new, and must still kick CPU 2.
pub fn equal_tickets<C: Checker, L: RawLock<Cpu<C>> + 'static>(setup: &Setup) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = Setup {
        cpus: 3,
        ..setup.clone()
    };
    move || {
        let (first, second) = (Guarded::<C>::new(0), Guarded::<C>::new(0));
        let locks = [Arc::clone(&first), Arc::clone(&second)];
        let holder = job(0, move |cpu: &Cpu<C>| {
            let [first, second] = &locks;
            L::lock(cpu, &second.word);
            L::lock(cpu, &first.word);
            first.data.update(|count| count + 1);
            L::unlock(cpu, &first.word);
            second.data.update(|count| count + 1);
            L::unlock(cpu, &second.word);
        });
        let locks = [Arc::clone(&first), Arc::clone(&second)];
        let both = job(1, move |cpu: &Cpu<C>| {
            locks.iter().for_each(|lock| lock.with::<L>(cpu, || ()))
        });
        let waiter = Arc::clone(&second);
        let waiter = job(2, move |cpu: &Cpu<C>| waiter.with::<L>(cpu, || ()));
        Machine::new(&setup).run(vec![holder, both, waiter]);
        assert_eq!(
            (first.data.get(), second.data.get()),
            (2, 3),
            "updates under the locks were lost"
        );
    }
}
