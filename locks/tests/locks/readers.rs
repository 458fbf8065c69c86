//! The reader-writer lock: exclusion, no lost kick, bounded overtaking, and who is kicked.

mod shared;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::{Job, check_fair_rwlock};
use holdfast_locks::{AllSteps, Budget, CpuId, HybridPvQspin, Platform, PvQspin, Qrwlock, Qspin, Steps, Ticket};

use crate::explore::{Calm, Random, RandomWalk, StepWorld, every_schedule, random_schedules};
use crate::scenes::{job, run_in_turn};
use crate::steps::{Machine, Setup, StepCpu, StepWord};
use shared::{BLOCKED, HEAD, NoBlock, NoKick, NoRecheck, READER, READERS_MAX, Shared, WRITER, mixture};

#[test]
fn it_conforms() {
    for setup in [Setup::new(4), Setup::hosted(4)] {
        check_fair_rwlock::<Qrwlock<StepWord, Qspin>, _>(&StepWorld::new(setup));
        check_fair_rwlock::<Qrwlock<StepWord, Ticket>, _>(&StepWorld::new(setup));
        check_fair_rwlock::<Qrwlock<StepWord, PvQspin>, _>(&StepWorld::new(setup));
        check_fair_rwlock::<Qrwlock<StepWord, HybridPvQspin>, _>(&StepWorld::new(setup));
    }
}

#[test]
fn a_reader_waits_for_no_reader_and_for_no_head_that_lets_it_pass() {
    for state in [0, READER, 7 * READER, 5 << 2, (5 << 2) | (3 * READER)] {
        let machine = alone(move |cpu| {
            let shared = Shared::<PvQspin>::new(state);
            shared.lock.lock_shared(cpu);
            assert_eq!(shared.state(cpu), state + READER);
        });
        assert_eq!(machine.contentions(0), 0, "{state:#x}");
        assert_eq!(machine.waits(0), [], "{state:#x}");
    }
}

#[test]
fn a_lock_that_is_free_can_be_stolen_at_once_however_long_the_thief_would_wait() {
    for state in [0, 5 << 2] {
        alone(move |cpu| {
            let written = Shared::<PvQspin>::new(state);
            assert!(written.lock.steal_exclusive(cpu, Budget::UNBOUNDED));
            assert_eq!(written.state(cpu), state + WRITER);
            let read = Shared::<PvQspin>::new(state);
            (1..3).for_each(|readers| {
                assert!(read.lock.steal_shared(cpu, Budget::UNBOUNDED));
                assert_eq!(read.state(cpu), state + readers * READER);
            });
        });
    }
}

#[test]
fn readers_and_writers_exclude_and_wake_each_other() {
    for setup in [Setup::new, Setup::hosted] {
        for writers in 0..=2 {
            every_schedule(setup(2), 4, || mixture::<PvQspin, AllSteps>(2, writers, 1)).expect("no schedule hangs");
            every_schedule(setup(3), 2, || mixture::<PvQspin, AllSteps>(3, writers, 1)).expect("no schedule hangs");
        }
        for writers in [0, 1, 4] {
            random_schedules(setup(5), 700, || mixture::<PvQspin, AllSteps>(5, writers, 3)).expect("no schedule hangs");
        }
    }
}

#[test]
fn without_a_step_a_schedule_hangs() {
    // The head sleeps on when the lock is released, or on a lock that was released before it wrote its number.
    random_schedules(Setup::new(3), 1000, || mixture::<Ticket, NoKick>(3, 1, 3)).expect_err("a missing kick");
    every_schedule(Setup::new(2), 3, || mixture::<PvQspin, NoRecheck>(2, 2, 1)).expect_err("a missing re-check");
}

/// Runs a random schedule in which no halt ends for no reason.
fn calmly(setup: Setup, seed: u64, jobs: Vec<(CpuId, Job<StepCpu>)>) -> Rc<Machine> {
    let chooser = Calm(RandomWalk {
        random: Random(seed),
        stride: 3,
    });
    let machine = Machine::new(setup, Box::new(chooser));
    machine
        .run(jobs)
        .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    machine
}

/// Runs `body` on a machine of one CPU.
fn alone(body: impl FnOnce(&StepCpu) + Send + 'static) -> Rc<Machine> {
    run_in_turn(1, vec![(CpuId(0), job(body))])
}

