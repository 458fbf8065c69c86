//! The event queue: a tournament among slots, one place per slot.
//!
//! A slot is something that has at most one next event: a pCPU's activity, its timer, an interrupt on its way. It is a
//! leaf of a binary tree whose inner nodes are matches, won by the earlier of two events. A slot whose event moves plays
//! its matches anew, one on each level, against opponents that are known beforehand: unlike in a heap, no branch depends
//! on who wins.
//!
//! **Total order**: events are ordered by `(time, class, tie)`. A key is unique as long as no two slots of one class
//! have the same tie, so the order never depends on when an event was entered.
//!
//! **Matches of the first**: the slot whose event is the first of all wins all of its matches. While its event moves and
//! stays the first, they are left as they are, with the event that it had when it won them.

use crate::time::Time;

/// Bits of a tie, and of a slot.
const NUMBER_BITS: u32 = 28;
const NUMBER_MASK: i128 = (1 << NUMBER_BITS) - 1;
/// Bits below the time: class (7 bits), tie, slot. With the time's 64 they are not negative, nor too large to subtract.
const TIME_SHIFT: u32 = 63;

/// When a slot's event happens, relative to all others: time, class, tie; below these is room for the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(i128);

impl Key {
    /// An event at `time`. Of equal times the lower `class` (below 2^7) comes first, then the lower `tie` (below 2^28).
    #[inline(always)]
    pub const fn new(time: Time, class: u8, tie: u32) -> Key {
        debug_assert!(class < 1 << 7);
        debug_assert!(tie < 1 << NUMBER_BITS);
        Key((time.0 as i128) << TIME_SHIFT | (class as i128) << (2 * NUMBER_BITS) | (tie as i128) << NUMBER_BITS)
    }

    /// When.
    #[inline(always)]
    pub const fn time(self) -> Time {
        Time((self.0 >> TIME_SHIFT) as u64)
    }

    /// What decided between equal times and classes.
    #[inline(always)]
    pub const fn tie(self) -> u32 {
        (self.0 >> NUMBER_BITS & NUMBER_MASK) as u32
    }
}

/// A slot's event: the key, and in its lowest bits the slot. Ordered as keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(i128);

impl Entry {
    /// No event: after all of them, and of no slot.
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

    /// The earlier of the two, by arithmetic: a branch on what cannot be foretold would take longer.
    #[inline(always)]
    fn earlier(self, other: Entry) -> Entry {
        let difference = other.0 - self.0;
        // All ones if `other` comes before.
        let sign = difference >> 127;
        Entry(self.0 + (difference & sign))
    }

    #[inline(always)]
    fn event(self) -> Option<(Key, u32)> {
        (self != Entry::NONE).then(|| (self.key(), self.slot()))
    }
}

/// The next event of each slot, and of these the first.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// The first of all.
    first: Entry,
    /// No event but the first comes before this: a first one that moves and is not behind it needs no match.
    bound: Entry,
    /// The final at 1; the match above the nodes `2 * n` and `2 * n + 1` at `n`; in the second half the slots' events.
    nodes: Vec<Entry>,
}

impl Default for EventQueue {
    fn default() -> Self {
        EventQueue::new()
    }
}

impl EventQueue {
    /// An empty queue.
    pub fn new() -> EventQueue {
        EventQueue {
            first: Entry::NONE,
            bound: Entry::NONE,
            nodes: vec![Entry::NONE; 2],
        }
    }

    /// The first event's key and slot.
    #[inline(always)]
    pub fn first(&self) -> Option<(Key, u32)> {
        self.first.event()
    }

    /// The key of the event after the first.
    #[inline]
    pub fn second(&self) -> Option<Key> {
        if self.first == Entry::NONE {
            return None;
        }
        self.best_opponent().event().map(|(key, _)| key)
    }

    /// Moves `slot`'s event, and says whether it is the first of all.
    #[inline(always)]
    pub fn set_and_check_first(&mut self, slot: u32, key: Key) -> bool {
        let entry = Entry::new(key, slot);
        if self.first.slot() == slot && entry <= self.bound {
            self.first = entry;
            return true;
        }
        self.set(slot, key);
        self.first.slot() == slot
    }

    /// Sets `slot`'s event, replacing the one it had.
    pub fn set(&mut self, slot: u32, key: Key) {
        let place = slot as usize + self.nodes.len() / 2;
        if place >= self.nodes.len() {
            self.grow(slot);
        }
        self.replace(slot, Entry::new(key, slot));
    }

    /// Removes `slot`'s event, if it has one.
    pub fn clear(&mut self, slot: u32) {
        if (slot as usize) < self.nodes.len() / 2 {
            self.replace(slot, Entry::NONE);
        }
    }

    fn replace(&mut self, slot: u32, entry: Entry) {
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

    /// `slot` has the event `entry` and plays its matches, up to one that ends as before.
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

    /// `slot`, which has won all of its matches, has the event `entry` and plays them anew. Returns who wins the final.
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

    /// Brings the matches of the first up to date.
    fn play_first(&mut self) {
        if self.first != Entry::NONE {
            self.play(self.first.slot(), self.first);
        }
    }

    /// The first of all events but the first: one that lost against it.
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

    /// Makes room for `slot`.
    #[cold]
    fn grow(&mut self, slot: u32) {
        assert!(slot >> NUMBER_BITS == 0, "slot {slot} is out of range");
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
        /// Whatever is set, moved and cleared: the first event is the least, and none is lost.
        #[test]
        fn first_is_least(steps in proptest::collection::vec((0u32..40, 0u64..50, 0u8..4), 1..400)) {
            let mut queue = EventQueue::new();
            let mut model: BTreeMap<u32, Key> = BTreeMap::new();
            for (slot, time, action) in steps {
                // The first of all moves most often by far.
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
