//! What the paravirtual locks of other kernels and papers do differently: the queued lock of Linux 4.2, the one of July
//! 2015, and the opportunistic ticket lock. Each test compares with the lock that it comes from.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast_history::{AheadPvQspin, EarlyPvQspin, OpportunisticTicket};
use holdfast_locks::conformance::Job;
use holdfast_locks::{Budget, CpuId, Event, Paravirt, Platform, PvQspin, PvTicket, Qspin, RawLock};

use crate::explore::{Random, RandomWalk, every_schedule};
use crate::scenes::{Checked, contention, job, rounds};
use crate::steps::{InTurn, Machine, Setup, StepCpu};

/// Time for all waiters to halt, in steps of one CPU.
const LONG: u32 = 3_000;

fn pause(cpu: &StepCpu) {
    (0..LONG).for_each(|_| cpu.relax());
}

/// CPU 0 holds the lock until the `waiters` others wait for it, in the order of their numbers, and for long. `arrived`
/// says from the word whether CPU `n` waits. Each holder stays for long, and then calls `as_holder`.
fn serve<L: RawLock<StepCpu> + 'static>(
    setup: Setup,
    waiters: u32,
    arrived: fn(u32, u32) -> bool,
    as_holder: impl Fn(&StepCpu) + Send + Sync + 'static,
) -> Rc<Machine> {
    let lock = Checked::new(0);
    let as_holder = Arc::new(as_holder);
    let each = |number| {
        let (lock, as_holder) = (Arc::clone(&lock), Arc::clone(&as_holder));
        let body = move |cpu: &StepCpu| {
            let wait_for = |last| {
                let _ = cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, move |now| arrived(now, last));
            };
            if number > 0 {
                wait_for(number - 1);
            }
            lock.with::<L>(cpu, || {
                if number == 0 {
                    wait_for(waiters);
                }
                pause(cpu);
                as_holder(cpu);
            });
        };
        (CpuId(number), job(body))
    };
    let jobs: Vec<(CpuId, Job<StepCpu>)> = (0..=waiters).map(each).collect();
    let machine = Machine::new(setup, Box::new(InTurn(0)));
    machine.run(jobs).expect("no deadlock");
    machine
}

/// Returns whether CPU `last` is the tail of the queue, or holds the lock as CPU 0.
fn in_queue(word: u32, last: u32) -> bool {
    word >> 18 == last + 1 || last == 0 && word != 0
}

fn has_ticket(word: u32, last: u32) -> bool {
    word >> 16 >= (last + 1) * 2
}

fn queue<L: RawLock<StepCpu> + 'static>(cpus: u32, waiters: u32) -> Rc<Machine> {
    let setup = Setup {
        threshold: 0,
        ..Setup::new(cpus)
    };
    serve::<L>(setup, waiters, in_queue, |_| ())
}

#[test]
fn in_4_2_a_waiter_is_kicked_as_the_new_head_and_when_the_lock_is_free() {
    let kicks = |machine: Rc<Machine>| machine.stats.count(Event::PvKickUnlock);
    // Each waiter but the first, which is the head from the start, halts and is woken twice.
    assert_eq!(kicks(queue::<EarlyPvQspin>(6, 5)), 2 * 5 - 1);
    assert_eq!(kicks(queue::<PvQspin>(6, 5)), 5);
}

#[test]
fn in_4_2_no_waiter_halts_because_its_predecessor_does() {
    let patient = |cpus| Setup {
        threshold: LONG / 2,
        ..Setup::new(cpus)
    };
    let early = |machine: Rc<Machine>| machine.stats.count(Event::PvWaitEarly);
    assert_eq!(early(serve::<EarlyPvQspin>(patient(4), 3, in_queue, |_| ())), 0);
    assert!(early(serve::<PvQspin>(patient(4), 3, in_queue, |_| ())) > 0);
}

/// Returns how many waiters woke before they were the head.
fn woken_ahead<L: RawLock<StepCpu> + 'static>(cpus: u32) -> u64 {
    queue::<L>(cpus, 6).stats.count(Event::PvSpuriousWakeup)
}

