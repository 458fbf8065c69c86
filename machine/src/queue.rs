//! The event queue: a tournament tree with one leaf per slot.
//!
//! A slot has at most one next event: a pCPU's activity, its timer, an interrupt in flight. Slots are the leaves of a
//! binary tree whose inner nodes are matches, each won by the earlier of two events. When a slot's event moves, its
//! matches are replayed, one on each level. Their opponents are known in advance, so unlike in a heap no branch depends
//! on the winner.
//!
//! **Total order**: events are ordered by `(time, class, tie)`. A key is unique if no two slots of one class have the
//! same tie. So the order never depends on when an event was entered.
//!
//! **Matches of the first**: the slot with the first event has won all of its matches. While its event moves and stays
//! the first, its matches keep the event with which it won them. They are updated before any other slot replays.

use crate::time::Time;

/// Width of a tie and of a slot number in bits.
const NUMBER_BITS: u32 = 28;
const NUMBER_MASK: i128 = (1 << NUMBER_BITS) - 1;
/// Number of bits below the time: class (7), tie, slot. With the time's 64 bits, an entry is never negative, and the
/// difference of two entries never overflows.
const TIME_SHIFT: u32 = 63;

/// The order of an event: time, class, tie. The lowest bits are zero and leave room for the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(i128);

impl Key {
    /// Returns the key of an event at `time`. Of equal times the lower `class` (below 2^7) comes first, then the lower
    /// `tie` (below 2^28).
    #[inline(always)]
    pub const fn new(time: Time, class: u8, tie: u32) -> Key {
        debug_assert!(class < 1 << 7);
        debug_assert!(tie < 1 << NUMBER_BITS);
        Key((time.0 as i128) << TIME_SHIFT | (class as i128) << (2 * NUMBER_BITS) | (tie as i128) << NUMBER_BITS)
    }

    /// Returns the time of the event.
    #[inline(always)]
    pub const fn time(self) -> Time {
        Time((self.0 >> TIME_SHIFT) as u64)
    }

    /// Returns the tie, which orders events of equal time and class.
    #[inline(always)]
    pub const fn tie(self) -> u32 {
        (self.0 >> NUMBER_BITS & NUMBER_MASK) as u32
    }
}

/// A slot's event: its key, with the slot in the lowest bits. Entries are ordered as their keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(i128);

impl Entry {
    /// The absence of an event. It comes after all events and belongs to no slot.
    const NONE: Entry = Entry(i128::MAX);

    #[inline(always)]
    fn new(key: Key, slot: u32) -> Entry {
        Entry(key.0 | i128::from(slot))
    }

    #[inline(always)]
    fn key(self) -> Key {
        Key(self.0 & !NUMBER_MASK)
    }

    #[inline(always)]
    fn slot(self) -> u32 {
        (self.0 & NUMBER_MASK) as u32
    }

    /// Returns the earlier entry. It is computed without a branch, which would be unpredictable.
    #[inline(always)]
    fn earlier(self, other: Entry) -> Entry {
        let difference = other.0 - self.0;
        // All ones if `other` is earlier.
        let sign = difference >> 127;
        Entry(self.0 + (difference & sign))
    }

    #[inline(always)]
    fn event(self) -> Option<(Key, u32)> {
        (self != Entry::NONE).then(|| (self.key(), self.slot()))
    }
}

/// The next event of each slot, and the first of these events.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// The first event.
    first: Entry,
    /// A lower bound of all events but the first. While the first event moves to at most this bound, it needs no match.
    bound: Entry,
    /// The tree: the final match at 1, the match above nodes `2 * n` and `2 * n + 1` at `n`, the slots' events in the
    /// second half.
    nodes: Vec<Entry>,
}

impl Default for EventQueue {
    fn default() -> Self {
        EventQueue::new()
    }
}

impl EventQueue {
    /// Returns an empty queue.
    pub fn new() -> EventQueue {
        EventQueue {
            first: Entry::NONE,
            bound: Entry::NONE,
            nodes: vec![Entry::NONE; 2],
        }
    }

    /// Returns the key and the slot of the first event, or `None` if there is no event.
    #[inline(always)]
    pub fn first(&self) -> Option<(Key, u32)> {
        self.first.event()
    }

    /// Returns the key of the second event, or `None` if there are fewer than two events.
    #[inline]
    pub fn second(&self) -> Option<Key> {
        if self.first == Entry::NONE {
            return None;
        }
        self.best_opponent().event().map(|(key, _)| key)
    }

    /// Sets the event of `slot` to `key`. Returns whether it is now the first event.
    ///
    /// # Panics
    /// Panics if `slot` is 2^28 or more.
    #[inline(always)]
    pub fn set_and_check_first(&mut self, slot: u32, key: Key) -> bool {
        let entry = Entry::new(key, slot);
        if self.first.slot() == slot && entry <= self.bound {
            self.first = entry;
            return true;
        }
        self.replace(slot, entry);
        self.first.slot() == slot
    }

    /// As [`EventQueue::set_and_check_first`].
    #[inline(always)]
    pub fn set(&mut self, slot: u32, key: Key) {
        self.set_and_check_first(slot, key);
    }

    /// Removes the event of `slot`, if it has one.
    pub fn clear(&mut self, slot: u32) {
        if (slot as usize) < self.nodes.len() / 2 {
            self.replace(slot, Entry::NONE);
        }
    }

