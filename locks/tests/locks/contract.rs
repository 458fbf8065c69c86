//! The conformance suite of every lock on both platforms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::{check, exclusion, nested_interrupt, no_lost_kick};
use holdfast_locks::{
    CnaQspin, CpuId, Exclusive, PreemptableTicket, PvQspin, Qspin, SpinLock, Ticket, UnfairQspin, Wide,
};
use holdfast_locks::{LockKind, Platform};

use crate::explore::StepWorld;
use crate::scenes::{job, run_in_turn};
use crate::steps::{Setup, StepCpu};
use crate::threads::{HostCpu, ThreadWorld};

#[test]
fn every_lock_conforms_when_stepped() {
    for &kind in LockKind::ALL {
        for cpus in [2, 3, 5, 33] {
            check(&StepWorld::new(Setup::new(cpus)), kind);
        }
    }
}

#[test]
fn every_lock_conforms_on_threads() {
    for &kind in LockKind::ALL {
        check(&ThreadWorld::new(3), kind);
    }
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
