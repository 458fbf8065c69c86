//! Drivers: kernel services that each hold one spinlock for a given time. Studies use them for contention of a known
//! size, as Linux's `locktorture` module does.

use crate::class::LockClass;
use crate::cpu::ThisCpu;
use crate::machine::{Cpu, Machine};
use crate::sync::SpinLock;

/// Ports of the PCI configuration space, mechanism 1 (PCI Local Bus Specification 3.0, section 3.2.2.3.2).
const CONFIGURATION_ADDRESS: u16 = 0xcf8;
const CONFIGURATION_DATA: u16 = 0xcfc;

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

    /// Reads or writes a register in the PCI configuration space under the lock: an access to the address port and one
    /// to the data port, each of which leaves the guest.
    pub(crate) fn access_configuration(&self, on: &ThisCpu<'_, M>, register: u32) {
        let mut calls = self.0.lock(on);
        on.cpu.port_write(CONFIGURATION_ADDRESS, address(register));
        on.cpu.port_write(CONFIGURATION_DATA, 0);
        *calls += 1;
    }
}

/// Returns the address of `register` of the first function of the first device (PCI Local Bus Specification 3.0,
/// 3.2.2.3.2): bit 31 enables the access.
fn address(register: u32) -> u32 {
    1 << 31 | register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_enabled_and_names_the_register() {
        for register in (0..256).step_by(4) {
            assert_eq!(address(register), 0x8000_0000 + register);
        }
    }
}
