//! Drivers: kernel services that each hold one spinlock for a given time. Studies use them for contention of a known
//! size, as Linux's `locktorture` module does.

use crate::class::LockClass;
use crate::cpu::ThisCpu;
use crate::machine::Machine;
use crate::sync::SpinLock;

/// A driver. The value counts its calls.
pub(crate) struct Driver<M: Machine>(SpinLock<u64, M>);

impl<M: Machine> Driver<M> {
    pub(crate) fn new() -> Self {
        Driver(SpinLock::new(LockClass::Driver, 0))
    }

    /// Works for `held_ns` nanoseconds under the lock. Returns the number of earlier calls.
    pub(crate) fn call(&self, on: &ThisCpu<'_, M>, held_ns: u64) -> u64 {
        let mut calls = self.0.lock(on);
        on.work(held_ns);
        *calls += 1;
        *calls - 1
    }
}
