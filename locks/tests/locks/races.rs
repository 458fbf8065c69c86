//! The races of the PV ticket lock: every schedule with few preemptions passes. If a step that closes a race is left
//! out, some schedule hangs or admits two holders.
//!
//! Memory is sequentially consistent here. A model checker tests whether the orderings are sufficient.

#![expect(unsafe_code, reason = "plants faults")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_history::{PreemptableTicket, TailPvTicket};
use holdfast_locks::{AllSteps, Budget, CpuId, Event, Platform, PvTicket, RawLock, Steps, Ticket, Word};

use crate::explore::{Random, RandomWalk, every_schedule, random_schedules};
use crate::scenes::{Checked, contention, equal_tickets, interrupted_waiter, job, run_in_turn};
use crate::steps::{InTurn, Machine, Setup, StepCpu, StepWord};

/// Defines a set of steps with one left out.
macro_rules! without {
    ($fault:ident, $step:ident) => {
        struct $fault;
        // SAFETY: the tests protect no memory with these locks.
        unsafe impl Steps for $fault {
            const $step: bool = false;
        }
    };
}
without!(NoRecheck, RECHECK);
without!(NoKick, KICK);
without!(SplitHalt, ATOMIC_HALT);
without!(CarryIntoTail, STOP_CARRY);
without!(StopAtFirst, KEEP_SEARCHING);

#[test]
fn no_lost_kick_between_registration_and_unlock() {
    let runs = every_schedule(Setup::new(2), 8, || contention::<PvTicket>(2, 0)).expect("no schedule hangs");
    assert!(runs > 1000, "only {runs} schedules");
    every_schedule(Setup::new(3), 3, || contention::<PvTicket>(3, 0)).expect("no schedule hangs");
    let runs = every_schedule(Setup::new(2), 6, || contention::<TailPvTicket>(2, 0)).expect("no schedule hangs");
    assert!(runs > 1000, "only {runs} schedules");
    every_schedule(Setup::new(3), 3, || contention::<TailPvTicket>(3, 0)).expect("no schedule hangs");
}

#[test]
fn without_the_recheck_a_kick_is_lost() {
    every_schedule(Setup::new(2), 2, || contention::<PvTicket<NoRecheck>>(2, 0)).expect_err("the waiter sleeps on");
    every_schedule(Setup::new(2), 2, || contention::<TailPvTicket<NoRecheck>>(2, 0)).expect_err("the waiter sleeps on");
}

#[test]
fn without_the_kick_the_waiter_sleeps_on() {
    every_schedule(Setup::new(2), 1, || contention::<PvTicket<NoKick>>(2, 0)).expect_err("no CPU wakes the waiter");
    every_schedule(Setup::new(2), 1, || contention::<TailPvTicket<NoKick>>(2, 0)).expect_err("no CPU wakes the waiter");
}

#[test]
fn a_handler_may_use_up_the_record_of_the_waiter_it_interrupts() {
    random_schedules(Setup::new(2), 20_000, interrupted_waiter::<PvTicket>).expect("no schedule hangs");
}

#[test]
fn without_an_atomic_halt_the_used_up_record_is_missed() {
    random_schedules(Setup::new(2), 20_000, interrupted_waiter::<PvTicket<SplitHalt>>)
        .expect_err("the waiter halts without a record");
}

/// The number of schedules of [`equal_tickets`], a few of which reach the race.
const MEETINGS: u64 = 60_000;

#[test]
fn half_a_record_of_another_wait_misleads_nobody() {
    random_schedules(Setup::new(4), MEETINGS, equal_tickets::<PvTicket>).expect("no schedule hangs");
}

#[test]
fn a_search_that_stops_at_half_a_record_loses_a_kick() {
    random_schedules(Setup::new(4), MEETINGS, equal_tickets::<PvTicket<StopAtFirst>>)
        .expect_err("the first in line sleeps on");
}

#[test]
fn the_carry_of_a_wrapping_head_stays_out_of_the_tail() {
    for initial in [0xfffe_fffe, 0xfffc_fffc, 0xfffe_ffff] {
        every_schedule(Setup::new(3), 2, || contention::<PvTicket>(3, initial)).expect("no ticket is lost");
    }
    // Only a flagged head is advanced by an addition: one CPU must halt, and a third CPU must draw a ticket afterwards.
    every_schedule(Setup::new(3), 3, || {
        contention::<PvTicket<CarryIntoTail>>(3, 0xfffe_fffe)
    })
    .expect_err("a ticket is served that no CPU drew");
    for initial in [0xfffe_fffe, 0xfffc_fffc, 0xffff_fffe] {
        every_schedule(Setup::new(3), 2, || contention::<TailPvTicket>(3, initial)).expect("no ticket is lost");
    }
    // Here the carry takes the flag's bit first, and a ticket only if the flag is set.
    every_schedule(Setup::new(3), 3, || {
        contention::<TailPvTicket<CarryIntoTail>>(3, 0xfffe_fffe)
    })
    .expect_err("a ticket is served that no CPU drew");
}

