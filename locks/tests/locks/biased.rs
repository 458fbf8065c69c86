//! The reader-writer lock with a bias: exclusion, when it is biased, and what readers leave behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::{Job, check_fair_rwlock};
use holdfast_locks::{BiasedRwlock, Budget, CpuId, Platform, PvQspin, Readers, Word};

use crate::explore::{StepWorld, every_schedule, random_schedules};
use crate::scenes::{job, run_in_turn};
use crate::steps::{InTurn, Machine, Setup, StepCpu, StepWord};

type Lock = BiasedRwlock<StepWord, PvQspin>;

/// Stands for a writer among the holders.
const WRITES: u32 = 1 << 16;

fn setup(cpus: u32, reader_lines: u32) -> Setup {
    Setup {
        reader_lines,
        ..Setup::new(cpus)
    }
}

/// Each CPU takes a lock `times` times: the first `writers` CPUs to write, the others to read. Every second time it
/// tries first.
fn mixture(cpus: u32, writers: u32, times: u32) -> Vec<(CpuId, Job<StepCpu>)> {
    let shared = Arc::new((Lock::new(), AtomicU32::new(0), AtomicU32::new(cpus)));
    let each = |number: u32| {
        let shared = Arc::clone(&shared);
        let body = move |cpu: &StepCpu| {
            let (lock, inside, left) = &*shared;
            for tries in (0..times).map(|time| (number + time) % 2 == 1) {
                if number < writers {
                    if !tries || !lock.try_lock_exclusive(cpu) {
                        lock.lock_exclusive(cpu);
                    }
                    assert_eq!(inside.fetch_add(WRITES, Relaxed), 0, "a writer is not alone");
                    assert!(lock.is_locked(cpu) && lock.is_locked_exclusive(cpu));
                    inside.fetch_sub(WRITES, Relaxed);
                    lock.unlock_exclusive(cpu);
                } else {
                    if !tries || !lock.try_lock_shared(cpu) {
                        lock.lock_shared(cpu);
                    }
                    assert!(inside.fetch_add(1, Relaxed) < WRITES, "a reader next to a writer");
                    assert!(lock.is_locked(cpu), "a lock that a reader holds is free");
                    inside.fetch_sub(1, Relaxed);
                    lock.unlock_shared(cpu);
                }
            }
            if left.fetch_sub(1, Relaxed) == 1 {
                assert!(!lock.is_locked(cpu), "a lock that no CPU holds is taken");
                assert!(is_unannounced(cpu), "a reader has left something behind");
            }
        };
        (CpuId(number), job(body))
    };
    (0..cpus).map(each).collect()
}

fn is_unannounced(cpu: &StepCpu) -> bool {
    cpu.reader_lines().iter().all(|line| line.is_empty(cpu))
}

/// Reads, and returns whether that was announced.
fn announces(cpu: &StepCpu, lock: &Lock) -> bool {
    lock.lock_shared(cpu);
    let announced = !is_unannounced(cpu);
    lock.unlock_shared(cpu);
    announced
}

fn write(cpu: &StepCpu, lock: &Lock) {
    lock.lock_exclusive(cpu);
    lock.unlock_exclusive(cpu);
}

/// Reads until the lock is biased.
fn bias(cpu: &StepCpu, lock: &Lock) {
    while !announces(cpu, lock) {}
}

/// Runs `body` on a machine of one CPU, which waits for nothing.
fn alone(body: impl FnOnce(&StepCpu) + Send + 'static) {
    let machine = run_in_turn(1, vec![(CpuId(0), job(body))]);
    assert_eq!((machine.kicks(0), machine.contentions(0)), (0, 0));
}

#[test]
fn it_conforms() {
    for reader_lines in [1, 3] {
        check_fair_rwlock::<Lock, _>(&StepWorld::new(setup(4, reader_lines)));
    }
    check_fair_rwlock::<Lock, _>(&StepWorld::new(Setup::hosted(4)));
}

#[test]
fn readers_and_writers_exclude_and_wake_each_other() {
    for reader_lines in [1, 2] {
        for writers in 0..=2 {
            every_schedule(setup(2, reader_lines), 3, || mixture(2, writers, 2)).expect("no schedule hangs");
            every_schedule(setup(3, reader_lines), 2, || mixture(3, writers, 1)).expect("no schedule hangs");
        }
        for writers in [0, 1, 4] {
            random_schedules(setup(5, reader_lines), 300, || mixture(5, writers, 5)).expect("no schedule hangs");
        }
    }
}

