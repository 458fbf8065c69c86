//! The conformance suite of every lock on both platforms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_history::{CnaQspin, PreemptableTicket};
use holdfast_locks::conformance::{World, check_lock, exclusion, nested_interrupt, no_lost_kick};
use holdfast_locks::{BootLock, Budget, CpuId, Exclusive, PvQspin, Qspin, SpinLock, Ticket, UnfairQspin, Wide};
use holdfast_locks::{LockKind, Operations, OperationsOfSome, Platform};

use crate::explore::StepWorld;
use crate::scenes::{Checked, any, for_each_kind, for_each_lock, job, run_in_turn};
use crate::steps::{Setup, StepCpu, StepWord};
use crate::threads::{HostCpu, ThreadWorld};

#[test]
fn every_lock_conforms_when_stepped() {
    fn conforms<L: Exclusive<StepCpu> + 'static>(_name: &str) {
        for cpus in [2, 3, 5, 33] {
            check_lock::<L, _>(&StepWorld::new(Setup::new(cpus)));
        }
    }
    for_each_lock!(for_each_kind any, conforms);
}

#[test]
fn every_lock_conforms_on_threads() {
    fn conforms<L: Exclusive<HostCpu> + 'static>(_name: &str) {
        check_lock::<L, _>(&ThreadWorld::new(3));
    }
    for_each_lock!(for_each_kind any, conforms);
}

#[test]
fn variants_conform_on_threads() {
    fn conforms<L: Exclusive<HostCpu> + 'static>() {
        let world = ThreadWorld::new(3);
        exclusion::<L, _>(&world);
        no_lost_kick::<L, _>(&world);
        nested_interrupt::<L, _>(&world);
    }
    conforms::<Qspin<Wide>>();
    conforms::<PvQspin<Wide>>();
    conforms::<UnfairQspin<Wide>>();
    conforms::<CnaQspin<100_000, 0>>();
    conforms::<PreemptableTicket<0>>();
}

#[test]
fn interrupts_stay_masked_until_the_lock_is_released() {
    let lock = Arc::new(SpinLock::<u32, Ticket, <StepCpu as Platform>::Word>::new(0));
    let handled = Arc::new(AtomicU32::new(0));
    let after = Arc::clone(&handled);
    let holder = job(move |cpu| {
        let mut guard = lock.lock_irqsave(cpu);
        let (lock, handled) = (Arc::clone(&lock), Arc::clone(&handled));
        // The CPU interrupts itself. If interrupts were not masked now, the handler would wait forever.
        cpu.interrupt(
            CpuId(0),
            job(move |cpu| {
                *lock.lock(cpu) += 1;
                handled.fetch_add(1, Relaxed);
            }),
        );
        (0..10).for_each(|_| cpu.relax());
        assert_eq!(after.load(Relaxed), 0);
        *guard += 1;
        drop(guard);
        assert_eq!(after.load(Relaxed), 1, "restoring interrupts takes what is pending");
    });
    run_in_turn(1, vec![(CpuId(0), holder)]);
}

#[test]
fn a_lock_with_data_says_what_its_word_says() {
    let (lock, turn) = (Arc::new(SpinLock::<u32, Ticket, StepWord>::new(0)), Checked::new(0));
    let (waited_for, called) = (Arc::clone(&lock), Arc::clone(&turn));
    let holder = job(move |cpu| {
        let says = || (lock.is_locked(cpu), lock.is_contended(cpu));
        assert_eq!(says(), (false, false), "free");
        let guard = lock.lock(cpu);
        assert_eq!(says(), (true, false), "held");
        cpu.store(&turn.word, 1, Relaxed);
        (0..500).for_each(|_| cpu.relax());
        assert_eq!(says(), (true, true), "waited for");
        drop(guard);
        let _ = cpu.wait_until(&turn.word, Budget::UNBOUNDED, Relaxed, |now| now == 2);
        assert_eq!(says(), (false, false), "released");
    });
    let waiter = job(move |cpu| {
        let _ = cpu.wait_until(&called.word, Budget::UNBOUNDED, Relaxed, |now| now == 1);
        drop(waited_for.lock(cpu));
        cpu.store(&called.word, 2, Relaxed);
    });
    StepWorld::new(Setup::new(2)).run(vec![(CpuId(0), holder), (CpuId(1), waiter)]);
}

/// Lets CPU 0 hold a lock of `kind` while CPU 1 waits for it, and checks what the lock says of itself.
fn says_what_it_is(kind: LockKind) {
    let (lock, turn) = (Arc::new(BootLock::<StepWord>::new()), Checked::new(0));
    let (waited_for, called) = (Arc::clone(&lock), Arc::clone(&turn));
    let holder = job(move |cpu| {
        assert!(
            !lock.is_locked(kind, cpu) && !lock.is_contended(kind, cpu),
            "{kind}: a new lock"
        );
        lock.lock(kind, cpu);
        assert!(
            lock.is_locked(kind, cpu) && !lock.is_contended(kind, cpu),
            "{kind}: held"
        );
        assert!(!lock.try_lock(kind, cpu), "{kind}: taken twice");
        let held = cpu.load(lock.word(), Relaxed);
        cpu.store(&turn.word, 1, Relaxed);
        (0..500).for_each(|_| cpu.relax());
        let shows_waiters = !matches!(kind, LockKind::Tas | LockKind::Ttas);
        assert_eq!(lock.is_contended(kind, cpu), shows_waiters, "{kind}: with a waiter");
        assert!(lock.is_locked(kind, cpu), "{kind}: held, with a waiter");
        for alone in cpu.machine.alone(cpu.load(lock.word(), Relaxed)) {
            assert_eq!(alone, held, "{kind}: the word of the holder without waiters");
        }
        lock.unlock(kind, cpu);
        let _ = cpu.wait_until(&turn.word, Budget::UNBOUNDED, Relaxed, |now| now == 2);
        assert!(
            !lock.is_locked(kind, cpu) && !lock.is_contended(kind, cpu),
            "{kind}: released"
        );
        let free = cpu.load(lock.word(), Relaxed);
        assert!(
            cpu.machine.alone(free).iter().all(|&alone| alone == free),
            "{kind}: free"
        );
        assert!(lock.try_lock(kind, cpu), "{kind}: free, and not taken");
        lock.unlock(kind, cpu);
    });
    let waiter = job(move |cpu: &StepCpu| {
        let _ = cpu.wait_until(&called.word, Budget::UNBOUNDED, Relaxed, |now| now == 1);
        assert!(!waited_for.try_lock(kind, cpu), "{kind}: two holders");
        waited_for.lock(kind, cpu);
        waited_for.unlock(kind, cpu);
        cpu.store(&called.word, 2, Relaxed);
    });
    StepWorld::new(Setup::new(2)).run(vec![(CpuId(0), holder), (CpuId(1), waiter)]);
}

#[test]
fn a_lock_says_whether_it_is_held_and_whether_a_cpu_waits() {
    LockKind::ALL.iter().copied().for_each(says_what_it_is);
    let mut known = LockKind::ALL.to_vec();
    macro_rules! historic {
        ([] $($module:ident: $kind:ident = $name:literal,)+) => {$({
            let operations: &'static OperationsOfSome =
                Box::leak(Box::new(Operations::<StepCpu>::of::<holdfast_history::$kind>()));
            let operations = Vec::leak(vec![operations]);
            known.push(LockKind::registered::<holdfast_history::$kind>($name, operations, &known));
            says_what_it_is(*known.last().expect("just added"));
        })+};
    }
    holdfast_history::for_each_historic_lock!(historic);
}
