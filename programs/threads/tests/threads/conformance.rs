//! The conformance suite of `holdfast-locks` on threads.

use holdfast_locks::conformance::{self, Job, World};
use holdfast_locks::{BiasedRwlock, CpuId, HybridPvQspin, LockKind, Platform, Qrwlock};
use holdfast_threads::{ThisThread, ThreadWord, claim};

/// Threads that are CPUs 0 to `cpus` - 1 of this process. Only one world may run at a time, because the numbers belong
/// to the process.
struct Threads {
    cpus: u32,
    rounds: u32,
}

impl World for Threads {
    type Cpu = ThisThread;

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn rounds(&self) -> u32 {
        self.rounds
    }

    fn run(&self, jobs: Vec<(CpuId, Job<ThisThread>)>) {
        let _turn = crate::numbers();
        crate::on_threads(jobs.into_iter().map(|(number, job)| {
            move || {
                claim(number).expect("the number is free: earlier threads have ended");
                let cpu = ThisThread::new();
                assert_eq!(cpu.cpu(), number);
                job.run(&cpu);
            }
        }));
    }
}

#[test]
fn two_busy_threads_find_every_property_kept() {
    for &kind in LockKind::ALL {
        conformance::check(&Threads { cpus: 2, rounds: 200 }, kind);
    }
}

#[test]
fn the_reader_writer_locks_keep_every_property() {
    type Queued = Qrwlock<ThreadWord, HybridPvQspin>;
    type Biased = BiasedRwlock<ThreadWord, HybridPvQspin>;
    conformance::check_fair_rwlock::<Queued, _>(&Threads { cpus: 2, rounds: 400 });
    conformance::check_fair_rwlock::<Queued, _>(&Threads { cpus: 8, rounds: 100 });
    conformance::check_fair_rwlock::<Biased, _>(&Threads { cpus: 2, rounds: 5_000 });
    conformance::check_fair_rwlock::<Biased, _>(&Threads { cpus: 8, rounds: 100 });
}

/// Runs more threads than CPUs. There are few rounds, because a waiter that only spins waits for the end of time
/// slices.
#[test]
fn halting_locks_keep_every_property_overcommitted() {
    for &kind in LockKind::ALL {
        if kind.halts() {
            conformance::check(&Threads { cpus: 8, rounds: 100 }, kind);
        }
    }
}