#[test]
fn the_state_says_who_may_have_the_lock() {
    // State, whether a reader may have the lock, whether a writer may.
    let head = 5 << 2;
    for (state, reader, writer) in [
        (0, true, true),
        (WRITER, false, false),
        (READER, true, false),
        (7 * READER, true, false),
        (BLOCKED, false, false),
        (head, true, true),
        (head | READER, true, false),
        (head | BLOCKED, false, false),
        (READER | BLOCKED, false, false),
        (READERS_MAX * READER, true, false),
        ((READERS_MAX + 1) * READER, false, false),
    ] {
        alone(move |cpu| {
            let shared = Shared::<PvQspin>::new(state);
            let lock = &shared.lock;
            assert_eq!(lock.is_locked(cpu), state & (WRITER | !(READER - 1)) != 0, "{state:#x}");
            assert_eq!(lock.is_locked_exclusive(cpu), state & WRITER != 0, "{state:#x}");
            for (may, gain, takes) in [
                (
                    reader,
                    READER,
                    Qrwlock::try_lock_shared as fn(&Qrwlock<_, PvQspin>, &StepCpu) -> bool,
                ),
                (reader, READER, |lock, cpu| lock.steal_shared(cpu, Budget(3))),
                (writer, WRITER, Qrwlock::try_lock_exclusive),
                (writer, WRITER, |lock, cpu| lock.steal_exclusive(cpu, Budget(3))),
            ] {
                let waits = cpu.machine.waits(0).len();
                assert_eq!(takes(lock, cpu), may, "{state:#x}: {gain:#x}");
                let waited = cpu.machine.waits(0).len() > waits;
                assert!(!may || !waited, "{state:#x}: a wait for a lock that is free");
                let now = if may { state + gain } else { state };
                assert_eq!(cpu.load(lock.word(), Relaxed), now, "{state:#x}: {gain:#x}");
                cpu.store(lock.word(), state, Relaxed);
            }
        });
    }
}

#[test]
fn a_reader_ignores_a_head_that_does_not_block() {
    // The number of a head that has halted, with or without another reader.
    for state in [5 << 2, 5 << 2 | READER] {
        let machine = alone(move |cpu| {
            let shared = Shared::<PvQspin>::new(state);
            shared.lock.lock_shared(cpu);
            assert_eq!(shared.state(cpu), state + READER);
        });
        assert_eq!((machine.halts(0), machine.kicks(0)), (0, 0));
    }
}

#[test]
fn too_many_readers_panic_and_are_not_counted() {
    alone(|cpu| {
        let shared = Shared::<PvQspin>::new((READERS_MAX + 1) * READER);
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.lock.lock_shared(cpu)));
        assert!(refused.is_err());
        assert_eq!(shared.state(cpu), (READERS_MAX + 1) * READER);
        // One fewer is not too many.
        cpu.store(shared.lock.word(), (READERS_MAX - 1) * READER, Relaxed);
        shared.lock.lock_shared(cpu);
        assert_eq!(shared.state(cpu), READERS_MAX * READER);
    });
}

/// CPU 0 takes the lock, lets CPU 1 wait at the head of the queue until it has halted, then runs `release`. `writes`:
/// whether CPU 1 writes. CPU 0 first takes the lock as `readers` readers, or as the writer if there are none.
fn head_halts(
    readers: u32,
    writes: bool,
    seed: u64,
    release: impl FnOnce(&StepCpu, &Shared) + Send + 'static,
) -> Rc<Machine> {
    let shared = Shared::<PvQspin>::new(0);
    let head = Arc::clone(&shared);
    let holder = job(move |cpu| {
        match readers {
            0 => shared.lock.lock_exclusive(cpu),
            _ => (0..readers).for_each(|_| shared.lock.lock_shared(cpu)),
        }
        cpu.store(&shared.turn, 1, Relaxed);
        shared.wait_for(cpu, |state| state & HEAD != 0);
        // Time to halt.
        (0..50).for_each(|_| cpu.relax());
        assert_eq!(shared.state(cpu) & HEAD, 2 << 2, "CPU 1 is the head");
        release(cpu, &shared);
    });
    let head = job(move |cpu| {
        head.wait_for_turn(cpu, 1);
        if writes {
            head.write(cpu, || assert_eq!(head.state(cpu), WRITER));
        } else {
            head.read(cpu, || assert_eq!(head.state(cpu) & !(READER - 1), head.state(cpu)));
        }
        cpu.store(&head.turn, 2, Relaxed);
    });
    calmly(Setup::new(2), seed, vec![(CpuId(0), holder), (CpuId(1), head)])
}

