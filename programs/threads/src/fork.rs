//! Forks: in the child there is only the thread that forked.
//!
//! A child gets a copy of each lock as it was. Threads that waited for the lock are still in its queue, but do not
//! exist in the child. So the child removes them: it keeps each lock held or free as it is, and empties its queue.
//!
//! **Each trace has a record**: a waiter records each word of its lock, then looks at the gate, and only then enters
//! the queue. The forking thread closes the gate before the fork and opens it afterwards. Both sides have a
//! sequentially consistent store before their load. So a waiter either finds the gate closed and stays out of the
//! queue, or its record was written before the fork began and is in the child. The kernel copies one page after another
//! while other threads run, so nothing weaker would do. A waiter that finds its turn meanwhile takes its record away;
//! but then another thread held or got the lock, and the child may not use it.
//!
//! A ticket is drawn before the record is written: drawing is the first instruction of the lock. So a ticket lock that
//! a thread begins to wait for during the fork itself may stay locked in the child.
//!
//! The handlers are registered when the code is loaded. So the program's own handlers, which lock and unlock, run
//! before the gate is closed and after the child's locks are in order.

#![expect(
    unsafe_code,
    reason = "handlers of the C library; the words of locks that other threads waited for"
)]
#![cfg_attr(miri, allow(dead_code, reason = "Miri registers no handlers"))]

use core::mem;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};
use std::cell::Cell;
use std::time::Duration;

use holdfast_locks::{CpuId, Platform};

use crate::cpu::{self, ThisThread, ThreadWord};
use crate::process::process;
use crate::slot::{self, CPUS_MAX};
use crate::{exit, os, word};

/// A word in which a thread that waits leaves a trace.
#[repr(C)]
struct Trace {
    /// Null if there is none.
    word: AtomicPtr<ThreadWord>,
    /// The address of the function that maps the word to the word without waiters. Valid while `word` is not null.
    alone: AtomicPtr<()>,
}

/// The waits within each other that are recorded: a reader-writer lock leaves a trace in two words, and queues for one
/// of them.
const DEPTH_MAX: usize = 3;

/// The waits of a thread, on a cache line of its own. Only this thread writes it.
#[repr(C, align(64))]
pub(crate) struct Record {
    traces: [Trace; DEPTH_MAX],
    /// The number of traces.
    depth: AtomicUsize,
}

pub(crate) type Records = [Record; CPUS_MAX as usize];

pub(crate) static RECORDS: Records = [const {
    Record {
        traces: [const {
            Trace {
                word: AtomicPtr::new(ptr::null_mut()),
                alone: AtomicPtr::new(ptr::null_mut()),
            }
        }; DEPTH_MAX],
        depth: AtomicUsize::new(0),
    }
}; CPUS_MAX as usize];

/// The number of threads that fork. The gate is closed while it is not 0.
pub(crate) static FORKING: AtomicU32 = AtomicU32::new(0);

/// The number of forks between this process and the first one.
pub(crate) static GENERATION: AtomicU8 = AtomicU8::new(0);

/// Returns the number of forks, modulo 256, between this process and the one that loaded the code.
pub(crate) fn generation() -> u8 {
    // ORDERING: Relaxed; it changes while the process has one thread.
    process().generation.load(Relaxed)
}

/// How long a waiter stays at the closed gate. A program whose handlers were registered earlier may need this thread to
/// go on: then it hangs for so long, but not forever.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    /// Whether this thread forks, so that the gate does not hold it up.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread forks.
pub(crate) extern "C" fn forks() -> bool {
    FORKS.get()
}

/// Records that the calling thread is about to leave a trace in `word`.
pub(crate) fn wait_begins(word: &ThreadWord, alone: fn(u32) -> u32) {
    // A thread without a number does not enter a queue.
    let Some(cpu) = slot::number() else { return };
    let process = process();
    let record = &process.records[cpu.0 as usize];
    // ORDERING: Relaxed, here and below for the depth; only this thread reads it.
    let depth = record.depth.load(Relaxed);
    record.depth.store(depth + 1, Relaxed);
    // A signal handler that waits within a wait may go deeper. Its wait has no record.
    let Some(trace) = record.traces.get(depth) else { return };
    // ORDERING: Relaxed; published with the word.
    trace.alone.store(alone as *mut (), Relaxed);
    let word = ptr::from_ref(word).cast_mut();
    // ORDERING: SeqCst, both; **Each trace has a record**.
    trace.word.store(word, SeqCst);
    let forking = process.forking.load(SeqCst);
    if forking != 0 && !(process.forks)() {
        wait_at_gate(trace, word, forking);
    }
}

