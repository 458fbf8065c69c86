//! The reader-writer lock whose queue's kind is chosen at boot: what a kernel takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::{BootRwlock, CpuId, LockKind, Platform};

use crate::explore::{Random, RandomWalk};
use crate::scenes::job;
use crate::steps::{Machine, Setup, StepCpu, StepWord};

/// Stands for a writer among the holders.
const WRITES: u32 = 1 << 16;

/// Two CPUs read and two write, under random schedules. Returns the largest number of readers at a time, and the halts.
fn readers_and_writers(kind: LockKind) -> (u32, u32) {
    let (mut together, mut halts) = (0, 0);
    for seed in 0..60 {
        let lock = Arc::new(BootRwlock::<StepWord>::new());
        let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let each = |number: u32| {
            let (lock, inside, most) = (Arc::clone(&lock), Arc::clone(&inside), Arc::clone(&most));
            let body = move |cpu: &StepCpu| {
                for _ in 0..4 {
                    if number < 2 {
                        lock.lock_exclusive(kind, cpu);
                        assert_eq!(inside.fetch_add(WRITES, Relaxed), 0, "{kind}: a writer is not alone");
                        (0..5).for_each(|_| cpu.relax());
                        inside.fetch_sub(WRITES, Relaxed);
                        lock.unlock_exclusive(cpu);
                    } else {
                        lock.lock_shared(kind, cpu);
                        let before = inside.fetch_add(1, Relaxed);
                        assert!(before < WRITES, "{kind}: a reader next to a writer");
                        most.fetch_max(before + 1, Relaxed);
                        (0..5).for_each(|_| cpu.relax());
                        inside.fetch_sub(1, Relaxed);
                        lock.unlock_shared(cpu);
                    }
                }
            };
            (CpuId(number), job(body))
        };
        let walk = RandomWalk {
            random: Random(seed),
            stride: 2 + seed % 6,
        };
        let machine = Machine::new(Setup::new(4), Box::new(walk));
        machine.run((0..4).map(each).collect()).expect("no deadlock");
        together = together.max(most.load(Relaxed));
        halts += (0..4).map(|cpu| machine.halts(cpu)).sum::<u32>();
    }
    (together, halts)
}

#[test]
fn a_lock_whose_kind_is_chosen_at_boot_shares_among_readers_and_excludes_writers() {
    for &kind in LockKind::ALL {
        let (together, halts) = readers_and_writers(kind);
        assert_eq!(together, 2, "{kind}: readers share");
        assert!(
            kind.halts() || halts == 0,
            "{kind}: the head of the queue spins on a host that cannot kick"
        );
    }
}