#[test]
fn only_the_release_that_frees_the_lock_kicks_the_head() {
    for seed in 0..30 {
        // The last of three readers, for a writer.
        let machine = head_halts(3, true, seed, |cpu, shared| {
            for left in [2, 1] {
                shared.lock.unlock_shared(cpu);
                assert_eq!(cpu.machine.kicks(0), 0, "{left} readers are left");
            }
            shared.lock.unlock_shared(cpu);
        });
        assert_eq!((machine.kicks(0), machine.halts(1)), (1, 1), "seed {seed}");
        // A writer, for a writer and for a reader.
        for writes in [false, true] {
            let machine = head_halts(0, writes, seed, |cpu, shared| shared.lock.unlock_exclusive(cpu));
            assert_eq!((machine.kicks(0), machine.halts(1)), (1, 1), "seed {seed}");
        }
        // A writer that becomes a reader: the reader at the head need not wait for its end.
        let machine = head_halts(0, false, seed, |cpu, shared| {
            shared.lock.downgrade(cpu);
            shared.wait_for_turn(cpu, 2);
            shared.lock.unlock_shared(cpu);
        });
        assert_eq!((machine.kicks(0), machine.halts(1)), (1, 1), "seed {seed}");
    }
    // No head, no kick.
    let machine = alone(|cpu| {
        let shared = Shared::<PvQspin>::new(0);
        shared.write(cpu, || ());
        shared.read(cpu, || ());
        shared.lock.lock_exclusive(cpu);
        shared.lock.downgrade(cpu);
        shared.lock.unlock_shared(cpu);
        assert_eq!(shared.state(cpu), 0);
    });
    assert_eq!(machine.kicks(0), 0);
}

#[test]
fn a_newcomer_queues_behind_a_head_that_waits() {
    for seed in 0..30 {
        head_halts(1, true, seed, |cpu, shared| {
            assert_ne!(shared.state(cpu) & BLOCKED, 0, "the head blocks newcomers");
            assert!(!shared.lock.try_lock_shared(cpu));
            let begun = cpu.machine.steps();
            assert!(!shared.lock.steal_shared(cpu, Budget(5)));
            let (pauses, looks) = (5, 4);
            let waited = cpu.machine.steps() - begun;
            assert_eq!(waited, pauses + looks, "it waits for the lock as long as it may");
            shared.lock.unlock_shared(cpu);
        });
    }
}

/// A reader takes the lock again and again until a waiting writer prevents that.
fn insistent_reader<S: Steps + 'static>() -> Vec<(CpuId, Job<StepCpu>)> {
    let reader = Shared::<PvQspin, S>::new(0);
    let writer = Arc::clone(&reader);
    let reader = job(move |cpu| {
        reader.lock.lock_shared(cpu);
        cpu.store(&reader.turn, 1, Relaxed);
        while reader.lock.try_lock_shared(cpu) {
            reader.lock.unlock_shared(cpu);
        }
        reader.lock.unlock_shared(cpu);
    });
    let writer = job(move |cpu| {
        writer.wait_for_turn(cpu, 1);
        writer.write(cpu, || ());
    });
    vec![(CpuId(0), reader), (CpuId(1), writer)]
}

#[test]
fn readers_do_not_overtake_a_writer_without_end() {
    let setup = |setup| Setup {
        steps_max: 20_000,
        ..setup
    };
    for two in [Setup::new(2), Setup::hosted(2)].map(setup) {
        random_schedules(two, 1000, insistent_reader::<AllSteps>).expect("the writer gets the lock");
        random_schedules(two, 100, insistent_reader::<NoBlock>).expect_err("readers overtake it");
    }
}

/// On CPUs like host threads: CPU 0 holds the lock, as a reader or the writer, and CPU 1 comes. Returns the iterations
/// of CPU 1's waits before it has first halted.
fn waits_of_the_head(holder_reads: bool, threshold: u32) -> Vec<u32> {
    let holder = Shared::<PvQspin>::new(0);
    let head = Arc::clone(&holder);
    let holder = job(move |cpu| {
        match holder_reads {
            true => holder.lock.lock_shared(cpu),
            false => holder.lock.lock_exclusive(cpu),
        }
        cpu.store(&holder.turn, 1, Relaxed);
        holder.wait_for(cpu, |state| state & HEAD != 0);
        (0..50).for_each(|_| cpu.relax());
        let blocked = holder.state(cpu) & BLOCKED != 0;
        assert_eq!(blocked, holder_reads, "the head competes with writers only");
        match holder_reads {
            true => holder.lock.unlock_shared(cpu),
            false => holder.lock.unlock_exclusive(cpu),
        }
    });
    let head = job(move |cpu| {
        head.wait_for_turn(cpu, 1);
        head.write(cpu, || ());
    });
    let setup = Setup {
        threshold,
        ..Setup::hosted(2)
    };
    let machine = calmly(setup, 1, vec![(CpuId(0), holder), (CpuId(1), head)]);
    machine.halted_after(1)[0].clone()
}

