//! Guest memory that the host writes: steal-time records, PV EOI words, and the rings of its devices.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_abi::{StealTime, msr::PV_EOI_BIT, virtio};
use holdfast_host::PvFaults;

/// Guest-physical address of the first steal-time record; the others follow it.
pub const STEAL_TIME_BASE: u64 = 0x10_0000;
/// Guest-physical address of the first PV EOI word. Each word has a cache line of its own, as a kernel's per-CPU
/// variables.
pub const PV_EOI_BASE: u64 = 0x20_0000;
/// Distance between two PV EOI words, in bytes.
pub const PV_EOI_STRIDE: u64 = 64;

/// The memory that a guest shares with its host.
#[derive(Debug)]
pub struct SharedMemory {
    /// Steal-time records, one per vCPU.
    pub steal_time: Box<[StealTime]>,
    /// PV EOI words, one per vCPU; the host uses bit 0.
    pub pv_eoi: Box<[Cell<u8>]>,
    /// The rings of the network device.
    pub network: Box<virtio::Network>,
    /// The ring of the block device.
    pub disk: Box<virtio::Disk>,
    /// Faults planted by tests.
    faults: PvFaults,
    /// For a planted fault: the index of the record whose state byte is cleared late, by vCPU.
    torn: Box<[Cell<Option<usize>>]>,
}

impl SharedMemory {
    /// The memory that `vcpus` vCPUs share with the host, which has `faults`.
    pub fn new(vcpus: usize, faults: PvFaults) -> SharedMemory {
        SharedMemory {
            steal_time: (0..vcpus).map(|_| StealTime::default()).collect(),
            pv_eoi: vec![Cell::new(0); vcpus].into(),
            network: Box::default(),
            disk: Box::default(),
            faults,
            torn: vec![Cell::new(None); vcpus].into(),
        }
    }

    fn record_index(&self, address: u64) -> Option<usize> {
        let index = address.checked_sub(STEAL_TIME_BASE)? / size_of::<StealTime>() as u64;
        usize::try_from(index)
            .ok()
            .filter(|&index| index < self.steal_time.len())
    }

    /// The host updates the record at `address` for vCPU `number`. Returns whether the guest has asked for a TLB flush.
    pub fn update_steal_time(&self, number: u32, address: u64, steal: u64) -> bool {
        let Some(index) = self.record_index(address) else {
            return false;
        };
        let record = &self.steal_time[index];
        // Flows execute one at a time, so the version's odd phase is never seen. It is gone through all the same.
        record.version.fetch_add(1, Relaxed);
        record.steal.fetch_add(steal, Relaxed);
        let state = if self.faults.exchange_torn {
            self.torn[number as usize].set(Some(index));
            record.preempted.load(Relaxed)
        } else {
            record.preempted.swap(0, Relaxed)
        };
        record.version.fetch_add(1, Relaxed);
        state & StealTime::FLUSH_TLB != 0
    }

    /// The host writes into the record at `address` when the vCPU's slice ends. Nanoseconds.
    pub fn tell_slice_end(&self, address: u64, ends: u64) {
        if let Some(index) = self.record_index(address) {
            self.steal_time[index].slice_ends.store(ends, Relaxed);
        }
    }

    /// The host writes into the record at `address` whether the vCPU runs on after its slice.
    pub fn tell_grant(&self, address: u64, granted: bool) {
        if let Some(index) = self.record_index(address) {
            self.steal_time[index].granted.store(u32::from(granted), Relaxed);
        }
    }

    /// The guest's word in the record at `address`.
    pub fn guest_word(&self, address: u64) -> u32 {
        self.record_index(address)
            .map_or(0, |index| self.steal_time[index].word.load(Relaxed))
    }

    /// The second half of a planted torn exchange, long after the first: vCPU `number` is entered.
    #[inline]
    pub fn finish_torn_exchange(&self, number: u32) {
        if let Some(index) = self.torn[number as usize].take() {
            self.steal_time[index].preempted.store(0, Relaxed);
        }
    }

    /// The host writes into the record at `address` that its vCPU has no pCPU.
    pub fn set_preempted(&self, address: u64) {
        if let Some(index) = self.record_index(address) {
            self.steal_time[index].preempted.store(StealTime::PREEMPTED, Relaxed);
        }
    }

    /// Whether the host really flushes when a guest has asked for it.
    pub fn host_flushes(&self) -> bool {
        !self.faults.flush_lost
    }

    /// The host sets the bit of the PV EOI word at `address`: the guest may end its interrupt without an exit.
    pub fn set_pv_eoi(&self, address: u64) {
        if let Some(word) = self.pv_eoi_word(address) {
            word.set(word.get() | PV_EOI_BIT);
        }
    }

    /// The host clears the bit of the PV EOI word at `address` after an exit. Returns whether it was still set.
    pub fn take_pv_eoi(&self, address: u64) -> bool {
        let Some(word) = self.pv_eoi_word(address) else {
            return false;
        };
        let found = word.get();
        if !self.faults.pv_eoi_stays {
            word.set(found & !PV_EOI_BIT);
        }
        found & PV_EOI_BIT != 0
    }

    fn pv_eoi_word(&self, address: u64) -> Option<&Cell<u8>> {
        let index = address.checked_sub(PV_EOI_BASE)? / PV_EOI_STRIDE;
        self.pv_eoi.get(usize::try_from(index).ok()?)
    }
}
