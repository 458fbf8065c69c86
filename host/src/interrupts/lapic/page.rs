//! The LAPIC's register page: 4 KiB in which each register is a 32-bit word at a 16-byte stride.
//!
//! The host's LAPIC code shares the page with the hardware, which reads it as AVIC's backing page. So every access is
//! atomic and goes through `&self`. The meaning of IRR, ISR and TMR is written once, over [`ApicRegisters`], so that a
//! model checker's words can replace [`RegisterPage`].
//!
//! - **A trigger mode precedes its request**: a reader that finds a vector in IRR finds its TMR bit up to date.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use holdfast_abi::lapic as reg;

/// The words of a LAPIC's page by byte offset, and the meaning of the interrupt registers among them.
///
/// Senders share implementations: read-modify-writes are atomic, and totally ordered as x86's locked instructions are.
/// Offsets are those of [`holdfast_abi::lapic`]. A `field` is the first of eight registers (IRR, ISR, TMR).
pub trait ApicRegisters {
    /// Reads the register at `offset`, with acquire semantics.
    fn load(&self, offset: u32) -> u32;
    /// Writes the register at `offset`, with release semantics.
    fn store(&self, offset: u32, value: u32);
    /// Sets `bits` in the register at `offset`. Returns its value before.
    fn fetch_or(&self, offset: u32, bits: u32) -> u32;
    /// Clears all but `bits` in the register at `offset`. Returns its value before.
    fn fetch_and(&self, offset: u32, bits: u32) -> u32;

    /// Returns whether `field` has `vector`.
    fn has(&self, field: u32, vector: u8) -> bool {
        self.load(field + offset_of(vector)) & bit_of(vector) != 0
    }

    /// Adds `vector` to `field`. Returns whether it was missing.
    fn insert(&self, field: u32, vector: u8) -> bool {
        self.fetch_or(field + offset_of(vector), bit_of(vector)) & bit_of(vector) == 0
    }

    /// Removes `vector` from `field`. Returns whether it was there.
    fn remove(&self, field: u32, vector: u8) -> bool {
        self.fetch_and(field + offset_of(vector), !bit_of(vector)) & bit_of(vector) != 0
    }

    /// Returns the highest vector of `field`.
    fn highest(&self, field: u32) -> Option<u8> {
        (0..8).rev().find_map(|word| {
            let bits = self.load(field + word * reg::STRIDE);
            (bits != 0).then(|| (word * 32 + 31 - bits.leading_zeros()) as u8)
        })
    }

    /// Pends `vector` in IRR, and records in TMR whether it is level-triggered. Returns whether it was not pending yet.
    fn request(&self, vector: u8, level: bool) -> bool {
        if self.has(reg::TMR, vector) != level {
            if level {
                self.insert(reg::TMR, vector);
            } else {
                self.remove(reg::TMR, vector);
            }
        }
        self.insert(reg::IRR, vector)
    }

    /// Returns the processor priority: the task priority, or the class of the vector in service if that is higher.
    fn processor_priority(&self) -> u32 {
        let task = self.load(reg::TPR) & 0xff;
        let in_service = u32::from(self.highest(reg::ISR).unwrap_or(0));
        if task & 0xf0 >= in_service & 0xf0 {
            task
        } else {
            in_service & 0xf0
        }
    }

    /// Moves `vector` from IRR to ISR. Returns `false`, and changes nothing, if it is not pending.
    fn begin_service(&self, vector: u8) -> bool {
        let pending = self.remove(reg::IRR, vector);
        if pending {
            self.insert(reg::ISR, vector);
        }
        pending
    }

    /// Ends the interrupt in service that has the highest vector. Returns that vector.
    fn end_service(&self) -> Option<u8> {
        let vector = self.highest(reg::ISR)?;
        self.remove(reg::ISR, vector);
        Some(vector)
    }
}

/// Returns the byte offset of the register with the bit of `vector`, from the first of the eight registers on.
fn offset_of(vector: u8) -> u32 {
    u32::from(vector) / 32 * reg::STRIDE
}

fn bit_of(vector: u8) -> u32 {
    1 << (vector % 32)
}

/// A LAPIC's register page.
#[repr(C, align(4096))]
pub struct RegisterPage {
    words: [AtomicU32; WORDS],
}

const WORDS: usize = reg::PAGE_BYTES / size_of::<u32>();

const _: () = assert!(size_of::<RegisterPage>() == reg::PAGE_BYTES);

impl RegisterPage {
    /// Returns a new page of zeros.
    pub fn shared() -> Arc<RegisterPage> {
        Arc::new(RegisterPage {
            words: [const { AtomicU32::new(0) }; WORDS],
        })
    }

    /// Writes zeros to the whole page.
    pub fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Release));
    }

    /// Copies all words of `other`.
    pub fn copy_from(&self, other: &RegisterPage) {
        for (to, from) in self.words.iter().zip(&other.words) {
            to.store(from.load(Acquire), Release);
        }
    }

    /// Returns the word at `offset`. Offsets wrap around, so that none is out of bounds.
    fn word(&self, offset: u32) -> &AtomicU32 {
        &self.words[offset as usize / size_of::<u32>() % WORDS]
    }
}

impl ApicRegisters for RegisterPage {
    fn load(&self, offset: u32) -> u32 {
        self.word(offset).load(Acquire)
    }

    fn store(&self, offset: u32, value: u32) {
        self.word(offset).store(value, Release);
    }

    fn fetch_or(&self, offset: u32, bits: u32) -> u32 {
        self.word(offset).fetch_or(bits, SeqCst)
    }

    fn fetch_and(&self, offset: u32, bits: u32) -> u32 {
        self.word(offset).fetch_and(bits, SeqCst)
    }
}

impl fmt::Debug for RegisterPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = (0..reg::PAGE_BYTES as u32).step_by(reg::STRIDE as usize);
        f.debug_map()
            .entries(
                set.map(|offset| (offset, self.load(offset)))
                    .filter(|entry| entry.1 != 0),
            )
            .finish()
    }
}
