//! The broker's memory, managed like glibc's malloc. Each worker has an arena, which grows by page faults. The free
//! memory at its top is returned to the kernel, so that every CPU of the broker must flush its TLB.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use holdfast_guest::{Machine, Os, Touch};

use super::{Messaging, mix};

const PAGE_BYTES: u64 = 4_096;
/// Free memory at the top that stays when an arena is trimmed (`M_TOP_PAD`).
const PAD_BYTES: u64 = 128 << 10;
/// Memory that must be free beyond `PAD_BYTES` before an arena is trimmed (`FASTBIN_CONSOLIDATION_THRESHOLD`).
const TRIM_BYTES: u64 = 64 << 10;

/// The memory of a worker: places for messages. The lowest free place is allocated first, as malloc uses fitting freed
/// memory before it takes any from the top. Only the memory above the highest message can be returned to the kernel.
#[derive(Debug, Default)]
pub(super) struct Arena {
    is_used: Vec<bool>,
    /// Free places below the top, and possibly some above it.
    free: BinaryHeap<Reverse<u32>>,
    /// Pages that have been touched and not returned.
    pages: u64,
}

impl Arena {
    /// Allocates a place of `bytes`. Returns the place, and how many pages are touched for the first time.
    fn allocate(&mut self, bytes: u64) -> (u32, u64) {
        let top = self.is_used.len() as u32;
        let place = match self.free.pop() {
            Some(Reverse(place)) if place < top => place,
            _ => {
                // If the lowest free place is above the top, all are.
                self.free.clear();
                self.is_used.push(false);
                top
            }
        };
        self.is_used[place as usize] = true;
        let fresh = self.in_use(bytes).div_ceil(PAGE_BYTES).saturating_sub(self.pages);
        self.pages += fresh;
        (place, fresh)
    }

    /// Frees `place`. Returns how many pages are returned to the kernel.
    fn free(&mut self, place: u32, bytes: u64) -> u64 {
        self.is_used[place as usize] = false;
        self.free.push(Reverse(place));
        while self.is_used.last() == Some(&false) {
            self.is_used.pop();
        }
        let top = self.pages * PAGE_BYTES - self.in_use(bytes);
        if top < PAD_BYTES + TRIM_BYTES {
            return 0;
        }
        let given = (top - PAD_BYTES) / PAGE_BYTES;
        self.pages -= given;
        given
    }

    /// Bytes up to the end of the highest message.
    fn in_use(&self, bytes: u64) -> u64 {
        self.is_used.len() as u64 * bytes
    }
}

impl<M: Machine> Messaging<M> {
    /// Allocates memory for a message from `worker`'s arena, and returns its place there.
    pub(super) fn allocate(&self, os: &Os<M>, worker: u32) -> u32 {
        let bytes = mix::message_bytes(self.parameters.payload);
        let (place, fresh) = self.arenas[worker as usize].lock(os).allocate(bytes);
        if fresh > 0 {
            os.user_touching(0, Touch::anonymous(fresh as u32));
        }
        place
    }

    /// Frees a message's memory. The arena is locked while it shrinks.
    pub(super) fn free(&self, os: &Os<M>, arena: u32, place: u32) {
        let bytes = mix::message_bytes(self.parameters.payload);
        let mut arena = self.arenas[arena as usize].lock(os);
        let given = arena.free(place, bytes);
        if given > 0 {
            os.discard(given as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_keeps_what_is_used_and_little_more() {
        let mut arena = Arena::default();
        let (mut touched, mut given) = (0, 0);
        let mut places = Vec::new();
        for _ in 0..2_000 {
            let (place, fresh) = arena.allocate(1_000);
            assert!(!places.contains(&place), "place {place} is allocated twice");
            places.push(place);
            touched += fresh;
        }
        assert_eq!(touched, 2_000_000_u64.div_ceil(PAGE_BYTES));
        for place in places.drain(..) {
            given += arena.free(place, 1_000);
            assert!(arena.pages * PAGE_BYTES >= arena.in_use(1_000));
        }
        assert_eq!(touched - given, arena.pages);
        assert!(arena.pages * PAGE_BYTES < PAD_BYTES + TRIM_BYTES);
    }

    #[test]
    fn one_message_at_the_top_keeps_all_below_it() {
        let mut arena = Arena::default();
        let places: Vec<u32> = (0..2_000).map(|_| arena.allocate(1_000).0).collect();
        let (last, others) = places.split_last().expect("some");
        assert_eq!(others.iter().map(|place| arena.free(*place, 1_000)).sum::<u64>(), 0);
        assert_eq!(arena.allocate(1_000), (0, 0), "freed memory is used first");
        assert!(arena.free(*last, 1_000) > 0);
    }
}
