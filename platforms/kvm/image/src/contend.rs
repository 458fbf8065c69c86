//! Bare contention: every CPU takes one lock, holds it, releases it, thinks, and again.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use holdfast_guest::{Cpu, choose_lock};
use holdfast_locks::{BootLock, LockKind, Paravirt, Platform};
use holdfast_protocol::{Contended, Contention, Message};

use crate::cpu::KvmCpu;
use crate::instructions::sti;
use crate::word::KvmWord;
use crate::{machine, percpu, ring};

/// The lock, alone on its cache line, and the next one, which is often fetched with it.
#[repr(align(128))]
struct Alone<T>(T);

static LOCK: Alone<BootLock<KvmWord>> = Alone(BootLock::from_word(KvmWord::zero()));
/// What the lock protects: as many as there were acquisitions, if it excludes.
static PROTECTED: Alone<AtomicU64> = Alone(AtomicU64::new(0));
/// Set when the time is over.
static OVER: Alone<AtomicBool> = Alone(AtomicBool::new(false));
/// When the measured interval began, nanoseconds; 0: not yet.
static BEGAN: Alone<AtomicU64> = Alone(AtomicU64::new(0));
/// When it ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
static READY: AtomicU32 = AtomicU32::new(0);
static FINISHED: AtomicU32 = AtomicU32::new(0);

/// Acquisitions between two looks at the clock, where none had to wait.
const LOOK_EVERY: u64 = 16;

/// One CPU's part. Returns when all is reported, or it is others who will.
pub(crate) fn run(cpu: &KvmCpu, orders: &Contention) {
    let shared = cpu.shared();
    let environment = shared.hypervisor.environment(shared.cpus, orders.nopvspin);
    let kind = choose_lock(orders.lock, environment);
    sti();
    let began = wait_for_all(cpu, kind);
    let mut contended = contend(cpu, orders, kind, began);
    let block = cpu.block();
    // ORDERING: Relaxed: this CPU's own.
    contended.cpu = cpu.cpu().0;
    contended.waits = block.contentions.load(Relaxed);
    contended.kicks = block.kicks.load(Relaxed);
    contended.halts = block.halts.load(Relaxed);
    block.contended.set(contended);
    // ORDERING: AcqRel; the last one sees what the others have set.
    if FINISHED.fetch_add(1, AcqRel) + 1 == shared.cpus {
        finish(cpu, began);
    }
}

/// Everybody begins at once: returns when.
fn wait_for_all(cpu: &KvmCpu, kind: LockKind) -> u64 {
    // ORDERING: AcqRel; the last one to come begins.
    if READY.fetch_add(1, AcqRel) + 1 == cpu.shared().cpus {
        ring::report(&Message::Counter(alloc::format!("guest.lock.{}", kind.name()), 1));
        let now_ns = cpu.now_ns().max(1);
        ring::report_now(&Message::Begin { now_ns });
        // ORDERING: Release; pairs with the Acquire below.
        BEGAN.0.store(now_ns, Release);
    }
    loop {
        match BEGAN.0.load(Acquire) {
            0 => cpu.relax(),
            began => return began,
        }
    }
}

fn contend(cpu: &KvmCpu, orders: &Contention, kind: LockKind, began: u64) -> Contended {
    let end = began.saturating_add(orders.duration_ns);
    let mut contended = Contended::default();
    let waits = &cpu.block().contentions;
    let mut waits_seen = waits.load(Relaxed);
    // ORDERING: Relaxed, here and below; that the time is over orders nothing.
    while !OVER.0.load(Relaxed) {
        let wanted = if orders.timed { cpu.now_ns() } else { 0 };
        LOCK.0.lock(kind, cpu);
        if orders.timed {
            let waited = cpu.now_ns().saturating_sub(wanted);
            contended.longest_wait_ns = contended.longest_wait_ns.max(waited);
        }
        // ORDERING: Relaxed, both; a load and a store, so that a lock that does not exclude loses some.
        let acquisitions = PROTECTED.0.load(Relaxed);
        cpu.compute(orders.hold_ns);
        PROTECTED.0.store(acquisitions + 1, Relaxed);
        LOCK.0.unlock(kind, cpu);
        contended.acquisitions += 1;
        cpu.compute(orders.think_ns);
        // A wait can have lasted long: where nobody gets anywhere, 16 acquisitions would be too late.
        let waited = waits.load(Relaxed) != waits_seen;
        if waited || contended.acquisitions.is_multiple_of(LOOK_EVERY) {
            waits_seen = waits.load(Relaxed);
            let now = cpu.now_ns();
            if now >= end && !OVER.0.swap(true, Relaxed) {
                ENDED.store(now, Relaxed);
            }
        }
    }
    contended
}

fn finish(cpu: &KvmCpu, began: u64) {
    let shared = cpu.shared();
    let all = || (0..shared.cpus).map(|number| percpu::of(number).contended.get());
    for contended in all() {
        ring::report(&Message::Contended(contended));
    }
    machine::report_counters(shared);
    let total: u64 = all().map(|contended| contended.acquisitions).sum();
    // ORDERING: Relaxed; the caller has acquired that all are done.
    let protected = PROTECTED.0.load(Relaxed);
    assert_eq!(protected, total, "the lock has not excluded");
    let now_ns = ENDED.load(Relaxed).max(began);
    ring::report_now(&Message::Done {
        now_ns,
        operations: Some(total),
    });
}
