//! The agreement of host and IOMMU: remap entries over a vCPU's life, and the guest APIC log.
//!
//! | IOMMU | then | host | then |
//! |---|---|---|---|
//! | IRR = 1 | reads IsRun: doorbell, or log | IsRun = 0, GALogIntr = 1 ([`blocking`]) | reads IRR, sleeps |
//! | IRR = 1 | reads IsRun and GALogIntr: no notification | IsRun = 1 ([`Remap::running`]) | VMRUN evaluates IRR |
//! | entry, tail, status bit: interrupt if it was clear | | clears the status bit ([`drain`]) | reads tail |
//! | log full: sets the overflow bit, logs no more | | restarts the log ([`drain`]) | wakes all candidates |
//!
//! - **No lost interrupt**: in each row one side sees what the other side has written.
//! - **IsRun is exact**: it is set and cleared together with IsRunning of AVIC's table.
//!
//! Destination, IsRun and GATag are not cached by the IOMMU, by its manual, and GALogIntr is not, by AMD's word (Linux
//! 6.17, `amd_iommu_update_ga`). The other fields are cached. Code that changes them waits for an
//! invalidation, after which no request in flight uses the old entry (Linux, `modify_irte_ga`: flush and completion
//! wait). A host's step needs no such wait, since no request is in flight then.

use holdfast_abi::Memory;
use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{self, GaLogEntry, Layout, RemapEntry};

use super::handshake::{AvicFaults, Tables};

/// The remap entry of a device.
#[derive(Clone, Copy, Debug)]
pub struct Remap<'m, M> {
    /// The memory that contains it.
    pub memory: &'m M,
    /// Its host-physical address.
    pub address: u64,
    /// Planted faults.
    #[doc(hidden)]
    pub faults: AvicFaults,
}

impl<M: Memory> Remap<'_, M> {
    fn read(&self) -> RemapEntry {
        let [low, high] = self.memory.load128(self.address).unwrap_or_default();
        RemapEntry { low, high }
    }

    /// Writes `entry` in one step.
    pub fn write(&self, entry: RemapEntry) {
        self.memory.store128(self.address, [entry.low, entry.high]);
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

    /// The vCPU does not run. `log`: it sleeps, and its interrupts must wake it.
    pub fn stopped(&self, log: bool) {
        if !self.faults.remap_stays_running {
            self.write(self.read().stopped(log));
        }
    }
}

/// Prepares a vCPU with `tables` and the remap entries `entries` for reading its IRR and sleeping. Its interrupts are
/// logged from here on.
///
/// The entries come first, since the fence of [`Tables::blocking`] serves both. Linux's CMPXCHG16B is a fence itself.
pub fn blocking<'m, M: Memory>(tables: &Tables<'m, M>, entries: impl Iterator<Item = Remap<'m, M>>) {
    if tables.faults.remap_after_fence {
        tables.blocking();
    }
    for entry in entries {
        entry.stopped(true);
    }
    if !tables.faults.remap_after_fence {
        tables.blocking();
    }
}

/// The vCPU to wake for an entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The vCPU with this tag.
    Tagged(GaTag),
    /// All vCPUs whose entries may be missing after those in the log.
    Everyone,
}

/// Handles the interrupt of the log of the IOMMU at `layout`: reports which vCPUs to wake (`iommu_poll_ga_log`), and
/// restarts a log that was full (`amd_iommu_restart_ga_log`).
///
/// It is unknown whose entries a full log has lost, so all candidates are woken. Linux, up to 6.17 at least, wakes none
/// of them: there such a vCPU sleeps until another event comes for it.
pub fn drain<M: Memory>(memory: &M, layout: Layout, faults: AvicFaults, mut wake: impl FnMut(Woken)) {
    let status = layout.register(iommu::STATUS);
    // This precedes the reading of the log: later entries interrupt again.
    let mut seen = 0;
    if !faults.cleared_after_drain {
        seen = clear(memory, status, iommu::STATUS_GA_INTERRUPT);
        memory.fence();
    }
    let (head_at, tail_at) = (layout.register(iommu::GA_LOG_HEAD), layout.register(iommu::GA_LOG_TAIL));
    let mut head = memory.load64(head_at).unwrap_or(0);
    while !faults.log_not_drained && head != memory.load64(tail_at).unwrap_or(0) {
        let entry = GaLogEntry(memory.load64(layout.log + head).unwrap_or(0));
        head = layout.next_in_log(head);
        memory.store64(head_at, head);
        if entry.is_guest_interrupt() {
            wake(Woken::Tagged(entry.tag()));
        }
    }
    if faults.cleared_after_drain {
        seen = clear(memory, status, iommu::STATUS_GA_INTERRUPT);
    }
    if seen & iommu::STATUS_GA_OVERFLOW != 0 {
        clear(memory, status, iommu::STATUS_GA_OVERFLOW);
        // Interrupts dropped until here are in IRR. Pairs with the IOMMU's fence between IRR and its read of the
        // status.
        memory.fence();
        if !faults.overflow_ignored {
            wake(Woken::Everyone);
        }
    }
}

/// Clears `bits` of the register at `address`, as writing ones to it does. Returns its value before.
fn clear<M: Memory>(memory: &M, address: u64, bits: u64) -> u64 {
    let mut before = memory.load64(address).unwrap_or(0);
    while let Some(Err(now)) = memory.compare_exchange64(address, before, before & !bits) {
        before = now;
    }
    before
}
