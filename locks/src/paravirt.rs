//! Who halts for which lock: shared state of the paravirtual locks of one guest.

use alloc::boxed::Box;

use crate::platform::{CpuId, Word};

/// The registration record of one CPU (Linux: `struct kvm_lock_waiting`).
#[derive(Debug)]
pub struct LockWaiting<W, A> {
    /// The lock's key, or 0: this CPU waits for none.
    pub lock: A,
    /// The ticket it waits for; valid while `lock` is not 0.
    pub want: W,
}

/// The halted waiters of one guest: a bitmap of CPUs and a record for each.
#[derive(Debug)]
pub struct WaitTable<W, A> {
    /// Linux: `waiting_cpus`, 32 CPUs a word.
    pub cpus: Box<[W]>,
    /// One record per CPU.
    pub records: Box<[LockWaiting<W, A>]>,
}

impl<W: Word<u32>, A: Word<usize>> WaitTable<W, A> {
    /// An empty table for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        WaitTable {
            cpus: (0..cpus.div_ceil(32)).map(|_| W::new(0)).collect(),
            records: (0..cpus)
                .map(|_| LockWaiting {
                    lock: A::new(0),
                    want: W::new(0),
                })
                .collect(),
        }
    }

    /// The record of `cpu`.
    pub fn record(&self, cpu: CpuId) -> &LockWaiting<W, A> {
        &self.records[cpu.0 as usize]
    }
}
