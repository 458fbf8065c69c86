//! What host and IOMMU agree by: remap entries over a vCPU's life, and the guest APIC log.
//!
//! | IOMMU | then | host | then |
//! |---|---|---|---|
//! | IRR = 1 | reads IsRun: doorbell, or log | IsRun = 0, GALogIntr = 1 ([`blocking`]) | reads IRR, sleeps |
//! | IRR = 1 | reads IsRun and GALogIntr: nobody is told | IsRun = 1 ([`Remap::running`]) | VMRUN evaluates IRR |
//! | entry, then tail, then the status bit: interrupt if none was set | | clears the status bit ([`drain`]) | reads tail |
//! | log full: sets the overflow's bit; nothing more is logged | | restarts the log ([`drain`]) | wakes all who may be meant |
//!
//! - **No lost interrupt**: in each row one side sees what the other has written.
//! - **IsRun means it**: as IsRunning of AVIC's table, and set and cleared beside it.
//!
//! Destination, IsRun and GATag are not cached by the IOMMU, by its manual, and GALogIntr is not, by AMD's word (Linux
//! 6.17, `amd_iommu_update_ga`). All else is: whoever changes that waits for an invalidation, behind which nothing that
//! is under way goes by the entry of before (Linux, `modify_irte_ga`: flush and completion wait). A host's step needs
//! no such wait, as nothing is under way then.

use holdfast_abi::Memory;
use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{self, GaLogEntry, Layout, RemapEntry};

use super::handshake::{AvicFaults, Tables};

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
        let [low, high] = self.memory.load128(self.address).unwrap_or_default();
        RemapEntry { low, high }
    }

    /// Writes `entry`, in one step.
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

    /// It does not run; `log`: it sleeps, and is to be woken.
    pub fn stopped(&self, log: bool) {
        if !self.faults.remap_stays_running {
            self.write(self.read().stopped(log));
        }
    }
}

/// A vCPU with `tables` and the remap entries `entries` is about to look at its IRR and to sleep: its interrupts are
/// logged from here on. The entries first, since the fence of [`Tables::blocking`] is for both. (Linux's CMPXCHG16B is
/// a fence itself.)
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

/// Whom the log's interrupt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The vCPU with this tag.
    Tagged(GaTag),
    /// All whose entries may be missing, behind those that are there.
    Everyone,
}

/// The interrupt of the log of the IOMMU at `layout` came: says whom to wake (`iommu_poll_ga_log`), and restarts a log
/// that was full (`amd_iommu_restart_ga_log`).
///
/// Whose entries were lost nobody knows, and all are woken who may be meant. Linux, up to 6.17 at least, wakes nobody:
/// there such a vCPU sleeps until something else comes for it.
pub fn drain<M: Memory>(memory: &M, layout: Layout, faults: AvicFaults, mut wake: impl FnMut(Woken)) {
    let status = layout.register(iommu::STATUS);
    // Before the log is read: what comes from here on interrupts again.
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
        // What was dropped until here is in IRR: pairs with the IOMMU's fence between IRR and the look at the status.
        memory.fence();
        if !faults.overflow_ignored {
            wake(Woken::Everyone);
        }
    }
}

/// Clears `bits` of the register at `address`, as writing ones to it does; what it was.
fn clear<M: Memory>(memory: &M, address: u64, bits: u64) -> u64 {
    let mut before = memory.load64(address).unwrap_or(0);
    while let Some(Err(now)) = memory.compare_exchange64(address, before, before & !bits) {
        before = now;
    }
    before
}
