//! A CPU may vanish at any step, as the threads of a process that forks do: what it has recorded in order that the lock
//! can be put in order.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_locks::conformance::Job;
use holdfast_locks::{Budget, CpuId, Described, Instead, Platform, PvQspin, Qrwlock, RawLock, Word};

use crate::explore::{every_schedule, random_schedules};
use crate::scenes::job;
use crate::steps::{Setup, StepCpu, StepWord};

/// The kind of a queue that a CPU must have recorded as long as it may be in the queue.
struct Recorded;

impl Described for Recorded {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = u32::MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "in this test only";
}

impl RawLock<StepCpu> for Recorded {
    fn lock(cpu: &StepCpu, word: &StepWord) {
        assert!(cpu.has_recorded(word), "the queue is not recorded yet");
        <PvQspin>::lock(cpu, word);
        assert!(cpu.has_recorded(word), "the queue is recorded no more");
    }
    fn try_lock(cpu: &StepCpu, word: &StepWord) -> bool {
        assert!(cpu.has_recorded(word), "the queue is not recorded yet");
        <PvQspin>::try_lock(cpu, word)
    }
    fn unlock(cpu: &StepCpu, word: &StepWord) {
        <PvQspin>::unlock(cpu, word);
        assert!(cpu.has_recorded(word), "the queue is recorded no more");
    }
    fn is_locked(cpu: &StepCpu, word: &StepWord) -> bool {
        <PvQspin>::is_locked(cpu, word)
    }
    fn is_contended(cpu: &StepCpu, word: &StepWord) -> bool {
        <PvQspin>::is_contended(cpu, word)
    }
}

/// CPU 0 holds a lock until a writer blocks newcomers. The other CPUs write and read.
fn a_writer_blocks(cpus: u32) -> Vec<(CpuId, Job<StepCpu>)> {
    const BLOCKED: u32 = 2;
    let lock = Arc::new(Qrwlock::<StepWord, Recorded>::from_words(
        StepWord::new(1 << 16),
        StepWord::new(0),
    ));
    let each = |number: u32| {
        let lock = Arc::clone(&lock);
        let body = move |cpu: &StepCpu| {
            if number == 0 {
                let blocked = |state: u32| state & BLOCKED != 0;
                let _ = cpu.wait_until(lock.word(), Budget::UNBOUNDED, Relaxed, blocked);
                let heads = (1..cpus).filter(|&other| cpu.machine.has_recorded(other, cpu.key(lock.word())));
                assert!(heads.count() > 0, "no CPU has recorded that it blocks newcomers");
                lock.unlock_shared(cpu);
            } else if number == 1 {
                lock.lock_exclusive(cpu);
                lock.unlock_exclusive(cpu);
            } else {
                lock.lock_shared(cpu);
                lock.unlock_shared(cpu);
            }
        };
        (CpuId(number), job(body))
    };
    (0..cpus).map(each).collect()
}

#[test]
fn a_cpu_that_queues_for_a_reader_writer_lock_has_recorded_both_words() {
    for setup in [Setup::new, Setup::hosted] {
        every_schedule(setup(3), 2, || a_writer_blocks(3)).expect("no schedule fails");
        random_schedules(setup(4), 500, || a_writer_blocks(4)).expect("no schedule fails");
    }
}