#[test]
fn the_flag_in_the_tail_is_cleared_by_the_last_unlocker_and_kept_for_waiters() {
    let lock = Checked::new(0x0009_0008);
    let word = Arc::clone(&lock);
    let machine = run_in_turn(
        1,
        vec![(
            CpuId(0),
            job(move |cpu| {
                type Lock = TailPvTicket<AllSteps>;
                let is = |what: u32| assert_eq!(cpu.load(&word.word, Relaxed), what);
                assert!(!Lock::is_locked(cpu, &word.word));
                word.with::<Lock>(cpu, || is(0x000b_0008));
                is(0x000a_000a);
                assert!(Lock::try_lock(cpu, &word.word));
                cpu.fetch_or(&word.word, 1 << 16, Relaxed);
                assert!(!Lock::try_lock(cpu, &word.word));
                // A ticket is drawn: its owner may have halted.
                cpu.fetch_add(&word.word, 2 << 16, Relaxed);
                Lock::unlock(cpu, &word.word);
                is(0x000f_000c);
                Lock::unlock(cpu, &word.word);
                is(0x000e_000e);
            }),
        )],
    );
    assert_eq!(
        machine.stats.count(Event::ReleasedSlow),
        1,
        "only a waiter is looked for"
    );
}

#[test]
fn flag_is_cleared_by_the_next_lone_locker() {
    // Bit 0 set without holder or waiter: the word after the last unlock that follows a halt.
    let lock = Checked::new(0x0008_0009);
    let word = Arc::clone(&lock);
    let machine = run_in_turn(
        1,
        vec![(
            CpuId(0),
            job(move |cpu| {
                assert!(!PvTicket::<AllSteps>::is_locked(cpu, &word.word));
                word.with::<PvTicket>(cpu, || assert_eq!(cpu.load(&word.word, Relaxed), 0x000a_0008));
            }),
        )],
    );
    assert_eq!(
        machine.stats.count(Event::ReleasedSlow),
        0,
        "an unlocker scanned although no CPU waited"
    );
    assert_eq!(machine.contentions(0), 0, "the lock was free");
}

#[test]
fn a_wait_for_a_holder_is_reported_as_contention() {
    fn reported<L: RawLock<StepCpu> + 'static>() -> u32 {
        let machine = Machine::new(Setup::new(2), Box::new(InTurn(0)));
        machine.run(contention::<L>(2, 0)).expect("no deadlock");
        machine.contentions(0) + machine.contentions(1)
    }
    assert_eq!(reported::<PvTicket>(), 1);
    assert_eq!(reported::<Ticket>(), 1);
    assert_eq!(reported::<PreemptableTicket>(), 1);
}

#[test]
fn flag_is_cleared_by_try_lock() {
    let lock = Checked::new(0xfffe_ffff);
    run_in_turn(
        1,
        vec![(
            CpuId(0),
            job(move |cpu| {
                assert!(PvTicket::<AllSteps>::try_lock(cpu, &lock.word));
                assert_eq!(cpu.load(&lock.word, Relaxed), 0x0000_fffe);
                PvTicket::<AllSteps>::unlock(cpu, &lock.word);
                assert_eq!(cpu.load(&lock.word, Relaxed), 0);
            }),
        )],
    );
}

#[test]
fn a_waiter_in_an_nmi_does_not_halt() {
    let lock = Checked::new(0);
    let holder = Arc::clone(&lock);
    let machine = run_in_turn(
        2,
        vec![
            (
                CpuId(0),
                job(move |cpu| holder.with::<PvTicket>(cpu, || (0..50).for_each(|_| cpu.relax()))),
            ),
            (
                CpuId(1),
                job(move |cpu| cpu.nmi(|cpu| lock.with::<PvTicket>(cpu, || ()))),
            ),
        ],
    );
    assert_eq!(machine.halts(1), 0);
    assert_eq!(machine.stats.count(Event::TakenSlow), 0);
}

#[test]
fn statistics_add_up() {
    let setup = Setup::new(4);
    for seed in 0..200 {
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 3,
        };
        let machine = Machine::new(setup, Box::new(chooser));
        machine.run(contention::<PvTicket>(4, 0)).expect("no deadlock");
        let count = |event| machine.stats.count(event);
        let halts: u32 = (0..4).map(|cpu| machine.halts(cpu)).sum();
        assert_eq!(
            count(Event::TakenSlow) - count(Event::TakenSlowPickup),
            u64::from(halts),
            "seed {seed}"
        );
        assert!(
            count(Event::ReleasedSlowKicked) <= count(Event::ReleasedSlow),
            "seed {seed}"
        );
        assert_eq!(
            machine.stats.histogram().iter().sum::<u64>(),
            count(Event::TakenSlow),
            "seed {seed}"
        );
    }
}

/// A ticket lock's queue has room for 2^15 waiters. A CPU that finds no room gives its ticket back, and draws no other
/// until there is room.
#[test]
fn a_ticket_that_was_given_back_is_drawn_again_only_when_there_is_room() {
    const FULL: u32 = (1 << 15) + 1;
    let state = |tail: u32, head: u32| tail << 16 | head;
    for seed in 0..20 {
        let word = Arc::new(StepWord::new(state(FULL, 0)));
        let [waits, watches] = [(); 2].map(|()| Arc::clone(&word));
        let waiter = job(move |cpu| Ticket::lock(cpu, &waits));
        let watcher = job(move |cpu| {
            let until = |seen: u32| _ = cpu.wait_until(&watches, Budget::UNBOUNDED, Relaxed, |now| now == seen);
            let looks: Vec<u32> = (0..200).map(|_| cpu.load(&watches, Relaxed)).collect();
            let draws = looks.windows(2).filter(|pair| pair[1] > pair[0]).count();
            assert!(draws <= 1, "{draws} tickets without room");
            until(state(FULL, 0));
            // Two others leave.
            cpu.store(&watches, state(FULL, 2), Relaxed);
            until(state(FULL + 1, 2));
            cpu.store(&watches, state(FULL + 1, FULL), Relaxed);
        });
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 3,
        };
        Machine::new(Setup::new(2), Box::new(chooser))
            .run(vec![(CpuId(0), waiter), (CpuId(1), watcher)])
            .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}