#[test]
fn an_unlock_kicks_one_more_waiter_for_every_four_cpus_up_to_four() {
    assert_eq!(woken_ahead::<PvQspin>(40), 0);
    assert_eq!(woken_ahead::<EarlyPvQspin>(40), 0);
    // Each waiter that is woken halts again while the lock is held for long, so each unlock finds all behind it.
    let behind = |looks: u64| (0..6).map(|waiting: u64| waiting.min(looks)).sum::<u64>();
    assert_eq!(woken_ahead::<AheadPvQspin>(7), behind(1));
    assert_eq!(woken_ahead::<AheadPvQspin>(8), behind(2));
    assert_eq!(woken_ahead::<AheadPvQspin>(16), behind(4));
    assert_eq!(woken_ahead::<AheadPvQspin>(40), behind(4));
}

/// CPU 0 holds the lock for long while CPU 1 comes. Returns the machine and how often the lock was taken by way of the
/// pending bit.
fn first_waiter<L: RawLock<StepCpu> + 'static>() -> (Rc<Machine>, u64) {
    let lock = Checked::new(0);
    let second = Arc::clone(&lock);
    let holder = job(move |cpu| lock.with::<L>(cpu, || pause(cpu)));
    let waiter = job(move |cpu| {
        let _ = cpu.wait_until(&second.word, Budget::UNBOUNDED, Relaxed, |now| now != 0);
        second.with::<L>(cpu, || ());
    });
    let machine = Machine::new(Setup::new(2), Box::new(InTurn(0)));
    machine
        .run(vec![(CpuId(0), holder), (CpuId(1), waiter)])
        .expect("no deadlock");
    let pending = machine.stats.count(Event::LockPending);
    (machine, pending)
}

#[test]
fn a_first_waiter_stays_outside_the_queue_for_a_while() {
    let (machine, pending) = first_waiter::<AheadPvQspin>();
    assert_eq!(pending, 0);
    assert_eq!(machine.halted_after(1), [[1 << 10, 1]], "outside, then as the head");
    let (machine, pending) = first_waiter::<PvQspin>();
    assert_eq!(pending, 0);
    assert_eq!(machine.halted_after(1), [[1]], "as the head");
    let (machine, pending) = first_waiter::<Qspin>();
    assert_eq!((machine.halts(1), pending), (0, 1));
}

#[test]
fn some_first_waiters_need_no_node() {
    let pending = |seed| {
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 3,
        };
        let machine = Machine::new(Setup::new(3), Box::new(chooser));
        machine.run(rounds::<AheadPvQspin>(3, 3)).expect("no deadlock");
        machine.stats.count(Event::LockPending)
    };
    assert!((0..100).map(pending).sum::<u64>() > 20);
}

#[test]
fn a_head_waits_for_the_waiter_outside_the_queue() {
    let setup = |threshold| Setup {
        threshold,
        ..Setup::new(3)
    };
    for threshold in [0, 1] {
        every_schedule(setup(threshold), 2, || contention::<AheadPvQspin>(3, 0)).expect("no schedule hangs");
    }
}

/// Runs 24 waiters for a ticket lock. Returns for each CPU how often it halted, and for each holder how many waiters
/// had been kicked by the end of its critical section.
fn tickets<L: RawLock<StepCpu> + 'static>() -> (Vec<u32>, Vec<u64>) {
    const WAITERS: u32 = 24;
    let kicked: Arc<Vec<AtomicU64>> = Arc::new((0..=WAITERS).map(|_| AtomicU64::new(0)).collect());
    let seen = Arc::clone(&kicked);
    let setup = Setup {
        threshold: 100,
        ..Setup::new(WAITERS + 1)
    };
    let machine = serve::<L>(setup, WAITERS, has_ticket, move |cpu| {
        let count = cpu.recorder().count(Event::ReleasedSlowKicked);
        seen[cpu.cpu().0 as usize].store(count, Relaxed);
    });
    let halts = (0..=WAITERS).map(|cpu| machine.halts(cpu)).collect();
    (halts, kicked.iter().map(|count| count.load(Relaxed)).collect())
}

#[test]
fn waiters_near_the_front_never_halt_and_the_others_are_woken_early() {
    let (halts, kicked) = tickets::<OpportunisticTicket>();
    assert!(halts[..=18].iter().all(|&each| each == 0), "{halts:?}");
    assert!(halts[19..].iter().all(|&each| each == 1), "{halts:?}");
    // Ticket 19 is kicked when ticket 16 is served.
    assert_eq!(kicked[..20], [vec![0; 16], vec![1, 2, 3, 4]].concat());
    let (halts, kicked) = tickets::<PvTicket>();
    assert!(halts[1..].iter().all(|&each| each > 0), "{halts:?}");
    assert!((0..).zip(&kicked).all(|(ticket, &count)| count == ticket), "{kicked:?}");
}
