//! Small programs over a reader-writer lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::{Qrwlock, RawLock, RawRwlock, Steps, TryRwlock};
use holdfast_model::{Cell, Checker, Cpu, Machine, ModelWord, Setup};

use super::job;

/// A lock and the memory that it protects.
struct Guarded<C: Checker, L> {
    lock: L,
    data: C::Cell,
}

/// A queued lock. `Q` is the kind of the queue's lock.
type Queued<C, Q, S> = Guarded<C, Qrwlock<ModelWord<C>, Q, S>>;

impl<C: Checker, L: RawRwlock<Cpu<C>> + Send + Sync + 'static> Guarded<C, L> {
    fn new() -> Arc<Self> {
        Arc::new(Guarded {
            lock: L::unlocked(),
            data: C::Cell::new(0),
        })
    }

    fn read(&self, cpu: &Cpu<C>) -> u32 {
        self.lock.lock_shared(cpu);
        let data = self.data.get();
        self.lock.unlock_shared(cpu);
        data
    }

    fn write(&self, cpu: &Cpu<C>) {
        self.lock.lock_exclusive(cpu);
        self.data.update(|count| count + 1);
        self.lock.unlock_exclusive(cpu);
    }
}

/// [`readers_and_writers_of`] a queued lock.
pub fn readers_and_writers<C: Checker, Q: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
    writers: u32,
    rounds: u32,
) -> impl Fn() + Send + Sync + use<C, Q, S> {
    readers_and_writers_of::<C, Qrwlock<ModelWord<C>, Q, S>>(setup, writers, rounds)
}

/// Each CPU takes a lock of kind `L` `rounds` times: the first `writers` CPUs to write, the others to read.
pub fn readers_and_writers_of<C: Checker, L: RawRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
    writers: u32,
    rounds: u32,
) -> impl Fn() + Send + Sync + use<C, L> {
    readers_and_writers_after::<C, L>(setup, writers, rounds, |_, _| ())
}

/// The same after a first read.
pub fn readers_and_writers_after_a_read<C: Checker, L: RawRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
    writers: u32,
    rounds: u32,
) -> impl Fn() + Send + Sync + use<C, L> {
    readers_and_writers_after::<C, L>(setup, writers, rounds, |guarded, cpu| {
        guarded.read(cpu);
    })
}

fn readers_and_writers_after<C: Checker, L: RawRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
    writers: u32,
    rounds: u32,
    prologue: fn(&Guarded<C, L>, &Cpu<C>),
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || {
        let guarded = Guarded::<C, L>::new();
        let each = |number| {
            let guarded = Arc::clone(&guarded);
            job(number, move |cpu: &Cpu<C>| {
                for _ in 0..rounds {
                    if number < writers {
                        guarded.write(cpu);
                    } else {
                        guarded.read(cpu);
                    }
                }
            })
        };
        let machine = Machine::new(&setup);
        machine.run_after(|cpu| prologue(&guarded, cpu), (0..setup.cpus).map(each).collect());
        assert_eq!(guarded.data.get(), writers * rounds, "updates under the lock were lost");
        assert!(
            !guarded.lock.is_locked(&Cpu::inspector(machine)),
            "a lock that no CPU holds is taken"
        );
    }
}

/// CPU 0 holds the lock, as a writer or as a reader, before the others start: so they queue.
pub fn queue_behind<C: Checker, Q: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
    holder_writes: bool,
    writers: u32,
) -> impl Fn() + Send + Sync + use<C, Q, S> {
    let setup = setup.clone();
    move || {
        let guarded = Queued::<C, Q, S>::new();
        let holder = Arc::clone(&guarded);
        let mut jobs = vec![job(0, move |cpu: &Cpu<C>| {
            if holder_writes {
                holder.data.update(|count| count + 1);
                holder.lock.unlock_exclusive(cpu);
            } else {
                holder.data.get();
                holder.lock.unlock_shared(cpu);
            }
        })];
        jobs.extend((1..setup.cpus).map(|number| {
            let guarded = Arc::clone(&guarded);
            job(number, move |cpu: &Cpu<C>| {
                if number <= writers {
                    guarded.write(cpu);
                } else {
                    guarded.read(cpu);
                }
            })
        }));
        let take = |cpu: &Cpu<C>| {
            if holder_writes {
                guarded.lock.lock_exclusive(cpu);
            } else {
                guarded.lock.lock_shared(cpu);
            }
        };
        Machine::new(&setup).run_after(take, jobs);
        assert_eq!(
            guarded.data.get(),
            writers + u32::from(holder_writes),
            "updates under the lock were lost"
        );
    }
}

/// A writer becomes a reader, and still reads what it wrote. All other CPUs write, or read and try.
pub fn downgraded_writer<C: Checker, L: TryRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
    others_write: bool,
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || {
        let guarded = Guarded::<C, L>::new();
        let writer = Arc::clone(&guarded);
        let mut jobs = vec![job(0, move |cpu: &Cpu<C>| {
            writer.lock.lock_exclusive(cpu);
            writer.data.update(|count| count + 1);
            let written = writer.data.get();
            writer.lock.downgrade(cpu);
            assert_eq!(writer.data.get(), written, "another writer came in between");
            writer.lock.unlock_shared(cpu);
        })];
        jobs.extend((1..setup.cpus).map(|number| {
            let guarded = Arc::clone(&guarded);
            job(number, move |cpu: &Cpu<C>| {
                if others_write {
                    if guarded.lock.try_lock_exclusive(cpu) {
                        guarded.data.update(|count| count + 1);
                        guarded.lock.unlock_exclusive(cpu);
                    }
                    guarded.write(cpu);
                } else {
                    if guarded.lock.try_lock_shared(cpu) {
                        guarded.data.get();
                        guarded.lock.unlock_shared(cpu);
                    }
                    guarded.read(cpu);
                }
            })
        }));
        Machine::new(&setup).run(jobs);
    }
}

