//! Layouts of the word of a queued lock.
//!
//! ```text
//!             31        18 17 16 15      9   8   7      0
//! Narrow     +------------+-----+---------+-----+--------+    fewer than 16384 CPUs
//!            | CPU + 1    | idx | 0       | pend| locked |
//!            +------------+-----+---------+-----+--------+
//!             31              11 10   9     8   7      0
//! Wide       +------------------+--------+-----+--------+    fewer than 2097152 CPUs
//!            | CPU + 1          | idx    | pend| locked |
//!            +------------------+--------+-----+--------+
//! ```
//!
//! Both layouts have the locked byte and the pending bit at the same place. The *tail* is the field of CPU + 1 and
//! index, in place. It holds CPU + 1 so that 0 means an empty queue. In the narrow layout each field has bytes of its
//! own and can be stored alone. In the wide layout the pending bit shares a byte with the tail and needs a
//! read-modify-write.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::cpu::platform::{CpuId, Platform};
use crate::cpu::subword;

/// Number of contexts that can nest on one CPU: task, softirq, hardirq, NMI.
pub(crate) const NODES_PER_CPU: usize = 4;

/// Value of the locked byte while the lock is held.
pub const LOCKED: u32 = 1;
/// The locked byte.
pub const LOCKED_MASK: u32 = 0xff;
/// The pending bit.
pub const PENDING: u32 = 1 << 8;

/// A layout of the lock word.
///
/// # Safety
/// The tail is above the locked byte, and holds what [`encode`](Layout::encode) returns: no two nodes have the same
/// code, and [`decode`](Layout::decode) names the node again. [`swap_tail`](Layout::swap_tail) changes only the tail,
/// in one atomic step.
#[expect(
    unsafe_code,
    reason = "exclusion rests on what implements this trait: it is unsafe to implement"
)]
pub unsafe trait Layout {
    /// The lowest bit of the tail.
    const TAIL_SHIFT: u32;
    /// The bits of the tail.
    const TAIL_MASK: u32 = u32::MAX << Self::TAIL_SHIFT;
    /// The number of CPUs that the tail can tell apart.
    const CPUS_MAX: u32 = (1 << (30 - Self::TAIL_SHIFT)) - 1;

    /// Returns the code of node `index` of `cpu`, as it stands in the tail.
    ///
    /// # Panics
    /// If the word has no room for the CPU's number.
    #[inline]
    fn encode(cpu: CpuId, index: usize) -> u32 {
        assert!(
            cpu.0 < Self::CPUS_MAX,
            "CPU {} in a lock word with room for {}",
            cpu.0,
            Self::CPUS_MAX
        );
        ((cpu.0 + 1) << 2 | index as u32) << Self::TAIL_SHIFT
    }

    /// Returns the CPU and the index of the node with this code, which must not be 0.
    #[inline]
    fn decode(code: u32) -> (CpuId, usize) {
        let code = code >> Self::TAIL_SHIFT;
        (CpuId((code >> 2) - 1), code as usize % NODES_PER_CPU)
    }

    /// Returns whether a CPU stands in the queue. Ordering: Relaxed.
    fn has_queue<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer may be out of date whatever the ordering.
        cpu.load(word, Relaxed) & Self::TAIL_MASK != 0
    }

    /// Returns the pending bit at its place, or 0.
    #[inline]
    fn pending<P: Platform>(cpu: &P, word: &P::Word) -> u32 {
        // ORDERING: Relaxed; as for `has_queue`.
        cpu.load(word, Relaxed) & PENDING
    }

    /// Replaces the tail by `code` and returns the previous tail. Ordering: AcqRel.
    fn swap_tail<P: Platform>(cpu: &P, word: &P::Word, code: u32) -> u32;
}

/// A layout with a pending bit.
///
/// # Safety
/// The bit is [`PENDING`] and is not part of the tail. Each operation changes only what it names, in one atomic step.
#[expect(unsafe_code, reason = "as for `Layout`")]
pub unsafe trait PendingLayout: Layout {
    /// Sets the pending bit, which no other CPU may change at that time. Ordering: Relaxed.
    fn set_pending<P: Platform>(cpu: &P, word: &P::Word);
    /// Clears the pending bit, which the caller has set. Ordering: Relaxed.
    fn clear_pending<P: Platform>(cpu: &P, word: &P::Word);
    /// Takes the lock and clears the pending bit. The lock must be free and the caller must own the bit. Ordering:
    /// Relaxed.
    fn take_as_pending<P: Platform>(cpu: &P, word: &P::Word);
    /// Takes the lock and clears the pending bit if the lock is free and the bit is set. Ordering: Acquire.
    fn try_take_as_pending<P: Platform>(cpu: &P, word: &P::Word) -> bool;
}

/// The layout for fewer than 16384 CPUs, whose fields are bytes and half-words (Linux: `_Q_PENDING_BITS` 8).
#[derive(Debug)]
pub struct Narrow;

