//! Leaves out each step that closes a race of the locks. The table says which of loom and Shuttle must find it.
//!
//! Only loom judges orderings. Shuttle explores more schedules, interrupts and spurious ends of halts.

#![expect(unsafe_code, reason = "plants faults")]

use holdfast_history::{AheadPvQspin, EarlyPvQspin, OpportunisticTicket, TailPvTicket};
use holdfast_locks::*;
use holdfast_model::{Bounds, Checker, Loom, ModelWord, Schedules, Setup, Shuttle};

use crate::faults::Lock;
use crate::scenario;

/// Defines a set of steps with one left out.
macro_rules! without {
    ($($fault:ident: $step:ident,)+) => {
        $(struct $fault;
        // SAFETY: these locks protect only the checkers' modeled memory, which no fault can corrupt.
        unsafe impl Steps for $fault {
            const $step: bool = false;
        })+
    };
}
without! {
    NoRecheck: RECHECK,
    NoAnnounce: ANNOUNCE_RELEASE,
    NoLookup: LOOKUP_ACQUIRE,
    NoKick: KICK,
    SplitHalt: ATOMIC_HALT,
    NoHaltFence: HALT_FENCE,
    NoHandoverFence: HANDOVER_FENCE,
    NoRetest: RETEST,
    LateUnlisting: UNLIST_FIRST,
    CarryIntoTail: STOP_CARRY,
    NoRelease: UNLOCK_RELEASE,
    NoAcquire: LOCK_ACQUIRE,
    NoLeaveRecheck: LEAVE_RECHECK,
    NoRelink: LEAVE_RELINK,
    LinkLeftInPlace: TAKE_SUCCESSOR,
    LateEnlisting: ENLIST_FIRST,
    NoPassing: PASS_ON,
    NoBlock: BLOCK,
    NoTakeBack: TAKE_BACK,
}

/// Returns whether a checker finds an error.
type Finds = fn() -> bool;

fn fails<C: Checker>(search: &C::Search, body: impl Fn() + Send + Sync + 'static) -> bool {
    C::explore(search, body).is_err()
}

fn few(preemptions: usize) -> Bounds {
    Bounds::preemptions(preemptions)
}

/// Searches contention of two CPUs, twice each, by loom.
fn loom_twice<L: Lock<Loom>>() -> bool {
    fails::<Loom>(&few(3), scenario::contention::<Loom, L>(&Setup::new(2), 2, 0))
}
fn loom_wrap<L: Lock<Loom>>() -> bool {
    fails::<Loom>(&few(3), scenario::contention::<Loom, L>(&Setup::new(3), 1, 0xfffe_fffe))
}
fn loom_three<L: Lock<Loom>>() -> bool {
    let queue = fails::<Loom>(&few(2), scenario::queue::<Loom, L>(&Setup::new(3)));
    queue || fails::<Loom>(&few(2), scenario::contention::<Loom, L>(&Setup::new(3), 1, 0))
}
fn loom_spinners<S: Steps + 'static>() -> bool {
    [0b010, 0b110].into_iter().any(|impatient| {
        let body = scenario::optimistic_spinners::<Loom, S>(&Setup::new(3), 1, impatient);
        fails::<Loom>(&few(2), body)
    })
}

fn odd(cpus: u32) -> Setup {
    Setup {
        odds: 8,
        ..Setup::new(cpus)
    }
}
const SCHEDULES: Schedules = Schedules::random(3000);

