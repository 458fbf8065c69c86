//! Contention without a kernel: every CPU repeatedly takes one lock, holds it, releases it and computes.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use holdfast_guest::{Cpu, choose_lock};
use holdfast_locks::{BootLock, LockKind, Paravirt, Platform};
use holdfast_protocol::{Contended, Contention, Message};

use crate::cpu::KvmCpu;
use crate::instructions::sti;
use crate::word::KvmWord;
use crate::{machine, percpu, ring};

/// A value alone on two cache lines, its own and the next one, which is often prefetched with it.
#[repr(align(128))]
struct Alone<T>(T);

static LOCK: Alone<BootLock<KvmWord>> = Alone(BootLock::from_word(KvmWord::zero()));
/// The protected counter. It equals the number of acquisitions if the lock excludes.
static PROTECTED: Alone<AtomicU64> = Alone(AtomicU64::new(0));
/// Set when the measured interval is over.
static OVER: Alone<AtomicBool> = Alone(AtomicBool::new(false));
/// Start of the measured interval in nanoseconds, or 0 before it.
static BEGAN: Alone<AtomicU64> = Alone(AtomicU64::new(0));
/// End of the measured interval in nanoseconds.
static ENDED: AtomicU64 = AtomicU64::new(0);
static READY: AtomicU32 = AtomicU32::new(0);
static FINISHED: AtomicU32 = AtomicU32::new(0);

/// Number of acquisitions without a wait between two readings of the clock.
const CLOCK_EVERY: u64 = 16;

/// Runs the contention on the executing CPU. The last CPU to finish reports for all.
pub(crate) fn run(cpu: &KvmCpu, orders: &Contention) {
    let shared = cpu.shared();
    let environment = shared.hypervisor.environment(shared.cpus, orders.nopvspin);
    let kind = choose_lock(orders.lock, environment);
    sti();
    let began = wait_for_all(cpu, kind);
    let mut contended = contend(cpu, orders, kind, began);
    let block = cpu.block();
    // ORDERING: Relaxed; only this CPU writes these counters.
    contended.cpu = cpu.cpu().0;
    contended.waits = block.contentions.load(Relaxed);
    contended.kicks = block.kicks.load(Relaxed);
    contended.halts = block.halts.load(Relaxed);
    block.contended.set(contended);
    // ORDERING: AcqRel; the last CPU sees the results of the others.
    if FINISHED.fetch_add(1, AcqRel) + 1 == shared.cpus {
        finish(cpu, began);
    }
}

/// Waits for all CPUs. Returns the common start of the measured interval in nanoseconds.
fn wait_for_all(cpu: &KvmCpu, kind: LockKind) -> u64 {
    // ORDERING: AcqRel; the last CPU to arrive starts the interval.
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
    // ORDERING: Relaxed, here and below; the flag publishes no other data.
    while !OVER.0.load(Relaxed) {
        let wanted = if orders.timed { cpu.now_ns() } else { 0 };
        LOCK.0.lock(kind, cpu);
        if orders.timed {
            let waited = cpu.now_ns().saturating_sub(wanted);
            contended.longest_wait_ns = contended.longest_wait_ns.max(waited);
        }
        // ORDERING: Relaxed, both. The load and the store are separate, so that a lock that does not exclude loses
        // counts.
        let acquisitions = PROTECTED.0.load(Relaxed);
        cpu.compute(orders.hold_ns);
        PROTECTED.0.store(acquisitions + 1, Relaxed);
        LOCK.0.unlock(kind, cpu);
        contended.acquisitions += 1;
        cpu.compute(orders.think_ns);
        // After a wait the clock is read at once. Waits can be so long that 16 acquisitions would end far too late.
        let waited = waits.load(Relaxed) != waits_seen;
        if waited || contended.acquisitions.is_multiple_of(CLOCK_EVERY) {
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
    machine::counters(shared, &mut |name, value| ring::report(&Message::Counter(name, value)));
    let total: u64 = all().map(|contended| contended.acquisitions).sum();
    // ORDERING: Relaxed; the caller's AcqRel increment came after those of all other CPUs.
    let protected = PROTECTED.0.load(Relaxed);
    assert_eq!(
        protected, total,
        "the lock failed to exclude: counter and acquisitions differ"
    );
    let now_ns = ENDED.load(Relaxed).max(began);
    ring::report_now(&Message::Done {
        now_ns,
        operations: Some(total),
    });
}