#[test]
fn a_lock_is_biased_when_the_platform_says_so_until_it_is_written() {
    alone(|cpu| {
        let lock = Lock::new();
        for _ in 0..2 {
            assert!(
                !announces(cpu, &lock) && !announces(cpu, &lock),
                "the second one biases it"
            );
            assert!(announces(cpu, &lock) && announces(cpu, &lock));
            write(cpu, &lock);
        }
    });
}

#[test]
fn of_two_holds_at_a_place_either_may_end_first() {
    alone(|cpu| {
        let lock = Lock::new();
        bias(cpu, &lock);
        lock.lock_shared(cpu);
        assert!(!is_unannounced(cpu));
        lock.lock_shared(cpu);
        lock.unlock_shared(cpu);
        assert!(is_unannounced(cpu), "the first hold has moved to the lock below");
        assert!(lock.is_locked(cpu) && !lock.try_lock_exclusive(cpu));
        lock.unlock_shared(cpu);
        assert!(!lock.is_locked(cpu) && lock.try_lock_exclusive(cpu));
    });
}

#[test]
fn an_attempt_to_write_in_vain_leaves_the_bias() {
    alone(|cpu| {
        let lock = Lock::new();
        bias(cpu, &lock);
        lock.lock_shared(cpu);
        assert!(!lock.try_lock_exclusive(cpu) && !lock.steal_exclusive(cpu, Budget(3)));
        lock.unlock_shared(cpu);
        assert!(announces(cpu, &lock));
        assert!(lock.steal_exclusive(cpu, Budget(3)));
        assert!(!lock.try_lock_shared(cpu) && !lock.steal_shared(cpu, Budget(3)));
        lock.downgrade(cpu);
        assert!(lock.steal_shared(cpu, Budget(3)));
    });
}

#[test]
fn two_locks_that_are_read_together_take_nothing_from_each_other() {
    alone(|cpu| {
        let locks = [(); 9].map(|()| Lock::new());
        locks.iter().for_each(|lock| bias(cpu, lock));
        locks.iter().for_each(|lock| lock.lock_shared(cpu));
        for lock in &locks {
            assert!(lock.is_locked(cpu) && !lock.try_lock_exclusive(cpu));
            lock.unlock_shared(cpu);
            assert!(!lock.is_locked(cpu), "more locks than places: some are below");
        }
    });
}

#[test]
fn what_a_forgotten_hold_has_left_is_removed_with_its_lock() {
    alone(|cpu| {
        let lock = Lock::new();
        bias(cpu, &lock);
        lock.lock_shared(cpu);
        assert!(!is_unannounced(cpu));
        lock.retire(cpu);
        assert!(is_unannounced(cpu));
    });
}

/// CPU 1 writes once CPU 0 reads, and CPU 0 leaves once CPU 1 has halted.
#[test]
fn a_release_kicks_a_writer_that_waits_for_it() {
    let shared = Arc::new((Lock::new(), StepWord::new(0)));
    let [reader, writer] = [(); 2].map(|()| Arc::clone(&shared));
    let jobs = vec![
        (
            CpuId(0),
            job(move |cpu: &StepCpu| {
                let (lock, turn) = &*reader;
                bias(cpu, lock);
                lock.lock_shared(cpu);
                cpu.store(turn, 1, Relaxed);
                while cpu.machine.halts(1) == 0 {
                    cpu.relax();
                }
                assert!(lock.is_locked_exclusive(cpu) && !lock.try_lock_shared(cpu));
                lock.unlock_shared(cpu);
            }),
        ),
        (
            CpuId(1),
            job(move |cpu: &StepCpu| {
                let (lock, turn) = &*writer;
                let _ = cpu.wait_until(turn, Budget::UNBOUNDED, Relaxed, |now| now == 1);
                write(cpu, lock);
            }),
        ),
    ];
    let machine = Machine::new(Setup::new(2), Box::new(InTurn(0)));
    machine.run(jobs).expect("no deadlock");
    assert_eq!((machine.halts(1), machine.kicks(0), machine.contentions(1)), (1, 1, 1));
}