fn shuttle_twice<L: Lock<Shuttle>>() -> bool {
    fails::<Shuttle>(&SCHEDULES, scenario::contention::<Shuttle, L>(&Setup::new(3), 2, 0))
}
fn shuttle_wrap<L: Lock<Shuttle>>() -> bool {
    fails::<Shuttle>(
        &SCHEDULES,
        scenario::contention::<Shuttle, L>(&Setup::new(3), 2, 0xfffe_fffe),
    )
}
fn shuttle_interrupted<L: Lock<Shuttle>>() -> bool {
    fails::<Shuttle>(&SCHEDULES, scenario::interrupted_waiter::<Shuttle, L>(&Setup::new(2)))
}
fn shuttle_stray_kicks<L: Lock<Shuttle>>() -> bool {
    fails::<Shuttle>(&SCHEDULES, scenario::contention::<Shuttle, L>(&odd(4), 3, 0))
        || fails::<Shuttle>(&SCHEDULES, scenario::stray_kick::<Shuttle, L>(&Setup::new(3)))
}
fn shuttle_crowd<L: Lock<Shuttle>>() -> bool {
    fails::<Shuttle>(
        &Schedules::random(20_000),
        scenario::contention::<Shuttle, L>(&odd(4), 4, 0),
    )
}
fn shuttle_spinners<S: Steps + 'static>() -> bool {
    [0b0010, 0b0110, 0b1110].into_iter().any(|impatient| {
        let body = scenario::optimistic_spinners::<Shuttle, S>(&Setup::new(4), 2, impatient);
        fails::<Shuttle>(&SCHEDULES, body)
    })
}
fn loom_requeue<S: Steps + 'static>() -> bool {
    [false, true].into_iter().any(|destroys| {
        fails::<Loom>(
            &few(2),
            scenario::requeued_broadcast::<Loom, Tas, S>(&Setup::new(3), destroys),
        )
    })
}
fn shuttle_requeue<S: Steps + 'static>() -> bool {
    [false, true].into_iter().any(|destroys| {
        let body = scenario::requeued_broadcast::<Shuttle, HybridPvQspin, S>(&Setup::new(4), destroys);
        fails::<Shuttle>(&SCHEDULES, body)
    }) || fails::<Shuttle>(
        &SCHEDULES,
        scenario::requeued_turns::<Shuttle, HybridPvQspin, S>(&Setup::new(2), 3),
    )
}
fn loom_rwlock<S: Steps + 'static>() -> bool {
    let setup = Setup::new(2);
    [1, 2].into_iter().any(|writers| {
        fails::<Loom>(
            &few(3),
            scenario::readers_and_writers::<Loom, Tas, S>(&setup, writers, 1),
        )
    }) || fails::<Loom>(
        &few(2),
        scenario::waiting_writer::<Loom, Qrwlock<ModelWord<Loom>, Tas, S>>(&setup),
    )
}
fn shuttle_rwlock<S: Steps + 'static>() -> bool {
    fails::<Shuttle>(
        &SCHEDULES,
        scenario::readers_and_writers::<Shuttle, HybridPvQspin, S>(&Setup::new(3), 2, 2),
    ) || fails::<Shuttle>(
        &SCHEDULES,
        scenario::waiting_writer::<Shuttle, Qrwlock<ModelWord<Shuttle>, HybridPvQspin, S>>(&Setup::new(2)),
    )
}
fn loom_unqueued<S: Steps + 'static>() -> bool {
    [1, 2].into_iter().any(|writers| {
        let body =
            scenario::readers_and_writers_of::<Loom, UnqueuedRwlock<ModelWord<Loom>, S>>(&Setup::new(2), writers, 1);
        fails::<Loom>(&few(3), body)
    })
}
fn shuttle_unqueued<S: Steps + 'static>() -> bool {
    let body = scenario::readers_and_writers_of::<Shuttle, UnqueuedRwlock<ModelWord<Shuttle>, S>>(&Setup::new(3), 2, 2);
    fails::<Shuttle>(&SCHEDULES, body)
}
/// A lock with a bias. Here each reader biases it that finds it without.
type Biased<C, Q, S> = BiasedRwlock<ModelWord<C>, Q, S>;

