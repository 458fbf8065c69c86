//! Halting and kicking threads: each thread's parker. The system calls that sleep are in [`os`].

use core::cell::Cell;
use std::time::Duration;

use holdfast_locks::CpuId;
use holdfast_locks::thread::Parker;

use crate::cpu::{ThisThread, ThreadWord};
use crate::process::process;
use crate::slot::CPUS_MAX;
use crate::{allowed, os};

pub(crate) type Parkers = [Parker<ThreadWord>; CPUS_MAX as usize];

pub(crate) static PARKERS: Parkers = [const { Parker::from_word(ThreadWord::ZERO) }; CPUS_MAX as usize];

/// The longest halt of a thread whose announcement may be overwritten.
pub(crate) const GLANCE: Duration = Duration::from_millis(5);

thread_local! {
    /// After what time the next halt must end by itself.
    static BOUND: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Bounds the next halt of the calling thread by `time`, or by an earlier bound.
pub(crate) fn bound_next_halt(time: Duration) {
    BOUND.set(Some(BOUND.get().map_or(time, |bound| bound.min(time))));
}

/// Sleeps until the next [`kick`] of `cpu`, which is the calling thread. May return earlier, for example after a signal
/// handler.
pub(crate) fn halt(thread: &ThisThread, cpu: CpuId) {
    process().parkers[cpu.0 as usize].halt(thread);
    BOUND.set(None);
}

/// Ends the halt of `cpu`, or makes its next halt return at once.
pub(crate) fn kick(thread: &ThisThread, cpu: CpuId) {
    process().parkers[cpu.0 as usize].kick(thread);
}

/// Sleeps while `word` holds `value`. May return earlier.
pub(crate) fn wait(word: &ThreadWord, value: u32) {
    allowed::look_if_due();
    os::wait(word, value, BOUND.get());
}

/// Removes the kicks of `gone`, a thread that does not exist in this process.
#[cfg(target_os = "linux")]
pub(crate) fn abandon(thread: &ThisThread, gone: CpuId) {
    PARKERS[gone.0 as usize].abandon(thread);
}
