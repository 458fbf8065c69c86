//! What reader-writer locks promise.

use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::{Gate, Job, WordOf, World, on_each, pause, spins};
use crate::cpu::platform::{CpuId, Platform, Word};
use crate::raw::{RawRwlock, TryRwlock};

/// Checks all properties that a reader-writer lock of kind `L` promises.
///
/// # Panics
/// If a property does not hold.
pub fn check_rwlock<L, W: World>(world: &W)
where
    L: RawRwlock<W::Cpu> + 'static,
{
    for held_for_long in [false, true] {
        readers_and_writers::<L, W>(world, held_for_long);
    }
    readers_together::<L, W>(world);
}

/// Checks all properties that a reader-writer lock of kind `L` promises if it also stops new readers while a writer
/// waits: a [`Qrwlock`](crate::Qrwlock) or a [`BiasedRwlock`](crate::BiasedRwlock).
///
/// # Panics
/// If a property does not hold.
pub fn check_fair_rwlock<L, W: World>(world: &W)
where
    L: TryRwlock<W::Cpu> + 'static,
{
    check_rwlock::<L, W>(world);
    tries::<L, W>(world);
    waiting_writer::<L, W>(world);
}

/// Checks that a writer holds the lock alone, that it sees what earlier writers wrote, and that all waiters are woken.
/// A lock that is held for long lets waiters halt.
pub fn readers_and_writers<L, W: World>(world: &W, held_for_long: bool)
where
    L: RawRwlock<W::Cpu> + 'static,
{
    /// Stands for a writer among the holders.
    const WRITES: u32 = 1 << 16;
    struct Shared<Wd, L> {
        lock: L,
        inside: AtomicU32,
        total: Wd,
    }
    let (cpus, rounds) = (world.cpus(), world.rounds());
    let rounds = if held_for_long { rounds.div_ceil(4) } else { rounds };
    let shared = Arc::new(Shared {
        lock: L::unlocked(),
        inside: AtomicU32::new(0),
        total: Word::<u32>::new(0),
    });
    let written = Arc::clone(&shared);
    world.run(on_each(0..cpus, move |cpu: &W::Cpu| {
        let Shared { lock, inside, total } = &*shared;
        let hold = if held_for_long { 2 * spins(cpu) } else { 1 };
        for round in 0..rounds {
            if (cpu.cpu().0 + round) % 2 == 0 {
                lock.lock_exclusive(cpu);
                assert_eq!(inside.fetch_add(WRITES, Relaxed), 0, "a writer is not alone");
                // ORDERING: Relaxed, both; the lock orders them.
                let before = cpu.load(total, Relaxed);
                pause(cpu, hold);
                cpu.store(total, before + 1, Relaxed);
                inside.fetch_sub(WRITES, Relaxed);
                lock.unlock_exclusive(cpu);
            } else {
                lock.lock_shared(cpu);
                assert!(inside.fetch_add(1, Relaxed) < WRITES, "a reader next to a writer");
                pause(cpu, hold);
                inside.fetch_sub(1, Relaxed);
                lock.unlock_shared(cpu);
            }
        }
    }));
    world.run(on_each(0..1, move |cpu: &W::Cpu| {
        let writers = (0..cpus).flat_map(|cpu| (0..rounds).map(move |round| cpu + round));
        let expected = writers.filter(|sum| sum % 2 == 0).count();
        // ORDERING: Relaxed; all other jobs are done.
        assert_eq!(
            cpu.load(&written.total, Relaxed) as usize,
            expected,
            "updates under the lock were lost"
        );
        assert!(!written.lock.is_locked(cpu), "a lock that no CPU holds is taken");
    }));
}

/// Checks what attempts to take a held lock return, and that a writer can become a reader.
fn tries<L, W: World>(world: &W)
where
    L: TryRwlock<W::Cpu> + 'static,
{
    let lock = Arc::new(L::unlocked());
    world.run(on_each(0..1, move |cpu: &W::Cpu| {
        assert!(lock.try_lock_exclusive(cpu), "a free lock was refused");
        assert!(!lock.try_lock_shared(cpu), "a reader next to a writer");
        lock.downgrade(cpu);
        assert!(lock.try_lock_shared(cpu), "a reader was refused next to another");
        assert!(!lock.try_lock_exclusive(cpu), "a writer is not alone");
        lock.unlock_shared(cpu);
        lock.unlock_shared(cpu);
        assert!(lock.try_lock_shared(cpu), "a free lock was refused");
        assert!(!lock.try_lock_exclusive(cpu), "a writer is not alone");
        lock.unlock_shared(cpu);
        assert!(lock.try_lock_exclusive(cpu), "a free lock was refused");
        lock.unlock_exclusive(cpu);
        assert!(!lock.is_locked(cpu), "a lock that no CPU holds is taken");
    }));
}

/// Checks that two readers can hold the lock together, and that the second one need not wait for the first.
pub fn readers_together<L, W: World>(world: &W)
where
    L: RawRwlock<W::Cpu> + 'static,
{
    let new = || Gate(WordOf::<W>::new(0));
    let shared = Arc::new((L::unlocked(), [new(), new()]));
    world.run(on_each(0..2, move |cpu: &W::Cpu| {
        let (lock, gates) = &*shared;
        let me = cpu.cpu().0 as usize;
        lock.lock_shared(cpu);
        gates[me].open(cpu, 1);
        gates[1 - me].pass(cpu, 1);
        lock.unlock_shared(cpu);
    }));
}

/// Checks that a waiting writer stops new readers: a reader takes the lock a second time, again and again, until that
/// fails.
pub fn waiting_writer<L, W: World>(world: &W)
where
    L: TryRwlock<W::Cpu> + 'static,
{
    for _ in 0..world.rounds().div_ceil(4) {
        let reader = Arc::new((L::unlocked(), Gate(WordOf::<W>::new(0))));
        let writer = Arc::clone(&reader);
        let reader = Job::of_suite(move |cpu: &W::Cpu| {
            let (lock, gate) = &*reader;
            lock.lock_shared(cpu);
            gate.open(cpu, 1);
            while lock.try_lock_shared(cpu) {
                lock.unlock_shared(cpu);
                cpu.relax();
            }
            lock.unlock_shared(cpu);
        });
        let writer = Job::of_suite(move |cpu: &W::Cpu| {
            let (lock, gate) = &*writer;
            gate.pass(cpu, 1);
            lock.lock_exclusive(cpu);
            lock.unlock_exclusive(cpu);
        });
        world.run(vec![(CpuId(0), reader), (CpuId(1), writer)]);
    }
}