fn biased(cpus: u32) -> Setup {
    Setup {
        reader_lines: cpus,
        ..Setup::new(cpus)
    }
}
fn loom_biased<S: Steps + 'static>() -> bool {
    type Lock<S> = Biased<Loom, Tas, S>;
    [(1, 3), (2, 2)].into_iter().any(|(rounds, preemptions)| {
        let body = scenario::readers_and_writers_after_a_read::<Loom, Lock<S>>(&biased(2), 1, rounds);
        fails::<Loom>(&few(preemptions), body)
    }) || fails::<Loom>(&few(2), scenario::waiting_writer::<Loom, Lock<S>>(&biased(2)))
        || fails::<Loom>(&few(2), scenario::writer_that_reads::<Loom, Lock<S>>(&biased(3)))
}
fn shuttle_biased<S: Steps + 'static>() -> bool {
    type Lock<S> = Biased<Shuttle, HybridPvQspin, S>;
    fails::<Shuttle>(
        &SCHEDULES,
        scenario::readers_and_writers_after_a_read::<Shuttle, Lock<S>>(&biased(3), 1, 2),
    ) || fails::<Shuttle>(&SCHEDULES, scenario::waiting_writer::<Shuttle, Lock<S>>(&biased(2)))
}
fn not_asked() -> bool {
    false
}

/// A lock, the step that it leaves out, and the checkers that find the fault.
struct Fault {
    lock: &'static str,
    step: &'static str,
    loom: Finds,
    shuttle: Finds,
    /// Whether loom and Shuttle must find the fault.
    expected: (bool, bool),
}

macro_rules! faults {
    ($($lock:literal $step:literal: $loom:expr => $by_loom:literal, $shuttle:expr => $by_shuttle:literal;)+) => {
        &[$(Fault { lock: $lock, step: $step, loom: $loom, shuttle: $shuttle, expected: ($by_loom, $by_shuttle) }),+]
    };
}

type Pv<S> = PvQspin<Narrow, S>;
type HybridPv<S> = HybridPvQspin<Narrow, S>;

