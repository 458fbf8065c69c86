//! Drivers: kernel services that each hold one spinlock for a given time. Studies use them for contention of a known
//! size, as Linux's `locktorture` module does.

use alloc::boxed::Box;

use crate::class::LockClass;
use crate::cpu::ThisCpu;
use crate::machine::Machine;
use crate::sync::SpinLock;

/// All drivers.
pub(crate) struct Drivers<M: Machine> {
    calls: Box<[SpinLock<u64, M>]>,
}

impl<M: Machine> Drivers<M> {
    pub(crate) fn new(count: u32) -> Self {
        Drivers {
            calls: (0..count).map(|_| SpinLock::new(LockClass::Driver, 0)).collect(),
        }
    }

    /// Calls `driver`, which works for `held_ns` nanoseconds under its lock. Returns the number of earlier calls.
    pub(crate) fn call(&self, on: &ThisCpu<'_, M>, driver: u32, held_ns: u64) -> u64 {
        let mut calls = self.calls[driver as usize].lock(on);
        on.work(held_ns);
        let before = *calls;
        *calls = before + 1;
        before
    }
}