#[test]
fn the_head_competes_on_equal_terms_with_writers_only() {
    let equal = 1;
    let threshold = 7;
    // The head spins for its share, and halts; behind readers it blocks newcomers and spins up to the threshold first.
    assert_eq!(waits_of_the_head(false, threshold), [equal]);
    assert_eq!(waits_of_the_head(true, threshold), [equal, threshold]);
}

/// On CPUs like host threads, CPU 1 heads the queue and halts. CPU 0, the writer, releases the lock and takes it again
/// at once, `times` times. Returns how often CPU 1 could be overtaken before it blocked that.
fn overtaken_head(times: u32, seed: u64) -> u32 {
    let holder = Shared::<PvQspin>::new(0);
    let head = Arc::clone(&holder);
    let taken = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&taken);
    let holder = job(move |cpu| {
        holder.lock.lock_exclusive(cpu);
        cpu.store(&holder.turn, 1, Relaxed);
        holder.wait_for(cpu, |state| state & HEAD != 0);
        for _ in 0..times {
            holder.lock.unlock_exclusive(cpu);
            if !holder.lock.try_lock_exclusive(cpu) {
                return;
            }
            if cpu.load(&holder.turn, Relaxed) == 2 {
                break;
            }
            counted.fetch_add(1, Relaxed);
            // Every second time the platform says that this must be the last time.
            let last = holder.state(cpu) & HEAD != 0 && counted.load(Relaxed).is_multiple_of(2);
            assert!(!last || holder.state(cpu) & BLOCKED != 0, "newcomers are not blocked");
            (0..100).for_each(|_| cpu.relax());
        }
        holder.lock.unlock_exclusive(cpu);
    });
    let head = job(move |cpu| {
        head.wait_for_turn(cpu, 1);
        head.write(cpu, || {
            assert_eq!(head.state(cpu) & (BLOCKED | HEAD), 0);
            cpu.store(&head.turn, 2, Relaxed);
        });
    });
    calmly(Setup::hosted(2), seed, vec![(CpuId(0), holder), (CpuId(1), head)]);
    taken.load(Relaxed)
}

#[test]
fn newcomers_are_blocked_for_a_head_that_is_there() {
    let body = |cpu: &StepCpu| {
        // The platform says every second time that the last overtaking must be the last.
        for (head, blocked) in [(0, [0, 0, 0]), (5 << 2, [0, BLOCKED, 0])] {
            let shared = Shared::<PvQspin>::new(head);
            for blocked in blocked {
                assert!(shared.lock.try_lock_exclusive(cpu));
                assert_eq!(shared.state(cpu), head | WRITER | blocked);
                cpu.store(shared.lock.word(), head, Relaxed);
            }
        }
    };
    calmly(Setup::hosted(1), 0, vec![(CpuId(0), job(body))]);
}

#[test]
fn a_writer_overtakes_the_head_a_few_times_only() {
    let taken: Vec<u32> = (0..50).map(|seed| overtaken_head(20, seed)).collect();
    assert!(taken.iter().all(|&taken| taken <= 4), "{taken:?}");
    assert!(taken.iter().any(|&taken| taken > 0), "no writer overtakes the head");
}

#[test]
fn a_head_in_an_nmi_does_not_halt() {
    let holder = Shared::<PvQspin>::new(0);
    let head = Arc::clone(&holder);
    let holder = job(move |cpu| {
        holder.lock.lock_exclusive(cpu);
        cpu.store(&holder.turn, 1, Relaxed);
        (0..200).for_each(|_| cpu.relax());
        assert_eq!(holder.state(cpu) & HEAD, 0, "the head asks for a kick");
        holder.lock.unlock_exclusive(cpu);
    });
    let head = job(move |cpu| {
        cpu.nmi(|cpu| {
            head.wait_for_turn(cpu, 1);
            head.write(cpu, || ());
        });
    });
    let machine = calmly(Setup::new(2), 1, vec![(CpuId(0), holder), (CpuId(1), head)]);
    assert_eq!((machine.halts(1), machine.kicks(0)), (0, 0));
}