static FAULTS: &[Fault] = faults! {
    "pv-ticket" "re-check after the announcement":
        loom_twice::<PvTicket<NoRecheck>> => true,
        shuttle_twice::<PvTicket<NoRecheck>> => true;
    "pv-ticket" "release of the announcement":
        loom_twice::<PvTicket<NoAnnounce>> => true,
        not_asked => false;
    "pv-ticket" "acquire before the scan":
        loom_twice::<PvTicket<NoLookup>> => true,
        not_asked => false;
    "pv-ticket" "kick":
        loom_twice::<PvTicket<NoKick>> => true,
        shuttle_twice::<PvTicket<NoKick>> => true;
    "pv-ticket" "indivisible sti; hlt":
        not_asked => false,
        shuttle_interrupted::<PvTicket<SplitHalt>> => true;
    "pv-ticket" "carry kept out of the tail":
        loom_wrap::<PvTicket<CarryIntoTail>> => true,
        shuttle_wrap::<PvTicket<CarryIntoTail>> => true;
    "pv-ticket" "release of the unlock":
        loom_twice::<PvTicket<NoRelease>> => true,
        not_asked => false;
    "pv-ticket" "acquire of the lock":
        loom_twice::<PvTicket<NoAcquire>> => true,
        not_asked => false;
    "tail-pv-ticket" "re-check after the announcement":
        loom_twice::<TailPvTicket<NoRecheck>> => true,
        shuttle_twice::<TailPvTicket<NoRecheck>> => true;
    "tail-pv-ticket" "release of the announcement":
        loom_twice::<TailPvTicket<NoAnnounce>> => true,
        not_asked => false;
    "tail-pv-ticket" "acquire before the scan":
        loom_twice::<TailPvTicket<NoLookup>> => true,
        not_asked => false;
    "tail-pv-ticket" "kick":
        loom_twice::<TailPvTicket<NoKick>> => true,
        shuttle_twice::<TailPvTicket<NoKick>> => true;
    "tail-pv-ticket" "carry kept out of the tail":
        loom_wrap::<TailPvTicket<CarryIntoTail>> => true,
        shuttle_wrap::<TailPvTicket<CarryIntoTail>> => true;
    "tail-pv-ticket" "release of the unlock":
        loom_twice::<TailPvTicket<NoRelease>> => true,
        not_asked => false;
    "tail-pv-ticket" "acquire of the lock":
        loom_twice::<TailPvTicket<NoAcquire>> => true,
        not_asked => false;
    "pv-qspin" "look at what the exchange for 3 returns":
        loom_twice::<Pv<NoRecheck>> => true,
        shuttle_twice::<Pv<NoRecheck>> => true;
    "pv-qspin" "release of the 3":
        loom_twice::<Pv<NoAnnounce>> => true,
        not_asked => false;
    "pv-qspin" "acquire after the failed exchange":
        loom_twice::<Pv<NoLookup>> => true,
        not_asked => false;
    "pv-qspin" "kick":
        loom_twice::<Pv<NoKick>> => true,
        shuttle_twice::<Pv<NoKick>> => true;
    "pv-qspin" "barrier of the waiter":
        loom_three::<Pv<NoHaltFence>> => true,
        not_asked => false;
    "pv-qspin" "barrier of the handover":
        loom_three::<Pv<NoHandoverFence>> => true,
        not_asked => false;
    "pv-qspin" "test once more with interrupts masked":
        not_asked => false,
        shuttle_stray_kicks::<Pv<NoRetest>> => true;
    "unfair-pv-qspin" "entry off the table before the release":
        not_asked => false,
        shuttle_crowd::<UnfairPvQspin<Narrow, LateUnlisting>> => true;
    "pv-qspin" "release of the unlock":
        loom_twice::<Pv<NoRelease>> => true,
        not_asked => false;
    "hybrid-pv-qspin" "look at what the exchange for 3 returns":
        loom_twice::<HybridPv<NoRecheck>> => true,
        shuttle_twice::<HybridPv<NoRecheck>> => true;
    "hybrid-pv-qspin" "kick":
        loom_twice::<HybridPv<NoKick>> => true,
        shuttle_twice::<HybridPv<NoKick>> => true;
    "hybrid-pv-qspin" "release of the unlock":
        loom_twice::<HybridPv<NoRelease>> => true,
        not_asked => false;
    "wide-pv-qspin" "look at what the exchange for 3 returns":
        loom_twice::<HybridPvQspin<Wide, NoRecheck>> => true,
        shuttle_twice::<HybridPvQspin<Wide, NoRecheck>> => true;
    "wide-pv-qspin" "kick":
        loom_twice::<HybridPvQspin<Wide, NoKick>> => true,
        shuttle_twice::<HybridPvQspin<Wide, NoKick>> => true;
    "wide-pv-qspin" "release of the unlock":
        loom_twice::<HybridPvQspin<Wide, NoRelease>> => true,
        not_asked => false;
    "early-pv-qspin" "kick":
        loom_twice::<EarlyPvQspin<Narrow, NoKick>> => true,
        shuttle_twice::<EarlyPvQspin<Narrow, NoKick>> => true;
    "early-pv-qspin" "barrier of the handover":
        loom_three::<EarlyPvQspin<Narrow, NoHandoverFence>> => true,
        not_asked => false;
    "ahead-pv-qspin" "look at what the exchange for 3 returns":
        loom_twice::<AheadPvQspin<Narrow, NoRecheck>> => true,
        shuttle_twice::<AheadPvQspin<Narrow, NoRecheck>> => true;
    "ahead-pv-qspin" "kick":
        loom_twice::<AheadPvQspin<Narrow, NoKick>> => true,
        shuttle_twice::<AheadPvQspin<Narrow, NoKick>> => true;
    "opportunistic-ticket" "kick":
        loom_three::<OpportunisticTicket<NoKick, 1, 2>> => true,
        not_asked => false;
    "opportunistic-ticket" "release of the unlock":
        loom_twice::<OpportunisticTicket<NoRelease>> => true,
        not_asked => false;
    "opportunistic-ticket" "acquire of the lock":
        loom_twice::<OpportunisticTicket<NoAcquire>> => true,
        not_asked => false;
    "osq" "leaver looks whether it is the head":
        loom_spinners::<NoLeaveRecheck> => true,
        shuttle_spinners::<NoLeaveRecheck> => true;
    "osq" "leaver joins its neighbours":
        loom_spinners::<NoRelink> => true,
        shuttle_spinners::<NoRelink> => true;
    "osq" "successor taken by exchange":
        loom_spinners::<LinkLeftInPlace> => true,
        shuttle_spinners::<LinkLeftInPlace> => true;
    "requeue" "sequence read before the mutex is free":
        loom_requeue::<LateEnlisting> => true,
        shuttle_requeue::<LateEnlisting> => true;
    "requeue" "wakeup of a notification":
        not_asked => false,
        shuttle_requeue::<NoKick> => true;
    "requeue" "next waiter woken by the one before":
        loom_requeue::<NoPassing> => true,
        shuttle_requeue::<NoPassing> => true;
    "requeue" "last waiter wakes the destroyer":
        loom_requeue::<NoLeaveRecheck> => true,
        shuttle_requeue::<NoLeaveRecheck> => true;
    "qrwlock" "re-check after the announcement":
        loom_rwlock::<NoRecheck> => true,
        shuttle_rwlock::<NoRecheck> => true;
    "qrwlock" "kick":
        loom_rwlock::<NoKick> => true,
        shuttle_rwlock::<NoKick> => true;
    "qrwlock" "newcomers blocked":
        loom_rwlock::<NoBlock> => true,
        shuttle_rwlock::<NoBlock> => true;
    "qrwlock" "release of the unlock":
        loom_rwlock::<NoRelease> => true,
        not_asked => false;
    "qrwlock" "acquire of the lock":
        loom_rwlock::<NoAcquire> => true,
        not_asked => false;
    "biased" "second look after the announcement":
        loom_biased::<NoRecheck> => true,
        not_asked => false;
    "biased" "announcement in vain taken back":
        loom_biased::<NoTakeBack> => true,
        shuttle_biased::<NoTakeBack> => true;
    "biased" "bias suspended for a waiting writer":
        loom_biased::<NoBlock> => true,
        shuttle_biased::<NoBlock> => true;
    "biased" "kick":
        loom_biased::<NoKick> => true,
        shuttle_biased::<NoKick> => true;
    "biased" "barrier of the announcement":
        loom_biased::<NoHaltFence> => true,
        not_asked => false;
    "biased" "barrier of the release":
        loom_biased::<NoHandoverFence> => true,
        not_asked => false;
    "biased" "acquire of the places":
        loom_biased::<NoLookup> => true,
        not_asked => false;
    "biased" "release of the unlock":
        loom_biased::<NoRelease> => true,
        not_asked => false;
    "biased" "acquire of the lock":
        loom_biased::<NoAcquire> => true,
        not_asked => false;
    "unqueued" "addition in vain taken back":
        loom_unqueued::<NoTakeBack> => true,
        shuttle_unqueued::<NoTakeBack> => true;
    "unqueued" "release of the unlock":
        loom_unqueued::<NoRelease> => true,
        not_asked => false;
    "unqueued" "acquire of the lock":
        loom_unqueued::<NoAcquire> => true,
        not_asked => false;
};

fn word(found: bool) -> &'static str {
    if found { "found" } else { "-" }
}

#[test]
fn every_step_left_out_is_found() {
    let mut mistakes = Vec::new();
    for fault in FAULTS {
        let found = ((fault.loom)(), (fault.shuttle)());
        println!(
            "fault    {:16} without {:42} loom {:6} shuttle {:6}",
            fault.lock,
            fault.step,
            word(found.0),
            word(found.1)
        );
        if found != fault.expected || found == (false, false) {
            mistakes.push(format!("{} without {}: {found:?}", fault.lock, fault.step));
        }
    }
    assert!(
        mistakes.is_empty(),
        "not as in the table (loom, shuttle): {mistakes:#?}"
    );
}
