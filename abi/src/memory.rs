//! Physical memory that hardware and hypervisor both touch: LAPIC pages, APIC ID tables, posted-interrupt descriptors.
//!
//! A seam, not an agreement of guest and host: the hardware's algorithms and the hypervisor's are written over it, so that the
//! same source runs in the simulator and under a model checker.

/// Words of host-physical memory, shared by CPUs and devices. An address that is no memory gives `None`, or is ignored.
///
/// Loads acquire, stores release, read-modify-writes do both; nothing but [`Memory::fence`] orders a store before a later
/// load.
pub trait Memory {
    /// Loads the aligned 32-bit word at `address`.
    fn load32(&self, address: u64) -> Option<u32>;
    /// Stores it.
    fn store32(&self, address: u64, value: u32);
    /// Sets `bits` in it, in one step; returns what it was.
    fn set32(&self, address: u64, bits: u32) -> Option<u32>;
    /// Clears `bits` in it, in one step; returns what it was.
    fn clear32(&self, address: u64, bits: u32) -> Option<u32>;
    /// Loads the aligned 64-bit word at `address`.
    fn load64(&self, address: u64) -> Option<u64>;
    /// Stores it.
    fn store64(&self, address: u64, value: u64);
    /// Stores `new` in the aligned 64-bit word at `address` if it is `current`, in one step.
    ///
    /// # Errors
    /// What it is instead.
    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>>;
    /// Loads the aligned word of 128 bits at `address`, low half first, as devices read it: in one step. Memory that nobody
    /// changes meanwhile may do it in two.
    fn load128(&self, address: u64) -> Option<[u64; 2]> {
        Some([self.load64(address)?, self.load64(address + 8)?])
    }
    /// Stores it, in one step (CMPXCHG16B); or in two, where nobody looks in between.
    fn store128(&self, address: u64, [low, high]: [u64; 2]) {
        self.store64(address + 8, high);
        self.store64(address, low);
    }
    /// A full fence.
    fn fence(&self);
}