#[cold]
fn wait_at_gate(trace: &Trace, word: *mut ThreadWord, mut forking: u32) {
    let gate = process().forking;
    let end = os::now_ns().saturating_add(PATIENCE.as_nanos() as u64);
    // ORDERING: SeqCst, all loads and the last store; as in `wait_begins`. The record stays meanwhile, which is
    // harmless: it only lets a child put the lock in order.
    while forking != 0 && os::now_ns() < end {
        os::wait_for(gate, forking, PATIENCE / 10);
        trace.word.store(word, SeqCst);
        forking = gate.load(SeqCst);
    }
}

/// Removes the latest record of the calling thread.
pub(crate) fn wait_ends() {
    let Some(cpu) = slot::number() else { return };
    let record = &process().records[cpu.0 as usize];
    // A wait that began without a number has no record.
    if let Some(depth) = record.depth.load(Relaxed).checked_sub(1) {
        record.depth.store(depth, Relaxed);
        if let Some(trace) = record.traces.get(depth) {
            // ORDERING: Release; the word must not contain the thread's trace any more.
            trace.word.store(ptr::null_mut(), Release);
        }
    }
}

extern "C" fn prepare() {
    FORKS.set(true);
    // ORDERING: SeqCst; **Each trace has a record**.
    FORKING.fetch_add(1, SeqCst);
}

extern "C" fn in_parent() {
    FORKS.set(false);
    // ORDERING: AcqRel; nothing depends on it but the gate.
    if FORKING.fetch_sub(1, AcqRel) == 1 {
        os::wake_all(&FORKING);
    }
}

extern "C" fn in_child() {
    word::forked();
    let mine = slot::numbered();
    let this = ThisThread::new();
    for (number, record) in (0..).zip(&RECORDS).take(slot::end() as usize) {
        let is_mine = mine == Some(CpuId(number));
        // ORDERING: Relaxed; only this thread exists.
        record.depth.store(0, Relaxed);
        for trace in &record.traces {
            // ORDERING: Acquire; pairs with nothing: only this thread exists.
            let word = trace.word.swap(ptr::null_mut(), Acquire);
            if is_mine || word.is_null() || !os::is_readable(word) {
                continue;
            }
            // SAFETY: the thread recorded the address of a function of this type.
            let alone: fn(u32) -> u32 = unsafe { mem::transmute(trace.alone.load(Relaxed)) };
            // SAFETY: a thread waited for the lock when the process forked, so it was valid then. No other thread of
            // this child has run that could have freed it. The kernel has confirmed that the memory was inherited.
            let word = unsafe { &*word };
            // ORDERING: Relaxed, both; only this thread exists.
            this.store(word, alone(this.load(word, Relaxed)), Relaxed);
        }
        if is_mine {
            continue;
        }
        cpu::abandon(&this, CpuId(number));
    }
    cpu::abandon_waiting(&this);
    exit::forked(mine);
    slot::abandon_all_but(mine);
    // ORDERING: Relaxed; only this thread exists.
    GENERATION.fetch_add(1, Relaxed);
    FORKS.set(false);
    // ORDERING: Relaxed; only this thread exists.
    FORKING.store(0, Relaxed);
}

/// Registers the handlers. Called when the code is loaded, if the state is its own.
pub(crate) fn register() {
    // SAFETY: the handlers have the type that the C library expects. If the library is unloaded, the C library forgets
    // them. Without memory for them the child's locks stay as they are.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_deeper_than_any_lock_waits_has_no_record_and_takes_none_away() {
        slot::tests::with_numbers(|| {
            let words = [const { ThreadWord::ZERO }; DEPTH_MAX + 2];
            let cpu = slot::number().expect("a number for a thread");
            let record = &RECORDS[cpu.0 as usize];
            let recorded = || {
                record
                    .traces
                    .each_ref()
                    .map(|trace| trace.word.load(Relaxed).cast_const())
            };
            let none = [ptr::null(); DEPTH_MAX];
            words.iter().for_each(|word| wait_begins(word, |_| 0));
            assert_eq!(recorded()[..], words.each_ref().map(ptr::from_ref)[..DEPTH_MAX]);
            (0..2).for_each(|_| wait_ends());
            assert!(!recorded().contains(&ptr::null()));
            (0..DEPTH_MAX).for_each(|_| wait_ends());
            assert_eq!(recorded(), none);
            wait_begins(&words[4], |_| 0);
            assert_eq!(recorded()[0], ptr::from_ref(&words[4]));
            wait_ends();
            assert_eq!(recorded(), none);
        });
    }
}
