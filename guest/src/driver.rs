//! Drivers: kernel services that one spinlock each serialises, and nothing else. Where a study wants contention of a known
//! size, this is it; Linux's `locktorture` module does the same.

use alloc::boxed::Box;

use crate::class::LockClass;
use crate::kernel::OnCpu;
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
}

/// A call of `driver` that works for `held_ns` nanoseconds under its lock. Returns how many calls came before.
pub(crate) fn call<M: Machine>(on: &OnCpu<'_, M>, driver: u32, held_ns: u64) -> u64 {
    let mut calls = on.kernel.drivers.calls[driver as usize].lock(on);
    on.work(held_ns);
    let before = *calls;
    *calls = before + 1;
    before
}
