//! Host-physical memory that both hardware and hypervisor access: LAPIC pages, APIC ID tables, posted-interrupt
//! descriptors.
//!
//! The algorithms of hardware and hypervisor are written over this trait. So the same source runs in the simulator and
//! under a model checker.

/// Words of host-physical memory, shared by CPUs and devices.
///
/// At an address without memory, operations with a result return `None`, and stores do nothing. Addresses are aligned
/// to the size of the word.
///
/// Loads acquire, stores release, read-modify-writes do both. Only [`Memory::fence`] orders a store before a later
/// load.
pub trait Memory {
    /// Loads the 32-bit word at `address`.
    fn load32(&self, address: u64) -> Option<u32>;
    /// Stores `value` in the 32-bit word at `address`.
    fn store32(&self, address: u64, value: u32);
    /// Atomically sets `bits` in the 32-bit word at `address`. Returns the previous value.
    fn set32(&self, address: u64, bits: u32) -> Option<u32>;
    /// Atomically clears `bits` in the 32-bit word at `address`. Returns the previous value.
    fn clear32(&self, address: u64, bits: u32) -> Option<u32>;
    /// Loads the 64-bit word at `address`.
    fn load64(&self, address: u64) -> Option<u64>;
    /// Stores `value` in the 64-bit word at `address`.
    fn store64(&self, address: u64, value: u64);
    /// Atomically stores `new` in the 64-bit word at `address` if its value is `current`. Returns `Ok(current)` then.
    ///
    /// # Errors
    /// Returns the word's value if it is not `current`.
    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>>;
    /// Atomically loads the 128-bit word at `address`, as devices do. Returns the low half first.
    ///
    /// The default loads the halves one after the other. That is enough where no other CPU or device writes
    /// concurrently.
    fn load128(&self, address: u64) -> Option<[u64; 2]> {
        Some([self.load64(address)?, self.load64(address + 8)?])
    }
    /// Atomically stores the 128-bit word at `address` (CMPXCHG16B).
    ///
    /// The default stores the halves one after the other. That is enough where no other CPU or device reads
    /// concurrently.
    fn store128(&self, address: u64, [low, high]: [u64; 2]) {
        self.store64(address + 8, high);
        self.store64(address, low);
    }
    /// Executes a full memory fence.
    fn fence(&self);
}