/// A reader holds the lock and tries to take it once more, again and again, until a waiting writer prevents that. If
/// readers could overtake the writer without end, this would make no progress.
pub fn waiting_writer<C: Checker, L: TryRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = Setup {
        cpus: 2,
        ..setup.clone()
    };
    move || {
        let guarded = Guarded::<C, L>::new();
        let [reader, writer] = [(); 2].map(|()| Arc::clone(&guarded));
        let jobs = vec![
            job(0, move |cpu: &Cpu<C>| {
                read_until_refused(&reader, cpu, || true);
            }),
            job(1, move |cpu: &Cpu<C>| writer.write(cpu)),
        ];
        Machine::new(&setup).run_after(|cpu| guarded.lock.lock_shared(cpu), jobs);
        assert_eq!(guarded.data.get(), 1);
    }
}

/// The reader `cpu` takes the lock once more, as long as it may go on and gets it. Then it reads, and leaves.
fn read_until_refused<C: Checker, L: TryRwlock<Cpu<C>>>(
    guarded: &Guarded<C, L>,
    cpu: &Cpu<C>,
    goes_on: impl Fn() -> bool,
) {
    while goes_on() && guarded.lock.try_lock_shared(cpu) {
        guarded.lock.unlock_shared(cpu);
        holdfast_locks::Platform::relax(cpu);
    }
    guarded.data.get();
    guarded.lock.unlock_shared(cpu);
}

/// As [`waiting_writer`], but the reader comes at any time. It stops once the writer has written.
pub fn coming_reader<C: Checker, L: TryRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = Setup {
        cpus: 2,
        ..setup.clone()
    };
    move || {
        let (guarded, written) = (Guarded::<C, L>::new(), Arc::new(AtomicU32::new(0)));
        let [reader, writer] = [(); 2].map(|()| (Arc::clone(&guarded), Arc::clone(&written)));
        let jobs = vec![
            job(0, move |cpu: &Cpu<C>| {
                let (guarded, written) = reader;
                guarded.lock.lock_shared(cpu);
                read_until_refused(&guarded, cpu, || written.load(Relaxed) == 0);
            }),
            job(1, move |cpu: &Cpu<C>| {
                let (guarded, written) = writer;
                guarded.write(cpu);
                written.store(1, Relaxed);
            }),
        ];
        Machine::new(&setup).run(jobs);
        assert_eq!(guarded.data.get(), 1);
    }
}

/// CPU 0 writes, reads, and tries to write. The others read.
pub fn writer_that_reads<C: Checker, L: TryRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || {
        let guarded = Guarded::<C, L>::new();
        let writer = Arc::clone(&guarded);
        let mut jobs = vec![job(0, move |cpu: &Cpu<C>| {
            writer.write(cpu);
            writer.read(cpu);
            if writer.lock.try_lock_exclusive(cpu) {
                writer.data.update(|count| count + 1);
                writer.lock.unlock_exclusive(cpu);
            }
        })];
        jobs.extend((1..setup.cpus).map(|number| {
            let guarded = Arc::clone(&guarded);
            job(number, move |cpu: &Cpu<C>| {
                guarded.read(cpu);
            })
        }));
        Machine::new(&setup).run(jobs);
        assert!(
            (1..=2).contains(&guarded.data.get()),
            "updates under the lock were lost"
        );
    }
}

/// After a first read, each CPU tries to take the lock once: the first `writers` CPUs to write, the others to read.
pub fn tries<C: Checker, L: TryRwlock<Cpu<C>> + Send + Sync + 'static>(
    setup: &Setup,
    writers: u32,
) -> impl Fn() + Send + Sync + use<C, L> {
    let setup = setup.clone();
    move || {
        let (guarded, written) = (Guarded::<C, L>::new(), Arc::new(AtomicU32::new(0)));
        let each = |number| {
            let (guarded, written) = (Arc::clone(&guarded), Arc::clone(&written));
            job(number, move |cpu: &Cpu<C>| {
                if number >= writers {
                    if guarded.lock.try_lock_shared(cpu) {
                        guarded.data.get();
                        guarded.lock.unlock_shared(cpu);
                    }
                } else if guarded.lock.try_lock_exclusive(cpu) {
                    guarded.data.update(|count| count + 1);
                    guarded.lock.unlock_exclusive(cpu);
                    written.fetch_add(1, Relaxed);
                }
            })
        };
        let machine = Machine::new(&setup);
        let read = |cpu: &Cpu<C>| {
            guarded.read(cpu);
        };
        machine.run_after(read, (0..setup.cpus).map(each).collect());
        assert_eq!(
            guarded.data.get(),
            written.load(Relaxed),
            "updates under the lock were lost"
        );
        assert!(
            !guarded.lock.is_locked(&Cpu::inspector(machine)),
            "a lock that no CPU holds is taken"
        );
    }
}