    fn replace(&mut self, slot: u32, entry: Entry) {
        if slot as usize >= self.nodes.len() / 2 {
            self.grow(slot);
        }
        if slot == self.first.slot() {
            self.first = self.play_all(slot, entry);
            let stays = self.first.slot() == slot;
            self.bound = if stays { self.best_opponent() } else { self.first };
        } else if entry < self.first {
            self.play_first();
            self.play(slot, entry);
            self.bound = self.first;
            self.first = entry;
        } else {
            self.play(slot, entry);
            self.bound = self.bound.min(entry);
        }
    }

    /// Sets the event of `slot` to `entry` and replays its matches, up to the first whose winner does not change.
    #[inline]
    fn play(&mut self, slot: u32, entry: Entry) {
        let mut place = slot as usize + self.nodes.len() / 2;
        let mut winner = entry;
        self.nodes[place] = entry;
        while place > 1 {
            winner = winner.earlier(self.nodes[place ^ 1]);
            place /= 2;
            if self.nodes[place] == winner {
                break;
            }
            self.nodes[place] = winner;
        }
    }

    /// Sets the event of `slot`, which has won all of its matches, to `entry` and replays them all. Returns the winner
    /// of the final.
    #[inline]
    fn play_all(&mut self, slot: u32, entry: Entry) -> Entry {
        let mut place = slot as usize + self.nodes.len() / 2;
        let mut winner = entry;
        self.nodes[place] = entry;
        while place > 1 {
            winner = winner.earlier(self.nodes[place ^ 1]);
            place /= 2;
            self.nodes[place] = winner;
        }
        winner
    }

    /// Updates the matches that the first event's slot has won.
    fn play_first(&mut self) {
        if self.first != Entry::NONE {
            self.play(self.first.slot(), self.first);
        }
    }

    /// Returns the second event: the earliest that lost a match against the first.
    #[inline]
    fn best_opponent(&self) -> Entry {
        let mut place = self.first.slot() as usize + self.nodes.len() / 2;
        let mut best = Entry::NONE;
        while place > 1 {
            best = best.earlier(self.nodes[place ^ 1]);
            place /= 2;
        }
        best
    }

    /// Doubles the tree until it has a leaf for `slot`.
    #[cold]
    fn grow(&mut self, slot: u32) {
        assert!(
            slot >> NUMBER_BITS == 0,
            "slot {slot} of the event queue is not below 2^{NUMBER_BITS}"
        );
        self.play_first();
        let slots = (slot as usize + 1).next_power_of_two();
        let mut nodes = vec![Entry::NONE; 2 * slots];
        let old = &self.nodes[self.nodes.len() / 2..];
        nodes[slots..slots + old.len()].copy_from_slice(old);
        for place in (1..slots).rev() {
            nodes[place] = nodes[2 * place].min(nodes[2 * place + 1]);
        }
        self.nodes = nodes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// After any sequence of sets, moves and clears the first event is the least, and no event is lost.
        #[test]
        fn first_is_least(steps in proptest::collection::vec((0u32..40, 0u64..50, 0u8..4), 1..400)) {
            let mut queue = EventQueue::new();
            let mut model: BTreeMap<u32, Key> = BTreeMap::new();
            for (slot, time, action) in steps {
                // As in a simulation, the first event moves most often.
                let slot = queue.first().filter(|_| action == 3).map_or(slot, |(_, first)| first);
                if action == 0 {
                    queue.clear(slot);
                    model.remove(&slot);
                } else {
                    let key = Key::new(Time(time), action, slot);
                    model.insert(slot, key);
                    if action == 1 {
                        queue.set(slot, key);
                    } else {
                        let is_first = queue.set_and_check_first(slot, key);
                        prop_assert_eq!(is_first, model.values().min() == Some(&key));
                    }
                }
                let least = model.iter().map(|(&slot, &key)| (key, slot)).min();
                prop_assert_eq!(queue.first(), least);
                let mut keys: Vec<Key> = model.values().copied().collect();
                keys.sort();
                prop_assert_eq!(queue.second(), keys.get(1).copied());
            }
            let mut left: Vec<(Key, u32)> = model.iter().map(|(&slot, &key)| (key, slot)).collect();
            left.sort();
            for event in left {
                prop_assert_eq!(queue.first(), Some(event));
                queue.clear(event.1);
            }
            prop_assert_eq!(queue.first(), None);
        }
    }

    #[test]
    fn a_key_holds_its_time_and_tie() {
        let key = Key::new(Time(u64::MAX - 5), 127, (1 << NUMBER_BITS) - 3);
        assert_eq!((key.time(), key.tie()), (Time(u64::MAX - 5), (1 << NUMBER_BITS) - 3));
    }

    #[test]
    fn clearing_a_slot_beyond_the_tree_changes_nothing() {
        let mut queue = EventQueue::new();
        let key = Key::new(Time(5), 0, 0);
        queue.set(1, key);
        for slot in [2, 3, 100] {
            queue.clear(slot);
        }
        assert_eq!((queue.first(), queue.second()), (Some((key, 1)), None));
    }

    #[test]
    #[should_panic(expected = "slot 268435456 of the event queue is not below 2^28")]
    fn a_slot_that_no_key_has_room_for_is_refused() {
        EventQueue::new().set(1 << NUMBER_BITS, Key::new(Time(5), 0, 0));
    }

    #[test]
    fn equal_times_are_ordered_by_class_then_tie() {
        let mut queue = EventQueue::new();
        queue.set(7, Key::new(Time(5), 1, 0));
        queue.set(3, Key::new(Time(5), 0, 9));
        queue.set(1, Key::new(Time(5), 0, 2));
        let mut order = Vec::new();
        while let Some((_, slot)) = queue.first() {
            order.push(slot);
            queue.clear(slot);
        }
        assert_eq!(order, [1, 3, 7]);
    }
}
