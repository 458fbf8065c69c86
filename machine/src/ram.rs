//! Plain memory for tests of the hardware.

use std::cell::RefCell;
use std::collections::BTreeMap;

use holdfast_abi::Memory;

/// Memory of 32-bit words, which are initially zero.
pub(crate) struct Ram {
    pub(crate) words: RefCell<BTreeMap<u64, u32>>,
    /// Returns whether there is memory at an address.
    exists: Box<dyn Fn(u64) -> bool>,
}

impl Ram {
    /// Returns memory at the addresses for which `exists` returns true.
    pub(crate) fn new(exists: impl Fn(u64) -> bool + 'static) -> Ram {
        Ram {
            words: RefCell::default(),
            exists: Box::new(exists),
        }
    }
}

impl Memory for Ram {
    fn load32(&self, address: u64) -> Option<u32> {
        assert_eq!(address % 4, 0, "{address:#x} is not aligned");
        (self.exists)(address).then(|| self.words.borrow().get(&address).copied().unwrap_or(0))
    }
    fn store32(&self, address: u64, value: u32) {
        if (self.exists)(address) {
            self.words.borrow_mut().insert(address, value);
        }
    }
    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        let old = self.load32(address)?;
        self.store32(address, old | bits);
        Some(old)
    }
    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        let old = self.load32(address)?;
        self.store32(address, old & !bits);
        Some(old)
    }
    fn load64(&self, address: u64) -> Option<u64> {
        let low = self.load32(address)?;
        Some(u64::from(low) | u64::from(self.load32(address + 4)?) << 32)
    }
    fn store64(&self, address: u64, value: u64) {
        self.store32(address, value as u32);
        self.store32(address + 4, (value >> 32) as u32);
    }
    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>> {
        let found = self.load64(address)?;
        if found != current {
            return Some(Err(found));
        }
        self.store64(address, new);
        Some(Ok(found))
    }
    fn fence(&self) {}
}
