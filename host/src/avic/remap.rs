//! What host and IOMMU agree by: remap entries over a vCPU's life, and the guest APIC log.
//!
//! | IOMMU | then | host | then |
//! |---|---|---|---|
//! | IRR = 1 | reads IsRun: doorbell, or log | IsRun = 0, GALogIntr = 1 ([`Remap::stopped`]) | reads IRR, sleeps |
//! | entry, then tail, then the status bit: interrupt if it was clear | | clears the status bit ([`drain`]) | reads tail |
//!
//! - **No lost interrupt**: in each row one side sees what the other has written.
//! - **IsRun means it**: as IsRunning of AVIC's table, and set and cleared beside it.

use holdfast_abi::Memory;
use holdfast_abi::iommu::{self, GaLogEntry, Layout, RemapEntry};

use super::handshake::AvicFaults;

/// The remap entry of a device.
#[derive(Clone, Copy, Debug)]
pub struct Remap<'m, M> {
    /// Where it is.
    pub memory: &'m M,
    /// Its host-physical address.
    pub address: u64,
    /// Planted faults.
    #[doc(hidden)]
    pub faults: AvicFaults,
}

impl<M: Memory> Remap<'_, M> {
    fn read(&self) -> RemapEntry {
        let half = |address| self.memory.load64(address).unwrap_or(0);
        RemapEntry {
            low: half(self.address),
            high: half(self.address + 8),
        }
    }

    /// Writes `entry`. Linux does both halves in one step (CMPXCHG16B); here nobody looks between two stores of a host's step.
    pub fn write(&self, entry: RemapEntry) {
        self.memory.store64(self.address + 8, entry.high);
        self.memory.store64(self.address, entry.low);
    }

    /// The vCPU runs on the CPU with `host_id` (`amd_iommu_update_ga`).
    pub fn running(&self, host_id: u32) {
        let entry = self.read();
        let kept = entry.destination();
        self.write(entry.running(if self.faults.remap_keeps_destination {
            kept
        } else {
            host_id
        }));
    }

    /// It does not run; `log`: it sleeps, and is to be woken.
    pub fn stopped(&self, log: bool) {
        if !self.faults.remap_stays_running {
            self.write(self.read().stopped(log));
        }
    }
}

/// Reads what is new in the log of the IOMMU at `layout`, whose interrupt came (`iommu_poll_ga_log`). Whether it was full in the
/// meantime: then it goes on from here, and entries are missing.
pub fn drain<M: Memory>(memory: &M, layout: Layout, faults: AvicFaults, mut notify: impl FnMut(GaLogEntry)) -> bool {
    let status = layout.register(iommu::STATUS);
    // Before the log is read: what comes from here on interrupts again.
    let seen = clear(memory, status, iommu::STATUS_GA_INTERRUPT);
    memory.fence();
    let (head_at, tail_at) = (layout.register(iommu::GA_LOG_HEAD), layout.register(iommu::GA_LOG_TAIL));
    let mut head = memory.load64(head_at).unwrap_or(0);
    while !faults.log_not_drained && head != memory.load64(tail_at).unwrap_or(0) {
        let entry = GaLogEntry(memory.load64(layout.log + head).unwrap_or(0));
        head = iommu::next_in_log(head);
        memory.store64(head_at, head);
        if entry.is_guest_interrupt() {
            notify(entry);
        }
    }
    let overflow = seen & iommu::STATUS_GA_OVERFLOW != 0;
    if overflow {
        // The log is switched off and on again (`iommu_ga_log_enable`).
        clear(memory, status, iommu::STATUS_GA_OVERFLOW);
    }
    overflow
}

/// Clears `bits` of the register at `address`, as writing ones to it does; what it was.
fn clear<M: Memory>(memory: &M, address: u64, bits: u64) -> u64 {
    let mut before = memory.load64(address).unwrap_or(0);
    while let Some(Err(now)) = memory.compare_exchange64(address, before, before & !bits) {
        before = now;
    }
    before
}
