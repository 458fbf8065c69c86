//! The reader-writer lock without a queue: exclusion, what an attempt in vain leaves behind, and who overtakes whom.

#![expect(unsafe_code, reason = "plants faults")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::{Job, check_rwlock};
use holdfast_locks::{AllSteps, Budget, CpuId, Platform, RawRwlock, Steps, UnqueuedRwlock, Word};

use crate::explore::{StepWorld, every_schedule, random_schedules};
use crate::scenes::{job, run_in_turn};
use crate::steps::{Setup, StepCpu, StepWord};
use crate::threads::{HostCpu, ThreadWorld};

struct NoTakeBack;
// SAFETY: the tests protect no memory with these locks.
unsafe impl Steps for NoTakeBack {
    const TAKE_BACK: bool = false;
}

/// Stands for a writer among the holders.
const WRITES: u32 = 1 << 16;

/// Each CPU takes the lock `times` times: the first `writers` CPUs to write, the others to read. The last to leave
/// checks that the lock is free.
fn mixture<S: Steps + 'static>(cpus: u32, writers: u32, times: u32) -> Vec<(CpuId, Job<StepCpu>)> {
    let lock = Arc::new(UnqueuedRwlock::<StepWord, S>::new());
    let (inside, left) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(cpus)));
    let each = |number: u32| {
        let (lock, inside, left) = (Arc::clone(&lock), Arc::clone(&inside), Arc::clone(&left));
        let body = move |cpu: &StepCpu| {
            for _ in 0..times {
                if number < writers {
                    lock.lock_exclusive(cpu);
                    assert_eq!(inside.fetch_add(WRITES, Relaxed), 0, "a writer is not alone");
                    cpu.relax();
                    inside.fetch_sub(WRITES, Relaxed);
                    lock.unlock_exclusive(cpu);
                } else {
                    lock.lock_shared(cpu);
                    assert!(inside.fetch_add(1, Relaxed) < WRITES, "a reader next to a writer");
                    cpu.relax();
                    inside.fetch_sub(1, Relaxed);
                    lock.unlock_shared(cpu);
                }
            }
            if left.fetch_sub(1, Relaxed) == 1 {
                assert_eq!(cpu.load(lock.word(), Relaxed), 0, "an attempt in vain is still counted");
            }
        };
        (CpuId(number), job(body))
    };
    (0..cpus).map(each).collect()
}

#[test]
fn it_conforms() {
    check_rwlock::<UnqueuedRwlock<StepWord>, _>(&StepWorld::new(Setup::new(4)));
    check_rwlock::<UnqueuedRwlock<<HostCpu as Platform>::Word>, _>(&ThreadWorld::new(3));
}

#[test]
fn readers_and_writers_exclude_each_other_and_leave_nothing_behind() {
    for writers in 0..=2 {
        every_schedule(Setup::new(2), 4, || mixture::<AllSteps>(2, writers, 1)).expect("no schedule hangs");
        every_schedule(Setup::new(3), 2, || mixture::<AllSteps>(3, writers, 1)).expect("no schedule hangs");
    }
    for writers in [0, 1, 4] {
        random_schedules(Setup::new(5), 500, || mixture::<AllSteps>(5, writers, 3)).expect("no schedule hangs");
    }
}

#[test]
fn without_taking_back_an_attempt_in_vain_a_writer_hangs() {
    every_schedule(Setup::new(2), 3, || mixture::<NoTakeBack>(2, 2, 1)).expect_err("the lock is never free again");
}

#[test]
#[should_panic(expected = "an attempt in vain is still counted")]
fn without_taking_back_an_attempt_in_vain_a_reader_stays_counted() {
    let _ = every_schedule(Setup::new(2), 3, || mixture::<NoTakeBack>(2, 1, 1));
}

/// A free lock costs one addition, for readers next to others, too.
#[test]
fn a_reader_waits_for_no_reader() {
    let machine = run_in_turn(
        1,
        vec![(
            CpuId(0),
            job(|cpu: &StepCpu| {
                let lock = UnqueuedRwlock::<StepWord>::new();
                (0..3).for_each(|_| lock.lock_shared(cpu));
                assert!(lock.is_locked(cpu));
                (0..3).for_each(|_| lock.unlock_shared(cpu));
                assert!(!lock.is_locked(cpu));
            }),
        )],
    );
    assert_eq!((machine.contentions(0), machine.waits(0)), (0, vec![]));
}

/// CPU 0 reads until CPU 2 has read. CPU 1 has been waiting to write from before.
#[test]
fn readers_overtake_a_writer_that_waits() {
    let lock = Arc::new(UnqueuedRwlock::<StepWord>::new());
    let turn = Arc::new(StepWord::new(0));
    let wait = |cpu: &StepCpu, turn: &StepWord, at: u32| {
        let _ = cpu.wait_until(turn, Budget::UNBOUNDED, Relaxed, |now| now >= at);
    };
    let [first, writer, second] = [(); 3].map(|()| (Arc::clone(&lock), Arc::clone(&turn)));
    let jobs = vec![
        (
            CpuId(0),
            job(move |cpu: &StepCpu| {
                let (lock, turn) = &first;
                lock.lock_shared(cpu);
                cpu.store(turn, 1, Relaxed);
                wait(cpu, turn, 2);
                lock.unlock_shared(cpu);
            }),
        ),
        (
            CpuId(1),
            job(move |cpu: &StepCpu| {
                let (lock, turn) = &writer;
                wait(cpu, turn, 1);
                lock.lock_exclusive(cpu);
                assert_eq!(cpu.load(turn, Relaxed), 2, "the second reader came first");
                lock.unlock_exclusive(cpu);
            }),
        ),
        (
            CpuId(2),
            job(move |cpu: &StepCpu| {
                let (lock, turn) = &second;
                wait(cpu, turn, 1);
                (0..20).for_each(|_| cpu.relax());
                lock.lock_shared(cpu);
                cpu.store(turn, 2, Relaxed);
                lock.unlock_shared(cpu);
            }),
        ),
    ];
    let machine = run_in_turn(3, jobs);
    assert_eq!(machine.contentions(1), 1, "the writer waits");
    assert_eq!(machine.contentions(2), 0, "the second reader does not");
}