#[expect(unsafe_code, reason = "implements the layout")]
// SAFETY: the tail is a half-word of its own.
unsafe impl Layout for Narrow {
    const TAIL_SHIFT: u32 = 16;

    #[inline]
    fn has_queue<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; as in the trait.
        cpu.load_high16(word, Relaxed) != 0
    }

    #[inline]
    fn pending<P: Platform>(cpu: &P, word: &P::Word) -> u32 {
        // ORDERING: Relaxed; as in the trait.
        u32::from(cpu.load_byte1(word, Relaxed)) << 8 & PENDING
    }

    #[inline]
    fn swap_tail<P: Platform>(cpu: &P, word: &P::Word, code: u32) -> u32 {
        // ORDERING: AcqRel; Release publishes the caller's node, Acquire makes the predecessor's node visible to the
        // caller.
        u32::from(cpu.swap_high16(word, (code >> 16) as u16, AcqRel)) << 16
    }
}

#[expect(unsafe_code, reason = "implements the layout")]
// SAFETY: the pending bit has a byte of its own.
unsafe impl PendingLayout for Narrow {
    #[inline]
    fn set_pending<P: Platform>(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; the bit only keeps other CPUs from taking the lock. Taking it needs an Acquire of its own.
        cpu.store_byte1(word, 1, Relaxed);
    }

    #[inline]
    fn clear_pending<P: Platform>(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; as for `set_pending`.
        cpu.store_byte1(word, 0, Relaxed);
    }

    #[inline]
    fn take_as_pending<P: Platform>(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; the caller has acquired the lock by seeing it free.
        cpu.store_low16(word, LOCKED as u16, Relaxed);
    }

    #[inline]
    fn try_take_as_pending<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Acquire; pairs with the Release of the unlock that made it free.
        cpu.compare_exchange_low16(word, PENDING as u16, LOCKED as u16, Acquire, Relaxed)
            .is_ok()
    }
}

/// The layout for fewer than 2097152 CPUs (Linux: `_Q_PENDING_BITS` 1, with `NR_CPUS` >= 16384).
#[derive(Debug)]
pub struct Wide;

#[expect(unsafe_code, reason = "implements the layout")]
// SAFETY: the tail is exchanged by its mask.
unsafe impl Layout for Wide {
    const TAIL_SHIFT: u32 = 9;

    #[inline]
    fn swap_tail<P: Platform>(cpu: &P, word: &P::Word, code: u32) -> u32 {
        // ORDERING: AcqRel; Release publishes the caller's node, Acquire makes the predecessor's node visible to the
        // caller.
        subword::swap(cpu, word, Self::TAIL_MASK, code, AcqRel)
    }
}

#[expect(unsafe_code, reason = "implements the layout")]
// SAFETY: each operation is one read-modify-write, of the pending bit or of it and the locked byte.
unsafe impl PendingLayout for Wide {
    #[inline]
    fn set_pending<P: Platform>(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; as in `Narrow`.
        cpu.fetch_or(word, PENDING, Relaxed);
    }

    #[inline]
    fn clear_pending<P: Platform>(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; as in `Narrow`.
        cpu.fetch_and(word, !PENDING, Relaxed);
    }

    #[inline]
    fn take_as_pending<P: Platform>(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; the caller has acquired the lock by seeing it free. One addition does both: no borrow,
        // because pending is set, and no carry, because locked is 0.
        cpu.fetch_add(word, LOCKED.wrapping_sub(PENDING), Relaxed);
    }

    #[inline]
    fn try_take_as_pending<P: Platform>(cpu: &P, word: &P::Word) -> bool {
        let mask = PENDING | LOCKED_MASK;
        // ORDERING: Acquire; pairs with the Release of the unlock that made it free.
        subword::compare_exchange(cpu, word, mask, PENDING, LOCKED, Acquire, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes_round_trip<L: Layout>(cpus: [u32; 4]) {
        for cpu in cpus {
            for index in 0..NODES_PER_CPU {
                let code = L::encode(CpuId(cpu), index);
                assert_ne!(code, 0);
                assert_eq!(code & !L::TAIL_MASK, 0, "code reaches out of the tail");
                assert_eq!(L::decode(code), (CpuId(cpu), index));
            }
        }
    }

    #[test]
    fn codes_name_the_first_and_the_last_cpu() {
        codes_round_trip::<Narrow>([0, 1, 16381, 16382]);
        codes_round_trip::<Wide>([0, 1, 1 << 20, (1 << 21) - 2]);
        assert_eq!((Narrow::CPUS_MAX, Wide::CPUS_MAX), (16383, 2_097_151));
    }

    #[test]
    #[should_panic(expected = "room for 16383")]
    fn a_cpu_too_many_is_refused() {
        Narrow::encode(CpuId(16383), 0);
    }
}
