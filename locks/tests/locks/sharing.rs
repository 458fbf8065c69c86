//! Which CPUs take a hybrid lock past its queue, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::Job;
use holdfast_locks::{Budget, CpuId, Event, HybridPvQspin, Paravirt, Platform, RawLock, UnfairPvQspin, Wide};

use crate::explore::{Calm, Random, RandomWalk};
use crate::scenes::{Checked, job};
use crate::steps::{Machine, Setup, StepCpu};

const PENDING: u32 = 0x100;
const QUEUE: u32 = 0xffff_0000;

fn machine(setup: Setup, seed: u64) -> std::rc::Rc<Machine> {
    let chooser = RandomWalk {
        random: Random(seed),
        stride: 3,
    };
    Machine::new(setup, Box::new(chooser))
}

fn wait_for(cpu: &StepCpu, lock: &Checked, until: impl Fn(u32) -> bool) {
    let _ = cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, until);
}

/// What the last holder of a lock knew.
#[derive(Default)]
struct Seen {
    /// How often the lock had been taken.
    taken: AtomicU32,
    /// How often the queue had been overtaken.
    thefts: AtomicU32,
    /// The last acquisition that had overtaken it.
    theft: AtomicU32,
    /// The acquisition since which only the head of the queue may take the lock, or 0.
    barred: AtomicU32,
    /// How often it was barred.
    bars: AtomicU32,
}

/// Takes `lock` several times. Every second time that this CPU overtakes the queue, [`Paravirt::overtook`] forbids
/// further overtaking. Returns how often it overtook a queue that had been overtaken, and that it knew as such.
fn takes(cpu: &StepCpu, lock: &Checked, seen: &Seen) -> u32 {
    let (mut own, mut again) = (0, 0);
    for _ in 0..6 {
        let begun = seen.taken.load(Relaxed);
        lock.with::<HybridPvQspin>(cpu, || {
            let taken = seen.taken.fetch_add(1, Relaxed) + 1;
            // Only the holder counts thefts, so a new one is its own.
            let thefts = cpu.recorder().count(Event::PvLockStealing) as u32;
            if seen.thefts.swap(thefts, Relaxed) == thefts {
                seen.theft.store(0, Relaxed);
                seen.barred.store(0, Relaxed);
                return;
            }
            // A CPU that read the word before may come in between.
            let barred = seen.barred.load(Relaxed);
            assert!(
                barred == 0 || begun < barred,
                "the queue is overtaken although it must not be"
            );
            let theft = seen.theft.swap(taken, Relaxed);
            again += u32::from(theft != 0 && begun >= theft);
            own += 1;
            let word = cpu.load(&lock.word, Relaxed);
            // The queue may have ended before this CPU took the lock. Then no CPU would clear the bit.
            assert!(
                word & PENDING == 0 || word >> 16 != 0,
                "newcomers are barred for no queue"
            );
            if own % 2 == 0 && word & PENDING != 0 {
                seen.barred.store(taken, Relaxed);
                seen.bars.fetch_add(1, Relaxed);
            }
        });
    }
    again
}

#[test]
fn a_queue_is_overtaken_until_the_platform_says_no() {
    let again = Arc::new(AtomicU32::new(0));
    let mut bars = 0;
    for seed in 0..400 {
        let (lock, seen) = (Checked::new(0), Arc::new(Seen::default()));
        let each = |number| {
            let (lock, seen, again) = (Arc::clone(&lock), Arc::clone(&seen), Arc::clone(&again));
            let body = move |cpu: &StepCpu| {
                again.fetch_add(takes(cpu, &lock, &seen), Relaxed);
            };
            (CpuId(number), job(body))
        };
        let jobs: Vec<(CpuId, Job<StepCpu>)> = (0..4).map(each).collect();
        // A head that spins alone gives up no bar.
        let setup = Setup {
            threshold: Budget::UNBOUNDED.0,
            ..Setup::hosted(4)
        };
        machine(setup, seed).run(jobs).expect("no deadlock");
        bars += seen.bars.load(Relaxed);
    }
    assert!(bars > 400, "{bars} bars: the platform is not heard");
    assert!(again.load(Relaxed) > 0, "no CPU overtakes a queue again");
}

#[test]
fn the_unfair_lock_never_bars_newcomers() {
    for seed in 0..200 {
        let lock = Checked::new(0);
        let each = |number| {
            let lock = Arc::clone(&lock);
            let body = move |cpu: &StepCpu| {
                for _ in 0..6 {
                    lock.with::<UnfairPvQspin>(cpu, || assert_eq!(cpu.load(&lock.word, Relaxed) & PENDING, 0));
                }
            };
            (CpuId(number), job(body))
        };
        machine(Setup::hosted(4), seed)
            .run((0..4).map(each).collect())
            .expect("no deadlock");
    }
}

/// CPU `number`, which takes the lock when `turn` has come to it.
fn waiter<L: RawLock<StepCpu> + 'static>(
    lock: &Arc<Checked>,
    turn: &Arc<Checked>,
    number: u32,
) -> (CpuId, Job<StepCpu>) {
    let (lock, turn) = (Arc::clone(lock), Arc::clone(turn));
    let body = move |cpu: &StepCpu| {
        wait_for(cpu, &turn, |now| now >= number);
        lock.with::<L>(cpu, || ());
    };
    (CpuId(number), job(body))
}

/// CPU 0 holds the lock until each of the others queues, one after another. `threshold`: iterations before a waiter
/// halts.
fn all_queue(threshold: u32, waiters: u32, seed: u64) {
    let lock = Checked::new(0);
    let turn = Checked::new(0);
    let (held, turns) = (Arc::clone(&lock), Arc::clone(&turn));
    let holder = job(move |cpu| {
        held.with::<HybridPvQspin>(cpu, || {
            for waiter in 1..=waiters {
                let before = cpu.load(&held.word, Relaxed) & QUEUE;
                // Only a head that spins keeps newcomers from competing.
                wait_for(cpu, &held, |now| before == 0 || now & PENDING != 0);
                cpu.store(&turns.word, waiter, Relaxed);
                wait_for(cpu, &held, |now| now & QUEUE != before);
            }
        });
    });
    let mut jobs = vec![(CpuId(0), holder)];
    jobs.extend((1..=waiters).map(|number| waiter::<HybridPvQspin>(&lock, &turn, number)));
    let setup = Setup {
        threshold,
        steps_max: 100_000,
        ..Setup::new(waiters + 1)
    };
    machine(setup, seed).run(jobs).expect("no CPU waits outside the queue");
}

#[test]
fn a_newcomer_queues_if_there_is_no_queue_or_its_head_spins() {
    for seed in 0..50 {
        all_queue(1, 1, seed);
        all_queue(u32::MAX, 3, seed);
    }
}

/// CPU 1 heads the queue and halts. Then CPU 2 comes, and must compete. `queue` is the mask of the queue.
fn stays_out<L: RawLock<StepCpu> + 'static>(queue: u32) {
    for seed in 0..50 {
        let (lock, turn) = (Checked::new(0), Checked::new(0));
        let (held, turns) = (Arc::clone(&lock), Arc::clone(&turn));
        let holder = job(move |cpu| {
            held.with::<L>(cpu, || {
                cpu.store(&turns.word, 1, Relaxed);
                wait_for(cpu, &held, |now| now & 0xff == 3);
                let before = cpu.load(&held.word, Relaxed) & queue;
                cpu.store(&turns.word, 2, Relaxed);
                (0..100).for_each(|_| cpu.relax());
                assert_eq!(cpu.load(&held.word, Relaxed) & queue, before, "the newcomer queues");
            });
        });
        let chooser = Calm(RandomWalk {
            random: Random(seed),
            stride: 3,
        });
        Machine::new(Setup::new(3), Box::new(chooser))
            .run(vec![
                (CpuId(0), holder),
                waiter::<L>(&lock, &turn, 1),
                waiter::<L>(&lock, &turn, 2),
            ])
            .expect("no deadlock");
    }
}

#[test]
fn a_newcomer_stays_out_of_a_queue_whose_head_has_halted() {
    stays_out::<HybridPvQspin>(QUEUE);
    stays_out::<HybridPvQspin<Wide>>(0xffff_fe00);
}

#[test]
fn a_thread_that_competes_with_success_prepares_nothing_for_a_queue() {
    const CPUS: u32 = 3;
    let (mut contended, mut recorded) = (0, 0);
    for seed in 0..100 {
        let lock = Checked::new(0);
        let each = |number| {
            let lock = Arc::clone(&lock);
            let body = move |cpu: &StepCpu| (0..6).for_each(|_| lock.with::<HybridPvQspin>(cpu, || ()));
            (CpuId(number), job(body))
        };
        let machine = machine(Setup::hosted(CPUS), seed);
        machine.run((0..CPUS).map(each).collect()).expect("no deadlock");
        contended += (0..CPUS).map(|cpu| machine.contentions(cpu)).sum::<u32>();
        recorded += (0..CPUS).map(|cpu| machine.records(cpu)).sum::<u32>();
    }
    assert!(recorded > 0, "no CPU queues");
    // A competition of this machine is one look. So most are in vain.
    assert!(
        recorded < contended,
        "each of {contended} CPUs that waited prepared to queue"
    );
}
